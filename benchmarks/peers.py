"""How each library shares an array of float32: one small class each, an instance of it in both processes."""

from __future__ import annotations

from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
import numpy.typing as npt

import shmtensor as st

Array = npt.NDArray[np.float32]
ITEM_BYTES, LARGEST_BYTES = 4, 16 << 20


class Peer:
    """A way to share arrays. The defaults suit objects that pickle, and that die by reference count.

    Whoever is done deletes the array, calls `drop`, and deletes the object.
    """

    name = ""
    # Whether the maker must keep what it sent until the receiver is done: no reference travels with a message.
    keeps_until_ack = False

    def make(self, nbytes: int) -> Any:
        """An object for `nbytes` of undefined content."""
        raise NotImplementedError

    def array(self, item: Any) -> Array:
        """The array of an object made or received."""
        raise NotImplementedError

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

    def make(self, nbytes: int) -> st.Tensor:
        return st.empty((nbytes // ITEM_BYTES,))

    def array(self, item: st.Tensor) -> Array:
        return item.numpy()


class Floor(Peer):
    """What a library in pure Python can approach, by having nothing that makes it a library.

    One segment, mapped once on both sides and so warm, a free list for each size, a tiny tuple on the pipe.
    It counts no references, notices no death, and never gives memory back.
    """

    name = "floor"
    keeps_until_ack = True

    def __init__(self, nbytes: int = 512 << 20) -> None:
        self.segment = SharedMemory(create=True, size=nbytes)  # sparse; the consumer gets it by name
        self.top = 0
        self.unused: dict[int, list[int]] = {}

    def make(self, nbytes: int) -> tuple[int, int]:
        if unused := self.unused.get(nbytes):
            return unused.pop(), nbytes
        self.top += nbytes  # all sizes are multiples of a cache line
        return self.top - nbytes, nbytes

    def array(self, item: tuple[int, int]) -> Array:
        return np.ndarray(item[1] // ITEM_BYTES, np.float32, self.segment.buf, item[0])

    def drop(self, item: tuple[int, int], *, made: bool) -> None:
        if made:
            self.unused.setdefault(item[1], []).append(item[0])

    def close(self) -> None:
        self.segment.unlink()
        self.segment.close()


class Pickle(Peer):
    """An ordinary array, sent as any object is."""

    name = "pickle"

    def make(self, nbytes: int) -> Array:
        return np.empty(nbytes // ITEM_BYTES, np.float32)

    def array(self, item: Array) -> Array:
        return item


class BarePipe(Pickle):
    """As many bytes through the same pipe, into a warm buffer: copying without pickle."""

    name = "bare pipe"

    def __init__(self) -> None:
        self.buffer = np.zeros(LARGEST_BYTES // ITEM_BYTES, np.float32)

    def send(self, pipe: Connection, item: Array) -> None:
        pipe.send_bytes(item.data)

    def receive(self, pipe: Connection) -> Array:
        return self.buffer[: pipe.recv_bytes_into(self.buffer.data) // ITEM_BYTES]


class Segments(Peer):
    """A segment for each array, as the documentation of `multiprocessing.shared_memory` has it."""

    name = "shared_memory"
    keeps_until_ack = True

    def make(self, nbytes: int) -> SharedMemory:
        return SharedMemory(create=True, size=nbytes)  # pickles as its name and size

    def array(self, item: SharedMemory) -> Array:
        return np.ndarray(item.size // ITEM_BYTES, np.float32, item.buf)

    def drop(self, item: SharedMemory, *, made: bool) -> None:
        item.close()
        if made:
            item.unlink()
