"""How each library shares an array of float32: one small class each, an instance of it in every process.

These need nothing but NumPy; `optional` has those that must be installed.
"""

from __future__ import annotations

from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import numpy.typing as npt

import shmtensor as st

Array = npt.NDArray[np.float32]
FloorItem = tuple[int, int, tuple[int, ...], str]
ITEM_BYTES, LARGEST_BYTES = 4, 256 << 20


class Peer:
    """A way to share arrays. The defaults suit objects that pickle, and that die by reference count.

    Whoever is done deletes the array, calls `drop`, and deletes the object.
    """

    name = ""
    # Whether the maker must keep what it sent until the receiver is done: no reference travels with a message.
    keeps_until_ack = False
    # Whether an object can be sent again, and a part of it as an object of its own.
    sends_again = True

    @classmethod
    def for_many(cls) -> Peer:
        """One that can have many objects alive, if that must be said beforehand."""
        return cls()

    def make(self, nbytes: int, to: int = 0) -> Any:
        """An object for `nbytes` of undefined content, which will go to consumer number `to`."""
        raise NotImplementedError

    def array(self, item: Any) -> Array:
        """The array of an object made or received."""
        raise NotImplementedError

    def part(self, item: Any, start: int, nbytes: int) -> Any:
        """An object for some bytes of another. It isn't dropped."""
        return item[start // ITEM_BYTES : (start + nbytes) // ITEM_BYTES]

    def enter(self, number: int) -> None:
        """Called first in consumer `number`."""

    def send(self, pipe: Connection, item: Any) -> None:
        """The maker sends it."""
        pipe.send(item)

    def receive(self, pipe: Connection) -> Any:
        """What the maker sent."""
        return pipe.recv()

    def drop(self, item: Any, *, made: bool) -> None:
        """Done with it here. Its maker (`made`) is the last to be."""

    def close(self) -> None:
        """The run is over; called by the maker."""


class Shmtensor(Peer):
    """This project."""

    name = "shmtensor"

    def make(self, nbytes: int, to: int = 0) -> st.Tensor:
        return st.empty((nbytes // ITEM_BYTES,))

    def array(self, item: st.Tensor) -> Array:
        return item.numpy()


class Floor(Peer):
    """What a library in pure Python can approach, by having nothing that makes it a library.

    One segment, mapped once on both sides and so warm, a free list for each size, a tiny tuple on the pipe: size,
    offset, shape and dtype, from which both sides make their array. It counts no references, notices no death, and
    never gives memory back.
    """

    name = "floor"
    keeps_until_ack = True

    def __init__(self, nbytes: int = 1 << 30) -> None:
        self.segment = SharedMemory(create=True, size=nbytes)  # sparse; the consumer gets it by name
        self.top = 0
        self.unused: dict[int, list[int]] = {}

    def make(self, nbytes: int, to: int = 0) -> FloorItem:
        shape, dtype = (nbytes // ITEM_BYTES,), "f4"
        size = -(-int(np.prod(shape)) * np.dtype(dtype).itemsize // 64) * 64  # whole cache lines
        if unused := self.unused.get(size):
            return size, unused.pop(), shape, dtype
        self.top += size
        return size, self.top - size, shape, dtype

    def array(self, item: FloorItem) -> Array:
        return np.ndarray(item[2], item[3], self.segment.buf, item[1])

    def part(self, item: FloorItem, start: int, nbytes: int) -> FloorItem:
        return nbytes, item[1] + start, (nbytes // ITEM_BYTES,), item[3]

    def drop(self, item: FloorItem, *, made: bool) -> None:
        if made:
            self.unused.setdefault(item[0], []).append(item[1])

    def close(self) -> None:
        self.segment.unlink()
        self.segment.close()


class Pickle(Peer):
    """An ordinary array, sent as any object is."""

    name = "pickle"

    def make(self, nbytes: int, to: int = 0) -> Array:
        return np.empty(nbytes // ITEM_BYTES, np.float32)

    def array(self, item: Array) -> Array:
        return item


class BarePipe(Pickle):
    """As many bytes through the same pipe, into a warm buffer: copying without pickle."""

    name = "bare pipe"

    def __init__(self) -> None:
        self.buffer = np.empty(0, np.float32)

    def enter(self, number: int) -> None:
        self.buffer = np.zeros(LARGEST_BYTES // ITEM_BYTES, np.float32)

    def send(self, pipe: Connection, item: Array) -> None:
        pipe.send_bytes(item.data)

    def receive(self, pipe: Connection) -> Array:
        return self.buffer[: pipe.recv_bytes_into(self.buffer.data) // ITEM_BYTES]


class Segments(Peer):
    """A segment for each array, as the documentation of `multiprocessing.shared_memory` has it."""

    name = "shared_memory"
    keeps_until_ack = True

    def make(self, nbytes: int, to: int = 0) -> tuple[SharedMemory, int, int]:
        return SharedMemory(create=True, size=nbytes), 0, nbytes  # pickles as its name and size

    def array(self, item: tuple[SharedMemory, int, int]) -> Array:
        segment, start, nbytes = item
        return np.ndarray(nbytes // ITEM_BYTES, np.float32, segment.buf, start)

    def part(self, item: tuple[SharedMemory, int, int], start: int, nbytes: int) -> tuple[SharedMemory, int, int]:
        return item[0], start, nbytes

    def drop(self, item: tuple[SharedMemory, int, int], *, made: bool) -> None:
        item[0].close()
        if made:
            item[0].unlink()
