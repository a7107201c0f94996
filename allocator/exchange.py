"""Sending and receiving: records, tickets and holds of this process. Neither takes the pool's lock.

One object per pool and process; a fork's child starts with an empty one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic_ns
from typing import Any, Final, NoReturn
from weakref import ref

from allocator.block import Block
from allocator.commons import Commons
from allocator.config import RESERVE_BATCH
from allocator.core.format import PLAN, Record, Reference, TableShape
from allocator.core.tables import Table, Words
from allocator.errors import CorruptPool, OutOfSharedMemory, StaleHandle
from allocator.local_heap import LocalHeap
from allocator.system.locks import AWAKE, MUTEX, barrier, is_mutex_owned

_RECORD_ROWS: Final = PLAN.records.count_at
_REFERENCE_ROWS: Final = PLAN.references.count_at
_FLIGHT: Final = Reference.FLIGHT
_LIVE: Final = Record.LIVE
_new: Final = object.__new__
Keeper = Any
"""What stands for a block in a process, e.g. a storage: has `.block`, and can be referred to weakly."""
Claim = tuple[str, str, int, int, int, int]
"""What a message carries: host, pool, record, generation, ticket and serial."""


class Exchange:
    """What one process has sent and received through one pool."""

    __slots__ = (
        "aside",
        "commons",
        "header",
        "heap",
        "host",
        "keepers",
        "name",
        "pool",
        "prune_at",
        "record_rows",
        "record_words",
        "reference_rows",
        "spare_records",
        "spare_references",
        "words",
    )

    def __init__(self, pool: Any, commons: Commons, heap: LocalHeap) -> None:
        self.pool = pool  # for the blocks that are received
        self.commons = commons
        self.host, self.name = commons.host, commons.name
        self.heap = heap
        self.header: Words = commons.header
        self.words: Words = commons.ledger.references.words
        self.record_words: Words = commons.ledger.records.words
        self.spare_records: list[int] = []
        self.spare_references: list[int] = []
        self.aside: tuple[list[int], list[int]] = [], []  # the spare rows, during a fork
        self.keepers: dict[int, ref[Keeper]] = {}  # by record; changed under MUTEX only
        self.prune_at = 1024
        self.record_rows = self.reference_rows = 0  # how many have memory, at least

    def start_epoch(self) -> None:
        """Forget the spare rows: they are the parent's. Keepers stay, since the child has holds for all of them."""
        self.spare_records, self.spare_references = [], []
        self.aside = [], []

    def set_aside(self) -> None:
        """For the time of a fork, have no spare rows: in the child they are the parent's."""
        self.aside = self.spare_records, self.spare_references
        self.spare_records, self.spare_references = [], []

    def take_up(self) -> None:
        """In the parent, after the fork: have them again."""
        (records, references), self.aside = self.aside, ([], [])
        self.spare_records += records
        self.spare_references += references

    # ---- sending

    def send(self, block: Block, keeper: Keeper) -> Claim:
        """A new ticket for the block, which keeps it alive until it is opened.

        Raises
        ------
        OutOfSharedMemory
            There is no memory for more table rows.
        """
        if not AWAKE[0]:
            self._not_ours()
        if block.me is None:
            self.publish(block, keeper)
        elif keeper is not None:
            known = self.keepers.get(block.record)
            if known is None or known() is not keeper:  # a fork or a seal made the record
                self._remember(block.record, keeper)
        try:
            row = self.spare_references.pop()
        except IndexError:
            row = self._spare_reference()
        me, words, at = self.commons.me, self.words, row * 4  # Reference.WIDTH
        if me is None or words[at] != me.reserved:
            self._not_ours()
        words[at + 1] = record = block.record  # Reference.RECORD, before the word: a ticket must name something
        words[at + 3] = monotonic_ns()  # Reference.SINCE_NS
        words[at] = me.flight
        return self.host, self.name, record, block.generation, row, words[at + 2]  # Reference.SERIAL

    def publish(self, block: Block, keeper: Keeper) -> None:
        """Give the block a record, in a process that is awake. Under MUTEX, with a second look: two threads may send it
        for the first time at once.
        """
        with MUTEX:
            if block.me is not None:
                return
            home: Any = block.home  # without `me` it has one
            if home.estate is not None:
                home.estate.adopt(block)
                self._remember(block.record, keeper)
                return
            # Inlined `Records.fill` and `References`: 3 us of the 8 that a first send takes.
            try:
                record = self.spare_records.pop()
            except IndexError:
                record = self._spare_record()
            try:
                row = self.spare_references.pop()
            except IndexError:
                row = self._spare_reference()
            me, words, at = self.commons.me, self.record_words, record * 8  # Record.WIDTH
            words[at + 2] = home.row  # Record.SPAN
            words[at + 3] = block.start  # Record.START
            words[at + 4] = block.size  # Record.NBYTES
            words[at + 5] = home.room  # Record.CAPACITY
            rows, i = self.words, row * 4  # Reference.WIDTH
            if me is None or rows[i] != me.reserved:
                self._not_ours()
            rows[i + 1] = record  # Reference.RECORD
            rows[i] = me.held
            if keeper is not None:
                self.keepers[record] = ref(keeper)
            if block.me is not None:  # a signal handler or finalizer sent it meanwhile
                rows[i] = me.reserved
                self.spare_references.append(row)
                self.spare_records.append(record)
                return
            block.record = record
            block.generation = words[at + 1]  # Record.GENERATION
            block.row = row
            # No call since that look, so no signal handler either: the block knows of its record exactly if
            # it lives.
            block.me = me
            words[at] = me.live
            if self.heap.wholes:
                self.heap.wholes.pop(home.row, None)

    def _remember(self, record: int, keeper: Keeper) -> None:
        if keeper is None:
            return
        with MUTEX:
            self._prune()
            self.keepers[record] = ref(keeper)

    def _prune(self) -> None:
        """Forget the keepers that are gone, in time to double."""
        if len(self.keepers) >= self.prune_at:
            self.keepers = {record: known for record, known in self.keepers.items() if known() is not None}
            self.prune_at = max(1024, 2 * len(self.keepers))

    def _not_ours(self) -> NoReturn:
        """A spare row that isn't ours any more: this process lost its place. The fence says how."""
        self.commons.pass_through()
        raise CorruptPool(f"a spare row of pool {self.commons.name!r} was overwritten: recreate the pool")

    def _spare_record(self) -> int:
        while True:
            try:
                return self.spare_records.pop()
            except IndexError:
                self._restock()

    def _spare_reference(self) -> int:
        while True:
            try:
                return self.spare_references.pop()
            except IndexError:
                self._restock()

    def _restock(self) -> None:
        self.commons.check_accepts()
        with MUTEX:
            self._prune()
        shape = self.commons.section(self._reserve)
        if shape is None:
            return
        try:
            self.commons.grow(shape)
        except OutOfSharedMemory:
            if not (self.spare_records and self.spare_references):
                raise

    def _reserve(self) -> TableShape | None:
        """Inside the critical section: fill up the spare rows; the table that should grow, if one should."""
        ledger, owner = self.commons.ledger, self.commons.membership.owner
        records, references = ledger.records, ledger.references

        def reserve_references(count: int) -> list[int]:
            return references.reserve(owner, count, ledger.take_serials(count))

        if self._fill(self.spare_records, partial(records.reserve, owner), records.table):
            return ledger.plan.records
        if self._fill(self.spare_references, reserve_references, references.table):
            return ledger.plan.references
        return None

    def _fill(self, spare: list[Any], reserve: Callable[[int], list[Any]], table: Table) -> bool:
        """Stock up from a table, sweeping it if it is full; whether it should grow."""
        if len(spare) < RESERVE_BATCH:
            spare += reserve(RESERVE_BATCH)
        if len(spare) < RESERVE_BATCH:
            self.commons.ledger.sweep()
            spare += reserve(RESERVE_BATCH)
        return len(spare) < RESERVE_BATCH and (not spare or table.wants_growth())

    # ---- receiving

    def receive(
        self,
        record: int,
        generation: int,
        ticket: int,
        serial: int,
        make: Callable[[Block], Keeper],
        shared: bool = True,
    ) -> Keeper:
        """The living keeper that this process has for the record, else `make(block)`, which is remembered weakly.

        No number may be negative. `shared=False` always makes, and remembers nothing. Under MUTEX, so that two threads,
        or two views sent separately, meet on one keeper.

        Raises
        ------
        StaleHandle
            The record is gone.
        """
        if not ((ticket < self.reference_rows and record < self.record_rows) or self._exists(record, ticket)):
            return self._receive_late(record, generation, make, shared)
        # Inlined from here on, `References.is_ticket` and `Records.is_live` too: who receives has waited, and finds its
        # caches cold.
        try:
            row = self.spare_references.pop()
        except IndexError:
            row = self._spare_reference()
        me, words, at = self.commons.me, self.words, row * 4  # Reference.WIDTH
        if me is None or words[at] != me.reserved or not AWAKE[0]:
            self._not_ours()
        words[at + 1] = record  # Reference.RECORD
        words[at + 2] = serial  # Reference.SERIAL
        words[at + 3] = ticket + 1  # Reference.REDEEMED
        words[at] = me.held
        # Our hold is seen by all before we look: whoever ends the ticket after that meets it (see `sweep`). Taking
        # MUTEX is such a barrier, unless this thread has it already.
        if is_mutex_owned():
            barrier()
        with MUTEX:
            if shared and (known := self.keepers.get(record)) is not None:
                keeper = known()
                if keeper is not None and self._keeps(keeper, record, generation):
                    # The keeper has a hold; this row only says that the ticket is spent.
                    if me.heirs is None:
                        words[at] = me.dropped
                    else:
                        me.drop(row)
                    return keeper
            i, records, j = ticket * 4, self.record_words, record * 8  # Reference.WIDTH, Record.WIDTH
            if (
                words[i] & 15 == _FLIGHT
                and words[i + 2] == serial
                and words[i + 1] == record
                and records[j + 1] == generation
                and records[j] & 15 == _LIVE
            ):
                block: Block = _new(Block)
                block.pool = self.pool
                block.home = None
                block.start = records[j + 3]  # Record.START
                block.size = 0
                block.record = record
                block.generation = generation
                block.row = row
                block.me = me
                keeper = make(block)
                if shared:
                    self.keepers[record] = ref(keeper)
                return keeper
        words[at + 3] = 0  # not by this ticket
        me.drop(row)
        return self._receive_late(record, generation, make, shared)

    def _receive_late(self, record: int, generation: int, make: Callable[[Block], Keeper], shared: bool) -> Keeper:
        """The keeper, although the ticket is over (a fan-out, a second loads): works while somebody else has a hold."""
        self.commons.check_accepts()
        with MUTEX:
            known = self.keepers.get(record) if shared else None
            if known is not None and (keeper := known()) is not None and self._keeps(keeper, record, generation):
                return keeper
            while (row := self.commons.section(self._hold_again, record, generation)) is not None:
                if row < 0:
                    self.commons.grow(self.commons.ledger.plan.references)
                    continue
                block = Block(self.pool, None, self.record_words[record * 8 + 3], 0)  # Record.START
                block.record, block.generation, block.row = record, generation, row
                block.me = self.commons.me
                keeper = make(block)
                self._remember(record, keeper if shared else None)
                return keeper
        raise StaleHandle(
            f"record {record} (generation {generation}) of pool {self.commons.name!r} is gone: its last holder dropped "
            "it. Send the tensor again; st.save and st.load keep bytes beyond that"
        )

    def _exists(self, record: int, ticket: int) -> bool:
        """Whether both rows have memory. The tables may have grown since this process looked."""
        self.record_rows, self.reference_rows = self.header[_RECORD_ROWS], self.header[_REFERENCE_ROWS]
        return ticket < self.reference_rows and record < self.record_rows

    def _keeps(self, keeper: Keeper, record: int, generation: int) -> bool:
        """Whether it keeps that very record: the row may have been used again since it was remembered."""
        block = keeper.block
        return block.me is not None and block.record == record and block.generation == generation

    def _hold_again(self, record: int, generation: int) -> int | None:
        """Inside the critical section: a row that holds the record; None when it is gone, -1 when the table is full."""
        ledger = self.commons.ledger
        ledger.sweep()
        if not ledger.records.is_live(record, generation):
            return None
        row = ledger.references.take(self.commons.owner, record)
        return -1 if row is None else row

    def discard(self, record: int, generation: int, ticket: int, serial: int) -> bool:
        """End the ticket unopened; whether it still was one."""
        return self.commons.section(self._discard, record, generation, ticket, serial)

    def _discard(self, record: int, generation: int, ticket: int, serial: int) -> bool:
        ledger = self.commons.ledger
        if not (
            ledger.records.is_live(record, generation)
            and ledger.references.is_ticket(ticket, record, serial)
            and not ledger.references.is_opened(ticket)
        ):
            return False
        ledger.references.discard(ticket)
        return True
