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

import numpy as np

from allocator.core.format import NOBODY, OWNER_MASK, STATE_MASK, Header, Record, Reference, Span
from allocator.core.records import Records
from allocator.core.spans import Spans
from allocator.core.tables import Column, Rows, Table, Words, isin_state
from allocator.errors import CorruptPool

STATE = np.uint64(STATE_MASK)


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
        grid[tickets[spent], Reference.WORD] = Reference.FREE

    def is_opened(self, row: int) -> bool:
        """Whether a hold says that it came by this ticket."""
        words, redeemed = self.table.column(Reference.WORD), self.table.column(Reference.REDEEMED)
        holds = np.flatnonzero(redeemed == row + 1)  # or times of sending, where the row is a ticket
        holds = holds[isin_state(words[holds], Reference.HELD, Reference.DROPPED)]
        serial = self.words[row * Reference.WIDTH + Reference.SERIAL]
        return bool((self.table.column(Reference.SERIAL)[holds] == serial).any())

    def unopened(self) -> Rows:
        """The tickets that nobody has opened: in flight, and not spent by a hold."""
        grid = self.table.grid[: self.table.rows]
        words = grid[:, Reference.WORD]
        opened = isin_state(words, Reference.HELD, Reference.DROPPED) & (grid[:, Reference.REDEEMED] != 0)
        flight = np.flatnonzero(isin_state(words, Reference.FLIGHT))
        return flight[~np.isin(grid[flight, Reference.SERIAL], grid[opened, Reference.SERIAL])]

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


def sweep(references: References, records: Records, spans: Spans, barrier: Callable[[], None]) -> int:
    """Free the dropped references and the records that nobody names any more; how many records went.

    Owners write their rows while this runs, so the order of the steps is the proof.

    1. Copy the words. Free the rows that are DROPPED and the tickets they came by. The records they name are the
       candidates: a LIVE record loses its last name by a drop, or by what sets LOOSE, and then all of them are.
    2. `barrier`: no processor lets the reads below pass the writes above.
    3. Copy the words again. A candidate that no row names now, DROPPED ones included, is gone for good. Who could name
       it anew? A holder, with a ticket; if that came too late to be seen and it dropped its hold meanwhile, the hold
       shows as DROPPED, and the record waits for the next sweep. Or a receiver, with a hold; it wrote that before it
       saw its ticket standing, so either the hold is seen here, or the ticket was seen ended there.
    """
    table, header = references.table, references.table.header
    column = table.column(Reference.WORD)
    dropped = np.flatnonzero((column.copy() & STATE) == Reference.DROPPED)
    loose = header[Header.LOOSE]
    if not len(dropped) and not loose:
        return 0
    candidates = table.grid[dropped, Reference.RECORD].astype(np.intp)
    if loose:
        candidates = records.in_state(Record.LIVE)
    references.end_spent(dropped)
    column[dropped] = Reference.FREE
    barrier()
    named = table.column(Reference.RECORD)[(column.copy() & STATE) >= Reference.NAMING]
    gone = _unnamed(candidates, named, records)
    if len(gone):
        _release(gone, records, spans)
    header[Header.LOOSE] = 0
    return len(gone)


def _unnamed(candidates: Rows, named: Column, records: Records) -> Rows:
    """The LIVE ones among the candidates that don't appear in `named`, each once."""
    size = records.table.rows
    highest = max((int(rows.max()) for rows in (candidates, named) if len(rows)), default=0)
    if highest >= size:
        raise CorruptPool(f"a reference names record {highest}, but there are {size}: recreate the pool")
    mask = np.zeros(size, np.bool_)
    mask[candidates] = True
    mask[named.astype(np.intp)] = False
    gone = np.flatnonzero(mask)
    live: Rows = gone[records.table.grid[gone, Record.WORD] & STATE == Record.LIVE]
    return live


def _release(gone: Rows, records: Records, spans: Spans) -> None:
    """Give back the blocks of records that nobody names."""
    rows = records.table.grid[gone, Record.SPAN]
    if int(rows.max()) >= spans.count():
        raise CorruptPool(f"a record lies in span {int(rows.max())}, but there are {spans.count()}: recreate the pool")
    words = spans.table.grid[rows, Span.WORD]
    slots = spans.table.grid[rows, Span.KIND] >> np.uint64(8) != 0
    owned = isin_state(words, Span.ALLOCATED)
    to_owner = slots & owned
    records.give_back(gone[to_owner], words[to_owner] & np.uint64(OWNER_MASK))
    for row, span in zip(gone[~slots].tolist(), rows[~slots].tolist(), strict=True):
        # The span first: a LIVE record in a free span tells rebuild that this step was cut short.
        spans.free(span)
        records.free(row)
    orphaned = slots & ~owned
    if not orphaned.any():
        return
    # The records first: the count of an orphan span is derived from them.
    records.free_many(gone[orphaned])
    for span, count in zip(*np.unique(rows[orphaned], return_counts=True), strict=True):
        spans.drop_orphaned_records(int(span), int(count))
