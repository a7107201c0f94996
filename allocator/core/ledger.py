"""The tables and the header of one pool, over one control segment: what every decision reads and writes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from allocator.config import COMMIT_STEP_BYTES
from allocator.core.clients import Clients
from allocator.core.format import (
    MAGIC,
    PLAN,
    STATE_MASK,
    Header,
    Plan,
    Record,
    Reference,
    Span,
    TableShape,
    slot_of,
)
from allocator.core.names import Names
from allocator.core.records import Records
from allocator.core.references import References, sweep
from allocator.core.spans import Purge, Spans
from allocator.core.tables import Rows, Table, Words, header_words
from allocator.errors import CorruptPool


class Ledger:
    """Everything shared about one pool. Needs the pool lock held, but for what the parts exempt."""

    __slots__ = ("barrier", "clients", "header", "names", "plan", "records", "references", "spans")

    def __init__(self, control: memoryview, plan: Plan = PLAN, barrier: Callable[[], None] = lambda: None) -> None:
        self.plan = plan
        self.barrier = barrier  # orders writes before reads, for other processors to see; see `references.sweep`
        self.header: Words = header_words(control)
        self.clients = Clients(Table(control, plan.clients))
        self.spans = Spans(Table(control, plan.spans))
        self.records = Records(Table(control, plan.records))
        self.references = References(Table(control, plan.references))
        self.names = Names(Table(control, plan.names))

    @property
    def dirty(self) -> bool:
        """Whether a holder of the lock died, or was interrupted, half-way."""
        return self.header[Header.DIRTY] != 0

    @property
    def is_formatted(self) -> bool:
        """Whether the creator got to the end of making this pool, and speaks this version of the format."""
        return self.header[Header.MAGIC] == MAGIC

    def format(
        self, *, limit: int, address_space: int, host: int, grace_ns: int, ttl_ns: int, timeout_ns: int, now_ns: int
    ) -> None:
        """Make an empty pool in zeroed memory; the magic last."""
        header = self.header
        header[Header.LIMIT] = limit
        header[Header.ADDRESS_SPACE] = address_space
        header[Header.HOST] = host
        header[Header.GRACE_NS] = grace_ns
        header[Header.TTL_NS] = ttl_ns
        header[Header.TIMEOUT_NS] = timeout_ns
        header[Header.CREATED_NS] = now_ns
        header[Header.NEXT_SERIAL] = 1
        self._start_generations(0, header[self.plan.records.count_at])
        header[Header.MAGIC] = MAGIC

    def table_of(self, shape: TableShape) -> Table:
        """The table of that shape."""
        owners = (self.clients, self.spans, self.records, self.references, self.names)
        return owners[self.plan.index(shape)].table

    def name_of(self, shape: TableShape) -> str:
        """What its rows are, for messages."""
        return self.plan._fields[self.plan.index(shape)]

    def next_step(self, shape: TableShape) -> tuple[int, int, int] | None:
        """(byte offset, bytes, rows afterwards) of the memory the table needs to grow; None when it is as large as it
        gets.

        It grows by a quarter, so that growing and searching stay cheap however large it is.
        """
        row_bytes = shape.width * 8
        done = self.header[shape.count_at] * row_bytes
        if self.header[shape.count_at] >= shape.rows:
            return None
        step = max(COMMIT_STEP_BYTES, done // 4 // COMMIT_STEP_BYTES * COMMIT_STEP_BYTES)
        end = min(done + step, shape.rows * row_bytes)
        return shape.base + done, end - done, end // row_bytes

    def grow(self, shape: TableShape, rows: int) -> None:
        """The table's first `rows` rows have memory."""
        before = self.header[shape.count_at]
        if rows > before:
            if shape is self.plan.records:
                self._start_generations(before, rows)
            self.header[shape.count_at] = rows

    def _start_generations(self, first: int, end: int) -> None:
        """Each pool's begin where no earlier pool of its name has got to: a row isn't used again every nanosecond. Each
        row's begin far from those of others, so that a handle with a damaged record misses them all.
        """
        apart = np.arange(first, end, dtype=np.uint64) << np.uint64(32)
        self.records.table.grid[first:end, Record.GENERATION] = apart + np.uint64(self.header[Header.CREATED_NS])

    def take_serials(self, count: int) -> int:
        """The first of `count` serials that nobody else gets."""
        first = self.header[Header.NEXT_SERIAL]
        self.header[Header.NEXT_SERIAL] = first + count
        return first

    def sweep(self) -> int:
        """Free what dropped references kept alive; how many records went."""
        return sweep(self.references, self.records, self.spans, self.names.records, self.barrier)

    def expire_tickets(self, now_ns: int) -> int:
        """What the ticket rule allows when memory is needed; how many tickets ended."""
        ttl, grace = self.header[Header.TTL_NS], self.header[Header.GRACE_NS]
        return self.references.expire(without_sender_before_ns=now_ns - grace, before_ns=now_ns - ttl if ttl else 0)

    def publish(self, text: bytes, note: bytes, record: int, now_ns: int, pid: int) -> bool:
        """Name the record, in place of the one that has the name; False when the table of names is full."""
        old = self.names.find(text)
        new = self.names.fill(text, note, record, self.take_serials(1), now_ns, pid)
        if new is None:
            return False
        self.names.name(new)
        if old is not None:
            self._end_name(old)
        return True

    def unpublish(self, text: bytes) -> bool:
        """End the name; whether there was one."""
        row = self.names.find(text)
        if row is not None:
            self._end_name(row)
        return row is not None

    def _end_name(self, row: int) -> None:
        self.references.loosen()
        self.names.free(row)

    def reap(self, word: int, now_ns: int) -> None:
        """Take back what the dead client had. A reaper may die at any line: the next one starts again and finds the
        rest.
        """
        owner = word & ~STATE_MASK
        counts = self.live_counts()
        for row in self.spans.owned_by(owner):
            self.settle_ownerless(row, int(counts[row]))
        self.records.free_many(self.records.owned(Record.RETURNED, owner))
        self.records.free_many(self.records.owned(Record.RESERVED, owner))
        self.references.loosen()
        references, column = self.references, self.references.table.column(Reference.WORD)
        for state in (Reference.HELD, Reference.DROPPED):
            references.end_spent(references.owned(state, owner))
        for state in (Reference.RESERVED, Reference.HELD, Reference.DROPPED):
            column[references.owned(state, owner)] = Reference.FREE
        references.orphan_tickets(owner, now_ns)
        self.clients.free(slot_of(owner))

    def settle_ownerless(self, row: int, live: int) -> None:
        """A span without an owner, in which `live` records lie: it ends with the last of them."""
        if live:
            self.spans.orphan(row, live)
        else:
            self.spans.free(row)

    def live_records(self) -> tuple[Rows, Rows]:
        """The LIVE records, and the span of each. Raises CorruptPool where that doesn't exist."""
        live = self.records.in_state(Record.LIVE)
        spans = self.records.table.grid[live, Record.SPAN]
        if len(spans) and int(spans.max()) >= self.spans.count():
            raise CorruptPool(
                f"a live record lies in span {int(spans.max())}, but there are {self.spans.count()}: recreate the pool"
            )
        return live, spans.astype(np.intp)

    def live_counts(self) -> Rows:
        """By span: how many LIVE records lie in it."""
        return np.bincount(self.live_records()[1], minlength=self.spans.count())

    def doubts_of(self, owner: int) -> list[Purge]:
        """What a dead client may have populated without saying so, to be purged before its spans go on a stack."""
        return [purge for row in self.spans.owned_by(owner) if (purge := self.spans.doubt(row)) is not None]

    def used_bytes(self) -> int:
        """Bytes of allocated blocks: those of whole spans and of the slots in use, less slots on their way back to
        their owners.
        """
        used = int(self.spans.used_column(Span.USED).sum())
        returned = self.records.in_state(Record.RETURNED)
        return used - int(self.records.table.grid[returned, Record.CAPACITY].sum())
