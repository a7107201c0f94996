"""Three pictures, with every peer in each. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from statistics import median

from matplotlib import pyplot

from benchmarks.growth import Living
from benchmarks.peers import Shmtensor
from benchmarks.report import PICTURES
from benchmarks.table import Results
from benchmarks.works import TRIP

Curves = dict[str, dict[int, float]]  # of each peer: where, how much


def draw(path: Path, title: str, across: str, up: str, curves: Curves, ends: dict[str, str] | None = None) -> None:
    """One picture, both axes logarithmic; `ends` says of whom it knows why the curve stops."""
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for name, curve in curves.items():
        ours = name == Shmtensor.name
        label = f"{name} ({end})" if ends and (end := ends.get(name)) else name
        style: dict[str, Any] = {"linewidth": 3, "color": "black", "zorder": 9} if ours else {"linewidth": 1.2}
        axes.plot(list(curve), list(curve.values()), "o-", markersize=4, label=label, **style)
    axes.set(xscale="log", yscale="log", xlabel=across, ylabel=up, title=title)
    ticks = sorted({where for curve in curves.values() for where in curve})
    axes.set_xticks(ticks, [_number(tick) for tick in ticks], minor=False)
    axes.xaxis.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=100, metadata={"Software": None})
    pyplot.close(figure)


def _number(value: int) -> str:
    for unit, name in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if value % unit == 0:
            return f"{value // unit} {name}"
    return f"{value:,}"


def trips(results: Results) -> Curves:
    """Microseconds of a round trip, by bytes."""
    curves: Curves = {}
    for row, samples in results.items():
        if row.name == TRIP:
            for name, rounds in samples.items():
                curves.setdefault(name, {})[row.nbytes] = median(map(median, rounds)) / 1e3
    return curves


def draw_all(folder: Path, results: Results, rates: Curves, lived: dict[str, Living]) -> None:
    """The pictures, in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png" for name in PICTURES]
    draw(paths[0], "make, fill, send, look, ack", "bytes", "microseconds: less is better", trips(results))
    draw(paths[1], "processes that share 1 KiB at once", "processes", "operations a second, all together", rates)
    us = {name: found.us for name, found in lived.items()}
    ends = {name: found.end for name, found in lived.items()}
    draw(paths[2], "one more tensor, while others live", "tensors alive in both processes", "microseconds", us, ends)
