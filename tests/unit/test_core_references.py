from __future__ import annotations

from collections.abc import Callable

import pytest

from allocator.core.format import NOBODY, OWNER_MASK, Header, Reference
from allocator.core.ledger import Ledger

FREE, RESERVED, FLIGHT, HELD, DROPPED = (
    Reference.FREE,
    Reference.RESERVED,
    Reference.FLIGHT,
    Reference.HELD,
    Reference.DROPPED,
)


class Row:
    """One reference row, its record, and two clients: the one it belongs to at first and another."""

    def __init__(self, ledger: Ledger, people) -> None:
        self.ledger, self.people = ledger, people
        self.a, self.b = people.join(), people.join()
        self.record, self.hold = people.publish(self.a, people.span(self.a))
        self.row = -1

    def bring_to(self, state: int) -> None:
        """Bring a row to `state`, owned by a."""
        references = self.ledger.references
        if state == HELD:
            self.row = self.people.hold(self.a, self.record)
        elif state == DROPPED:
            self.row = self.people.hold(self.a, self.record)
            self.people.drop(self.a, self.row)
        elif state == FLIGHT:
            self.row, _ = self.people.send(self.a, self.record)
        elif state == RESERVED:
            (self.row,) = references.reserve(self.a, 1, 1)
        else:
            (self.row,) = references.table.find_free(1)
            references.table.cursor = self.row

    def word(self) -> int:
        return self.ledger.references.field(self.row, Reference.WORD)


def reserve(row: Row) -> None:
    assert row.ledger.references.reserve(row.a, 1, 5) == [row.row]
    assert row.ledger.references.field(row.row, Reference.SERIAL) == 5


def take(row: Row) -> None:
    assert row.ledger.references.take(row.b, row.record) == row.row


def receive(row: Row) -> None:
    row.people.receive(row.b, row.record, row.row)
    row.ledger.sweep()


def receive_and_drop(row: Row) -> None:
    row.people.drop(row.b, row.people.receive(row.b, row.record, row.row))
    row.ledger.sweep()


def receive_and_die(row: Row) -> None:
    row.people.receive(row.b, row.record, row.row)
    row.ledger.reap(row.b, 77)


def sweep(row: Row) -> None:
    row.ledger.sweep()


def expire(row: Row) -> None:
    row.ledger.references.expire(without_sender_before_ns=0, before_ns=1)
    row.ledger.sweep()


def discard(row: Row) -> None:
    row.ledger.references.discard(row.row)
    assert row.ledger.header[Header.LOOSE]


def reap_a(row: Row) -> None:
    row.ledger.reap(row.a, 77)


def reap_b(row: Row) -> None:
    row.ledger.reap(row.b, 77)


# (state before, what is done under the lock, state after, owner after)
TRANSITIONS: list[tuple[int, Callable[[Row], None], int, str]] = [
    (FREE, reserve, RESERVED, "a"),
    (FREE, take, HELD, "b"),
    (FLIGHT, receive, FLIGHT, "a"),  # spent, while the receiver holds the record
    (FLIGHT, receive_and_drop, FREE, "-"),
    (FLIGHT, receive_and_die, FREE, "-"),
    (FLIGHT, discard, FREE, "-"),
    (FLIGHT, expire, FREE, "-"),
    (FLIGHT, sweep, FLIGHT, "a"),
    (FLIGHT, reap_a, FLIGHT, "nobody"),
    (FLIGHT, reap_b, FLIGHT, "a"),
    (RESERVED, expire, RESERVED, "a"),
    (RESERVED, sweep, RESERVED, "a"),
    (RESERVED, reap_a, FREE, "-"),
    (RESERVED, reap_b, RESERVED, "a"),
    (HELD, expire, HELD, "a"),
    (HELD, sweep, HELD, "a"),
    (HELD, reap_a, FREE, "-"),
    (HELD, reap_b, HELD, "a"),
    (DROPPED, sweep, FREE, "-"),
    (DROPPED, reap_a, FREE, "-"),
    (DROPPED, reap_b, DROPPED, "a"),
    (FREE, sweep, FREE, "-"),
    (FREE, expire, FREE, "-"),
    (FREE, reap_a, FREE, "-"),
]
NAMES = {FREE: "FREE", RESERVED: "RESERVED", FLIGHT: "FLIGHT", HELD: "HELD", DROPPED: "DROPPED"}


@pytest.mark.parametrize(
    ("before", "act", "after", "whose"), TRANSITIONS, ids=[f"{NAMES[t[0]]}-{t[1].__name__}" for t in TRANSITIONS]
)
def test_a_row_goes_from_state_to_state_as_the_table_says(
    ledger: Ledger, people, before: int, act: Callable[[Row], None], after: int, whose: str
) -> None:
    row = Row(ledger, people)
    row.bring_to(before)
    act(row)
    owner = {"a": row.a, "b": row.b, "-": 0, "nobody": NOBODY}[whose]
    assert (NAMES[row.word() & 15], row.word() & OWNER_MASK) == (NAMES[after], owner)


def test_serials_are_never_repeated(ledger: Ledger, people) -> None:
    a = people.join()
    serials: list[int] = []
    for _ in range(5):
        spare = ledger.references.reserve(a, 10, ledger.take_serials(10))
        serials += [ledger.references.field(row, Reference.SERIAL) for row in spare]
        ledger.reap(a, 1)
        a = people.join()
    assert len(set(serials)) == 50


def test_only_that_very_message_is_a_ticket(ledger: Ledger, people) -> None:
    a = people.join()
    record, hold = people.publish(a, people.span(a))
    row, serial = people.send(a, record)
    references = ledger.references
    assert references.is_ticket(row, record, serial)
    assert not references.is_ticket(row, record, serial + 1)
    assert not references.is_ticket(row, record + 1, serial)
    assert not references.is_ticket(hold, record, references.field(hold, Reference.SERIAL))
    assert not references.is_ticket(-1, record, serial)
    assert not references.is_ticket(1 << 40, record, serial)
    other, other_serial = people.send(a, record)
    assert not references.is_spent(serial)
    received = people.receive(a, record, row)
    assert references.unopened().tolist() == [other]
    assert (references.is_spent(serial), references.is_spent(other_serial)) == (True, False)
    assert not references.is_ticket(received, record, serial)
    people.drop(a, received)
    ledger.sweep()
    assert not references.is_ticket(row, record, serial)


def test_take_declines_when_no_row_is_free(make_ledger, people_of) -> None:
    people = people_of(make_ledger(references=2))
    a = people.join()
    record, _ = people.publish(a, people.span(a))
    people.hold(a, record)
    assert people.ledger.references.take(a, record) is None


def test_who_keeps_a_record_is_found_by_state(ledger: Ledger, people) -> None:
    a, b = people.join(), people.join()
    record, hold = people.publish(a, people.span(a))
    other, _ = people.publish(a, people.span(a))
    second = people.hold(b, record)
    ticket, _ = people.send(a, record)
    people.send(a, other)
    references = ledger.references
    assert references.naming(record, HELD) == sorted([hold, second])
    assert references.naming(record, HELD, FLIGHT) == sorted([hold, second, ticket])


# (sent by a living client?, since, without_sender_before_ns, before_ns, whether it ends)
EXPIRIES = [
    (True, 100, 1000, 0, False),  # while the sender lives nothing expires
    (True, 100, 0, 99, False),  # unless the pool has a ttl
    (True, 100, 0, 100, True),
    (False, 100, 99, 0, False),  # the grace isn't over
    (False, 100, 100, 0, True),
    (False, 100, -50, 0, False),  # the machine was booted less than a grace ago
    (False, 100, -50, -50, False),
    (False, 100, 0, 100, True),
]


@pytest.mark.parametrize(("alive", "since", "without_sender", "before", "ends"), EXPIRIES)
def test_tickets_expire_by_the_ticket_rule(
    ledger: Ledger, people, alive: bool, since: int, without_sender: int, before: int, ends: bool
) -> None:
    a, b = people.join(), people.join()
    record, _ = people.publish(a, people.span(a))
    people.hold(b, record)
    row, serial = people.send(a, record, now_ns=since)
    if not alive:
        ledger.reap(a, since)
    count = ledger.references.expire(without_sender_before_ns=without_sender, before_ns=before)
    assert count == int(ends)
    assert ledger.references.is_ticket(row, record, serial) == (not ends)


def test_the_grace_of_a_dead_senders_message_begins_when_the_death_is_noticed(ledger: Ledger, people) -> None:
    a, b = people.join(), people.join()
    record, _ = people.publish(a, people.span(a))
    people.hold(b, record)
    row, serial = people.send(a, record, now_ns=1)
    ledger.reap(a, 1000)
    assert ledger.references.field(row, Reference.SINCE_NS) == 1000
    assert ledger.expire_tickets(1059) == 0  # the grace is 60 in this ledger
    assert ledger.references.is_ticket(row, record, serial)
    assert ledger.expire_tickets(1060) == 1


def test_a_ticket_to_live_pool_wide_ends_messages_of_living_senders_too(ledger: Ledger, people) -> None:
    a = people.join()
    record, _ = people.publish(a, people.span(a))
    people.send(a, record, now_ns=100)
    assert ledger.expire_tickets(1 << 40) == 0
    ledger.header[Header.TTL_NS] = 50
    assert ledger.expire_tickets(149) == 0
    assert ledger.expire_tickets(150) == 1
