"""Sweep runs under the lock while owners send and drop without it. Each step of its proof, taken apart."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest

from allocator.core import recover, references
from allocator.core.format import OWNER_MASK, Record, Reference, Span
from allocator.core.ledger import Ledger
from allocator.core.tables import Column, Table
from allocator.errors import CorruptPool

MOMENTS = range(7)
"""Before, in the middle of, and after the first copy of the words; the same of the second; before the records are read.

Owners act between any two stores of the sweep, and while NumPy copies: the lower rows may be copied before, the
upper ones after.
"""


class WatchedColumn(np.ndarray[Any, np.dtype[np.uint64]]):
    """The words; somebody acts before, while and after they are copied."""

    act: Callable[[], None]
    split: int

    def copy(self, order: Any = "C") -> Any:
        plain = np.asarray(self)
        self.act()
        lower = plain[: self.split].copy()
        self.act()
        copied = np.concatenate([lower, plain[self.split :]])
        self.act()
        return copied


class Watched(Table):
    """The reference table; at each moment of the sweep somebody may act."""

    __slots__ = ("acts", "moment", "split")

    def __init__(self, table: Table, acts: dict[int, list[Callable[[], None]]], split: int) -> None:
        for name in Table.__slots__:
            setattr(self, name, getattr(table, name))
        self.acts, self.moment, self.split = acts, 0, split

    def column(self, field: int) -> Column:
        column = super().column(field)
        if field != Reference.WORD:
            return column
        watched = column.view(WatchedColumn)
        watched.act, watched.split = self.act, self.split
        return watched

    def act(self) -> None:
        acts, self.moment = self.acts.pop(self.moment, []), self.moment + 1
        for act in acts:
            act()


def sweep_while(ledger: Ledger, acts: dict[int, list[Callable[[], None]]], split: int = 2) -> int:
    """Sweep, with these acts at its moments; those that it didn't get to come after it."""
    plain = ledger.references.table
    watched = ledger.references.table = Watched(plain, acts, split)
    try:
        gone = ledger.sweep()
    finally:
        ledger.references.table = plain
    for moment in sorted(acts):
        for act in acts[moment]:
            act()
    assert watched.moment in (3, 6), "sweep copies the words once or twice"
    return gone


@pytest.fixture(autouse=True, params=[0, references.FEW], ids=["many", "few"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are swept many at once, or one by one."""
    monkeypatch.setattr(references, "FEW", request.param)


@pytest.fixture(params=[False, True], ids=["by drops", "loose"])
def prepared(request: pytest.FixtureRequest, ledger: Ledger, people) -> Ledger:
    """A ledger whose next sweep has something to do: a dropped row, or a look at all records."""
    a = people.join()
    _, hold = people.publish(a, people.span(a))
    if request.param:
        ledger.references.loosen()
    else:
        people.drop(a, hold)
    return ledger


def test_a_dropped_hold_is_freed_and_its_record_goes(ledger: Ledger, people) -> None:
    a = people.join()
    span = people.span(a)
    record, hold = people.publish(a, span)
    assert ledger.sweep() == 0
    people.drop(a, hold)
    recover.check(ledger)
    assert ledger.sweep() == 1
    assert people.reference_state(hold) == Reference.FREE
    assert people.record_state(record) == Record.FREE
    assert ledger.spans.state(span) == Span.FREE
    recover.check(ledger)


@pytest.mark.parametrize("other", ["hold", "ticket"])
def test_a_record_stays_while_another_reference_names_it(ledger: Ledger, people, other: str) -> None:
    a, b = people.join(), people.join()
    record, hold = people.publish(a, people.span(a))
    row = people.hold(b, record) if other == "hold" else people.send(a, record)[0]
    people.drop(a, hold)
    assert ledger.sweep() == 0
    assert people.record_state(record) == Record.LIVE
    if other == "ticket":
        row = people.receive(b, record, row)
        assert ledger.sweep() == 0
    people.drop(b, row)
    assert ledger.sweep() == 1


@pytest.mark.parametrize("split", [1, 2, 3])
@pytest.mark.parametrize(("sent", "dropped"), list(combinations_with_replacement(MOMENTS, 2)))
def test_a_message_made_before_the_hold_was_dropped_keeps_its_record_whenever_both_happen(
    prepared: Ledger, people, sent: int, dropped: int, split: int
) -> None:
    ledger = prepared
    a, b = people.join(), people.join()
    (row,) = ledger.references.reserve(a, 1, 99)  # reserved before: sending takes no lock
    record, hold = people.publish(a, people.span(a))
    assert (row, hold) == (1, 2)  # the ticket's row is copied before the hold's: the hard case

    def send() -> None:
        words = ledger.references.words
        words[row * 4 + Reference.RECORD] = record
        words[row * 4] = Reference.FLIGHT | a

    acts: dict[int, list[Callable[[], None]]] = {}
    acts.setdefault(sent, []).append(send)
    acts.setdefault(dropped, []).append(lambda: people.drop(a, hold))
    sweep_while(ledger, acts, split)
    assert people.record_state(record) == Record.LIVE
    recover.check(ledger)
    ledger.sweep()
    assert people.record_state(record) == Record.LIVE
    assert ledger.references.is_ticket(row, record, 99)
    people.drop(b, people.receive(b, record, row))
    ledger.sweep()
    assert people.record_state(record) == Record.FREE


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_record_published_while_a_sweep_runs_survives_it(prepared: Ledger, people, moment: int) -> None:
    ledger, a = prepared, people.join()
    span = people.span(a)
    (record,) = ledger.records.reserve(a, 1)
    (row,) = ledger.references.reserve(a, 1, 99)

    def publish() -> None:
        ledger.records.fill(record, span, ledger.spans.field(span, Span.START), 64, 64)
        ledger.references.words[row * 4 + Reference.RECORD] = record
        ledger.references.words[row * 4] = Reference.HELD | a
        ledger.records.publish(record, a)

    sweep_while(ledger, {moment: [publish]}, split=1)
    assert people.record_state(record) == Record.LIVE
    recover.check(ledger)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_hold_dropped_while_a_sweep_runs_is_freed_by_this_one_or_the_next(
    prepared: Ledger, people, moment: int
) -> None:
    ledger, a = prepared, people.join()
    record, hold = people.publish(a, people.span(a))
    sweep_while(ledger, {moment: [lambda: people.drop(a, hold)]}, split=1)
    recover.check(ledger)
    ledger.sweep()
    assert people.record_state(record) == Record.FREE
    assert people.reference_state(hold) == Reference.FREE


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("split", [1, 2, 3, 4, 5])
def test_a_name_may_wander_from_row_to_row_while_a_sweep_runs(
    prepared: Ledger, people, moment: int, split: int
) -> None:
    """The last name of a record changes twice in one moment: each new one is made before the old one is dropped."""
    ledger, a, b = prepared, people.join(), people.join()
    rows = [row for owner in (a, b) for row in ledger.references.reserve(owner, 1, 7)]
    record, hold = people.publish(a, people.span(a))
    other = people.hold(b, record)
    words = ledger.references.words

    def act() -> None:
        for owner, old, row in ((a, hold, rows[0]), (b, other, rows[1])):
            words[row * 4 + Reference.RECORD] = record
            words[row * 4] = Reference.FLIGHT | owner
            words[old * 4] = Reference.DROPPED | owner

    sweep_while(ledger, {moment: [act]}, split)
    ledger.sweep()
    assert people.record_state(record) == Record.LIVE
    recover.check(ledger)


@pytest.mark.parametrize("end", ["discard", "expire", "reap"])
def test_a_record_whose_last_name_went_without_a_drop_is_found_by_the_next_sweep(
    ledger: Ledger, people, end: str
) -> None:
    a, b = people.join(), people.join()
    record, hold = people.publish(a, people.span(a))
    if end == "reap":
        people.hold(b, record)
    else:
        ticket, _ = people.send(b, record)
    people.drop(a, hold)
    assert ledger.sweep() == 0
    if end == "discard":
        ledger.references.discard(ticket)
    elif end == "expire":
        assert ledger.references.expire(without_sender_before_ns=0, before_ns=1) == 1
    else:
        ledger.reap(b, 1)
    recover.check(ledger)  # nobody names it, and that is known
    assert ledger.sweep() == 1
    recover.check(ledger)
    assert people.record_state(record) == Record.FREE
    assert ledger.sweep() == 0


@pytest.mark.report("R083")
@pytest.mark.parametrize("seen", ["standing", "ended"])
@pytest.mark.parametrize("split", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_second_receiver_either_keeps_the_record_or_sees_the_ticket_ended(
    ledger: Ledger, people, moment: int, split: int, seen: str
) -> None:
    """The first has dropped its hold, so this sweep ends the ticket; the second opens it meanwhile, without a lock."""
    a, b, c = people.join(), people.join(), people.join()
    second = ledger.references.reserve(c, 1, 7)[0] if seen == "ended" else -1  # below the ticket, or above it
    record, hold = people.publish(a, people.span(a))
    ticket, serial = people.send(a, record)
    first = people.receive(b, record, ticket)
    second = ledger.references.reserve(c, 1, 7)[0] if second < 0 else second
    people.drop(a, hold)
    people.drop(b, first)
    words, opened = ledger.references.words, []

    def receive() -> None:
        words[second * 4 + Reference.RECORD] = record
        words[second * 4 + Reference.SERIAL] = serial
        words[second * 4 + Reference.REDEEMED] = ticket + 1
        words[second * 4] = Reference.HELD | c
        opened.append(
            ledger.references.is_ticket(ticket, record, serial) and people.record_state(record) == Record.LIVE
        )

    sweep_while(ledger, {moment: [receive]}, split)
    if opened[0]:
        assert people.record_state(record) == Record.LIVE
        recover.check(ledger)
        ledger.sweep()
        assert people.record_state(record) == Record.LIVE
    else:
        words[second * 4 + Reference.REDEEMED] = 0
    people.drop(c, second)
    ledger.sweep()
    ledger.sweep()
    recover.check(ledger)
    assert people.record_state(record) == Record.FREE
    assert not ledger.references.is_ticket(ticket, record, serial)


def test_a_spent_ticket_never_ends_a_later_message_in_its_row(ledger: Ledger, people) -> None:
    a, b, c = people.join(), people.join(), people.join()
    record, _ = people.publish(a, people.span(a))
    ticket, _ = people.send(a, record)
    holds = [people.receive(owner, record, ticket) for owner in (b, c)]  # a fan-out
    people.drop(b, holds[0])
    ledger.sweep()
    ledger.references.table.cursor = ticket
    again, serial = people.send(a, record)
    assert again == ticket
    people.drop(c, holds[1])
    ledger.sweep()
    assert ledger.references.is_ticket(again, record, serial)


def test_a_slot_goes_back_to_the_living_owner_of_its_span(ledger: Ledger, people) -> None:
    a, b = people.join(), people.join()
    span = people.span(a, 18, slot_class=1)
    record, hold = people.publish(a, span)
    other = people.hold(b, record)
    people.drop(a, hold)
    people.drop(b, other)
    assert ledger.sweep() == 1
    assert ledger.records.field(record, Record.WORD) == Record.RETURNED | a
    assert ledger.spans.field(span, Span.WORD) == Span.ALLOCATED | a
    assert ledger.sweep() == 0
    recover.check(ledger)


def test_a_slot_of_a_dead_owners_span_frees_the_span_with_the_last_one(ledger: Ledger, people) -> None:
    a, b = people.join(), people.join()
    span = people.span(a, 18, slot_class=1)
    holds = []
    for i in range(3):
        record, _ = people.publish(a, span, 4096 * i)
        holds.append(people.hold(b, record))
    ledger.reap(a, 1)
    recover.check(ledger)
    assert (ledger.spans.state(span), ledger.spans.field(span, Span.LIVE)) == (Span.ORPHAN, 3)
    for left in (2, 1):
        people.drop(b, holds[left])
        assert ledger.sweep() == 1
        assert ledger.spans.field(span, Span.LIVE) == left
        recover.check(ledger)
    people.drop(b, holds[0])
    ledger.sweep()
    assert ledger.spans.state(span) == Span.FREE
    assert ledger.spans.field(span, Span.WORD) & OWNER_MASK == 0
    recover.check(ledger)


def test_several_records_go_in_one_sweep_each_to_where_it_belongs(ledger: Ledger, people) -> None:
    a, b, dead = people.join(), people.join(), people.join()
    whole = people.span(a)
    slots = people.span(b, 18, slot_class=2)
    orphan = people.span(dead, 18, slot_class=2)
    records = [people.publish(a, whole), people.publish(b, slots)]
    lost, _ = people.publish(dead, orphan)
    last = people.hold(a, lost)
    ledger.reap(dead, 1)
    people.drop(a, records[0][1])
    people.drop(b, records[1][1])
    people.drop(a, last)
    assert ledger.sweep() == 3
    assert people.record_state(records[1][0]) == Record.RETURNED
    assert [ledger.spans.state(span) for span in (whole, slots, orphan)] == [Span.FREE, Span.ALLOCATED, Span.FREE]
    recover.check(ledger)


def test_a_reference_to_a_record_that_cannot_be_is_reported_and_not_followed(ledger: Ledger, people) -> None:
    a = people.join()
    record, hold = people.publish(a, people.span(a))
    ledger.references.words[hold * 4 + Reference.RECORD] = 1 << 40
    people.drop(a, hold)
    with pytest.raises(CorruptPool, match="a reference names record 1099511627776"):
        ledger.sweep()
    ledger.references.words[hold * 4] = Reference.DROPPED | a
    ledger.references.words[hold * 4 + Reference.RECORD] = record
    ledger.records.words[record * 8 + Record.SPAN] = 1 << 40
    with pytest.raises(CorruptPool, match="a record lies in span"):
        ledger.sweep()
