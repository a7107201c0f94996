"""Rows of 64-bit words: one at a time through a memoryview (0.04 us), many at a time through NumPy columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from allocator.core.format import HEADER_BYTES, STATE_MASK, TableShape

if TYPE_CHECKING:
    import numpy.typing as npt

Words = memoryview
"""A memoryview cast to "Q"."""
Column: TypeAlias = "npt.NDArray[np.uint64]"
Rows: TypeAlias = "npt.NDArray[np.intp]"
Item = TypeVar("Item", bound=np.generic)


def header_words(control: memoryview) -> Words:
    """The header's words of a control segment."""
    return control[:HEADER_BYTES].cast("Q")


class Table:
    """One table. Only rows below `rows` have memory; nothing here reads or writes beyond them."""

    __slots__ = ("capacity", "count_at", "cursor", "grid", "header", "width", "words")

    def __init__(self, control: memoryview, shape: TableShape) -> None:
        region = control[shape.base : shape.end]
        self.header = header_words(control)
        self.words: Words = region.cast("Q")
        self.grid: Column = np.frombuffer(region, np.uint64).reshape(shape.rows, shape.width)
        self.width = shape.width
        self.count_at = shape.count_at
        self.capacity = shape.rows
        self.cursor = 0  # where the next search for a free row begins; a hint of this process

    @property
    def rows(self) -> int:
        return self.header[self.count_at]

    def column(self, field: int) -> Column:
        """Field `field` of every row that has memory; a view."""
        return self.grid[: self.rows, field]

    def find_free(self, count: int) -> list[int]:
        """Up to `count` rows whose word is 0, searched from where the last search ended."""
        column, rows = self.column(0), self.rows
        found: list[int] = []
        window = max(1024, 4 * count)
        start, seen = (self.cursor if self.cursor < rows else 0), 0
        while seen < rows and len(found) < count:
            stop = min(start + window, rows, start + rows - seen)  # no row twice, however the search wraps
            free = np.flatnonzero(column[start:stop] == 0)[: count - len(found)] + start
            found += free.tolist()
            seen += stop - start
            start = stop if stop < rows else 0
            window *= 2
        if found:
            self.cursor = found[-1] + 1
        return found[:count]

    def wants_growth(self) -> bool:
        """Whether less than a quarter of the rows is free, so that searching would get slow."""
        rows = self.rows
        return rows < self.capacity and 4 * int(np.count_nonzero(self.column(0) == 0)) < rows


def isin_state(words: Column, *states: int) -> npt.NDArray[np.bool_]:
    """Which words are in one of `states`."""
    state: Any = words & STATE_MASK
    mask = state == states[0]
    for other in states[1:]:
        mask |= state == other
    return np.asarray(mask, dtype=np.bool_)


# NumPy's own `unique`, and `isin` and `setdiff1d` with it, import numpy.ma when they are first called, which here is
# inside the critical section.


def distinct(values: npt.NDArray[Item]) -> npt.NDArray[Item]:
    """Each value once, in order."""
    ordered = np.sort(values)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))] if len(ordered) else ordered


def is_among(values: npt.NDArray[Item], others: npt.NDArray[Item]) -> npt.NDArray[np.bool_]:
    """Which of the values appear in `others`."""
    ordered = np.sort(others)
    left = np.searchsorted(ordered, values, "left")
    return np.asarray(np.searchsorted(ordered, values, "right") > left, np.bool_)
