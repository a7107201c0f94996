"""Fork: it ends an epoch.

The child's copies of the parent's blocks must keep their bytes whatever the parent does. So before a fork every living
block gets a record (an *estate* stands for those that had none), and the child a slot with a hold on each.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from allocator import reaper
from allocator.commons import Commons, Membership
from allocator.core.format import STATE_MASK, Client, Record, Reference, TableShape, slot_of
from allocator.core.tables import Rows, Table
from allocator.errors import AllocatorError
from allocator.leaving import await_last_block, unsent
from allocator.local_heap import Home, SlotSpan, WholeSpan
from allocator.system import host

if TYPE_CHECKING:
    from allocator.block import Block
    from allocator.pool import Pool

UNPREPARED: Final = "the fork was interrupted before it was prepared"


class ForkEstate:
    """Blocks that had no record when their epoch ended, and the records they have now."""

    has_records = True
    __slots__ = ("commons", "generations", "me", "records", "rows", "starts")

    def __init__(self, commons: Commons, starts: Rows, records: Rows, rows: Rows) -> None:
        self.commons = commons
        self.me = commons.membership
        self.starts, self.records, self.rows = starts, records, rows  # sorted by start
        self.generations = commons.ledger.records.table.grid[records, Record.GENERATION]

    def give_back(self, home: Home, start: int) -> None:
        """Drop this process's hold on the block's record."""
        i = self._find(start)
        if i is not None:
            self.me.drop(int(self.rows[i]))

    def adopt(self, block: Block) -> None:
        """Tell the block of its record. The first process that asks says how long it is."""
        i = self._find(block.start)
        if i is None:
            raise AllocatorError("a fork was interrupted, and this block can't be sent: copy it to a new one")
        record = int(self.records[i])
        self.commons.section(self._size, record, block.size)
        block.record, block.generation, block.row = record, int(self.generations[i]), int(self.rows[i])
        block.me = self.me

    def _find(self, start: int) -> int | None:
        i = int(np.searchsorted(self.starts, start))
        if i == len(self.starts) or int(self.starts[i]) != start:
            return None  # a fork was interrupted and the span used on: this slot is lost until exit
        return i

    def _size(self, record: int, nbytes: int) -> None:
        words, at = self.commons.ledger.records.words, record * Record.WIDTH
        if words[at + Record.FLAGS] & Record.UNSIZED:
            words[at + Record.NBYTES] = nbytes
            words[at + Record.FLAGS] &= ~Record.UNSIZED


class Nowhere:
    """The estate of a child that got no place: what it copied is the parent's, and stays untouched."""

    has_records = True

    def __init__(self, commons: Commons) -> None:
        self.commons = commons

    def give_back(self, home: Home, start: int) -> None:
        """Nothing is ours."""

    def adopt(self, block: Block) -> None:
        """There is no record. Raises PoolClosed."""
        self.commons.check_open()
        raise AssertionError("a process without a place finds the pool closed")


class Parting:
    """What one pool's two sides need after a fork."""

    def __init__(self, pipe: tuple[int, int]) -> None:
        self.spans: dict[int, SlotSpan] = {}  # by row: successors, for this side
        self.wholes: dict[int, WholeSpan] = {}  # by row
        self.pipe = pipe
        self.inode = os.fstat(pipe[0]).st_ino
        self.estate: ForkEstate | None = None
        self.child_word = 0
        self.parent_rows: Rows = np.zeros(0, np.intp)  # sorted
        self.child_rows: Rows = np.zeros(0, np.intp)  # the child's row for each of them
        self.estate_rows: Rows = np.zeros(0, np.intp)  # the child's rows for the estate's blocks

    def hand_over(self, pool: Pool) -> None:
        """What blocks give back from now on goes to the estate."""
        homes: list[Home] = [*pool.heap.spans.values(), *self.wholes.values()]
        for home in homes:
            home.estate = self.estate
        self.catch_up(pool)

    def catch_up(self, pool: Pool) -> None:
        """What other threads gave back between the look at what lives and the estate."""
        assert self.estate is not None
        pool.heap.settle_late()
        for span in pool.heap.spans.values():
            while True:
                try:
                    start = span.free.pop()
                except IndexError:
                    break
                self.estate.give_back(span, start)

    def go_on_in_parent(self, pool: Pool) -> None:
        """The successors' lists, and an eye on the child until it is up."""
        os.close(self.pipe[1])
        self.catch_up(pool)
        pool.heap.start_epoch(self.spans, pool.heap.wholes)  # whole spans that other threads took meanwhile
        pool.commons.on_entry.append(self.watch(pool.commons))
        pool.commons.due = True

    def watch(self, commons: Commons) -> Callable[[], None]:
        """Looks whether the child is up, dead or never born: then its slot is judged like any other."""

        def look() -> None:
            read = self.pipe[0]
            if not _is_over(read, self.inode):
                return
            commons.on_entry.remove(look)
            clients = commons.ledger.clients
            if clients.word(slot_of(self.child_word)) == self.child_word:  # PENDING still
                clients.set_state(self.child_word, Client.LIVE)

        return look


def _is_over(read: int, inode: int) -> bool:
    """Whether the pipe's other end is closed everywhere; closes this end then."""
    try:
        if os.fstat(read).st_ino != inode:
            return True  # other code closed our end; the number is another file's by now
    except OSError:
        return True
    poll = select.poll()
    poll.register(read, select.POLLIN)
    if not poll.poll(0):
        return False
    os.close(read)
    return True


def hold_still(pool: Pool) -> None:
    """Before a fork: until each side has what is its own, nothing of the parent's is used up or given back.

    In the child other code runs before our hooks do: threads' locals die, earlier hooks and signal handlers run.
    """
    pool.exchange.set_aside()
    if pool.commons.me is not None:
        pool.commons.me.suspend()


def go_on_in_parent(pool: Pool, parting: Parting | str) -> None:
    """After a fork, in the parent, also when nothing was prepared."""
    commons = pool.commons
    pool.exchange.take_up()
    if commons.me is not None:
        commons.me.resume()
    if isinstance(parting, Parting):
        parting.go_on_in_parent(pool)
    if commons.refusing and commons.me is not None and commons.closed_because is None:
        await_last_block(pool)


def part(pool: Pool) -> Parting | str:
    """Before a fork: records for all blocks, a slot and holds for the child. If that can't be had, why: the child is
    fenced.
    """
    commons = pool.commons
    try:
        commons.check_open()
        pipe = os.pipe2(os.O_CLOEXEC)
    except (AllocatorError, OSError) as error:
        return str(error)
    parting = None
    try:
        while True:
            parting = Parting(pipe)
            for row, span in list(pool.heap.spans.items()):
                parting.spans[row] = span.successor()
            for row in list(pool.heap.wholes):
                if (whole := pool.heap.wholes.pop(row, None)) is not None:  # a thread may be giving it back
                    parting.wholes[row] = whole
            short = commons.section(_settle, pool, parting)
            if short is None:
                return parting
            _restore(pool, parting)
            if not isinstance(short, TableShape):
                why = short
                break
            pool.supply.grow(short)
    except BaseException as error:
        if parting is not None and parting.estate is not None:
            # Too late to go back: the blocks have records. An interrupt could only be printed here anyhow.
            parting.hand_over(pool)
            return parting
        if parting is not None:
            _restore(pool, parting)
        if not isinstance(error, (AllocatorError, OSError)):
            raise
        why = str(error)
    os.close(pipe[0])
    os.close(pipe[1])
    return why


def _restore(pool: Pool, parting: Parting) -> None:
    """No fork after all: the slots go back to the spans they came from."""
    for row, new in parting.spans.items():
        pool.heap.spans[row].free.extend(new.free)
        new.free.clear()
    pool.heap.wholes.update(parting.wholes)
    parting.wholes.clear()
    pool.heap.settle_late()


def _settle(pool: Pool, parting: Parting) -> TableShape | str | None:
    """Inside the critical section. All tables' words are written last, records' words after those of their
    references.
    """
    commons = pool.commons
    ledger, me = commons.ledger, commons.membership
    starts, spans, rooms = unsent(pool, parting.spans, parting.wholes)
    records, references = ledger.records.table, ledger.references.table
    held = ledger.references.owned(Reference.HELD, me.owner)
    new = _find(ledger.sweep, records, len(starts))
    rows = _find(ledger.sweep, references, 2 * len(starts) + len(held))
    if new is None or rows is None:
        return ledger.plan.records if new is None else ledger.plan.references
    parent, now = commons.client_words[commons.at], monotonic_ns()
    child = reaper.claim_place(
        ledger, commons.lock, commons.heap, me.owner, now, state=Client.PENDING, pid=0, parent=parent
    )
    if child is None:
        return f"all of its {ledger.plan.clients.rows} places are taken"
    mine, theirs = rows[: len(starts)], rows[len(starts) :]
    records.grid[new, Record.SPAN] = spans
    records.grid[new, Record.START] = starts
    records.grid[new, Record.NBYTES] = 0
    records.grid[new, Record.CAPACITY] = rooms
    records.grid[new, Record.FLAGS] = Record.UNSIZED
    references.grid[mine, Reference.RECORD] = new
    references.grid[rows, Reference.REDEEMED] = 0
    references.grid[mine, Reference.WORD] = Reference.HELD | me.owner
    parents = np.concatenate([held, mine])
    references.grid[theirs, Reference.RECORD] = references.grid[parents, Reference.RECORD]
    references.grid[theirs, Reference.WORD] = Reference.HELD | child & ~STATE_MASK
    order = np.argsort(parents)
    parting.parent_rows, parting.child_rows = parents[order], theirs[order]
    parting.estate_rows = theirs[len(held) :]
    parting.child_word = child
    estate, live = ForkEstate(commons, starts, new, mine), Record.LIVE | me.owner
    # No call between these two, so no interrupt either: the blocks have an estate exactly if their records live.
    records.grid[new, Record.WORD] = live
    parting.estate = estate
    parting.hand_over(pool)
    return None


def _find(sweep: Callable[[], Any], table: Table, count: int) -> Rows | None:
    rows = table.find_free(count)
    if len(rows) < count:
        sweep()
        rows = table.find_free(count)
    return np.array(rows, np.intp) if len(rows) == count else None


def start_in_child(pool: Pool, parting: Parting | str) -> None:
    """After a fork, in the child: its place, its holds, empty lists. Without a place, the pool is closed here."""
    commons, old = pool.commons, pool.commons.me
    homes = pool.heap.homes()
    commons.on_entry.clear()
    commons.returning.clear()
    pool.supply.room = 0
    pool.exchange.start_epoch()
    pool.heap.start_epoch({}, {})
    if isinstance(parting, str) or parting.estate is None or old is None:
        commons.lose_place(parting if isinstance(parting, str) else UNPREPARED)
        if old is not None:
            old.bequeath(lambda row: None)
        for home in homes:
            home.estate = Nowhere(commons)
        return
    me = commons.take_place(parting.child_word)
    old.bequeath(Heirs(me, parting.parent_rows, parting.child_rows))
    parting.estate.me, parting.estate.rows = me, parting.estate_rows
    for row in old.waiting:  # dropped while the fork went on
        old.drop(row)
    try:
        commons.lock.live(me.slot)
        for descriptor in parting.pipe:  # the parent sees: we are up
            os.close(descriptor)
        commons.section(_confirm, commons, me)
        if commons.refusing:
            await_last_block(pool)
    except (AllocatorError, OSError):
        commons.shut("its place was given away before it was up")


def _confirm(commons: Commons, me: Membership) -> None:
    """Inside the critical section, whose fence has seen that the slot still is this child's."""
    commons.client_words[commons.at + Client.PID] = me.pid
    commons.client_words[commons.at + Client.STARTED] = host.start_time(me.pid)
    commons.ledger.clients.set_state(me.owner, Client.LIVE)


class Heirs:
    """The child's rows for its parent's: where drops of holds made before the fork go."""

    __slots__ = ("children", "me", "parents")

    def __init__(self, me: Membership, parents: Rows, children: Rows) -> None:
        self.me, self.parents, self.children = me, parents, children

    def __call__(self, row: int) -> None:
        i = int(np.searchsorted(self.parents, row))
        if i < len(self.parents) and int(self.parents[i]) == row:
            self.me.drop(int(self.children[i]))
