from __future__ import annotations

import pytest

from allocator.core import recover
from allocator.core.format import Header, Span
from allocator.core.ledger import Ledger

KIB, MIB = 1 << 10, 1 << 20


def take(ledger: Ledger, order: int, owner: int, nbytes: int = 0, slot_class: int = 0) -> int:
    """A span, its first `nbytes` committed and, if it is a whole block, in use."""
    row = ledger.spans.allocate(order, slot_class, owner)
    assert row is not None
    if nbytes > ledger.spans.field(row, Span.RESERVED):
        ledger.spans.raise_reserved(row, nbytes)
        ledger.spans.raise_committed(row, nbytes)
    ledger.spans.words[row * Span.WIDTH + Span.USED] = nbytes
    return row


@pytest.fixture
def owner(people) -> int:
    return people.join()


def test_spans_tile_the_address_space_in_the_order_they_were_carved(ledger: Ledger, owner: int) -> None:
    rows = [take(ledger, order, owner) for order in (16, 20, 16, 18)]
    assert rows == [0, 1, 2, 3]
    starts = [ledger.spans.field(row, Span.START) for row in rows]
    assert starts == [0, 64 * KIB, 64 * KIB + MIB, 128 * KIB + MIB]
    assert ledger.header[Header.BUMP] == starts[-1] + 256 * KIB
    assert ledger.spans.count() == 4
    recover.check(ledger)


def test_the_span_freed_last_is_taken_first(ledger: Ledger, owner: int) -> None:
    rows = [take(ledger, 16, owner) for _ in range(3)]
    for row in rows:
        ledger.spans.free(row)
        recover.check(ledger)
    assert ledger.spans.top(16) == rows[2]
    assert [take(ledger, 16, owner) for _ in range(4)] == [*reversed(rows), 3]
    assert ledger.spans.top(16) is None


def test_a_free_span_is_not_used_at_another_order_while_address_space_is_left(ledger: Ledger, owner: int) -> None:
    for order in (16, 18, 20):
        ledger.spans.free(take(ledger, order, owner))
    assert take(ledger, 17, owner) == 3
    assert take(ledger, 19, owner) == 4
    assert [ledger.spans.order(row) for row in range(5)] == [16, 18, 20, 17, 19]
    recover.check(ledger)


def test_a_reused_span_keeps_order_and_memory_and_takes_the_new_class_and_owner(
    ledger: Ledger, owner: int, people
) -> None:
    other = people.join()
    row = take(ledger, 18, owner, 64 * KIB, slot_class=5)
    assert ledger.spans.slot_class(row) == 5
    ledger.spans.free(row)
    assert take(ledger, 18, other) == row
    spans = ledger.spans
    assert (spans.slot_class(row), spans.order(row), spans.field(row, Span.COMMITTED)) == (0, 18, 64 * KIB)
    assert spans.owned_by(other) == [row]
    assert spans.owned_by(owner) == []
    assert spans.field(row, Span.USED) == 0


def test_when_the_address_space_runs_dry_the_next_larger_free_span_serves(make_ledger, people_of) -> None:
    ledger = make_ledger(address_space=(1 << 20) + (1 << 18) + (1 << 16))
    owner = people_of(ledger).join()
    large, middle, small = (take(ledger, order, owner) for order in (20, 18, 16))
    assert ledger.spans.allocate(16, 0, owner) is None
    ledger.spans.free(large)
    ledger.spans.free(middle)
    assert take(ledger, 16, owner) == middle
    assert take(ledger, 16, owner) == large
    assert ledger.spans.order(large) == 20
    assert ledger.spans.allocate(16, 0, owner) is None
    ledger.spans.free(small)
    ledger.spans.free(middle)
    recover.check(ledger)
    assert ledger.spans.top(18) == middle  # it went back to the stack of its own order


def test_no_span_is_carved_beyond_the_rows_that_have_memory(make_ledger, people_of) -> None:
    ledger = make_ledger(spans=2)
    owner = people_of(ledger).join()
    assert [ledger.spans.allocate(16, 0, owner) for _ in range(3)] == [0, 1, None]
    recover.check(ledger)


def test_reserved_bytes_are_counted_and_their_peak_remembered(ledger: Ledger, owner: int) -> None:
    row = take(ledger, 20, owner, 512 * KIB)
    other = take(ledger, 20, owner, 64 * KIB)
    purge = ledger.spans.plan_purges(1)
    assert purge == []  # both are in use
    ledger.spans.free(row)
    (purge,) = ledger.spans.plan_purges(1)
    ledger.spans.begin_purge(purge)
    ledger.spans.settle(purge)
    assert ledger.header[Header.RESERVED] == 64 * KIB
    assert ledger.header[Header.PEAK] == 576 * KIB
    ledger.spans.raise_reserved(other, 128 * KIB)
    assert ledger.header[Header.RESERVED] == 128 * KIB
    assert ledger.header[Header.PEAK] == 576 * KIB


def test_purges_take_free_spans_first_and_the_largest_first(ledger: Ledger, owner: int) -> None:
    sizes = {take(ledger, 20, owner, nbytes): nbytes for nbytes in (64 * KIB, 256 * KIB, 128 * KIB)}
    slack = take(ledger, 20, owner, MIB)
    ledger.spans.words[slack * Span.WIDTH + Span.USED] = 5000  # it shrank
    slots = take(ledger, 18, owner, 256 * KIB, slot_class=3)  # what lies in slots is known to their owner only
    for row in sizes:
        ledger.spans.free(row)
    purges = ledger.spans.plan_purges(1 << 62)
    assert [purge.row for purge in purges] == [1, 2, 0, slack]
    assert [purge.nbytes for purge in purges[:3]] == [sizes[1], sizes[2], sizes[0]]
    assert all(purge.keep == 0 for purge in purges[:3])
    assert purges[3].keep == 8192  # whole pages
    assert purges[3].start == ledger.spans.field(slack, Span.START) + 8192
    assert purges[3].nbytes == MIB - 8192
    assert slots not in [purge.row for purge in purges]


@pytest.mark.parametrize(
    ("wanted", "rows"), [(1, 1), (256 * KIB, 1), (256 * KIB + 1, 2), (384 * KIB, 2), (448 * KIB, 3), (1 << 62, 3)]
)
def test_no_more_is_purged_than_is_wanted(ledger: Ledger, owner: int, wanted: int, rows: int) -> None:
    for row in [take(ledger, 20, owner, nbytes) for nbytes in (64 * KIB, 256 * KIB, 128 * KIB)]:
        ledger.spans.free(row)
    purges = ledger.spans.plan_purges(wanted)
    assert len(purges) == rows
    total = sum(purge.nbytes for purge in purges)
    assert total >= min(wanted, 448 * KIB)
    assert total - purges[-1].nbytes < wanted


def test_no_slack_is_purged_from_a_block_whose_commit_is_under_way(ledger: Ledger, owner: int) -> None:
    row = take(ledger, 20, owner, 64 * KIB)
    ledger.spans.words[row * Span.WIDTH + Span.USED] = 4096
    ledger.spans.raise_reserved(row, 512 * KIB)
    assert ledger.spans.plan_purges(1 << 62) == []


def test_a_commit_that_was_cut_short_is_in_doubt_until_it_is_settled(ledger: Ledger, owner: int) -> None:
    spans = ledger.spans
    row = take(ledger, 20, owner, 64 * KIB)
    assert spans.doubt(row) is None
    spans.raise_reserved(row, 256 * KIB)
    doubt = spans.doubt(row)
    assert doubt is not None
    start = spans.field(row, Span.START)
    assert (doubt.start, doubt.nbytes, doubt.keep) == (start + 64 * KIB, 192 * KIB, 64 * KIB)
    assert [purge.row for purge in ledger.doubts_of(owner)] == [row]
    spans.settle(doubt)
    assert spans.doubt(row) is None
    assert ledger.header[Header.RESERVED] == spans.field(row, Span.RESERVED) == 64 * KIB
    recover.check(ledger)


def test_a_purge_that_was_cut_short_is_in_doubt(ledger: Ledger, owner: int) -> None:
    spans = ledger.spans
    row = take(ledger, 20, owner, 64 * KIB)
    spans.free(row)
    (purge,) = spans.plan_purges(1)
    spans.begin_purge(purge)
    doubt = spans.doubt(row)
    assert doubt is not None
    assert (doubt.start, doubt.nbytes) == (purge.start, purge.nbytes)
    recover.check(ledger)


def test_an_orphan_is_freed_with_its_last_record(ledger: Ledger, owner: int) -> None:
    row = take(ledger, 20, owner)
    ledger.spans.orphan(row, 2)
    ledger.spans.drop_orphaned_records(row, 1)
    assert ledger.spans.state(row) == Span.ORPHAN
    ledger.spans.drop_orphaned_records(row, 1)
    assert ledger.spans.state(row) == Span.FREE
    assert ledger.spans.top(20) == row
