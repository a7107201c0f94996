"""Blocks: bytes in the heap, as one process holds them. A block's death gives the bytes, or this process's hold on
them, back.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable
from gc import is_finalized
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

import numpy as np

from allocator import stats
from allocator.commons import Membership
from allocator.core.format import Record
from allocator.errors import AllocatorError, CorruptPool, StorageCapacityError
from allocator.local_heap import Home
from allocator.system.host import load_psutil, process_name, start_time
from allocator.system.locks import AWAKE

if TYPE_CHECKING:
    from allocator.pool import Pool


_UINT8 = np.dtype(np.uint8)
_WORDS = struct.Struct("4Q")  # record, generation, ticket and serial are words of shared memory


class _Released:
    """The home of a block that was released: every use of it raises."""

    row = room = 0

    @property
    def estate(self) -> NoReturn:
        """Asked first by whatever needs the block."""
        raise ValueError("this block was released")

    def give_back(self, start: int) -> None:
        """That is done."""


class _Willed:
    """The home of a block that the collector finalized and that was never sent: its heir gives the bytes back."""

    def __init__(self, heir: Block, home: Home) -> None:
        self.heir = heir
        self.row, self.room = home.row, home.room

    @property
    def estate(self) -> _Willed:
        """Its own: not an attribute, for that would be a cycle."""
        return self

    @property
    def has_records(self) -> bool:
        """Whether a fork gave the heir one. It isn't told before `adopt` has told it how long it is."""
        estate = self.heir.home.estate  # type: ignore[union-attr]  # never sent, it has a home
        return estate is not None and estate.has_records

    def adopt(self, block: Block) -> None:
        """Give the heir a record, and tell the block of it."""
        heir = self.heir
        heir.size = block.size
        heir.pool.exchange.publish(heir, None)
        block.record, block.generation, block.row = heir.record, heir.generation, heir.row
        block.me = heir.me

    def give_back(self, start: int) -> None:
        """The block was released."""
        self.heir.release()


class Root(np.ndarray[Any, np.dtype[np.uint8]]):
    """The bytes of a block as an array that keeps their keeper alive; everything cut from it keeps it alive in turn."""

    __slots__ = ("keeper",)
    keeper: Any


class Block:
    """`nbytes` bytes at heap byte `start`, 64-byte aligned.

    Never sent, it is this process's own, without any shared state: `home` takes the bytes back when it dies. Sent or
    received, `me` is the membership under which reference row `row` holds its shared record.
    """

    __slots__ = ("__weakref__", "generation", "heir", "home", "me", "pool", "record", "root", "row", "size", "start")

    def __init__(self, pool: Pool, home: Home | None, start: int, size: int) -> None:
        self.pool = pool
        self.home = home
        self.start = start
        self.size = size
        self.me: Membership | None = None
        self.record: int  # the shared record: the same in every process; only where `me` is
        self.generation: int  # tells it from others in the same row
        self.row: int
        self.root: weakref.ref[Root]  # that of the memoryviews, once there was one
        self.heir: Block  # gives the bytes back in its place: only where the collector finalized it

    def __del__(
        self, is_finalized: Callable[[object], bool] = is_finalized, awake: memoryview = AWAKE
    ) -> None:  # at exit globals go first
        try:
            me, home = self.me, self.home
        except AttributeError:  # interrupted before it was finished: the bytes are lost until exit, never given twice
            return
        if is_finalized(self):  # before the call, so it is the collector's
            self._leave_to_heir(me, home)
        elif me is not None:  # inlined `Membership.drop`
            words, at = me.words, self.row * 4
            if words[at] == me.ours and awake[0]:
                words[at] = me.dropped
            elif me.heirs is not None:
                me.heirs(self.row)
        elif home is not None:
            home.give_back(self.start)

    def _leave_to_heir(self, me: Membership | None, home: Home | None, willed_by: type[_Willed] = _Willed) -> None:
        """The collector finalizes all of a garbage cycle before it destroys any: others may still use the bytes, or
        bring the block back to life. So a block that only this one knows gives them back: it dies when this one does.
        """
        heir = type(self)(self.pool, None, self.start, self.size)
        if me is not None:
            heir.row = self.row
            self.heir, heir.me = heir, me  # no call in between, so no interrupt either
        elif home is not None:
            willed: Any = willed_by(heir, home)
            self.heir, self.home, heir.home = heir, willed, home

    # ---- facts

    @property
    def was_sent(self) -> bool:
        """Whether it has a shared record, so that other processes may know it: it can't move any more."""
        if (
            self.me is None
            and self.home is not None
            and (estate := self.home.estate) is not None
            and estate.has_records
        ):
            self.pool.exchange.publish(self, None)  # a fork gave it one behind its back
        return self.me is not None

    @property
    def nbytes(self) -> int:
        """Bytes in use; in every process the same, and seen by all at once when resized."""
        return self.facts()[0]

    def facts(self) -> tuple[int, int]:
        """(`nbytes`, whether it is sealed): what every access needs, in one call."""
        if self.me is None and (self.home.estate is None or not self.was_sent):  # type: ignore[union-attr]  # it has one
            return self.size, 0
        words, at = self.pool.record_words, self.record * 8  # Record.WIDTH
        return words[at + 4], words[at + 6] & 1  # Record.NBYTES, Record.FLAGS, Record.SEALED

    @property
    def capacity(self) -> int:
        """Bytes up to which `resize` works in place."""
        if self.was_sent:
            return self.pool.record_words[self.record * 8 + 5]  # Record.CAPACITY
        assert self.home is not None
        return self.home.room

    # ---- bytes

    def export(self, keeper: Any, writable: bool = True) -> Root:
        """The block's `capacity` bytes as a uint8 array that keeps `keeper` alive. For who has asked for its facts."""
        pool = self.pool
        room = self.home.room if self.me is None else pool.record_words[self.record * 8 + 5]  # type: ignore[union-attr]
        root: Root
        try:
            if writable:
                root = Root((room,), _UINT8, pool.heap_map, self.start)
            elif not room:
                root = Root((0,), _UINT8)
            else:
                # NumPy looks through a memoryview to what it is of, and would let its arrays be made writable; not
                # through frombuffer's. The slice keeps this array as its base, where a view would drop the keeper.
                reading = memoryview(pool.heap_map).toreadonly()
                root = cast("Root", np.frombuffer(reading, _UINT8, room, self.start).view(Root)[:])
        except (OverflowError, TypeError, ValueError) as error:
            raise CorruptPool(
                f"a record says that {room} bytes lie at heap byte {self.start} ({error}): recreate the pool"
            ) from error
        root.keeper = keeper
        return root

    def memoryview(self) -> memoryview:
        """The block's `nbytes` bytes. The view keeps the block alive; read-only when sealed."""
        sealed = self.is_sealed()
        root = self._living_root()
        if root is None:  # one for all memoryviews, so that `release` sees any of them
            root = self.export(self, writable=not sealed)
            self.root = weakref.ref(root)
        view = memoryview(root[: self.nbytes])  # type: ignore[arg-type]  # an array is a buffer, also below 3.12
        return view.toreadonly() if sealed else view

    def _living_root(self) -> Root | None:
        """What all living memoryviews of this block lead back to."""
        try:
            return self.root()
        except AttributeError:  # there never was one
            return None

    def resize(self, nbytes: int) -> None:
        """Make it `nbytes` long, in place, for every process at once; bytes that come new are undefined.

        Raises
        ------
        StorageCapacityError
            `nbytes` is more than the capacity.
        OutOfSharedMemory
            There is no memory for the longer front. The block is as before, after either.
        """
        nbytes = index(nbytes)
        if nbytes < 0:
            raise ValueError(f"a block can't have {nbytes} bytes")
        if self.is_sealed():
            raise ValueError(
                f"this block of {self.nbytes} bytes is sealed: neither its bytes nor its size change any more"
            )
        if nbytes > self.capacity:
            raise StorageCapacityError(
                f"{nbytes} bytes exceed this block's capacity of {self.capacity}; reserve more with capacity= at first"
            )
        ledger = self.pool.commons.ledger
        record = self.record if self.was_sent else None
        row = self._span_row()
        self.size = min(self.size, nbytes)  # an interrupt below must not leave it longer than it is
        if ledger.spans.slot_class(row) == 0:
            self.pool.supply.resize(row, record, nbytes, self.pool.timeout)
        elif record is not None:
            self.pool.commons.section(ledger.records.words.__setitem__, record * Record.WIDTH + Record.NBYTES, nbytes)
        self.size = nbytes

    def _span_row(self) -> int:
        if self.me is not None:
            return self.pool.commons.ledger.records.field(self.record, Record.SPAN)
        assert self.home is not None
        return self.home.row

    def trim(self) -> int:
        """Give the memory behind `nbytes` back to the kernel; the capacity stays. How many bytes that were.

        Raises
        ------
        StorageCapacityError
            The block was sent: another process may be resizing it.
        """
        if self.was_sent:
            raise StorageCapacityError(
                "a block that was sent can't be trimmed: another process may be using what lies behind"
            )
        row = self._span_row()
        if self.pool.commons.ledger.spans.slot_class(row) != 0:
            return 0
        return self.pool.commons.section(self.pool.supply.trim, row, self.size)

    def is_sealed(self) -> bool:
        """Whether it is read-only, for good and for everyone."""
        return bool(self.facts()[1])

    def seal(self, keeper: Any = None) -> None:
        """Make it read-only for good and for everyone who exports it from now on. Gives it a record, as sending
        does.
        """
        if not AWAKE[0]:
            self.pool.commons.pass_through()  # which says why not
        self.pool.exchange.publish(self, keeper)
        self.pool.commons.section(self.pool.commons.ledger.records.seal, self.record)

    # ---- others

    def holders(self) -> list[stats.Holder]:
        """Who keeps it alive: processes that have it open, and messages that nobody has opened yet."""
        commons = self.pool.commons
        if not self.was_sent:
            me = commons.membership
            return [stats.Holder("hold", me.slot, me.pid, process_name(me.pid, start_time(me.pid)))]
        load_psutil()
        return commons.section(stats.holders, commons, self.record)

    def share(self) -> BlockHandle:
        """A ticket: it keeps the block alive until it is opened or discarded, whatever becomes of this process."""
        pool = self.pool
        return BlockHandle(*pool.send(self, None))

    def release(self) -> None:
        """Give it up now rather than at its death. Any use of it but another release raises ValueError then.

        Raises
        ------
        BufferError
            A memoryview of it is alive.
        """
        if self._living_root() is not None:
            raise BufferError("a memoryview of this block is alive: drop it before the release")
        home, me = self.home, self.me
        self.home, self.me = _Released(), None  # type: ignore[assignment]  # nothing gets past its estate
        if me is not None and is_finalized(self):
            self.heir.release()
        elif me is not None:
            me.drop(self.row)
        elif home is not None:
            home.give_back(self.start)

    def __repr__(self) -> str:
        try:
            return f"Block({self.nbytes} of {self.capacity} bytes in pool {self.pool.name!r})"
        except (ValueError, AllocatorError):
            return "Block(released)"


class BlockHandle(NamedTuple):
    """What travels: names a block and the ticket that keeps it alive. Owes one `open` or `discard`; opens more than
    once.
    """

    host: str
    pool: str
    record: int
    generation: int
    ticket: int
    serial: int

    def open(self) -> Block:
        """The block, in this process.

        Raises
        ------
        StaleHandle
            The block is gone.
        ForeignHost
            The handle was made on another machine.
        PoolClosed
            The pool was closed in this process.
        ValueError
            These are no values of a handle.
        """
        return self.find_pool().open(self.record, self.generation, self.ticket, self.serial)

    def discard(self) -> bool:
        """End the ticket unopened; whether it still was one. Raises as `open` where the pool can't be had."""
        return self.find_pool().discard(self.record, self.generation, self.ticket, self.serial)

    def find_pool(self) -> Pool:
        """The pool that it names; attaches when it must. Raises as `open`, since it may come from anywhere."""
        from allocator.pool import find_pool

        try:
            _WORDS.pack(self.record, self.generation, self.ticket, self.serial)
        except struct.error:
            raise ValueError("no handle: record, generation, ticket and serial are integers of 64 bits") from None
        if type(self.host) is not str or type(self.pool) is not str:
            raise ValueError("no handle: host and pool are strings")
        return find_pool(self.host, self.pool)

    def __reduce__(self) -> tuple[Any, ...]:
        """All values at once: a damaged pickle gives no handle that lacks one."""
        return BlockHandle, (self.host, self.pool, self.record, self.generation, self.ticket, self.serial)
