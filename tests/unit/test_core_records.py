from __future__ import annotations

import numpy as np
import pytest

from allocator.core.format import OWNER_MASK, Record, Span
from allocator.core.ledger import Ledger


def test_reserved_rows_are_the_owners_and_given_once(ledger: Ledger, people) -> None:
    a, b = people.join(), people.join()
    mine, yours = ledger.records.reserve(a, 5), ledger.records.reserve(b, 5)
    assert len({*mine, *yours}) == 10
    assert ledger.records.owned(Record.RESERVED, a).tolist() == mine
    assert ledger.records.owned(Record.RESERVED, b).tolist() == yours


def test_no_more_rows_are_reserved_than_are_free(ledger: Ledger, people) -> None:
    a = people.join()
    assert len(ledger.records.reserve(a, 60)) == 60
    assert len(ledger.records.reserve(a, 60)) == 4
    assert ledger.records.reserve(a, 60) == []


def test_a_record_is_not_live_before_it_is_published(ledger: Ledger, people) -> None:
    a = people.join()
    (row,) = ledger.records.reserve(a, 1)
    generation = ledger.records.fill(row, 3, 4096, 100, 128)
    assert not ledger.records.is_live(row, generation)
    ledger.records.publish(row, a)
    assert ledger.records.is_live(row, generation)
    fields = (Record.SPAN, Record.START, Record.NBYTES, Record.CAPACITY, Record.FLAGS)
    assert [ledger.records.field(row, field) for field in fields] == [3, 4096, 100, 128, 0]


def test_an_old_generation_misses_the_row_for_good(ledger: Ledger, people) -> None:
    a = people.join()
    (row,) = ledger.records.reserve(a, 1)
    old = ledger.records.fill(row, 0, 0, 1, 64)
    ledger.records.publish(row, a)
    ledger.records.free(row)
    assert not ledger.records.is_live(row, old)
    ledger.records.words[row * Record.WIDTH] = Record.RESERVED | a
    new = ledger.records.fill(row, 0, 0, 1, 64)
    ledger.records.publish(row, a)
    assert new > old
    assert ledger.records.is_live(row, new)
    assert not ledger.records.is_live(row, old)


def test_freeing_many_raises_each_generation_once(ledger: Ledger, people) -> None:
    a = people.join()
    rows = ledger.records.reserve(a, 3)
    before = [ledger.records.field(row, Record.GENERATION) for row in rows]
    ledger.records.free_many(ledger.records.owned(Record.RESERVED, a))
    assert [ledger.records.field(row, Record.GENERATION) for row in rows] == [each + 1 for each in before]
    assert [ledger.records.field(row, Record.WORD) for row in rows] == [Record.FREE] * 3


def test_rows_that_do_not_exist_are_not_live(ledger: Ledger) -> None:
    for row in (-1, 64, 1 << 62):
        assert not ledger.records.is_live(row, 0)


def test_sealing_lasts_until_the_row_is_another_block(ledger: Ledger, people) -> None:
    a = people.join()
    (row,) = ledger.records.reserve(a, 1)
    ledger.records.fill(row, 0, 0, 1, 64)
    ledger.records.seal(row)
    assert ledger.records.field(row, Record.FLAGS) == Record.SEALED
    ledger.records.free_many(ledger.records.owned(Record.RESERVED, a))
    assert row in ledger.records.reserve(a, 64)
    assert ledger.records.field(row, Record.FLAGS) == 0


@pytest.mark.parametrize("many", [False, True])
def test_returned_rows_name_the_owner_of_their_slot_span(ledger: Ledger, people, many: bool) -> None:
    a, b = people.join(), people.join()
    span = people.span(a, 18, slot_class=1)
    record, _ = people.publish(a, span)
    if many:
        owners = ledger.spans.table.grid[[span], Span.WORD] & np.uint64(OWNER_MASK)
        ledger.records.give_back_many(ledger.records.in_state(Record.LIVE), owners)
    else:
        ledger.records.give_back(record, a)
    assert ledger.records.owned(Record.RETURNED, a).tolist() == [record]
    assert ledger.records.owned(Record.RETURNED, b).tolist() == []


def test_live_records_of_a_span_are_counted(ledger: Ledger, people) -> None:
    a = people.join()
    one, two = (people.span(a, 18, slot_class=1) for _ in range(2))
    for i in range(3):
        people.publish(a, one, 4096 * i)
    people.publish(a, two)
    ledger.records.reserve(a, 2)
    assert ledger.live_counts()[[one, two]].tolist() == [3, 1]
