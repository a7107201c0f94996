"""From samples to text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from statistics import median

import numpy as np

from benchmarks.works import PIPELINES, Row

Samples = list[list[float]]  # of each round, nanoseconds
Results = dict[Row, dict[str, Samples]]  # of each row and peer


def number_text(number: float) -> str:
    """Three digits, or the whole number if it is larger."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def ratio(samples: Samples, reference: Samples) -> float:
    """The time relative to the reference: the median of each round's ratio, so that a drift meets both."""
    return median(median(mine) / median(other) for mine, other in zip(samples, reference, strict=True))


def cell(row: Row, samples: Samples, reference: Samples) -> str:
    """Median and 99th percentile, and the time relative to the reference, unless this is it."""
    times = list(chain.from_iterable(samples))
    if row.name in PIPELINES.values():
        text = number_text(row.nbytes / median(times))
    else:
        text = f"{number_text(median(times) / 1e3)} / {number_text(float(np.percentile(times, 99)) / 1e3)}"
    return text if samples is reference else f"{text} (x{ratio(samples, reference):.2f})"


def line(row: Row, samples: dict[str, Samples], names: Sequence[str], reference: str) -> list[str]:
    """The work, its size, and a cell for each peer; a dash for who can't do it."""
    cells = (cell(row, samples[name], samples[reference]) if name in samples else "-" for name in names)
    return [row.name, row.size, *cells]


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A table in columns; the first line is its head."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    ruled = [lines[0], ["-" * width for width in widths], *lines[1:]]
    return "\n".join(f"| {' | '.join(map(str.ljust, texts, widths))} |" for texts in ruled)
