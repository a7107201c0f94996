"""The four values that make a tensor, and what every method rests on: one way to an array, one way to a new
tensor.

Owns construction; the mixins beside this file add the methods, and `tensors.Tensor` is all of them
together.
"""

from __future__ import annotations

import sys
from typing import Any, Self, SupportsIndex, TypeAlias

import numpy as np

from shmtensor.dtypes import DType, as_dtype
from shmtensor.layout import Ints, Layout, MemoryFormat, contiguous, contiguous_format, preserved, stride_for
from shmtensor.storage import Pool, Storage, over

__all__ = [
    "KNOWN_FLAGS",
    "READ_ONLY",
    "VIEW",
    "Array",
    "TensorBase",
    "dense_layout_of",
    "layout_like",
    "new_layout",
    "plain_array",
]

Array: TypeAlias = "np.ndarray[Any, Any]"

# Flags of a tensor; they travel in its header.
READ_ONLY = 1  # arrays of this tensor can't be written
VIEW = 2  # made by a view operation, not by one that allocates
KNOWN_FLAGS = READ_ONLY | VIEW


class TensorBase:
    """A storage, and the dtype and layout that say how to read it. Only the in-place view methods assign to
    these.
    """

    __slots__ = ("__weakref__", "_dtype", "_flags", "_layout", "_storage")

    def __init__(self, storage: Storage, dtype: DType, layout: Layout, flags: int = 0) -> None:
        self._storage = storage
        self._dtype = dtype
        self._layout = layout
        self._flags = flags

    def numpy(self) -> Array:
        """An array that shares the tensor's memory and keeps it alive by itself; read-only where the tensor
        is.

        Raises `StorageBoundsError` when the storage has become too small for the tensor.
        """
        return self._storage.array(self._dtype, self._layout, not self._flags & READ_ONLY)

    @property
    def _pool(self) -> Pool:
        return self._storage.block.pool

    def _over(self, layout: Layout) -> Self:
        """A view: the same storage, another layout."""
        return type(self)(self._storage, self._dtype, layout, self._flags | VIEW)

    def _over_each(self, layouts: tuple[Layout, ...]) -> tuple[Self, ...]:
        return tuple(map(self._over, layouts))

    def _as(self, dtype: DType, layout: Layout) -> Self:
        """A view of the same bytes as another dtype."""
        return type(self)(self._storage, dtype, layout, self._flags | VIEW)

    @classmethod
    def _allocate(
        cls,
        pool: Pool,
        dtype: DType,
        layout: Layout,
        capacity: SupportsIndex | None = None,
        timeout: float | None = None,
    ) -> Self:
        """A tensor over a new storage of ``pool``, with undefined content. ``layout`` must be dense, at
        offset 0.
        """
        nbytes = layout.extent() * dtype.itemsize
        if capacity is None and timeout is None:
            return cls(over(pool.allocate(nbytes)), dtype, layout)
        return cls(Storage(nbytes, capacity=capacity, pool=pool, timeout=timeout), dtype, layout)

    @classmethod
    def _copy_of(cls, array: Array, pool: Pool, dtype: DType, layout: Layout, **storage_options: Any) -> Self:
        """A new tensor with the elements of ``array``, cast as needed; ``layout`` says in which order."""
        made = cls._allocate(pool, dtype, layout, **storage_options)
        np.copyto(made.numpy(), array, casting="unsafe")
        return made

    @classmethod
    def _adopt(cls, array: Array, pool: Pool) -> Self:
        """A tensor with the elements of an array that NumPy computed, dims in the order in memory that it
        chose.
        """
        return cls._copy_of(array, pool, as_dtype(array.dtype), dense_layout_of(array))


def plain_array(value: Any, dtype: DType | None = None) -> Array:
    """``value`` as an array. Raises `TypeError` for a masked array: its mask would be lost."""
    if "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray):
        raise TypeError("a masked array's mask can't be shared: pass filled(value) or data, and the mask beside it")
    return np.asarray(value, dtype)


def dense_layout_of(array: Array) -> Layout:
    """The layout of a copy of ``array``: its order of dims where strides are positive, else contiguous
    (rule 15).
    """
    itemsize = array.itemsize
    if array.flags.c_contiguous or any(step < 0 or step % itemsize for step in array.strides):
        return contiguous(array.shape)
    return Layout(array.shape, preserved(Layout(array.shape, tuple(step // itemsize for step in array.strides))))


def new_layout(shape: Ints, memory_format: MemoryFormat = contiguous_format) -> Layout:
    """The layout of a new tensor (rules 3 and 4)."""
    if memory_format is contiguous_format:
        return contiguous(shape)
    return Layout(shape, stride_for(shape, memory_format))


def layout_like(layout: Layout, memory_format: MemoryFormat) -> Layout:
    """The layout of a copy of ``layout`` (rules 4 and 5)."""
    if memory_format is MemoryFormat.preserve_format:
        return Layout(layout.shape, preserved(layout))
    return new_layout(layout.shape, memory_format)
