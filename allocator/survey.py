"""A copy of a pool's tables, taken from outside: to be looked at, swept and checked without changing the pool.

Taking it needs the pool's lock for as long as the copy takes, a millisecond for some ten thousand records, and no place
among the clients. Never for a pool that this process is attached to: see `looking`.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import BinaryIO

from allocator.config import WAIT_FIRST_SECONDS
from allocator.core import recover
from allocator.core.format import (
    HEADER_BYTES,
    MAGIC,
    PLAN,
    STATE_MASK,
    Client,
    Header,
    Record,
    Span,
    plan_tables,
    slot_of,
)
from allocator.core.ledger import Ledger
from allocator.core.sizes import CLASSES
from allocator.errors import CorruptPool, PoolNotFound
from allocator.looking import Glance, glance, read_rows
from allocator.naming import Published, list_names
from allocator.sites import Sites
from allocator.stats import (
    Holder,
    PoolStats,
    SizeClassStats,
    Ticket,
    holders_of,
    list_tickets,
    size_classes,
    snapshot,
    with_sites,
)
from allocator.system import host
from allocator.system.locks import open_lock_file, try_lock_file

PATIENCE_SECONDS = 1.0
"""Who holds the lock longer is stopped, or pages are being given back: then the copy is taken all the same."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A block that was sent or published. Sizes in bytes; `start` is its byte in the heap. Its maker may be dead.
    `site` says where it was made, if that process runs with SHMTENSOR_TRACE=1.
    """

    record: int
    nbytes: int
    capacity: int
    start: int
    sealed: bool
    holders: tuple[Holder, ...]
    site: str


@dataclass(frozen=True, slots=True)
class Run:
    """A span as the map shows it: `nbytes` of address space from heap byte `start`, `committed_bytes` of them with
    memory, `used_bytes` in use. `state`: "used", "free" or "orphan"; `slot_bytes` is 0 for one block.
    """

    row: int
    start: int
    nbytes: int
    committed_bytes: int
    used_bytes: int
    state: str
    slot_bytes: int
    pid: int


class Survey:
    """One pool's tables at one moment. `owner` is nobody's, as `stats` asks for one."""

    owner = 0

    def __init__(self, name: str, ledger: Ledger, at_rest: bool) -> None:
        self.name = name
        self.sites = Sites(host.boot_id(), name)
        self.ledger = ledger
        self.at_rest = at_rest  # nobody was changing the tables
        self.was_cut_short = ledger.dirty and at_rest  # somebody died while it did; whoever enters next repairs it
        if self.was_cut_short:
            recover.rebuild(ledger)

    def check(self) -> None:
        """Raise CorruptPool unless the tables agree with each other."""
        recover.check(self.ledger)

    def stats(self) -> PoolStats:
        """As `Pool.stats`; the sweep is the copy's."""
        self.ledger.sweep()
        return snapshot(self)

    def size_classes(self) -> list[SizeClassStats]:
        """As `Pool.size_classes`."""
        return size_classes(self)

    def tickets(self) -> list[Ticket]:
        """As `Pool.tickets`."""
        return with_sites(list_tickets(self), self.sites)

    def names(self) -> dict[str, Published]:
        """As `Pool.names`."""
        return list_names(self)

    def clients(self) -> Glance:
        """The clients, from the pool itself."""
        return glance(self.name)

    def shared(self) -> list[Shared]:
        """The blocks that were sent or published, the largest first."""
        self.ledger.sweep()
        field, by_record = self.ledger.records.field, holders_of(self)
        rows = self.ledger.records.in_state(Record.LIVE).tolist()
        sites = self.sites.of_records((row, field(row, Record.GENERATION)) for row in rows)
        found = [
            Shared(
                row,
                field(row, Record.NBYTES),
                field(row, Record.CAPACITY),
                field(row, Record.START),
                bool(field(row, Record.FLAGS) & Record.SEALED),
                tuple(by_record.get(row, ())),
                site,
            )
            for row, site in zip(rows, sites, strict=True)
        ]
        return sorted(found, key=lambda block: -block.nbytes)

    def runs(self) -> list[Run]:
        """The heap, span by span."""
        field, clients = self.ledger.spans.field, self.ledger.clients
        states = {Span.FREE: "free", Span.ALLOCATED: "used", Span.ORPHAN: "orphan"}
        found = []
        for row in range(self.ledger.spans.count()):
            word, kind = field(row, Span.WORD), CLASSES[self.ledger.spans.slot_class(row)]
            owned = word & STATE_MASK == Span.ALLOCATED and clients.is_current(word)
            found.append(
                Run(
                    row,
                    field(row, Span.START),
                    1 << self.ledger.spans.order(row),
                    field(row, Span.COMMITTED),
                    field(row, Span.USED),
                    states.get(word & STATE_MASK, "?"),
                    0 if kind is None else kind.slot,
                    clients.field(slot_of(word), Client.PID) if owned else 0,
                )
            )
        return found


def survey(name: str) -> Survey:
    """The tables of the pool of that name.

    Raises
    ------
    PoolNotFound
        There is none.
    CorruptPool
        It was never finished, or is another version's.
    """
    host_id = host.boot_id()
    try:
        descriptor = open_lock_file(host.pool_path(host_id, name, "l"), create=False)
        try:
            at_rest = _wait_for_lock(descriptor)
            with open(host.pool_path(host_id, name, "c"), "rb", buffering=0) as file:
                return Survey(name, _copy(name, file), at_rest)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise PoolNotFound(f"no pool {name!r} on this machine: shmtensor ls lists those there are") from None


def _wait_for_lock(descriptor: int) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (taken := try_lock_file(descriptor)) and time.monotonic() < deadline:
        time.sleep(WAIT_FIRST_SECONDS)
    return taken


def _copy(name: str, file: BinaryIO) -> Ledger:
    header = memoryview(file.read(HEADER_BYTES)).cast("Q")
    if len(header) < HEADER_BYTES // 8 or header[Header.MAGIC] != MAGIC:
        raise CorruptPool(f"pool {name!r} was never finished, or is of another version of this library")
    tables = [read_rows(file, shape, header) for shape in PLAN]
    plan = plan_tables(*(len(words) // shape.width for words, shape in zip(tables, PLAN, strict=True)))
    control = memoryview(bytearray(plan.nbytes))
    control[:HEADER_BYTES] = header.cast("B")
    for words, shape in zip(tables, plan, strict=True):
        control[shape.base : shape.end] = words.cast("B")
    return Ledger(control, plan)
