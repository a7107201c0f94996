"""What is where, and who holds it: one frozen snapshot, composed of the tables' own facts."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from time import monotonic_ns
from typing import NamedTuple, Protocol

import numpy as np

from allocator.config import PAGE_BYTES
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
    slot_of,
)
from allocator.core.ledger import Ledger
from allocator.core.sizes import CLASSES
from allocator.core.tables import distinct, isin_state
from allocator.sites import Sites
from allocator.system import host


class Seen(Protocol):
    """A pool, by a client of it or from outside."""

    @property
    def ledger(self) -> Ledger:
        """Its tables."""

    @property
    def owner(self) -> int:
        """Whom of its clients the numbers are for; 0: none."""


class PoolStats(NamedTuple):
    """A pool at one moment, after a sweep. Sizes in bytes, the rest counts.

    `used_bytes`: allocated blocks, rounded up to slots and pages. `warm_bytes`: memory that is committed and free
    to be used again without a page fault. `free_bytes`: a request of this size succeeds; limit minus used, but for
    what is committed between small blocks in use. `committed_bytes` = used + warm, plus what is being populated
    right now; `peak_bytes` is the most it ever was. `spans` ever made; of these `free_spans` are in nobody's use
    and `orphan_spans` outlive their owners. `records`: blocks that were sent. `holds` on them: one per process and
    block. `tickets`: messages in flight, also those without a living sender. `names`: what is published. `clients`:
    attached processes. `address_bytes`: address space handed out so far, of `address_limit_bytes`. Since the pool
    was made: `reaped_clients`, dead ones that were taken back from; `purged_bytes`, given back to the kernel;
    `delayed_allocations`, not met at once; `refused_allocations`, met by OutOfSharedMemory.
    """

    limit_bytes: int
    committed_bytes: int
    peak_bytes: int
    used_bytes: int
    warm_bytes: int
    free_bytes: int
    spans: int
    free_spans: int
    orphan_spans: int
    records: int
    holds: int
    tickets: int
    tickets_without_sender: int
    names: int
    clients: int
    address_bytes: int
    address_limit_bytes: int
    reaped_clients: int
    purged_bytes: int
    delayed_allocations: int
    refused_allocations: int


class SizeClassStats(NamedTuple):
    """The spans that are cut into slots of `slot_bytes`, or those with one block each (0): how many are in use, the
    bytes of their blocks, and the bytes of memory that they have.
    """

    slot_bytes: int
    spans: int
    used_bytes: int
    committed_bytes: int


class Statistics:
    """What happened in a pool within a `with` block, in all of its processes; readable from its end on.

    `before` and `after` are snapshots. The rest are differences: `used_bytes` more in use (less, if negative), and how
    many clients were reaped, bytes purged, allocations delayed and refused. `peak_bytes` is the most that was
    committed at a time since the pool was made, if that came within the block, and else the larger of the two ends.
    """

    before: PoolStats
    after: PoolStats
    used_bytes: int
    records: int
    peak_bytes: int
    reaped_clients: int
    purged_bytes: int
    delayed_allocations: int
    refused_allocations: int

    def __init__(self, take: Callable[[], PoolStats]) -> None:
        self._take = take

    def __enter__(self) -> Statistics:
        self.before = self._take()
        return self

    def __exit__(self, *_: object) -> None:
        before, after = self.before, self._take()
        self.after = after
        for field in DIFFERENCES:
            setattr(self, field, getattr(after, field) - getattr(before, field))
        ends = max(before.committed_bytes, after.committed_bytes)
        self.peak_bytes = after.peak_bytes if after.peak_bytes > before.peak_bytes else ends

    def __repr__(self) -> str:
        return ", ".join(f"{field} {getattr(self, field, '?')}" for field in (*DIFFERENCES, "peak_bytes"))


DIFFERENCES = ("used_bytes", "records", "reaped_clients", "purged_bytes", "delayed_allocations", "refused_allocations")


class Holder(NamedTuple):
    """Who keeps a block alive: a process that has it open ("hold"), a message it sent ("ticket"), or the pool under a
    name, which is `name` then ("name"; slot and pid are 0).
    """

    kind: str
    slot: int
    pid: int
    name: str


class Ticket(NamedTuple):
    """A message in flight: a claim on a block of `nbytes` that nobody has opened yet, sent `age_seconds` ago.

    `sender_pid` is 0 once the sender is dead; the age then counts from when that was noticed. `row` is where the tables
    keep it. `site` says where it was pickled, if its sender runs with SHMTENSOR_TRACE=1.
    """

    record: int
    serial: int
    nbytes: int
    age_seconds: float
    sender_pid: int
    sender_name: str
    row: int
    site: str = ""


def snapshot(pool: Seen) -> PoolStats:
    """Inside the critical section, after a sweep: the pool as it is."""
    ledger = pool.ledger
    header, spans, references = ledger.header, ledger.spans, ledger.references
    states = spans.used_column(Span.WORD) & np.uint64(STATE_MASK)
    reserved, used = header[Header.RESERVED], ledger.used_bytes()
    committed = int(spans.used_column(Span.COMMITTED).sum())
    flight = references.unopened()
    owners = references.table.column(Reference.WORD)[flight] & np.uint64(OWNER_MASK)
    return PoolStats(
        limit_bytes=header[Header.LIMIT],
        committed_bytes=reserved,
        peak_bytes=header[Header.PEAK],
        used_bytes=used,
        warm_bytes=max(committed - used, 0),
        free_bytes=(header[Header.LIMIT] - _tied_bytes(pool)) // PAGE_BYTES * PAGE_BYTES,  # memory comes in pages
        spans=spans.count(),
        free_spans=int(np.count_nonzero(states == Span.FREE)),
        orphan_spans=int(np.count_nonzero(states == Span.ORPHAN)),
        records=len(ledger.records.in_state(Record.LIVE)),
        holds=len(references.in_state(Reference.HELD)),
        tickets=len(flight),
        tickets_without_sender=int(np.count_nonzero(owners == NOBODY)),
        names=len(ledger.names.rows()),
        clients=len(ledger.clients.attached()),
        address_bytes=header[Header.BUMP],
        address_limit_bytes=header[Header.ADDRESS_SPACE],
        reaped_clients=header[Header.REAPED],
        purged_bytes=header[Header.PURGED],
        delayed_allocations=header[Header.DELAYED],
        refused_allocations=header[Header.REFUSED],
    )


def size_classes(pool: Seen) -> list[SizeClassStats]:
    """Inside the critical section: the spans in use by size class, the smallest slots first, whole spans last."""
    spans = pool.ledger.spans
    taken = isin_state(spans.used_column(Span.WORD), Span.ALLOCATED, Span.ORPHAN)
    classes = spans.used_column(Span.KIND)[taken] >> np.uint64(8)
    used, committed = spans.used_column(Span.USED)[taken], spans.used_column(Span.COMMITTED)[taken]
    found = []
    for number in distinct(classes).tolist():
        these, kind = classes == number, CLASSES[number]
        slot = 0 if kind is None else kind.slot
        found.append(SizeClassStats(slot, int(these.sum()), int(used[these].sum()), int(committed[these].sum())))
    return sorted(found, key=lambda stats: stats.slot_bytes or 1 << 62)


def _tied_bytes(pool: Seen) -> int:
    """Bytes of the limit that no request can get: whole blocks, and slot spans in use, whose free slots stay theirs."""
    spans = pool.ledger.spans
    words, used = spans.used_column(Span.WORD), spans.used_column(Span.USED)
    taken = isin_state(words, Span.ALLOCATED, Span.ORPHAN)
    whole = spans.used_column(Span.KIND) >> np.uint64(8) == 0
    idle = (used == 0) & (words == Span.ALLOCATED | pool.owner)  # this process's own: given back when asked for
    page = np.uint64(PAGE_BYTES)
    tied = np.where(whole, (used + page - np.uint64(1)) // page * page, spans.used_column(Span.RESERVED))
    return int(tied[taken & ~idle].sum())


def list_tickets(pool: Seen) -> list[Ticket]:
    """Inside the critical section: the messages in flight, the oldest first."""
    ledger, now = pool.ledger, monotonic_ns()
    references, records, process_of = ledger.references, ledger.records, _processes(pool)
    found = []
    for row in references.unopened().tolist():
        record = references.field(row, Reference.RECORD)
        age = (now - references.field(row, Reference.SINCE_NS)) / 1e9
        pid, name = process_of(references.field(row, Reference.WORD) & OWNER_MASK)
        nbytes = records.field(record, Record.NBYTES)
        found.append(Ticket(record, references.field(row, Reference.SERIAL), nbytes, age, pid, name, row))
    return sorted(found, key=lambda ticket: -ticket.age_seconds)


def with_sites(tickets: list[Ticket], sites: Sites) -> list[Ticket]:
    """The same tickets, with what is known of where they were pickled."""
    found = sites.of_tickets((ticket.row, ticket.serial) for ticket in tickets)
    return [ticket._replace(site=site) if site else ticket for ticket, site in zip(tickets, found, strict=True)]


def oldest_ticket(pool: Seen) -> tuple[int, int] | None:
    """Inside the critical section: row and serial of the oldest message in flight."""
    references = pool.ledger.references
    flight = references.unopened()
    if not len(flight):
        return None
    row = int(flight[np.argmin(references.table.column(Reference.SINCE_NS)[flight])])
    return row, references.field(row, Reference.SERIAL)


def holders(pool: Seen, record: int) -> list[Holder]:
    """Inside the critical section: who keeps this record alive."""
    return holders_of(pool, record).get(record, [])


def holders_of(pool: Seen, only: int | None = None) -> dict[int, list[Holder]]:
    """Inside the critical section: by record, or of only one, who keeps it alive."""
    references, names, process_of = pool.ledger.references, pool.ledger.names, _processes(pool)
    found: dict[int, list[Holder]] = {}
    naming = isin_state(references.table.column(Reference.WORD), Reference.HELD, Reference.FLIGHT)
    if only is not None:
        naming &= references.table.column(Reference.RECORD) == only
    unopened = set(references.unopened().tolist())
    for row in np.flatnonzero(naming).tolist():
        word = references.field(row, Reference.WORD)
        kind = "hold" if word & STATE_MASK == Reference.HELD else "ticket"
        if kind == "hold" or row in unopened:
            holder = Holder(kind, slot_of(word), *process_of(word & OWNER_MASK))
            found.setdefault(references.field(row, Reference.RECORD), []).append(holder)
    for row in names.rows().tolist():
        holder = Holder("name", 0, 0, names.text(row).decode())
        found.setdefault(names.field(row, Name.RECORD), []).append(holder)
    return found


def top_holders(pool: Seen, count: int) -> list[tuple[int, int, str]]:
    """Inside the critical section: (bytes, pid, name) of the clients that keep most memory from being used, the
    largest first.

    Counted are the spans a client owns and the records of others that it holds.
    """
    ledger = pool.ledger
    by_owner: dict[int, int] = {}
    words, used = ledger.spans.used_column(Span.WORD), ledger.spans.used_column(Span.USED)
    for row in np.flatnonzero(used).tolist():
        if int(words[row]) & STATE_MASK == Span.ALLOCATED:
            owner = int(words[row]) & OWNER_MASK
            by_owner[owner] = by_owner.get(owner, 0) + int(used[row])
    references = ledger.references
    for row in references.in_state(Reference.HELD).tolist():
        owner = references.field(row, Reference.WORD) & OWNER_MASK
        record = references.field(row, Reference.RECORD)
        span = ledger.records.field(record, Record.SPAN)
        if ledger.spans.field(span, Span.WORD) & OWNER_MASK != owner:
            by_owner[owner] = by_owner.get(owner, 0) + ledger.records.field(record, Record.NBYTES)
    largest = sorted(by_owner.items(), key=lambda item: -item[1])[:count]
    return [(nbytes, *_process_of(pool, owner)) for owner, nbytes in largest]


def _processes(pool: Seen) -> Callable[[int], tuple[int, str]]:
    """Pid and name of the client that an owner names; the kernel is asked for each once."""
    return lru_cache(maxsize=None)(partial(_process_of, pool))


def _process_of(pool: Seen, word: int) -> tuple[int, str]:
    clients = pool.ledger.clients
    if not clients.is_current(word):
        return 0, "(dead)"
    slot = slot_of(word)
    pid = clients.field(slot, Client.PID)
    return pid, host.process_name(pid, clients.field(slot, Client.STARTED))
