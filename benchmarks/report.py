"""What a run found, as Markdown; and the way of that into the documentation."""

from __future__ import annotations

import datetime
import os
import platform
import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.goals import HEAD, Goal
from benchmarks.growth import Living
from benchmarks.peers import Floor
from benchmarks.table import Results, line, markdown, number_text
from benchmarks.works import AGAIN, KIB, MIB, PIPELINES, ROW, SEND, TRIP

PICTURES = ("round-trip", "processes", "living")
SHORT = {(SEND, KIB), (AGAIN, MIB), (ROW, 64 * KIB), (TRIP, MIB), (TRIP, 16 * MIB), (PIPELINES[1], 8 * MIB)}
VERSIONS = ("numpy", "torch", "ray", "joblib", "iceoryx2")


class Found(NamedTuple):
    """All of a run."""

    where: str  # date, machine, versions
    names: Sequence[str]  # of the peers
    results: Results
    rates: dict[str, dict[int, float]]
    lived: dict[str, Living]
    together: dict[int, tuple[float, float]]
    locked: tuple[float, float]
    goals: Sequence[Goal]
    limits: str


def where_and_when(rounds: int, missing: Sequence[str]) -> str:
    """One paragraph: date, machine, versions, and whom nobody could ask."""
    found = []
    for package in VERSIONS:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            pass
    processors = re.search("model name\\s*: (.*)", Path("/proc/cpuinfo").read_text())
    cpu = processors[1] if processors else platform.machine()
    absent = f" Not installed, so not measured: {', '.join(missing)}." if missing else ""
    return (
        f"{datetime.date.today()}, {os.cpu_count()} CPUs ({cpu}), Linux {platform.release()}, "
        f"Python {platform.python_version()}, {', '.join(found)}; {rounds} rounds in which all take turns, load "
        f"{os.getloadavg()[0]:.1f} before.{absent}"
    )


EXPLAINED = """\
Microseconds, median / 99th percentile, or GB/s; (x): time relative to the floor, paired by round: less is better. The
floor is no library but what one in pure Python can approach: one warm segment, a free list, a tuple on a pipe, no
safety."""


def tables(found: Found) -> str:
    """Everything measured, but for how cost grows."""
    head = ["work", "size", *found.names]
    lines = [head, *(line(row, samples, found.names, Floor.name) for row, samples in found.results.items())]
    parts = [found.where, markdown(lines), EXPLAINED, f"Physical limits: {found.limits}."]
    if found.goals:
        parts += ["## Goals", markdown([HEAD, *(goal.line() for goal in found.goals)])]
    return "\n\n".join(parts)


def growth(found: Found) -> str:
    """How cost grows, as three tables."""
    counts = sorted({count for curve in found.rates.values() for count in curve})
    lines = [["operations a second", *(f"{count} processes" for count in counts)]]
    lines += [[name, *(number_text(curve[count]) for count in counts)] for name, curve in found.rates.items()]
    marks = sorted({mark for one in found.lived.values() for mark in one.us})
    alive = [["us for one more", *(f"{mark:,} alive" for mark in marks), "descriptors", "mappings", "why no more"]]
    for name, one in found.lived.items():
        us = (number_text(one.us[mark]) if mark in one.us else "-" for mark in marks)
        alive.append([name, *us, f"{one.descriptors:,}", f"{one.mappings:,}", one.end])
    views = [["rows in one message", *(f"{count:,}" for count in found.together)]]
    views.append(["us to send and open, each", *(number_text(us) for us, _ in found.together.values())])
    views.append(["bytes of the message, each", *(number_text(nbytes) for _, nbytes in found.together.values())])
    often, spent = found.locked
    locked = f"Who makes, sends, opens and frees a tensor enters the lock {often:.3f} times for it, for {spent:.2f} us."
    return "\n\n".join([found.where, *map(markdown, (lines, alive, views)), locked])


def summary(found: Found) -> str:
    """The short table, and the pictures: what the README shows."""
    rows = {row: samples for row, samples in found.results.items() if (row.name, row.nbytes) in SHORT}
    lines = [["work", "size", *found.names]]
    for row, samples in rows.items():
        typical = {name: median(map(median, rounds)) for name, rounds in samples.items()}
        if row.name in PIPELINES.values():
            cells = {name: number_text(row.nbytes / time) for name, time in typical.items()}
        else:
            cells = {name: number_text(time / 1e3) for name, time in typical.items()}
        lines.append([row.name, row.size, *(cells.get(name, "-") for name in found.names)])
    pictures = [f"![{name}](docs/benchmarks/{name}.png)" for name in PICTURES]
    return "\n\n".join([markdown(lines), found.where, *pictures])


def splice(path: Path, text: str) -> None:
    """Put the text between the two marks of a file. Raises `ValueError` where they aren't."""
    begin, end = "<!-- written by: python -m benchmarks --write -->", "<!-- end of what is written -->"
    before, rest = path.read_text().split(begin)
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}")
