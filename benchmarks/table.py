"""From samples to text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from statistics import median

from benchmarks.works import KIB, MIB, PIPELINE, Row

Samples = list[list[float]]  # of each round, nanoseconds


def number_text(number: float) -> str:
    """Three digits, or the whole number if it is larger."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def cell(row: Row, samples: Samples, reference: Samples) -> str:
    """The median, and the time relative to the reference, unless this is it: the median of each round's ratio."""
    typical = median(chain.from_iterable(samples))
    text = number_text(row.nbytes / typical if row.name == PIPELINE else typical / 1e3)
    ratio = median(median(mine) / median(other) for mine, other in zip(samples, reference, strict=True))
    return text if samples is reference else f"{text} (x{ratio:.2f})"


def line(row: Row, samples: dict[str, Samples], reference: str) -> list[str]:
    """The work, its size, and a cell for each peer."""
    size = f"{row.nbytes // MIB} MiB" if row.nbytes >= MIB else f"{row.nbytes // KIB} KiB"
    return [row.name, size, *(cell(row, found, samples[reference]) for found in samples.values())]


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A table in columns; the first line is its head."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    ruled = [lines[0], ["-" * width for width in widths], *lines[1:]]
    return "\n".join(f"| {' | '.join(map(str.ljust, texts, widths))} |" for texts in ruled)
