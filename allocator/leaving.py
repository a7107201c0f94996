"""The end: exit, closing, and the leftovers of pools whose processes were all killed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from time import monotonic_ns
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from allocator.commons import Commons
from allocator.core.format import HEADER_BYTES, MAGIC, PLAN, STATE_MASK, Client, Header, Record, Reference, slot_of
from allocator.core.tables import Rows, is_among
from allocator.errors import AllocatorError, CorruptPool
from allocator.local_heap import Home, SlotSpan, WholeSpan
from allocator.looking import is_served, read_rows
from allocator.system import host, memory
from allocator.system.files import check_own, open_own
from allocator.system.locks import MUTEX, PoolLock, open_lock_file, try_lock_file

if TYPE_CHECKING:
    from allocator.block import Block
    from allocator.pool import Pool


def leave(commons: Commons) -> None:
    """Say that this process is going. Frees nothing: that happens when the kernel drops the liveness byte, however it
    ends.

    The last one without that mark takes the pool's names away. Only a `multiprocessing` child whose parent lives
    leaves a pool with messages in flight behind, since the parent may still open them.
    """
    if commons.me is None or commons.me.pid != os.getpid() or commons.closed_because is not None:
        return
    if not commons.leaving:
        commons.section(_leave, commons)
        commons.leaving = True


def _leave(commons: Commons) -> None:
    ledger, me = commons.ledger, commons.membership
    ledger.clients.set_state(me.owner, Client.LEAVING)
    for word in ledger.clients.attached():
        state, slot = word & STATE_MASK, slot_of(word)
        if slot != me.slot and (state == Client.PENDING or (state == Client.LIVE and commons.lock.lives(slot))):
            return
    if may_be_awaited() and len(ledger.references.unopened()):
        return
    if is_served(ledger.header, monotonic_ns()):
        return
    if commons.lock.is_linked():
        unlink_pool(commons.host, commons.name)


def may_be_awaited() -> bool:
    """Whether messages may be opened by a process that hasn't attached yet: this one's parent."""
    from multiprocessing import parent_process

    parent = parent_process()
    return parent is not None and parent.is_alive()


def unlink_pool(host_id: str, name: str) -> None:
    """Take the names away; mappings live on. The lock file last: whoever opens it looks whether it still has a name."""
    for kind in ("h", "c", "s", "l"):
        memory.unlink(host.segment_name(host_id, name, kind))


class Closing:
    """The estate of a pool that was closed while blocks live here: the last of them to die ends it."""

    has_records = False

    def __init__(self, pool: Pool, blocks: int) -> None:
        self.pool = pool
        self.left = [None] * blocks  # popped, since that is atomic
        self.me = pool.commons.membership
        self.held = Reference.HELD | self.me.owner

    def give_back(self, home: Home, start: int) -> None:
        """A block that was never sent died. Its slot goes on no list: memory comes back with this process's place."""
        if isinstance(home, WholeSpan):
            home.put_back(start)
        self._one_less()

    def adopt(self, block: Block) -> None:
        """Only sending asks for a record, and a closed pool sends nothing."""
        self.pool.commons.check_accepts()
        raise AssertionError("a pool with a closing estate accepts nothing")

    def __call__(self, row: int) -> None:
        """A hold died."""
        words, at = self.me.words, row * Reference.WIDTH
        if words[at] == self.held:
            words[at] = self.me.dropped
            self._one_less()

    def _one_less(self) -> None:
        try:
            self.left.pop()
        except IndexError:
            return
        if not self.left:
            with MUTEX:
                # A thread that was receiving when `close` counted may have a hold since.
                late = len(self.pool.commons.ledger.references.owned(Reference.HELD, self.me.owner))
                if late:
                    self.left.extend([None] * late)
                else:
                    self.finish()

    def finish(self) -> None:
        """Nothing of the pool is in use here: go."""
        with MUTEX:
            commons = self.pool.commons
            try:
                leave(commons)
            except (AllocatorError, OSError):
                pass  # lost its place: nothing to leave
            commons.shut("close() was called")
            if self.pool.forget() and commons.lock.is_ours():
                os.close(commons.lock.descriptor)  # the kernel drops the liveness byte; others take back the rest


def close(pool: Pool) -> None:
    """Refuse new work, and leave once the last block here has died."""
    with MUTEX:
        commons = pool.commons
        if commons.refusing or commons.closed_because is not None:
            return
        commons.check_open()
        commons.refusing = True
        pool.heap.stop()
        pool.exchange.start_epoch()
        await_last_block(pool)


def await_last_block(pool: Pool) -> None:
    """Count what is alive here, and be told when it dies."""
    commons = pool.commons
    holds = len(commons.ledger.references.owned(Reference.HELD, commons.membership.owner))
    # Successors that nobody uses: with no free slot on any list, no thread takes one past the refusal.
    drained = {row: span.successor() for row, span in pool.heap.spans.items()}
    closing = Closing(pool, holds + len(unsent(pool, drained, dict(pool.heap.wholes))[0]))
    for home in pool.heap.homes():
        if home.estate is None or isinstance(home.estate, Closing):
            home.estate = closing
    commons.membership.bequeath(closing)
    for span in pool.heap.spans.values():  # died meanwhile, without telling
        for _ in range(len(span.free)):
            closing.left.pop()
    if not closing.left:
        closing.finish()


def unsent(pool: Pool, slot_spans: dict[int, SlotSpan], wholes: dict[int, WholeSpan]) -> tuple[Rows, Rows, Rows]:
    """(starts, span rows, rooms) of this process's living blocks without a record, by start."""
    starts, spans, rooms = [], [], []
    records = pool.commons.ledger.records
    for row, span in slot_spans.items():
        slots = span.start + span.room * np.arange(span.carved)
        live = slots[~is_among(slots, np.array(span.free, np.int64))]
        starts.append(live)
        spans.append(np.full(len(live), row))
        rooms.append(np.full(len(live), span.room))
    for row, whole in wholes.items():
        starts.append(np.array([whole.start]))
        spans.append(np.array([row]))
        rooms.append(np.array([whole.room]))
    if not starts:
        return np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0, np.intp)
    all_starts = np.concatenate(starts)
    known = np.concatenate([records.in_state(state) for state in (Record.LIVE, Record.RETURNED)])
    keep = ~is_among(all_starts, records.table.grid[known, Record.START].astype(np.int64))
    order = np.argsort(all_starts[keep])
    return all_starts[keep][order], np.concatenate(spans)[keep][order], np.concatenate(rooms)[keep][order]


# ---- leftovers


class Leftover(NamedTuple):
    """A pool that no client holds, and its bytes of memory. `awaited`: it has young messages, or a service that may
    come back.
    """

    name: str
    nbytes: int
    awaited: bool


def find_leftovers(attached: Iterable[str] = ()) -> list[Leftover]:
    """This user's pools that no client holds.

    Never opens the lock file of a pool in `attached`: closing it again would drop this process's locks.
    """
    host_id = host.boot_id()
    with MUTEX:
        found = [_judge(host_id, name, remove=False) for name in sorted(_foreign(host_id, attached))]
    return [leftover for leftover in found if leftover is not None]


def remove_leftover(name: str, *, spare_awaited: bool = True) -> bool:
    """Remove one of them, after another look; whether it was."""
    with MUTEX:
        return sweep_leftover(host.boot_id(), name, spare_awaited=spare_awaited)


def sweep_leftovers(attached: Iterable[str]) -> list[str]:
    """Remove this user's pools that no client holds and that are not awaited; their names. `attached` as above."""
    host_id = host.boot_id()
    with MUTEX:
        return [name for name in sorted(_foreign(host_id, attached)) if sweep_leftover(host_id, name)]


def _foreign(host_id: str, attached: Iterable[str]) -> set[str]:
    return set(host.pool_names(host_id)).difference(attached)


def sweep_leftover(host_id: str, name: str, *, spare_awaited: bool = True) -> bool:
    """Remove one pool, unless a client holds it or it is awaited and to be spared; whether it was."""
    leftover = _judge(host_id, name, remove=True, spare_awaited=spare_awaited)
    return leftover is not None and not (leftover.awaited and spare_awaited)


def _judge(host_id: str, name: str, *, remove: bool, spare_awaited: bool = True) -> Leftover | None:
    """What is left of the pool if no client holds it, else None; and remove it, if that is asked for."""
    path = host.pool_path(host_id, name, "l")
    try:
        descriptor = open_lock_file(path, create=False)
    except FileNotFoundError:
        return _judge_without_lock(host_id, name, remove=remove)
    except (OSError, CorruptPool):
        return None  # gone already, or not ours to open
    try:
        if not try_lock_file(descriptor):
            return None
        lock = PoolLock(descriptor)
        if not lock.is_linked() or lock.anyone_lives():
            return None
        leftover = Leftover(name, host.pool_bytes(host_id, name), _is_awaited(host_id, name))
        if remove and not (leftover.awaited and spare_awaited):
            unlink_pool(host_id, name)
        return leftover
    finally:
        os.close(descriptor)


def _judge_without_lock(host_id: str, name: str, *, remove: bool) -> Leftover | None:
    """The same of segments whose lock file somebody deleted. To make that file is to own the name."""
    try:
        check_own(host.pool_path(host_id, name, "c"))
        leftover = Leftover(name, host.pool_bytes(host_id, name), awaited=False)
        if remove:
            descriptor = open_lock_file(host.pool_path(host_id, name, "l"), create=True)
            unlink_pool(host_id, name)
            os.close(descriptor)
    except (OSError, CorruptPool):
        return None  # a pool in the making, or gone, or not ours
    return leftover


def _is_awaited(host_id: str, name: str) -> bool:
    """Whether it has young messages, or a service that may come again. Read as a file: mapping would make pages of
    holes. What can't be a pool's tables is not awaited.
    """
    shape = PLAN.references
    try:
        with open(open_own(host.pool_path(host_id, name, "c"), os.O_RDONLY), "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size != PLAN.nbytes:
                return False  # something cut it
            header = memoryview(file.read(HEADER_BYTES)).cast("Q")
            if header[Header.MAGIC] != MAGIC:
                return False  # its maker died before it was done
            if is_served(header, monotonic_ns()):
                return True
            words = np.frombuffer(read_rows(file, shape, header), np.uint64)
    except (OSError, CorruptPool):
        return False
    rows = words.reshape(-1, shape.width)
    flight = rows[rows[:, Reference.WORD] & np.uint64(STATE_MASK) == Reference.FLIGHT]
    oldest = monotonic_ns() - header[Header.GRACE_NS]
    return bool((flight[:, Reference.SINCE_NS].astype(np.int64) > oldest).any())
