from __future__ import annotations

from collections.abc import Callable

import pytest

from allocator.core import recover
from allocator.core.format import NOBODY, OWNER_MASK, STATE_MASK, Client, Record, Reference, Span, slot_of
from allocator.core.ledger import Ledger


def test_a_dead_clients_spare_rows_and_unsent_spans_go_back_at_once(ledger: Ledger, people) -> None:
    a = people.join()
    whole, slots = people.span(a), people.span(a, 18, slot_class=1)
    records = ledger.records.reserve(a, 5)
    spare = ledger.references.reserve(a, 5, 1)
    ledger.reap(a, 1)
    assert [ledger.spans.state(row) for row in (whole, slots)] == [Span.FREE, Span.FREE]
    assert all(people.record_state(row) == Record.FREE for row in records)
    assert all(people.reference_state(row) == Reference.FREE for row in spare)
    assert not ledger.clients.is_current(a)
    recover.check(ledger)


def test_the_reaper_keeps_a_block_that_another_client_holds(ledger: Ledger, people) -> None:
    a, b = people.join(), people.join()
    span = people.span(a)
    record, _ = people.publish(a, span)
    row = people.hold(b, record)
    ledger.reap(a, 1)
    ledger.sweep()
    assert people.record_state(record) == Record.LIVE
    assert (ledger.spans.state(span), ledger.spans.field(span, Span.LIVE)) == (Span.ORPHAN, 1)
    recover.check(ledger)
    people.drop(b, row)
    assert ledger.sweep() == 1
    assert ledger.spans.state(span) == Span.FREE
    recover.check(ledger)


def test_the_reaper_keeps_a_block_whose_message_nobody_has_opened(ledger: Ledger, people) -> None:
    a, b = people.join(), people.join()
    record, _ = people.publish(a, people.span(a))
    row, serial = people.send(a, record)
    ledger.reap(a, 1)
    ledger.sweep()
    recover.check(ledger)
    assert ledger.references.is_ticket(row, record, serial)
    assert ledger.references.field(row, Reference.WORD) & OWNER_MASK == NOBODY
    people.drop(b, people.receive(b, record, row))
    assert ledger.sweep() == 1


def test_a_dead_receivers_holds_go_and_the_owners_block_stays(ledger: Ledger, people) -> None:
    a, b = people.join(), people.join()
    span = people.span(a)
    record, hold = people.publish(a, span)
    people.hold(b, record)
    ledger.reap(b, 1)
    assert ledger.sweep() == 0
    people.drop(a, hold)
    assert ledger.sweep() == 1
    recover.check(ledger)


def test_a_slot_on_its_way_back_to_a_dead_owner_does_not_keep_the_span(ledger: Ledger, people) -> None:
    a = people.join()
    span = people.span(a, 18, slot_class=1)
    record, hold = people.publish(a, span)
    people.drop(a, hold)
    ledger.sweep()
    assert people.record_state(record) == Record.RETURNED
    ledger.reap(a, 1)
    assert people.record_state(record) == Record.FREE
    assert ledger.spans.state(span) == Span.FREE
    recover.check(ledger)


def test_a_record_that_was_never_published_does_not_outlive_its_maker(ledger: Ledger, people) -> None:
    a = people.join()
    (record,) = ledger.records.reserve(a, 1)
    ledger.records.fill(record, people.span(a), 0, 64, 64)
    people.hold(a, record)  # it died before the record's word was stored
    recover.check(ledger)
    ledger.reap(a, 1)
    ledger.sweep()
    recover.check(ledger)
    assert people.record_state(record) == Record.FREE


def test_the_freed_slot_gets_a_new_generation_and_old_words_miss_it(ledger: Ledger, people) -> None:
    a = people.join()
    ledger.reap(a, 1)
    b = people.join()
    assert slot_of(b) == slot_of(a)
    assert b != a
    assert ledger.clients.is_current(b)
    assert not ledger.clients.is_current(a)


def test_all_slots_can_be_taken_and_no_more(make_ledger) -> None:
    ledger = make_ledger(clients=3)
    words = [ledger.clients.claim(Client.LIVE, 1, 1, 1) for _ in range(4)]
    assert words[3] is None
    assert list(ledger.clients.attached()) == words[:3]
    assert not ledger.clients.is_current(NOBODY)


def test_a_slots_state_changes_and_its_owner_stays(ledger: Ledger) -> None:
    word = ledger.clients.claim(Client.PENDING, 7, 8, 9, parent=77)
    assert word is not None
    for state in (Client.LIVE, Client.LEAVING):
        ledger.clients.set_state(word, state)
        assert ledger.clients.word(slot_of(word)) == state | word & ~STATE_MASK
        assert ledger.clients.is_current(word)
    fields = (Client.PID, Client.STARTED, Client.ATTACHED_NS, Client.PARENT)
    assert [ledger.clients.field(slot_of(word), field) for field in fields] == [7, 8, 9, 77]


def busy(ledger: Ledger, people) -> tuple[int, list[tuple[int, int]]]:
    """A client with something of everything; it, and what of it others still need: (record, reference row)."""
    a, b = people.join(), people.join()
    kept = []
    whole, slots, unsent = people.span(a), people.span(a, 18, slot_class=1), people.span(a)
    assert unsent is not None
    record, hold = people.publish(a, slots, 8192)
    people.drop(a, hold)
    ledger.sweep()  # RETURNED
    for span, offset in ((whole, 0), (slots, 0), (slots, 4096)):
        record, hold = people.publish(a, span, offset)
        kept.append((record, people.hold(b, record)))
    people.publish(a, slots, 12288)
    record, hold = people.publish(a, people.span(a))
    kept.append((record, people.send(a, record)[0]))
    people.drop(a, hold)
    ledger.records.reserve(a, 3)
    ledger.references.reserve(a, 3, 1)
    return a, kept


def test_a_reaper_may_die_at_any_line_and_the_next_one_finishes(
    make_ledger, people_of, dies_at_line, in_section
) -> None:
    line = 0
    died = True
    while died:
        line += 1
        ledger: Ledger = make_ledger()
        people = people_of(ledger)
        a, kept = busy(ledger, people)
        reap: Callable[[], None] = lambda ledger=ledger, a=a: ledger.reap(a, 5)  # noqa: E731
        died = dies_at_line(lambda ledger=ledger, reap=reap: in_section(ledger, reap), line)
        if died:
            recover.rebuild(ledger)
            recover.check(ledger)
            if ledger.clients.is_current(a):
                ledger.reap(a, 6)
        recover.check(ledger)
        ledger.sweep()
        recover.check(ledger)
        assert not ledger.clients.is_current(a), line
        assert sorted(ledger.records.in_state(Record.LIVE).tolist()) == sorted(record for record, _ in kept), line
        assert all(people.reference_state(row) in (Reference.HELD, Reference.FLIGHT) for _, row in kept), line
        ledger.references.expire(without_sender_before_ns=6, before_ns=0)
        for _, row in kept[:3]:
            ledger.references.words[row * 4] += Reference.DROPPED - Reference.HELD
        ledger.sweep()
        recover.check(ledger)
        assert ledger.used_bytes() == 0
        assert all(ledger.spans.state(row) == Span.FREE for row in range(ledger.spans.count())), line
    assert line > 50, "the trace saw nothing"


@pytest.mark.parametrize("dead", ["first", "second"])
def test_reaping_one_client_touches_nothing_of_the_others(ledger: Ledger, people, dead: str) -> None:
    a, b = people.join(), people.join()
    rows = {owner: (people.span(owner), people.publish(owner, people.span(owner))) for owner in (a, b)}
    gone, stays = (a, b) if dead == "first" else (b, a)
    ledger.reap(gone, 1)
    ledger.sweep()
    span, (record, hold) = rows[stays]
    assert ledger.spans.field(span, Span.WORD) == Span.ALLOCATED | stays
    assert people.record_state(record) == Record.LIVE
    assert ledger.references.field(hold, Reference.WORD) == Reference.HELD | stays
    recover.check(ledger)
