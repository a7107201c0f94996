"""A ledger driven by several clients, some of which die in the middle of a step, against a plain dict."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from allocator.core import format as shared_format
from allocator.core import recover, references
from allocator.core.format import (
    NOBODY,
    OWNER_MASK,
    STATE_MASK,
    Client,
    Header,
    Name,
    Record,
    Reference,
    Span,
    plan_tables,
    slot_of,
)
from allocator.core.ledger import Ledger

CORE = str(Path(shared_format.__file__).parent)
THIS = __file__
SLOT = 4096
ORDERS = (16, 18)
NEVER = 1 << 60
TEXTS = (b"a", b"b", b"c")


class Died(BaseException):
    """The client that ran this is dead from this line on."""


def run_until(line: int, action: Callable[[], Any]) -> bool:
    """Run the action; cut it short at the n-th line of the core, or of the steps below. Whether that came."""
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        code = frame.f_code
        if not code.co_filename.startswith(CORE) and not (code.co_filename == THIS and code.co_name.startswith("do_")):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise Died
        return trace

    before = sys.gettrace()
    try:
        sys.settrace(trace)
        action()
    except Died:
        return True
    finally:
        sys.settrace(before)
    return False


@dataclass
class Sent:
    """A record as the model knows it."""

    span: int
    start: int
    generation: int
    holders: dict[int, list[int]] = field(default_factory=dict)  # by client: rows
    tickets: dict[int, tuple[int, int]] = field(default_factory=dict)  # by row: (serial, sender or NOBODY)
    came_by: dict[int, tuple[int, int]] = field(default_factory=dict)  # by a hold's row: the ticket's row and serial
    names: set[bytes] = field(default_factory=set)

    def end_hold(self, owner: int, row: int) -> None:
        """A hold is given up, and with it the ticket that it came by."""
        self.holders[owner].remove(row)
        ticket, serial = self.came_by.pop(row, (-1, -1))
        if ticket in self.tickets and self.tickets[ticket][0] == serial:
            del self.tickets[ticket]

    def bury(self, owner: int) -> None:
        """A holder or sender is dead and reaped."""
        for row in list(self.holders.get(owner, [])):
            self.end_hold(owner, row)
        self.tickets = {
            row: (serial, NOBODY if sender == owner else sender) for row, (serial, sender) in self.tickets.items()
        }

    @property
    def is_named(self) -> bool:
        return any(self.holders.values()) or bool(self.tickets or self.names)


@dataclass
class Process:
    """A client: its spans of slots with the slots that are free, its whole spans that were never sent."""

    owner: int
    slot_spans: dict[int, list[int]] = field(default_factory=dict)
    wholes: set[int] = field(default_factory=set)
    slots: set[tuple[int, int]] = field(default_factory=set)  # taken and never sent: (span, start)


class LedgerMachine(RuleBasedStateMachine):
    """Each rule is what `exchange`, `local_heap` and `supply` do to the tables, in the order of their stores."""

    def __init__(self) -> None:
        super().__init__()
        plan = plan_tables(5, 48, 48, 96, 4)
        self.ledger = Ledger(memoryview(bytearray(plan.nbytes)), plan)
        for shape in plan:
            self.ledger.grow(shape, shape.rows)
        self.ledger.format(limit=64 << 20, address_space=1 << 30, host=1, grace_ns=10, ttl_ns=0, timeout_ns=0, now_ns=1)
        self.now = 100
        self.processes: dict[int, Process] = {}
        self.records: dict[int, Sent] = {}
        for _ in range(3):
            self.attach()
        for process in self.processes.values():  # something to send from the first step on
            row = self.section(lambda process=process: self.ledger.spans.allocate(16, 1, process.owner))
            self.section(lambda row=row: self.ledger.spans.raise_reserved(row, 4 * SLOT))
            self.section(lambda row=row: self.ledger.spans.raise_committed(row, 4 * SLOT))
            start = self.ledger.spans.field(row, Span.START)
            process.slot_spans[row] = [start]
            process.slots = {(row, start + 3 * SLOT)}
            for offset in (SLOT, 2 * SLOT):
                self.publish_at_first(process.owner, row, start + offset)

    def publish_at_first(self, owner: int, span: int, start: int) -> None:
        ledger = self.ledger
        (record,) = self.section(lambda: ledger.records.reserve(owner, 1))
        generation = ledger.records.fill(record, span, start, SLOT, SLOT)
        row = self.section(lambda: ledger.references.take(owner, record))
        ledger.records.publish(record, owner)
        self.records[record] = Sent(span, start, generation, {owner: [row]})

    # ---- plumbing

    def pick(self, data: st.DataObject, items: Any, label: str) -> Any:
        return data.draw(st.sampled_from(sorted(items)), label=label)

    def section(self, body: Callable[[], Any]) -> Any:
        """The critical section, also after somebody died in it."""
        if self.ledger.dirty:
            recover.rebuild(self.ledger)
        self.ledger.header[Header.DIRTY] = 1
        result = body()
        self.ledger.header[Header.DIRTY] = 0
        return result

    def step(self, process: Process, data: st.DataObject, action: Callable[[], Any]) -> bool:
        """A step of one client, which may die in it; whether it lives. The dead one is reaped at once."""
        dies = data.draw(st.integers(0, 11), label="dies if 11") == 11
        line = data.draw(st.integers(1, 60), label="at line") if dies else NEVER
        if not run_until(line, action):
            return True
        self.bury(process)
        return False

    def bury(self, process: Process) -> None:
        """Reap a dead client, here and in the model; then look what of its last step has happened."""
        owner = process.owner
        self.section(lambda: self.ledger.reap(Client.LIVE | owner, self.now))
        del self.processes[owner]
        for sent in self.records.values():
            sent.bury(owner)

    def word(self, row: int) -> int:
        return self.ledger.references.field(row, Reference.WORD)

    # ---- clients

    @precondition(lambda self: len(self.processes) < 3)
    @rule()
    def attach(self) -> None:
        word = self.section(lambda: self.ledger.clients.claim(Client.LIVE, 1, 1, self.now))
        self.processes[word & ~STATE_MASK] = Process(word & ~STATE_MASK)

    @precondition(lambda self: len(self.processes) > 2)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        self.bury(self.processes[self.pick(data, self.processes, "who")])

    @precondition(lambda self: len(self.processes) > 2)
    @rule(data=st.data())
    def kill_and_let_a_reaper_die_too(self, data: st.DataObject) -> None:
        first, second = data.draw(st.permutations(sorted(self.processes)), label="who")[:2]
        dead = self.processes[first]
        line = data.draw(st.integers(1, 120), label="the reaper dies at line")

        def do_reap() -> None:
            self.section(lambda: self.ledger.reap(Client.LIVE | first, self.now))

        if run_until(line, do_reap):
            self.bury(self.processes[second])
        if self.ledger.clients.is_current(first):
            self.bury(dead)
        else:
            self.forget(dead)

    def forget(self, process: Process) -> None:
        """The model's part of a reap that the ledger has done."""
        self.processes.pop(process.owner)
        for sent in self.records.values():
            sent.bury(process.owner)

    # ---- blocks that were never sent

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), order=st.sampled_from(ORDERS), slots=st.booleans(), pages=st.integers(1, 16))
    def allocate_span(self, data: st.DataObject, order: int, slots: bool, pages: int) -> None:
        process = self.processes[self.pick(data, self.processes, "who")]
        ledger, spans, nbytes = self.ledger, self.ledger.spans, pages * SLOT
        taken: list[int] = []

        def do_take() -> None:
            ledger.sweep()
            row = spans.allocate(order, int(slots), process.owner)
            if row is None:
                return
            doubt = spans.doubt(row)
            if doubt is not None:
                spans.begin_purge(doubt)
                spans.settle(doubt)
            if not slots:
                spans.words[row * Span.WIDTH + Span.USED] = nbytes
            if spans.field(row, Span.RESERVED) < nbytes:
                spans.raise_reserved(row, nbytes)
            taken.append(row)

        def do_commit(row: int) -> None:
            if spans.field(row, Span.COMMITTED) < nbytes:
                spans.raise_committed(row, nbytes)

        def do_allocate() -> None:
            self.section(do_take)
            if taken:
                self.section(lambda: do_commit(taken[0]))

        if self.step(process, data, do_allocate) and taken:
            row = taken[0]
            committed = spans.field(row, Span.COMMITTED)
            if slots:
                start = spans.field(row, Span.START)
                process.slot_spans[row] = [start + offset for offset in range(0, committed, SLOT)]
            else:
                process.wholes.add(row)

    @precondition(lambda self: any(p.wholes for p in self.processes.values()))
    @rule(data=st.data())
    def free_whole(self, data: st.DataObject) -> None:
        owner = self.pick(data, [o for o, p in self.processes.items() if p.wholes], "who")
        process = self.processes[owner]
        row = self.pick(data, process.wholes, "span")

        def do_free() -> None:
            self.section(lambda: self.ledger.spans.free(row))

        if self.step(process, data, do_free):
            process.wholes.remove(row)

    @precondition(lambda self: any(any(p.slot_spans.values()) for p in self.processes.values()))
    @rule(data=st.data())
    def take_slot(self, data: st.DataObject) -> None:
        owner = self.pick(data, [o for o, p in self.processes.items() if any(p.slot_spans.values())], "who")
        process = self.processes[owner]
        span = self.pick(data, [row for row, free in process.slot_spans.items() if free], "span")
        process.slots.add((span, process.slot_spans[span].pop()))

    # ---- sending

    def unsent(self, process: Process) -> list[tuple[int, int]]:
        """(span, start) of the client's blocks without a record."""
        start = self.ledger.spans.field
        return sorted(process.slots | {(row, start(row, Span.START)) for row in process.wholes})

    @precondition(lambda self: any(self.unsent(p) for p in self.processes.values()))
    @rule(data=st.data())
    def make_record(self, data: st.DataObject) -> None:
        owner = self.pick(data, [o for o, p in self.processes.items() if self.unsent(p)], "who")
        process = self.processes[owner]
        span, start = self.pick(data, self.unsent(process), "block")
        ledger, made = self.ledger, []

        def do_reserve() -> tuple[list[int], list[int]]:
            serial = ledger.take_serials(1)
            return ledger.records.reserve(owner, 1), ledger.references.reserve(owner, 1, serial)

        def do_publish() -> None:
            records, references = self.section(do_reserve)
            if not records or not references:
                self.section(do_return)
                return
            record, row = records[0], references[0]
            generation = ledger.records.fill(record, span, start, SLOT, SLOT)
            words = ledger.references.words
            words[row * Reference.WIDTH + Reference.RECORD] = record
            words[row * Reference.WIDTH + Reference.REDEEMED] = 0
            words[row * Reference.WIDTH] = Reference.HELD | owner
            ledger.records.publish(record, owner)
            made.append((record, generation, row))

        def do_return() -> None:
            ledger.records.free_many(ledger.records.owned(Record.RESERVED, owner))
            words = ledger.references.words
            for row in ledger.references.owned(Reference.RESERVED, owner).tolist():
                words[row * Reference.WIDTH] = Reference.FREE

        if self.step(process, data, do_publish) and made:
            record, generation, row = made[0]
            process.wholes.discard(span)
            process.slots.discard((span, start))
            self.records[record] = Sent(span, start, generation, {owner: [row]})

    def held(self, owner: int) -> list[int]:
        return [record for record, sent in self.records.items() if sent.holders.get(owner)]

    @precondition(lambda self: any(self.held(owner) for owner in self.processes))
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        owner = self.pick(data, [o for o in self.processes if self.held(o)], "who")
        process, ledger = self.processes[owner], self.ledger
        record = self.pick(data, self.held(owner), "record")
        sent = self.records[record]
        spare: list[tuple[int, int]] = []

        def do_send() -> None:
            serial = self.section(lambda: ledger.take_serials(1))
            rows = self.section(lambda: ledger.references.reserve(owner, 1, serial))
            spare.extend((row, serial) for row in rows)
            if not spare:
                return
            words, at = ledger.references.words, spare[0][0] * Reference.WIDTH
            words[at + Reference.RECORD] = record
            words[at + Reference.SINCE_NS] = self.now
            words[at] = Reference.FLIGHT | owner

        if self.step(process, data, do_send):
            for row, serial in spare:
                sent.tickets[row] = serial, owner
        elif spare and ledger.references.is_ticket(spare[0][0], record, spare[0][1]):
            sent.tickets[spare[0][0]] = spare[0][1], NOBODY  # the last thing it did

    @precondition(lambda self: self.processes and any(sent.tickets for sent in self.records.values()))
    @rule(data=st.data())
    def redeem(self, data: st.DataObject) -> None:
        owner = self.pick(data, self.processes, "who")
        record = self.pick(data, [r for r, sent in self.records.items() if sent.tickets], "record")
        sent, ledger = self.records[record], self.ledger
        row = self.pick(data, sent.tickets, "ticket")
        serial, _ = sent.tickets[row]
        assert ledger.references.is_ticket(row, record, serial)
        assert ledger.records.is_live(record, sent.generation)

        holds: list[int] = []

        def do_redeem() -> None:
            holds.extend(self.section(lambda: ledger.references.reserve(owner, 1, ledger.take_serials(1))))
            if not holds:
                return
            words, at = ledger.references.words, holds[0] * Reference.WIDTH
            words[at + Reference.RECORD] = record
            words[at + Reference.SERIAL] = serial
            words[at + Reference.REDEEMED] = row + 1
            words[at] = Reference.HELD | owner

        if self.step(self.processes[owner], data, do_redeem):
            for hold in holds:
                sent.holders.setdefault(owner, []).append(hold)
                sent.came_by[hold] = row, serial
        elif not ledger.references.is_ticket(row, record, serial):
            sent.tickets.pop(row, None)  # it was the dead one's hold by then, or an earlier one of the dead's

    @precondition(lambda self: self.processes and self.records)
    @rule(data=st.data())
    def open_again(self, data: st.DataObject) -> None:
        """A fan-out: a hold of one's own, while the record lives."""
        owner = self.pick(data, self.processes, "who")
        record = self.pick(data, self.records, "record")
        sent, ledger, rows = self.records[record], self.ledger, []

        def do_open() -> None:
            rows.append(self.section(do_look_and_take))

        def do_look_and_take() -> int | None:
            ledger.sweep()
            if not ledger.records.is_live(record, sent.generation):
                return None
            return ledger.references.take(owner, record)

        if self.step(self.processes[owner], data, do_open):
            assert sent.is_named or rows[0] is None, "a record that nobody named came back"
            if rows[0] is not None:
                sent.holders.setdefault(owner, []).append(rows[0])

    @precondition(lambda self: any(self.held(owner) for owner in self.processes))
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        owner = self.pick(data, [o for o in self.processes if self.held(o)], "who")
        record = self.pick(data, self.held(owner), "record")
        sent, words = self.records[record], self.ledger.references.words
        row = self.pick(data, sent.holders[owner], "row")
        assert words[row * Reference.WIDTH] == Reference.HELD | owner
        words[row * Reference.WIDTH] = Reference.DROPPED | owner
        sent.end_hold(owner, row)

    @precondition(lambda self: any(sent.tickets for sent in self.records.values()))
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        record = self.pick(data, [r for r, sent in self.records.items() if sent.tickets], "record")
        row = self.pick(data, self.records[record].tickets, "ticket")
        self.section(lambda: self.ledger.references.discard(row))
        del self.records[record].tickets[row]

    # ---- names

    @precondition(lambda self: any(self.held(owner) for owner in self.processes))
    @rule(data=st.data(), text=st.sampled_from(TEXTS))
    def publish(self, data: st.DataObject, text: bytes) -> None:
        """Under a name that may be taken. The publisher's death leaves the old one or the new one."""
        owner = self.pick(data, [o for o in self.processes if self.held(o)], "who")
        record = self.pick(data, self.held(owner), "record")

        def do_publish() -> None:
            assert self.section(lambda: self.ledger.publish(text, b"", record, self.now, 1))

        lives = self.step(self.processes[owner], data, do_publish)
        row = self.ledger.names.find(text)
        was = next((r for r, sent in self.records.items() if text in sent.names), None)
        now = None if row is None else self.ledger.names.field(row, Name.RECORD)
        assert now == record or (not lives and now == was)
        self.records[record if was is None else was].names.discard(text)
        if now is not None:
            self.records[now].names.add(text)

    @precondition(lambda self: any(sent.names for sent in self.records.values()))
    @rule(data=st.data())
    def unpublish(self, data: st.DataObject) -> None:
        record = self.pick(data, [r for r, sent in self.records.items() if sent.names], "record")
        text = self.pick(data, self.records[record].names, "name")
        assert self.section(lambda: self.ledger.unpublish(text))
        self.records[record].names.remove(text)

    # ---- what is done when memory is needed

    def after_a_sweep(self) -> None:
        """The ledger has what the model has; owners take their slots back."""
        ledger = self.ledger
        gone = {record: sent for record, sent in self.records.items() if not sent.is_named}
        for record in gone:
            assert not ledger.records.is_live(record, gone[record].generation)
            del self.records[record]
        for record, sent in self.records.items():
            assert ledger.records.is_live(record, sent.generation), f"record {record} was lost"
        assert sorted(ledger.records.in_state(Record.LIVE).tolist()) == sorted(self.records)
        for process in self.processes.values():
            for row in ledger.records.owned(Record.RETURNED, process.owner).tolist():
                span, start = ledger.records.field(row, Record.SPAN), ledger.records.field(row, Record.START)
                self.section(lambda row=row: ledger.records.free(row))
                process.slot_spans[span].append(start)

    @rule(few=st.sampled_from((0, references.FEW)))
    def sweep(self, few: int = 0) -> None:
        with mock.patch.object(references, "FEW", few):
            self.section(self.ledger.sweep)
        self.after_a_sweep()

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def sweep_that_may_die(self, data: st.DataObject) -> None:
        process = self.processes[self.pick(data, self.processes, "who")]

        def do_sweep() -> None:
            self.section(self.ledger.sweep)

        self.step(process, data, do_sweep)
        self.sweep()

    @rule(later=st.integers(0, 20))
    def expire(self, later: int) -> None:
        self.now += later
        since = self.ledger.references.field
        for sent in self.records.values():
            sent.tickets = {
                row: (serial, sender)
                for row, (serial, sender) in sent.tickets.items()
                if sender != NOBODY or since(row, Reference.SINCE_NS) > self.now - 10
            }
        self.section(lambda: self.ledger.expire_tickets(self.now))

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), nbytes=st.sampled_from([1, 1 << 16, 1 << 40]))
    def purge(self, data: st.DataObject, nbytes: int) -> None:
        process = self.processes[self.pick(data, self.processes, "who")]

        def do_purge() -> None:
            self.section(do_all)

        def do_all() -> None:
            for planned in self.ledger.spans.plan_purges(nbytes):
                self.ledger.spans.begin_purge(planned)
                self.ledger.spans.settle(planned)

        self.step(process, data, do_purge)

    # ---- what always holds

    @invariant()
    def the_equations_hold(self) -> None:
        assert not self.ledger.dirty
        recover.check(self.ledger)

    @invariant()
    def every_reference_of_the_model_stands(self) -> None:
        for record, sent in self.records.items():
            for owner, rows in sent.holders.items():
                assert all(self.word(row) == Reference.HELD | owner for row in rows)
            for row, (serial, sender) in sent.tickets.items():
                assert self.ledger.references.is_ticket(row, record, serial)
                assert self.word(row) & OWNER_MASK == sender
            assert self.ledger.records.is_live(record, sent.generation) or not sent.is_named

    @invariant()
    def blocks_never_overlap(self) -> None:
        spans = self.ledger.spans
        seen: set[int] = set()
        blocks = [(sent.span, sent.start) for sent in self.records.values() if sent.is_named]
        for process in self.processes.values():
            blocks += self.unsent(process)
            blocks += [(row, start) for row, free in process.slot_spans.items() for start in free]
            for row in (*process.wholes, *process.slot_spans):
                assert spans.field(row, Span.WORD) == Span.ALLOCATED | process.owner
        for span, start in blocks:
            assert start not in seen
            seen.add(start)
            assert 0 <= start - spans.field(span, Span.START) < spans.field(span, Span.COMMITTED)

    @invariant()
    def clients_are_those_who_live(self) -> None:
        attached = {word & ~STATE_MASK for word in self.ledger.clients.attached()}
        assert attached == set(self.processes)
        assert len({slot_of(owner) for owner in attached}) == len(attached)

    @invariant()
    def names_are_those_of_the_model(self) -> None:
        names = self.ledger.names
        found = {names.text(row): names.field(row, Name.RECORD) for row in names.rows().tolist()}
        assert found == {text: record for record, sent in self.records.items() for text in sent.names}

    def teardown(self) -> None:
        """When all are dead, all messages have expired and nothing is published, nothing is in use."""
        for text in TEXTS:
            self.section(lambda text=text: self.ledger.unpublish(text))
        for process in list(self.processes.values()):
            self.bury(process)
        self.section(lambda: self.ledger.expire_tickets(self.now + 100))
        self.section(self.ledger.sweep)
        recover.check(self.ledger)
        assert self.ledger.used_bytes() == 0
        assert len(self.ledger.records.in_state(Record.FREE)) == 48
        assert len(self.ledger.references.in_state(Reference.FREE)) == 96
        assert all(self.ledger.spans.state(row) == Span.FREE for row in range(self.ledger.spans.count()))


LedgerMachine.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    print_blob=True,  # what repeats a failure
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLedger = LedgerMachine.TestCase
