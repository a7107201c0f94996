"""What tests of `allocator.core` share: a ledger over plain bytes, and deaths at a chosen line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import pytest

from allocator.core import format as shared_format
from allocator.core.format import STATE_MASK, Client, Header, Record, Reference, Span, plan_tables
from allocator.core.ledger import Ledger

CORE = str(Path(shared_format.__file__).parent)


class MakeLedger(Protocol):
    """Makes a ledger over zeroed bytes; see `make_ledger`."""

    def __call__(
        self,
        *,
        clients: int = 8,
        spans: int = 64,
        records: int = 64,
        references: int = 256,
        names: int = 8,
        limit: int = 64 << 20,
        address_space: int = 1 << 30,
    ) -> Ledger: ...


@pytest.fixture
def make_ledger() -> MakeLedger:
    """A factory of empty, formatted ledgers whose tables have all of their rows in use."""

    def make(
        *,
        clients: int = 8,
        spans: int = 64,
        records: int = 64,
        references: int = 256,
        names: int = 8,
        limit: int = 64 << 20,
        address_space: int = 1 << 30,
    ) -> Ledger:
        plan = plan_tables(clients, spans, records, references, names)
        ledger = Ledger(memoryview(bytearray(plan.nbytes)), plan)
        for shape in plan:
            ledger.grow(shape, shape.rows)
        ledger.format(limit=limit, address_space=address_space, host=1, grace_ns=60, ttl_ns=0, timeout_ns=0, now_ns=1)
        return ledger

    return make


@pytest.fixture
def ledger(make_ledger: MakeLedger) -> Ledger:
    """An empty ledger."""
    return make_ledger()


class People:
    """Clients of a ledger, and what they do, each in the order of stores that `allocator.exchange` has."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def join(self) -> int:
        """A new client's owner."""
        word = self.ledger.clients.claim(Client.LIVE, pid=1, started=1, now_ns=1)
        assert word is not None
        return word & ~STATE_MASK

    def span(self, owner: int, order: int = 20, slot_class: int = 0, nbytes: int = 1 << 16) -> int:
        """A span with `nbytes` committed and in use."""
        spans = self.ledger.spans
        row = spans.allocate(order, slot_class, owner)
        assert row is not None
        if nbytes > spans.field(row, Span.RESERVED):
            spans.raise_reserved(row, nbytes)
            spans.raise_committed(row, nbytes)
        spans.words[row * Span.WIDTH + Span.USED] = nbytes
        return row

    def publish(self, owner: int, span: int, offset: int = 0, nbytes: int = 4096) -> tuple[int, int]:
        """A LIVE record in the span, and its maker's hold: (record, row)."""
        ledger = self.ledger
        (record,) = ledger.records.reserve(owner, 1)
        ledger.records.fill(record, span, ledger.spans.field(span, Span.START) + offset, nbytes, nbytes)
        row = self.hold(owner, record)
        ledger.records.publish(record, owner)
        return record, row

    def hold(self, owner: int, record: int) -> int:
        """One more hold on the record: its row."""
        row = self.ledger.references.take(owner, record)
        assert row is not None
        return row

    def send(self, owner: int, record: int, now_ns: int = 1) -> tuple[int, int]:
        """A ticket: (row, serial)."""
        references = self.ledger.references
        serial = self.ledger.take_serials(1)
        (row,) = references.reserve(owner, 1, serial)
        at = row * Reference.WIDTH
        references.words[at + Reference.RECORD] = record
        references.words[at + Reference.SINCE_NS] = now_ns
        references.words[at] = Reference.FLIGHT | owner
        return row, serial

    def receive(self, owner: int, record: int, ticket: int) -> int:
        """A hold that came by the ticket, which stands: its row. Who sweeps the hold ends the spent ticket."""
        references = self.ledger.references
        serial = references.field(ticket, Reference.SERIAL)
        (row,) = references.reserve(owner, 1, self.ledger.take_serials(1))
        at = row * Reference.WIDTH
        references.words[at + Reference.RECORD] = record
        references.words[at + Reference.SERIAL] = serial
        references.words[at + Reference.REDEEMED] = ticket + 1
        references.words[at] = Reference.HELD | owner
        assert references.is_ticket(ticket, record, serial)
        return row

    def drop(self, owner: int, row: int) -> None:
        """Give a hold up: one store."""
        words = self.ledger.references.words
        assert words[row * Reference.WIDTH] == Reference.HELD | owner
        words[row * Reference.WIDTH] = Reference.DROPPED | owner

    def reference_state(self, row: int) -> int:
        """The state of a reference row."""
        return self.ledger.references.field(row, Reference.WORD) & STATE_MASK

    def record_state(self, row: int) -> int:
        """The state of a record row."""
        return self.ledger.records.field(row, Record.WORD) & STATE_MASK


@pytest.fixture
def people(ledger: Ledger) -> People:
    """Clients of the empty ledger."""
    return People(ledger)


@pytest.fixture
def people_of() -> Callable[[Ledger], People]:
    """Clients of any ledger."""
    return People


class Died(BaseException):
    """The process that ran this died here."""


RunsUntilLine = Callable[[Callable[[], Any], int], bool]


@pytest.fixture
def dies_at_line() -> RunsUntilLine:
    """Runs an action and cuts it short at the n-th line (from 1) of `allocator/core`; whether it got that far."""

    def run(action: Callable[[], Any], line: int) -> bool:
        left = line

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.startswith(CORE):
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

    return run


@pytest.fixture
def in_section() -> Callable[[Ledger, Callable[[], Any]], Any]:
    """Runs a body as the critical section does: dirty on entry, clean after its last statement."""

    def run(ledger: Ledger, body: Callable[[], Any]) -> Any:
        ledger.header[Header.DIRTY] = 1
        result = body()
        ledger.header[Header.DIRTY] = 0
        return result

    return run
