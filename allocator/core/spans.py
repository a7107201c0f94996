"""Address space: one bump pointer, and one stack of free spans for each order.

A span is only ever used at its order: nothing splits and nothing merges, so nothing can fragment. What limits a pool is
*reserved* bytes, the memory behind the fronts of all spans, and that can move between spans by purging free ones.
Primary are each row's word, start, kind, committed and reserved; the bump pointer, stacks and totals are derived.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from allocator.config import PAGE_BYTES
from allocator.core.format import ORDERS, STATE_MASK, Header, Span
from allocator.core.tables import Table, Words, isin_state


class Purge(NamedTuple):
    """Give back the memory of heap bytes [start, start + nbytes), which span `row` holds; it keeps `keep` bytes at
    its front.
    """

    row: int
    start: int
    nbytes: int
    keep: int


class Spans:
    """The span table and the header words that belong to it. Everything needs the pool lock held, except reading one
    field.
    """

    __slots__ = ("header", "table", "words")

    def __init__(self, table: Table) -> None:
        self.table = table
        self.words: Words = table.words
        self.header: Words = table.header

    # ---- one row

    def field(self, row: int, field: int) -> int:
        """One of the fields of `format.Span`."""
        return self.words[row * Span.WIDTH + field]

    def order(self, row: int) -> int:
        """The span is 2^order bytes long."""
        return self.words[row * Span.WIDTH + Span.KIND] & 0xFF

    def slot_class(self, row: int) -> int:
        """The class number of its slots; 0: it is one block."""
        return self.words[row * Span.WIDTH + Span.KIND] >> 8

    def state(self, row: int) -> int:
        """FREE, ALLOCATED or ORPHAN."""
        return self.words[row * Span.WIDTH] & STATE_MASK

    # ---- taking and giving back

    def allocate(self, order: int, slot_class: int, owner: int) -> int | None:
        """A span of at least 2^order bytes, the most recently freed one first; None when rows or address space have
        run out.
        """
        row = self._pop(order)
        if row is None:
            row = self._carve(order)
        if row is None:
            row = next((r for o in range(order + 1, ORDERS) if (r := self._pop(o)) is not None), None)
        if row is None:
            return None
        at = row * Span.WIDTH
        self.words[at + Span.KIND] = self.words[at + Span.KIND] & 0xFF | slot_class << 8
        self.words[at + Span.USED] = 0
        self.words[at] = Span.ALLOCATED | owner
        return row

    def top(self, order: int) -> int | None:
        """The free span that `allocate` would take first, if there is one of this order."""
        head = self.header[Header.STACKS + order]
        return head - 1 if head else None

    def _pop(self, order: int) -> int | None:
        row = self.top(order)
        if row is not None:
            self.header[Header.STACKS + order] = self.words[row * Span.WIDTH + Span.NEXT]
        return row

    def _carve(self, order: int) -> int | None:
        row, bump = self.header[Header.SPAN_COUNT], self.header[Header.BUMP]
        if row >= self.table.rows or bump + (1 << order) > self.header[Header.ADDRESS_SPACE]:
            return None
        at = row * Span.WIDTH
        self.words[at + Span.START] = bump
        self.words[at + Span.KIND] = order
        self.header[Header.BUMP] = bump + (1 << order)
        self.header[Header.SPAN_COUNT] = row + 1
        return row

    def free(self, row: int) -> None:
        """Put the span on the stack of its order. It keeps its memory: the next one to use it finds it warm."""
        at = row * Span.WIDTH
        self.words[at] = Span.FREE
        self.words[at + Span.USED] = 0
        self._push(row)

    def _push(self, row: int) -> None:
        head = Header.STACKS + self.order(row)
        self.words[row * Span.WIDTH + Span.NEXT] = self.header[head]
        self.header[head] = row + 1

    def orphan(self, row: int, live: int) -> None:
        """The owner died while `live` records lie in the span."""
        at = row * Span.WIDTH
        self.words[at + Span.LIVE] = live
        self.words[at] = Span.ORPHAN

    def drop_orphaned_records(self, row: int, count: int) -> None:
        """So many records fewer lie in this ORPHAN span; with the last one it is freed."""
        at = row * Span.WIDTH + Span.LIVE
        self.words[at] -= count
        if self.words[at] == 0:
            self.free(row)

    def owned_by(self, owner: int) -> list[int]:
        """The rows of the ALLOCATED spans of `owner`."""
        column = self.used_column(Span.WORD)
        return [int(row) for row in np.flatnonzero(column == (Span.ALLOCATED | owner))]

    # ---- memory

    def raise_reserved(self, row: int, nbytes: int) -> None:
        """The span's first `nbytes` now count against the limit."""
        at = row * Span.WIDTH + Span.RESERVED
        self._count(nbytes - self.words[at])
        self.words[at] = nbytes

    def raise_committed(self, row: int, nbytes: int) -> None:
        """The span's first `nbytes` have memory."""
        self.words[row * Span.WIDTH + Span.COMMITTED] = nbytes

    def doubt(self, row: int) -> Purge | None:
        """What has to be purged before `settle`: a commit that failed, or whose process died."""
        at = row * Span.WIDTH
        committed, reserved = self.words[at + Span.COMMITTED], self.words[at + Span.RESERVED]
        if committed == reserved:
            return None
        return Purge(row, self.words[at + Span.START] + committed, reserved - committed, committed)

    def begin_purge(self, purge: Purge) -> None:
        """Before the kernel is asked: from here on a crash leaves the bytes in doubt, not falsely committed."""
        self.words[purge.row * Span.WIDTH + Span.COMMITTED] = purge.keep

    def settle(self, purge: Purge) -> None:
        """After the kernel gave the bytes back: they no longer count."""
        at = purge.row * Span.WIDTH + Span.RESERVED
        self._count(purge.keep - self.words[at])
        self.words[at] = purge.keep

    def _count(self, more: int) -> None:
        reserved = self.header[Header.RESERVED] + more
        self.header[Header.RESERVED] = reserved
        if reserved > self.header[Header.PEAK]:
            self.header[Header.PEAK] = reserved

    def plan_purges(self, nbytes: int) -> list[Purge]:
        """Which spans to purge to get `nbytes`: free ones first, the largest first; then what whole blocks don't use
        of their fronts.
        """
        words, kinds = self.used_column(Span.WORD), self.used_column(Span.KIND)
        reserved = self.used_column(Span.RESERVED).astype(np.int64)
        committed = self.used_column(Span.COMMITTED).astype(np.int64)
        used = self.used_column(Span.USED).astype(np.int64)
        free = isin_state(words, Span.FREE)
        slack = isin_state(words, Span.ALLOCATED, Span.ORPHAN) & (kinds >> 8 == 0) & (reserved == committed)
        keep = np.where(free, 0, np.where(slack, -(-used // PAGE_BYTES) * PAGE_BYTES, reserved))
        gain = np.maximum(reserved - keep, 0)
        rows = np.flatnonzero(gain)
        rows = rows[np.lexsort((-gain[rows], ~free[rows]))]
        last = int(np.searchsorted(np.cumsum(gain[rows]), nbytes)) + 1
        starts = self.used_column(Span.START)
        return [Purge(int(r), int(starts[r]) + int(keep[r]), int(gain[r]), int(keep[r])) for r in rows[:last]]

    def count(self) -> int:
        """How many rows are in use."""
        return self.header[Header.SPAN_COUNT]

    def used_column(self, field: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
        """Field `field` of every row in use."""
        return self.table.grid[: self.header[Header.SPAN_COUNT], field]

    # ---- derived state

    def rebuild(self) -> None:
        """Bump pointer, count, stacks and total again, from each row's word, start, kind and reserved."""
        starts = self.table.column(Span.START)
        kinds = self.table.column(Span.KIND)
        words = self.table.column(Span.WORD)
        never = np.flatnonzero(words == 0)
        count = int(never[0]) if len(never) else self.table.rows
        self.header[Header.SPAN_COUNT] = count
        self.header[Header.BUMP] = int(starts[count - 1]) + (1 << (int(kinds[count - 1]) & 0xFF)) if count else 0
        self.header[Header.RESERVED] = int(self.used_column(Span.RESERVED).sum())
        for order in range(ORDERS):
            self.header[Header.STACKS + order] = 0
        free = np.flatnonzero(isin_state(words[:count], Span.FREE))
        self.used_column(Span.USED)[free] = 0
        for row in free.tolist():
            self._push(row)
