"""Size classes as a table: multiples of 64 bytes, four to a doubling, so that at most a fifth of a slot is slack
above 256 bytes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from allocator.config import (
    ALIGNMENT_BYTES,
    MAX_SLOT_BYTES,
    MAX_SLOT_SPAN_BYTES,
    MIN_SLOT_SPAN_BYTES,
    MIN_SPAN_ORDER,
    SLOTS_PER_SPAN,
)


class SizeClass(NamedTuple):
    """Slots of `slot` bytes, `slots` of them in a span of 2^order bytes."""

    number: int
    slot: int
    order: int
    slots: int


def _slot_sizes() -> list[int]:
    sizes, size = [], 0
    while size < MAX_SLOT_BYTES:
        size += max(ALIGNMENT_BYTES, (1 << size.bit_length() - 1) // 4 if size else 0)
        sizes.append(size)
    return sizes


def order_of(nbytes: int) -> int:
    """The order of the smallest span that holds `nbytes`."""
    return max(MIN_SPAN_ORDER, (max(nbytes, 1) - 1).bit_length())


def _size_class(number: int, slot: int) -> SizeClass:
    span = min(max(slot * SLOTS_PER_SPAN, MIN_SLOT_SPAN_BYTES), MAX_SLOT_SPAN_BYTES)
    order = order_of(span)
    return SizeClass(number, slot, order, (1 << order) // slot)


CLASSES: Final = (None, *(_size_class(i, slot) for i, slot in enumerate(_slot_sizes(), 1)))
"""By class number. Number 0 means a whole span, which has no slots."""


def _class_by_units() -> tuple[int, ...]:
    table = [1]
    for number, slot in enumerate(_slot_sizes(), 1):
        table += [number] * (slot // ALIGNMENT_BYTES + 1 - len(table))
    return tuple(table)


CLASS_BY_UNITS: Final = _class_by_units()
"""The class for n x 64 bytes, n = 0 .. 8192: one index on the hot path."""
