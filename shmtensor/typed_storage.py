"""TypedStorage: what ``t.storage()`` gives, the bytes of a storage as a row of elements.

Owns a range of elements, no memory of its own; `Storage.array` reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import index
from typing import Any, SupportsIndex

import numpy as np

from shmtensor.bytevalues import apart, position, to_write
from shmtensor.device import Device
from shmtensor.dtypes import DType
from shmtensor.layout import Layout
from shmtensor.storage import Storage

__all__ = ["TypedStorage"]


class TypedStorage:
    """One-dimensional: ``s[0]`` reads an element, ``s[0] = 2.0`` writes one, a slice shares. Sizes are in
    elements.
    """

    __slots__ = ("_count", "_dtype", "_start", "_storage", "_writable")

    def __init__(
        self,
        storage: Storage,
        dtype: DType,
        *,
        writable: bool = True,
        start: int = 0,
        count: int | None = None,
    ) -> None:
        self._storage = storage
        self._dtype = dtype
        self._writable = writable
        self._start = start
        self._count = count  # None: all there is, whatever the storage is resized to

    @property
    def dtype(self) -> DType:
        """The NumPy dtype of the elements."""
        return self._dtype

    @property
    def device(self) -> Device:
        """Where the bytes are: "cpu"."""
        return self._storage.device

    @property
    def is_cuda(self) -> bool:
        """Whether the bytes are in device memory: False."""
        return self._storage.is_cuda

    def untyped(self) -> Storage:
        """The bytes."""
        return self._storage

    def size(self) -> int:
        """The number of elements."""
        return self._storage.nbytes() // self._dtype.itemsize if self._count is None else self._count

    def __len__(self) -> int:
        return self.size()

    def nbytes(self) -> int:
        """The size in bytes."""
        return self.size() * self._dtype.itemsize

    def element_size(self) -> int:
        """The size of an element in bytes."""
        return self._dtype.itemsize

    def data_ptr(self) -> int:
        """The address of the first element in this process, 0 when empty."""
        return int(self._array().__array_interface__["data"][0]) if self.size() else 0

    def is_shared(self) -> bool:
        """True: a storage is in shared memory from the start."""
        return True

    def resize_(self, size: SupportsIndex) -> TypedStorage:
        """Make the whole storage ``size`` elements long, and return this. Raises as `Storage.resize_`, and
        `ValueError` when it is that of a read-only tensor.
        """
        if not self._writable:
            raise ValueError(f"{self!r} is that of a read-only tensor: it can't be resized")
        self._storage.resize_(index(size) * self._dtype.itemsize)
        return self

    def fill_(self, value: Any) -> TypedStorage:
        """Set every element to ``value``, and return this."""
        self._array_to_write()[...] = value
        return self

    def copy_(self, source: Any) -> TypedStorage:
        """Copy the elements of ``source``, cast as needed, and return this. Raises `ValueError` for another
        size.
        """
        content = source._array() if isinstance(source, TypedStorage) else np.asarray(source)
        if content.shape != (self.size(),):
            raise ValueError(f"elements of shape {content.shape} can't be copied into a storage of {self.size()}")
        target = self._array_to_write()
        np.copyto(target, apart(content, target), casting="unsafe")
        return self

    def tolist(self) -> list[Any]:
        """The elements as Python numbers."""
        return list(self._array().tolist())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, key: Any) -> Any:
        """An element as a Python number, or for a slice of step 1 a typed storage that shares."""
        if isinstance(key, slice):
            return self._part(key)
        return self._array()[position(key)].item()

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write an element, or those of a slice. Raises `OverflowError` for an int that the dtype can't
        hold.
        """
        place = key if isinstance(key, slice) else position(key)
        target = self._array_to_write()
        target[place] = apart(value._array() if isinstance(value, TypedStorage) else value, target)

    def _part(self, cut: slice) -> TypedStorage:
        first, last, step = cut.indices(self.size())
        if step != 1:
            raise ValueError("a slice of a storage has step 1: take a tensor for others")
        count = max(last - first, 0)
        return TypedStorage(self._storage, self._dtype, writable=self._writable, start=self._start + first, count=count)

    def _array_to_write(self) -> np.ndarray[Any, Any]:
        return to_write(self._array())

    def _array(self) -> np.ndarray[Any, Any]:
        layout = Layout((self.size(),), (1,), self._start)
        return self._storage.array(self._dtype, layout, self._writable)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TypedStorage):
            return NotImplemented
        mine = (self._storage, self._dtype, self._start, self._count)
        return mine == (other._storage, other._dtype, other._start, other._count)

    def __hash__(self) -> int:
        return hash((self._storage, self._dtype, self._start, self._count))

    def __repr__(self) -> str:
        return f"TypedStorage({self.size()} x {self._dtype}, id={self._storage.id:#x})"
