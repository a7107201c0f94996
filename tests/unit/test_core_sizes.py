from __future__ import annotations

from itertools import pairwise

import pytest

from allocator.config import (
    ALIGNMENT_BYTES,
    MAX_SLOT_BYTES,
    MAX_SLOT_SPAN_BYTES,
    MIN_SLOT_SPAN_BYTES,
    MIN_SPAN_ORDER,
    SLOTS_PER_SPAN,
)
from allocator.core.sizes import CLASS_BY_UNITS, CLASSES, SizeClass, order_of

SLOT_CLASSES = [size_class for size_class in CLASSES if size_class is not None]
each_class = pytest.mark.parametrize("size_class", SLOT_CLASSES, ids=lambda size_class: f"slot{size_class.slot}")


@each_class
def test_a_span_of_the_class_holds_its_slots_and_no_more(size_class: SizeClass) -> None:
    assert size_class.slots * size_class.slot <= 1 << size_class.order < (size_class.slots + 1) * size_class.slot
    assert size_class.slot % ALIGNMENT_BYTES == 0


@each_class
def test_a_slot_span_is_as_large_as_many_slots_want_within_bounds(size_class: SizeClass) -> None:
    assert MIN_SLOT_SPAN_BYTES <= 1 << size_class.order <= MAX_SLOT_SPAN_BYTES
    assert size_class.slots >= SLOTS_PER_SPAN or 1 << size_class.order == MAX_SLOT_SPAN_BYTES
    assert size_class.order >= MIN_SPAN_ORDER


def test_classes_ascend_and_are_numbered_by_position() -> None:
    assert CLASSES[0] is None  # a whole span
    assert [size_class.number for size_class in SLOT_CLASSES] == list(range(1, len(CLASSES)))
    assert all(a.slot < b.slot for a, b in pairwise(SLOT_CLASSES))
    assert (SLOT_CLASSES[0].slot, SLOT_CLASSES[-1].slot) == (ALIGNMENT_BYTES, MAX_SLOT_BYTES)


def test_slack_is_at_most_a_fifth_of_a_slot_above_256_bytes() -> None:
    for smaller, size_class in pairwise(SLOT_CLASSES):
        worst = size_class.slot - (smaller.slot + 1)
        assert size_class.slot <= 256 or worst <= size_class.slot / 5


def test_every_size_gets_the_smallest_class_that_holds_it() -> None:
    assert len(CLASS_BY_UNITS) == MAX_SLOT_BYTES // ALIGNMENT_BYTES + 1
    for units, number in enumerate(CLASS_BY_UNITS):
        size_class = CLASSES[number]
        assert size_class is not None
        assert size_class.slot >= units * ALIGNMENT_BYTES
        smaller = CLASSES[number - 1]
        assert smaller is None or smaller.slot < units * ALIGNMENT_BYTES


def test_the_largest_request_of_a_slot_fits_and_zero_bytes_take_the_smallest() -> None:
    largest = CLASSES[CLASS_BY_UNITS[(MAX_SLOT_BYTES + 63) >> 6]]
    assert largest is not None
    assert largest.slot == MAX_SLOT_BYTES
    assert CLASS_BY_UNITS[0] == 1


@pytest.mark.parametrize("nbytes", [0, 1, 65535, 65536, 65537, 1 << 20, (1 << 20) + 1, (1 << 40) - 1, 1 << 40])
def test_order_of_is_the_smallest_power_of_two_that_holds_the_bytes(nbytes: int) -> None:
    order = order_of(nbytes)
    assert 1 << order >= nbytes
    assert order == MIN_SPAN_ORDER or 1 << (order - 1) < nbytes
