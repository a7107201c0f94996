"""Storage: bytes in a pool, without a dtype. The only importer of `allocator`, whose names shmtensor
re-exports from here.

Owns the way from a layout to memory: `Storage.array` is the one place that makes an array over a block, so it
is the one place that checks bounds and who may write. It knows nothing of tensors but how to hand out bytes
as one.

Invariant: while a root (the array that all exported arrays lead back to) is alive here, the block stays where
it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, SupportsIndex, TypeAlias
from weakref import ref

import numpy as np
from numpy import ndarray

from allocator import (
    AllocatorError,
    Block,
    BlockHandle,
    CorruptPool,
    ForeignHost,
    ForeignUser,
    Holder,
    NameNotFound,
    OutOfSharedMemory,
    Pool,
    PoolClosed,
    PoolExists,
    PoolNotFound,
    PoolReentered,
    StaleHandle,
    StorageCapacityError,
    attached,
    default_pool,
    naming,
    set_default_pool,
)
from shmtensor.bytevalues import Bytes, apart, as_bytes, buffer_bytes, byte_count, position, to_write
from shmtensor.device import CPU, Device
from shmtensor.dtypes import DType, uint8
from shmtensor.layout import Layout, check_within

__all__ = [
    "AllocatorError",
    "BlockHandle",
    "CorruptPool",
    "ForeignHost",
    "ForeignUser",
    "NameNotFound",
    "OutOfSharedMemory",
    "Pool",
    "PoolClosed",
    "PoolExists",
    "PoolNotFound",
    "PoolReentered",
    "StaleHandle",
    "Storage",
    "StorageCapacityError",
    "UntypedStorage",
    "attached",
    "default_pool",
    "naming",
    "over",
    "set_default_pool",
]

MemoryView: TypeAlias = memoryview  # where a method of that name hides the builtin
_no_root = ref(set[int]())  # a weak reference to what is gone


class Storage:
    """A run of bytes in shared memory. Tensors are views of it; it dies with the last of them, in any process.

    ``Storage(nbytes)`` has ``nbytes`` bytes of undefined content. ``capacity``, in bytes, reserves address space, so
    that `resize_` can grow the storage in place even after it was sent; it costs no memory. ``pool`` is the default
    pool unless given. Waits up to ``timeout`` seconds for memory, then raises `OutOfSharedMemory`.
    """

    __slots__ = ("__weakref__", "_hash", "_reading_root", "_root", "block")

    block: Block
    _root: Any  # weak reference to the writable root, or _no_root
    _reading_root: Any  # the same for the root that can't be written through
    _hash: int  # 0 before it was asked for

    def __init__(
        self,
        nbytes: SupportsIndex = 0,
        *,
        capacity: SupportsIndex | None = None,
        pool: Pool | None = None,
        timeout: float | None = None,
    ) -> None:
        wanted = byte_count(nbytes)
        room = None if capacity is None else byte_count(capacity)
        source = default_pool() if pool is None else pool
        self.block = source.allocate(wanted, capacity=room, timeout=timeout)
        self._root = self._reading_root = _no_root
        self._hash = 0

    @classmethod
    def from_buffer(cls, buffer: Any, *, pool: Pool | None = None) -> Storage:
        """A storage with a copy of the bytes of ``buffer``: anything with the buffer protocol, of any item type."""
        content = buffer_bytes(buffer)
        storage = cls(content.size, pool=pool)
        storage._bytes(writable=True)[...] = content
        return storage

    def array(self, dtype: DType, layout: Layout, writable: bool = True) -> np.ndarray[Any, Any]:
        """The array of ``layout`` over these bytes. It keeps the storage alive by itself, as do all views of it.

        Read-only when ``writable`` is False or the storage is sealed. Raises `StorageBoundsError`, having read nothing,
        when the storage is too small. Every access of every tensor comes through here.
        """
        block = self.block
        itemsize = dtype.itemsize
        extent = layout.known_extent
        if extent < 0:
            extent = layout.extent()
        nbytes, sealed = block.facts()
        if extent * itemsize > nbytes:
            check_within(layout, itemsize, nbytes)
        # The root spans the capacity, and shrinking purges nothing: a resize between check and use reads old
        # bytes.
        root = self._root() if writable and not sealed else self._root_for_reading()
        if root is None:
            root = block.export(self)
            self._root = ref(root)
        try:
            if layout.plain:
                return ndarray(layout.shape, dtype, root)
            if not extent:  # an offset past the end is allowed when there is nothing to read there
                return ndarray(layout.shape, dtype, root, 0)
            strides = [step * itemsize for step in layout.stride]
            return ndarray(layout.shape, dtype, root, layout.offset * itemsize, strides)
        except TypeError as error:  # "buffer is too small"
            raise CorruptPool(f"a record says {nbytes} bytes, beyond its capacity: recreate the pool") from error

    def _root_for_reading(self) -> Any:
        root = self._reading_root()
        if root is None:
            root = self.block.export(self, writable=False)
            self._reading_root = ref(root)
        return root

    def _bytes(self, writable: bool = False) -> Bytes:
        return self.array(uint8, Layout((self.block.nbytes,), (1,)), writable)

    def _bytes_to_write(self) -> Bytes:
        return to_write(self._bytes(writable=True))

    def _is_exported(self) -> bool:
        return self._root() is not None or self._reading_root() is not None

    def nbytes(self) -> int:
        """The size in bytes, as every process sees it now."""
        return self.block.nbytes

    def size(self) -> int:
        """The size in bytes."""
        return self.block.nbytes

    def __len__(self) -> int:
        return self.block.nbytes

    def element_size(self) -> int:
        """1: a storage holds bytes."""
        return 1

    def capacity(self) -> int:
        """The bytes up to which `resize_` works in place, in every process."""
        return self.block.capacity

    def data_ptr(self) -> int:
        """The address of the first byte in this process, 0 when empty. Other processes have another one."""
        return int(self._bytes().__array_interface__["data"][0]) if self.block.nbytes else 0

    @property
    def device(self) -> Device:
        """Where the bytes are: "cpu"."""
        return CPU

    @property
    def is_cuda(self) -> bool:
        """Whether the bytes are in device memory: False."""
        return False

    @property
    def id(self) -> int:
        """A number for this storage, the same in every process. Like `id`, it may be used again after its death."""
        return self.block.start

    def is_shared(self) -> bool:
        """True: a storage is in shared memory from the start."""
        return True

    def share_memory_(self) -> Storage:
        """Does nothing, and returns the storage: it is shared already."""
        return self

    def holders(self) -> list[Holder]:
        """Who keeps the bytes alive, with kind, slot, pid and name: each process, this one too, and each message in
        flight.
        """
        return self.block.holders()

    def resizable(self) -> bool:
        """Whether `resize_` can work at all: unless sealed. How far it goes is `capacity`."""
        return not self.block.is_sealed()

    def resize_(self, nbytes: SupportsIndex) -> Storage:
        """Make the storage ``nbytes`` bytes long, here and in every other process, and return it (rule 12).

        Up to `capacity` this works in place. Tensors keep their shape and offset; one that now runs past the end raises
        `StorageBoundsError` when used, and works again when the storage has grown back. New bytes are undefined. Beyond
        the capacity a storage that was never sent moves, and its tensors follow.

        An export (an array, memoryview, DLPack or torch tensor of it) pins: while this process has one, the storage
        grows within its capacity only, and doesn't shrink. Exports of other processes can't be seen from here: one of
        bytes that were cut off reads and writes what the storage gets when it grows back, never another storage's.

        Raises, and changes nothing: `StorageCapacityError` beyond the capacity of a storage that was sent,
        `BufferError` when it would have to shrink or move under an export, `ValueError` when sealed or when ``nbytes``
        is negative, `OutOfSharedMemory`.
        """
        wanted = byte_count(nbytes)
        if self.block.is_sealed():
            raise ValueError(f"{self!r} is sealed: its size is for good")
        if wanted > self.block.capacity and not self.block.was_sent:
            self._move(wanted)
            return self
        if wanted < self.block.nbytes:
            self._refuse_when_exported(f"shrink to {wanted} bytes")
        self.block.resize(wanted)
        return self

    def _move(self, nbytes: int) -> None:
        old = self.block
        advice = "or reserve capacity= when making it"
        self._refuse_when_exported(f"move to make room for {nbytes} bytes", advice)
        new = old.pool.allocate(nbytes)
        content = np.array(self._bytes())
        replacement = over(new)
        replacement.array(uint8, Layout(content.shape, (1,)))[...] = content
        self._refuse_when_exported(f"move to make room for {nbytes} bytes", advice)
        if old.was_sent:  # by another thread, while we copied: the others know the old place
            old.resize(nbytes)
        else:
            self.block = new

    def _refuse_when_exported(self, act: str, advice: str = "or clone() before") -> None:
        if self._is_exported():
            raise BufferError(
                f"{self!r} can't {act} while this process has an export of it alive (an array, a memoryview, a DLPack "
                f"or torch tensor, or a view of one): drop it first, {advice}"
            )

    def trim(self) -> Storage:
        """Give the memory between `nbytes` and `capacity` back, and return the storage.

        Raises `StorageCapacityError` for a storage that was sent and `BufferError` when an array of it is alive: either
        could still be reading there.
        """
        if not self.block.was_sent:
            self._refuse_when_exported("be trimmed")
        self.block.trim()
        return self

    def seal(self) -> Storage:
        """Make the bytes read-only, for good and for every process from now on, and return the storage.

        Raises `BufferError`, and seals nothing, when this process has a writable array of it: that couldn't be bound.
        """
        if self._root() is not None:
            raise BufferError(f"{self!r} can't be sealed while a writable array of it is alive: drop it first")
        self.block.seal(self)
        return self

    def is_sealed(self) -> bool:
        """Whether some process has called `seal`."""
        return self.block.is_sealed()

    def __getitem__(self, key: Any) -> Any:
        """A byte as an int; or, for a slice of step 1 or more, a uint8 tensor that shares the bytes."""
        if isinstance(key, slice):
            return self._as_tensor()[key]
        return int(self._bytes()[position(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write a byte, or the bytes of a slice. Raises `ValueError` for a value that is no byte."""
        place = key if isinstance(key, slice) else position(key)
        target = self._bytes_to_write()
        target[place] = apart(as_bytes(value), target)

    def _as_tensor(self) -> Any:
        from shmtensor.tensors import Tensor  # above us; only slices need it

        return Tensor(self, uint8, Layout((self.block.nbytes,), (1,)))

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def fill_(self, value: int) -> Storage:
        """Set every byte to ``value`` and return the storage. Raises `ValueError` unless it is 0 to 255."""
        self._bytes_to_write()[...] = as_bytes(value)
        return self

    def copy_(self, source: Any) -> Storage:
        """Copy all bytes of ``source``, a storage or a buffer, and return the storage.

        Raises `ValueError` unless it has exactly as many bytes.
        """
        content = source._bytes() if isinstance(source, Storage) else buffer_bytes(source)
        if content.size != self.block.nbytes:
            raise ValueError(f"{content.size} bytes can't be copied into {self!r}: resize it first")
        self._bytes_to_write()[...] = content
        return self

    def clone(self) -> Storage:
        """A new storage in the same pool with the same bytes."""
        copied = Storage(self.block.nbytes, pool=self.block.pool)
        copied._bytes(writable=True)[...] = self._bytes()
        return copied

    def tolist(self) -> list[int]:
        """The bytes as a list of ints."""
        return list(self._bytes().tobytes())

    def memoryview(self) -> MemoryView:
        """The bytes as a memoryview, which keeps the storage alive; read-only when sealed."""
        return memoryview(self._bytes(writable=True))  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Storage):
            return NotImplemented
        mine, theirs = self.block, other.block
        if mine is theirs:
            return True
        if mine.pool is not theirs.pool or not (mine.was_sent and theirs.was_sent):
            return False
        return (mine.record, mine.generation) == (theirs.record, theirs.generation)

    def __hash__(self) -> int:
        if not self._hash:  # kept, because a storage that moves changes its start
            self._hash = hash((self.block.pool.name, self.block.start)) or 1
        return self._hash

    def __repr__(self) -> str:
        sealed = ", sealed" if self.block.is_sealed() else ""
        pool = self.block.pool.name
        return f"Storage({self.block.nbytes} bytes, id={self.block.start:#x}, pool={pool!r}{sealed})"

    def __enter__(self) -> Storage:
        return self

    def __exit__(self, *_: object) -> None:
        """Free the bytes now if nobody else can be using them: never sent, no array alive. Else the last user does.

        Tensors that still view freed bytes raise `StorageBoundsError` when used.
        """
        if not self.block.was_sent and not self._is_exported():
            self.block = self.block.pool.allocate(0)

    def __copy__(self) -> Storage:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Storage:
        copied = self.clone()
        memo[id(self)] = copied
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        """A claim on the bytes, not the bytes: makes a ticket that some process opens, once or more often."""
        from shmtensor.tensors import received  # above us; it opens both

        return received, self.claim()

    def claim(self) -> tuple[str, str, int, int, int, int]:
        """A new ticket for the storage: host, pool, record, generation, ticket and serial."""
        claim: tuple[str, str, int, int, int, int] = self.block.pool.send(self.block, self)
        return claim


UntypedStorage = Storage


def over(block: Block) -> Storage:
    """The storage over ``block``, which must have none yet."""
    storage: Storage = object.__new__(Storage)
    storage.block = block
    storage._root = storage._reading_root = _no_root
    storage._hash = 0
    return storage
