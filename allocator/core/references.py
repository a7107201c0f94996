"""References: what keeps records alive. One table for holds and tickets. Only taking rows needs the lock.

    FREE -> RESERVED(c)       lock       the client takes spare rows, 64 at a time
    RESERVED(c) -> FLIGHT(c)  c, no lock sending: a ticket
    RESERVED(d) -> HELD(d)    d, no lock receiving: a hold that names the ticket it came by; or the maker of a record
    HELD(d) -> DROPPED(d)     d, no lock the last tensor on it in d is gone
    DROPPED(d) -> FREE        lock       sweep, and with it the ticket that the hold came by
    FLIGHT(c) -> FREE         lock       spent (above), discarded or expired

A row's word is written without the lock only by the client it names. So a receiver can't end the ticket itself: it
writes a hold of its own, and then looks whether the ticket still stands. If it does, whoever ends the ticket later
meets the hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from allocator.core.format import NOBODY, OWNER_MASK, STATE_MASK, Header, Record, Reference, Span
from allocator.core.records import Records
from allocator.core.spans import Spans
from allocator.core.tables import Column, Rows, Table, Words, is_among, isin_state
from allocator.errors import CorruptPool

STATE = np.uint64(STATE_MASK)

FEW: Final = 16
"""Up to so many rows are swept one by one: in a pipeline of large blocks each message waits for it, and NumPy's calls
cost more there than the rows do.
"""


class References:
    """The reference table. Needs the pool lock held, except for an owner's own rows."""

    __slots__ = ("table", "words")

    def __init__(self, table: Table) -> None:
        self.table = table
        self.words: Words = table.words

    def field(self, row: int, field: int) -> int:
        """One of the fields of `format.Reference`."""
        return self.words[row * Reference.WIDTH + field]

    def reserve(self, owner: int, count: int, first_serial: int) -> list[int]:
        """Up to `count` spare rows for `owner`, each with the serial that its message will carry."""
        rows = self.table.find_free(count)
        grid, at = self.table.grid, np.array(rows, np.intp)
        grid[at, Reference.SERIAL] = np.arange(first_serial, first_serial + len(rows), dtype=np.uint64)
        grid[at, Reference.REDEEMED] = 0
        grid[at, Reference.WORD] = Reference.RESERVED | owner
        return rows

    def take(self, owner: int, record: int) -> int | None:
        """A new HELD row on `record`; None when there is no free row."""
        rows = self.table.find_free(1)
        if not rows:
            return None
        at = rows[0] * Reference.WIDTH
        self.words[at + Reference.RECORD] = record
        self.words[at + Reference.REDEEMED] = 0
        self.words[at] = Reference.HELD | owner
        return rows[0]

    def is_ticket(self, row: int, record: int, serial: int) -> bool:
        """Whether the row is that very message, still unopened."""
        if not 0 <= row < self.table.rows:
            return False
        words, at = self.words, row * Reference.WIDTH
        return (
            words[at] & STATE_MASK == Reference.FLIGHT
            and words[at + Reference.RECORD] == record
            and words[at + Reference.SERIAL] == serial
        )

    def is_spent(self, serial: int) -> bool:
        """Whether a hold came by the message of this serial: it was opened."""
        grid = self.table.grid[: self.table.rows]
        rows = np.flatnonzero(grid[:, Reference.SERIAL] == np.uint64(serial))
        opened = isin_state(grid[rows, Reference.WORD], Reference.HELD, Reference.DROPPED)
        return bool((opened & (grid[rows, Reference.REDEEMED] != 0)).any())

    def discard(self, row: int) -> None:
        """The ticket ends unopened; perhaps it was the last to name its record."""
        self.loosen()
        self.words[row * Reference.WIDTH] = Reference.FREE

    def loosen(self) -> None:
        """Before rows are freed that may be the last to name their records: the next sweep looks at all records."""
        self.table.header[Header.LOOSE] = 1

    def end_spent(self, holds: Rows) -> None:
        """End the tickets that these holds, dropped or a dead client's, came by. Each is spent: it was opened.

        Never for a hold that may still be looking whether its ticket stands.
        """
        grid, rows = self.table.grid, self.table.rows
        holds = holds[grid[holds, Reference.REDEEMED] != 0]
        tickets = grid[holds, Reference.REDEEMED].astype(np.intp) - 1
        if len(tickets) and int(tickets.max()) >= rows:
            raise CorruptPool(f"a hold came by ticket {int(tickets.max())}, but there are {rows}: recreate the pool")
        in_flight = grid[tickets, Reference.WORD] & STATE == Reference.FLIGHT
        spent = in_flight & (grid[tickets, Reference.SERIAL] == grid[holds, Reference.SERIAL])
        spent &= grid[tickets, Reference.RECORD] == grid[holds, Reference.RECORD]
        grid[tickets[spent], Reference.WORD] = Reference.FREE

    def end_few(self, dropped: list[int]) -> set[int]:
        """Free these dropped rows and the tickets they came by, one by one; the records they name."""
        words, rows, candidates = self.words, self.table.rows, set()
        for row in dropped:
            at = row * Reference.WIDTH
            ticket = words[at + Reference.REDEEMED] - 1
            if ticket >= rows:
                raise CorruptPool(f"a hold came by ticket {ticket}, but there are {rows}: recreate the pool")
            if ticket >= 0 and self.is_ticket(ticket, words[at + Reference.RECORD], words[at + Reference.SERIAL]):
                words[ticket * Reference.WIDTH] = Reference.FREE
            candidates.add(words[at + Reference.RECORD])
            words[at] = Reference.FREE
        return candidates

    def unopened(self) -> Rows:
        """The tickets that nobody has opened: in flight, and not spent by a hold."""
        grid = self.table.grid[: self.table.rows]
        words = grid[:, Reference.WORD]
        opened = isin_state(words, Reference.HELD, Reference.DROPPED) & (grid[:, Reference.REDEEMED] != 0)
        flight = np.flatnonzero(isin_state(words, Reference.FLIGHT))
        return flight[~is_among(grid[flight, Reference.SERIAL], grid[opened, Reference.SERIAL])]

    def in_state(self, state: int) -> Rows:
        """All rows in one state."""
        return np.flatnonzero(isin_state(self.table.column(Reference.WORD), state))

    def owned(self, state: int, owner: int) -> Rows:
        """All rows in `state` whose word names `owner`."""
        return np.flatnonzero(self.table.column(Reference.WORD) == np.uint64(state | owner))

    def naming(self, record: int, *states: int) -> list[int]:
        """The rows that keep `record` alive."""
        words, records = self.table.column(Reference.WORD), self.table.column(Reference.RECORD)
        return [int(row) for row in np.flatnonzero(isin_state(words, *states) & (records == record))]

    def orphan_tickets(self, owner: int, now_ns: int) -> None:
        """The sender died: its tickets have no sender, since now. The time first: the word is the primary fact."""
        rows = self.owned(Reference.FLIGHT, owner)
        self.table.grid[rows, Reference.SINCE_NS] = now_ns
        self.table.grid[rows, Reference.WORD] = Reference.FLIGHT | NOBODY

    def expire(self, *, without_sender_before_ns: int, before_ns: int) -> int:
        """End the tickets without a sender that are older than one time, and any that are older than another; how
        many.
        """
        grid, rows = self.table.grid, self.unopened()
        words, since = grid[rows, Reference.WORD], grid[rows, Reference.SINCE_NS]
        nobody = words & np.uint64(OWNER_MASK) == np.uint64(NOBODY)
        rows = rows[(nobody & (since <= max(without_sender_before_ns, 0))) | (since <= max(before_ns, 0))]
        if len(rows):
            self.loosen()
            grid[rows, Reference.WORD] = Reference.FREE
        return len(rows)


def sweep(
    references: References,
    records: Records,
    spans: Spans,
    published: Callable[[], Column],
    barrier: Callable[[], None],
) -> int:
    """Free the dropped references and the records that nobody names any more; how many records went.

    Owners write their rows while this runs, so the order of the steps is the proof.

    1. Copy the words. Free the rows that are DROPPED and the tickets they came by. The records they name are the
       candidates: a LIVE record loses its last name by a drop, or by what sets LOOSE, and then all of them are.
    2. `barrier`: no processor lets the reads below pass the writes above.
    3. Copy the words again. A candidate that no row names now, DROPPED ones included, is gone for good. Who could name
       it anew? A holder, with a ticket; if that came too late to be seen and it dropped its hold meanwhile, the hold
       shows as DROPPED, and the record waits for the next sweep. Or a receiver, with a hold; it wrote that before it
       saw its ticket standing, so either the hold is seen here, or the ticket was seen ended there.

    `published` says which records have names; these come and go under the lock.
    """
    table, header = references.table, references.table.header
    column = table.column(Reference.WORD)
    dropped: Rows = (column.copy() & STATE == Reference.DROPPED).nonzero()[0]
    loose = header[Header.LOOSE]
    if len(dropped) <= FEW and not loose:
        few = references.end_few(dropped.tolist())
        if not few:
            return 0
        barrier()
        named = table.column(Reference.RECORD)[column.copy() & STATE >= Reference.NAMING]
        few.difference_update(published().tolist())
        _check_exist(max(few, default=0), records)
        lone = [record for record in few if records.state(record) == Record.LIVE and not (named == record).any()]
        for record in lone:
            _release(record, records, spans)
        return len(lone)
    candidates = records.in_state(Record.LIVE) if loose else table.grid[dropped, Reference.RECORD].astype(np.intp)
    references.end_spent(dropped)
    column[dropped] = Reference.FREE
    barrier()
    named = table.column(Reference.RECORD)[column.copy() & STATE >= Reference.NAMING]
    gone = _unnamed(candidates, np.concatenate((named, published())), records)
    if len(gone):
        _release_many(gone, records, spans)
    header[Header.LOOSE] = 0
    return len(gone)


def _unnamed(candidates: Rows, named: Column, records: Records) -> Rows:
    """The LIVE ones among the candidates that don't appear in `named`, each once."""
    _check_exist(max((int(rows.max()) for rows in (candidates, named) if len(rows)), default=0), records)
    mask = np.zeros(records.table.rows, np.bool_)
    mask[candidates] = True
    mask[named.astype(np.intp)] = False
    gone = np.flatnonzero(mask)
    live: Rows = gone[records.table.grid[gone, Record.WORD] & STATE == Record.LIVE]
    return live


def _check_exist(highest: int, records: Records) -> None:
    if highest >= records.table.rows:
        raise CorruptPool(f"a reference names record {highest}, but there are {records.table.rows}: recreate the pool")


def _release(record: int, records: Records, spans: Spans) -> None:
    """Give back the block of a record that nobody names."""
    span = records.field(record, Record.SPAN)
    if span >= spans.count():
        raise CorruptPool(f"a record lies in span {span}, but there are {spans.count()}: recreate the pool")
    word = spans.field(span, Span.WORD)
    if spans.slot_class(span) == 0:
        # The span first: a LIVE record in a free span tells rebuild that this step was cut short.
        spans.free(span)
        records.free(record)
    elif word & STATE_MASK == Span.ALLOCATED:
        records.give_back(record, word & OWNER_MASK)
    else:
        # The record first: the count of an orphan span is derived from its records.
        records.free(record)
        spans.drop_orphaned_records(span, 1)


def _release_many(gone: Rows, records: Records, spans: Spans) -> None:
    """`_release`, for many: most are slots that go back to their owners, or orphans of one dead client."""
    rows = records.table.grid[gone, Record.SPAN]
    if int(rows.max()) >= spans.count():
        raise CorruptPool(f"a record lies in span {int(rows.max())}, but there are {spans.count()}: recreate the pool")
    words = spans.table.grid[rows, Span.WORD]
    slots, owned = spans.table.grid[rows, Span.KIND] >> np.uint64(8) != 0, isin_state(words, Span.ALLOCATED)
    to_owner, orphaned = slots & owned, slots & ~owned
    records.give_back_many(gone[to_owner], words[to_owner] & np.uint64(OWNER_MASK))
    for record in gone[~slots].tolist():
        _release(record, records, spans)
    if not orphaned.any():
        return
    # The records first: the count of an orphan span is derived from them.
    records.free_many(gone[orphaned])
    counts = np.bincount(rows[orphaned].astype(np.intp))
    for span in counts.nonzero()[0].tolist():
        spans.drop_orphaned_records(span, int(counts[span]))
