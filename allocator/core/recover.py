"""After a death inside the lock: derived state again from primary state. And the proof that both agree."""

from __future__ import annotations

import numpy as np

from allocator.core.format import (
    NOBODY,
    ORDERS,
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
from allocator.core.tables import distinct, is_among, isin_state
from allocator.errors import CorruptPool


def rebuild(ledger: Ledger) -> None:
    """Finish what the dead holder of the lock began. Whatever line it died at, primary facts say how far it got.

    It never asks the kernel for anything: bytes in doubt stay in doubt, since a living client may be populating them.
    """
    spans = ledger.spans
    spans.rebuild()
    ledger.references.loosen()
    ledger.names.end_replaced()
    live, rows = ledger.live_records()
    in_free = isin_state(spans.table.grid[rows, Span.WORD], Span.FREE)
    ledger.records.free_many(live[in_free])  # sweep freed the span and died before it freed the record
    counts = ledger.live_counts()
    for row in np.flatnonzero(isin_state(spans.used_column(Span.WORD), Span.ORPHAN)).tolist():
        ledger.settle_ownerless(row, int(counts[row]))


def check(ledger: Ledger) -> None:
    """Prove the equations of `format`.

    Raises
    ------
    CorruptPool
        naming the first equation that fails, and where.
    """
    _check_stacks(ledger)
    _check_tiling(ledger)
    _check_records(ledger)
    _check_orphans(ledger)
    _check_reserved(ledger)
    _check_owners(ledger)
    _check_names(ledger)


def _require(holds: bool, equation: int, fact: str) -> None:
    if not holds:
        raise CorruptPool(f"equation {equation} of the pool's tables fails: {fact}")


def _check_stacks(ledger: Ledger) -> None:
    spans = ledger.spans
    words = spans.used_column(Span.WORD)
    known = isin_state(words, Span.FREE, Span.ALLOCATED, Span.ORPHAN)
    _require(bool(known.all()), 1, f"span {int(np.argmin(known)) if len(known) else 0} is in no state")
    seen: set[int] = set()
    for order in range(ORDERS):
        head = ledger.header[Header.STACKS + order]
        while head:
            row = head - 1
            _require(row < spans.count() and row not in seen, 1, f"span {row} is on a stack twice or doesn't exist")
            _require(spans.state(row) == Span.FREE, 1, f"span {row} is on a stack and not free")
            _require(spans.order(row) == order, 1, f"span {row} of order {spans.order(row)} is on stack {order}")
            seen.add(row)
            head = spans.field(row, Span.NEXT)
    free = int(np.count_nonzero(isin_state(words, Span.FREE)))
    _require(free == len(seen), 1, f"{free} spans are free, {len(seen)} are on stacks")


def _check_tiling(ledger: Ledger) -> None:
    spans = ledger.spans
    starts = spans.used_column(Span.START)
    sizes = np.left_shift(np.uint64(1), spans.used_column(Span.KIND) & np.uint64(0xFF))
    ends = np.cumsum(sizes)
    _require(bool((starts == ends - sizes).all()), 2, "spans don't tile the address space")
    bump = int(ends[-1]) if len(ends) else 0
    _require(ledger.header[Header.BUMP] == bump, 2, f"the bump pointer is {ledger.header[Header.BUMP]}, not {bump}")
    beyond = ledger.header[spans.table.count_at]
    _require(not spans.table.grid[spans.count() : beyond, Span.WORD].any(), 2, "a span beyond the count is in use")


def _check_records(ledger: Ledger) -> None:
    records, references, spans = ledger.records, ledger.references, ledger.spans
    live = records.in_state(Record.LIVE)
    grid = records.table.grid
    rows = grid[live, Record.SPAN]
    _require(not len(rows) or int(rows.max()) < spans.count(), 3, "a live record lies in no span")
    starts, sizes = grid[live, Record.START], grid[live, Record.CAPACITY]
    order = np.argsort(starts)
    ends = (starts + sizes)[order]
    _require(bool((ends[:-1] <= starts[order][1:]).all()), 3, "two live records overlap")
    span_starts, committed = spans.table.grid[rows, Span.START], spans.table.grid[rows, Span.COMMITTED]
    used = grid[live, Record.NBYTES]
    inside = (starts >= span_starts) & (starts + used <= span_starts + committed)
    _require(bool(inside.all()), 3, "a live record leaves the committed front of its span")
    free = isin_state(spans.table.grid[rows, Span.WORD], Span.FREE)
    _require(not free.any(), 3, "a live record lies in a free span")
    words = references.table.column(Reference.WORD)
    naming = isin_state(words, Reference.HELD, Reference.FLIGHT, Reference.DROPPED)
    named = np.concatenate((references.table.column(Reference.RECORD)[naming], ledger.names.records()))
    lost = live[~is_among(live.astype(np.uint64), named)]
    loose = ledger.header[Header.LOOSE] != 0  # then the next sweep frees them
    _require(loose or not len(lost), 4, f"nobody names live record {int(lost[0]) if len(lost) else 0}")


def _check_orphans(ledger: Ledger) -> None:
    spans, counts = ledger.spans, ledger.live_counts()
    for row in np.flatnonzero(isin_state(spans.used_column(Span.WORD), Span.ORPHAN)).tolist():
        count = spans.field(row, Span.LIVE)
        _require(
            count == int(counts[row]) > 0, 5, f"orphan span {row} counts {count} live records, there are {counts[row]}"
        )


def _check_reserved(ledger: Ledger) -> None:
    total = int(ledger.spans.used_column(Span.RESERVED).sum())
    header = ledger.header
    _require(
        total == header[Header.RESERVED], 6, f"spans reserve {total} bytes, the header says {header[Header.RESERVED]}"
    )
    _require(total <= header[Header.LIMIT], 6, f"{total} bytes are reserved, the limit is {header[Header.LIMIT]}")
    spans = ledger.spans
    within = spans.used_column(Span.COMMITTED) <= spans.used_column(Span.RESERVED)
    _require(bool(within.all()), 6, "a span has more committed than reserved bytes")


def _check_owners(ledger: Ledger) -> None:
    current = {word & OWNER_MASK for word in ledger.clients.attached()}
    tables = (
        ("span", ledger.spans.used_column(Span.WORD), (Span.ALLOCATED,)),
        ("record", ledger.records.table.column(Record.WORD), (Record.RESERVED, Record.RETURNED)),
        (
            "reference",
            ledger.references.table.column(Reference.WORD),
            (Reference.RESERVED, Reference.HELD, Reference.DROPPED, Reference.FLIGHT),
        ),
    )
    for name, words, states in tables:
        owners = distinct(words[isin_state(words, *states)] & np.uint64(OWNER_MASK))
        for owner in owners.tolist():
            known = owner in current or (name == "reference" and owner == NOBODY)
            _require(known, 7, f"a {name} names a client that isn't attached (slot {slot_of(owner)})")
    for slot in range(ledger.clients.table.rows):
        word = ledger.clients.word(slot)
        if word & STATE_MASK != Client.FREE:
            _require(slot_of(word) == slot, 7, f"client slot {slot} is named {slot_of(word)}")


def _check_names(ledger: Ledger) -> None:
    names, records = ledger.names, ledger.records
    states = names.table.column(Name.WORD)
    _require(bool((states <= Name.NAMED).all()), 8, "a name is in no state")
    _require(next(names.replaced(), None) is None, 8, "two names have one text")
    for row in names.rows().tolist():
        record, size = names.field(row, Name.RECORD), len(names.text(row)) + len(names.note(row))
        lives = record < records.table.rows and records.field(record, Record.WORD) & STATE_MASK == Record.LIVE
        _require(lives and size > 0, 8, f"name {row} names record {record}, which isn't live")
