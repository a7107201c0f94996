"""The view methods: each gives a tensor over the same storage, and copies nothing. The rules are in `views`.

Those that change the tensor itself end in an underscore: only its layout changes, never an element.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, Self, SupportsIndex

import numpy as np

from shmtensor import dtypes, reshaping, views
from shmtensor.base import READ_ONLY, TensorBase
from shmtensor.dtypes import DType, as_dtype
from shmtensor.errors import LayoutError
from shmtensor.layout import Ints, Layout, check_within, checked_shape, default_stride
from shmtensor.storage import Storage

__all__ = ["Viewing", "spread"]

Dims = SupportsIndex | Sequence[SupportsIndex]


def spread(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """``f(2, 3)``, ``f((2, 3))`` and ``f([2, 3])`` mean the same."""
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        return tuple(values[0])
    return values


class Viewing(TensorBase):
    """Views: another shape, order of dims, part or dtype of the same elements."""

    __slots__ = ()

    def view(self, *shape: Any) -> Self:
        """The same elements in another shape, one size of which may be -1; or, given a dtype, the same
        bytes as that.

        Raises `LayoutError` where only a copy could do it, and says which dims can't merge: use `reshape`
        (rules 1, 2 and 8).
        """
        if len(shape) == 1 and _is_dtype(shape[0]):
            dtype = as_dtype(shape[0])
            return self._as(dtype, reshaping.view_dtype(self._layout, self._dtype.itemsize, dtype.itemsize))
        return self._over(reshaping.view(self._layout, spread(shape)))

    def view_as(self, other: TensorBase) -> Self:
        """`view` in the shape of ``other``."""
        return self._over(reshaping.view(self._layout, other._layout.shape))

    def alias(self) -> Self:
        """Another tensor that is the same view."""
        return self._over(self._layout)

    detach = alias

    def readonly(self) -> Self:
        """A view that can't be written, here or wherever it is sent. The elements may still change through
        others.
        """
        view = self._over(self._layout)
        view._flags |= READ_ONLY
        return view

    def as_strided(
        self,
        size: Sequence[SupportsIndex],
        stride: Sequence[SupportsIndex],
        storage_offset: SupportsIndex | None = None,
    ) -> Self:
        """Any layout over the storage, at this tensor's offset unless given (rule 9).

        Raises `LayoutError` for negative numbers, `StorageBoundsError` when it doesn't fit into the storage.
        """
        layout = views.as_strided(self._layout, size, stride, storage_offset)
        check_within(layout, self._dtype.itemsize, self._storage.block.nbytes)
        return self._over(layout)

    def expand(self, *sizes: Any) -> Self:
        """Dims of size 1 repeated, and new leading dims, without copying; -1 keeps a size (rule 7)."""
        return self._over(views.expand(self._layout, spread(sizes)))

    def expand_as(self, other: TensorBase) -> Self:
        """`expand` to the shape of ``other``."""
        return self._over(views.expand(self._layout, other._layout.shape))

    def broadcast_to(self, shape: Sequence[SupportsIndex]) -> Self:
        """`expand` to ``shape``."""
        return self._over(views.broadcast_to(self._layout, shape))

    def permute(self, *dims: Any) -> Self:
        """The dims in another order, each named once."""
        return self._over(views.permute(self._layout, spread(dims)))

    def transpose(self, dim0: SupportsIndex, dim1: SupportsIndex) -> Self:
        """Two dims swapped."""
        return self._over(views.transpose(self._layout, dim0, dim1))

    swapaxes = transpose
    swapdims = transpose

    def t(self) -> Self:
        """The transpose of a matrix; a tensor of fewer dims as it is. Raises `LayoutError` for more dims."""
        return self._over(_transposed(self._layout))

    @property
    def T(self) -> Self:
        """All dims in reverse order."""
        return self._over(views.permute(self._layout, range(self._layout.ndim - 1, -1, -1)))

    @property
    def mT(self) -> Self:
        """The last two dims swapped."""
        return self._over(_last_two_swapped(self._layout, "mT"))

    @property
    def H(self) -> Self:
        """The transpose of a real matrix. Raises `LayoutError` for another number of dims, and for complex
        elements, which would have to be copied.
        """
        _refuse_complex(self._dtype, "H")
        if self._layout.ndim != 2:
            raise LayoutError(f"H is for a matrix, the tensor has shape {self._layout.shape}: use mH or permute")
        return self._over(_transposed(self._layout))

    @property
    def mH(self) -> Self:
        """The last two dims of a real tensor swapped. Raises `LayoutError` for complex elements."""
        _refuse_complex(self._dtype, "mH")
        return self._over(_last_two_swapped(self._layout, "mH"))

    def adjoint(self) -> Self:
        """The last two dims of a real tensor swapped. Raises `LayoutError` for complex elements."""
        _refuse_complex(self._dtype, "adjoint")
        return self._over(_last_two_swapped(self._layout, "adjoint"))

    def movedim(self, source: Dims, destination: Dims) -> Self:
        """The dims ``source`` moved to the places ``destination``; the others keep their order."""
        return self._over(views.movedim(self._layout, source, destination))

    moveaxis = movedim

    def squeeze(self, dim: Dims | None = None) -> Self:
        """Without the dims of size 1, or those of ``dim`` (an int or a tuple) that have size 1."""
        return self._over(views.squeeze(self._layout, dim))

    def unsqueeze(self, dim: SupportsIndex) -> Self:
        """With a dim of size 1 at ``dim``."""
        return self._over(views.unsqueeze(self._layout, dim))

    def unflatten(self, dim: SupportsIndex, sizes: Sequence[SupportsIndex]) -> Self:
        """``dim`` split into ``sizes``, one of which may be -1."""
        return self._over(reshaping.unflatten(self._layout, dim, sizes))

    def narrow(self, dim: SupportsIndex, start: SupportsIndex, length: SupportsIndex) -> Self:
        """The ``length`` indices of ``dim`` from ``start``, which is negative to count from the end (rule
        6).
        """
        return self._over(views.narrow(self._layout, dim, start, length))

    def select(self, dim: SupportsIndex, index: SupportsIndex) -> Self:
        """Without ``dim``, at its ``index``."""
        return self._over(views.select(self._layout, dim, index))

    def slice(
        self,
        dim: SupportsIndex = 0,
        start: SupportsIndex | None = None,
        stop: SupportsIndex | None = None,
        step: SupportsIndex | None = None,
    ) -> Self:
        """``dim`` cut from ``start`` to ``stop``, every ``step``-th index; bounds clamp as in Python (rule
        6).
        """
        return self._over(views.slice_dim(self._layout, dim, slice(start, stop, step)))

    def diagonal(self, offset: SupportsIndex = 0, dim1: SupportsIndex = 0, dim2: SupportsIndex = 1) -> Self:
        """A diagonal of two dims, as the last dim of a view (rule 6)."""
        return self._over(views.diagonal(self._layout, index(offset), dim1, dim2))

    def unfold(self, dimension: SupportsIndex, size: SupportsIndex, step: SupportsIndex) -> Self:
        """Windows of ``size`` indices of a dim, ``step`` apart; the new last dim runs within a window (rule
        6).
        """
        return self._over(views.unfold(self._layout, dimension, size, step))

    def unbind(self, dim: SupportsIndex = 0) -> tuple[Self, ...]:
        """A view for each index of ``dim``."""
        return self._over_each(views.unbind(self._layout, dim))

    def split(self, split_size: Dims, dim: SupportsIndex = 0) -> tuple[Self, ...]:
        """Pieces of ``dim`` of one size, the last maybe smaller; or of the sizes given, which add up to the
        dim's.
        """
        return self._over_each(views.split(self._layout, split_size, dim))

    def split_with_sizes(self, split_sizes: Sequence[SupportsIndex], dim: SupportsIndex = 0) -> tuple[Self, ...]:
        """Pieces of ``dim`` of the sizes given, which add up to the dim's."""
        return self._over_each(views.split(self._layout, tuple(split_sizes), dim))

    def chunk(self, chunks: SupportsIndex, dim: SupportsIndex = 0) -> tuple[Self, ...]:
        """Up to ``chunks`` pieces of equal size, the last maybe smaller (rule 6)."""
        return self._over_each(views.chunk(self._layout, chunks, dim))

    def tensor_split(self, sections: Dims, dim: SupportsIndex = 0) -> tuple[Self, ...]:
        """Exactly so many pieces, sizes differing by one at most; or the pieces between the indices given
        (rule 6).
        """
        return self._over_each(views.tensor_split(self._layout, sections, dim))

    def hsplit(self, sections: Dims) -> tuple[Self, ...]:
        """`tensor_split` of dim 1, or of dim 0 of a row; equal pieces only."""
        return self._over_each(_equal_pieces(self._layout, sections, 1 if self._layout.ndim > 1 else 0, "hsplit", 1))

    def vsplit(self, sections: Dims) -> tuple[Self, ...]:
        """`tensor_split` of dim 0 of two dims or more; equal pieces only."""
        return self._over_each(_equal_pieces(self._layout, sections, 0, "vsplit", 2))

    def dsplit(self, sections: Dims) -> tuple[Self, ...]:
        """`tensor_split` of dim 2 of three dims or more; equal pieces only."""
        return self._over_each(_equal_pieces(self._layout, sections, 2, "dsplit", 3))

    @property
    def real(self) -> Self:
        """The real parts; a real tensor itself."""
        if not dtypes.is_complex(self._dtype):
            return self
        return self._as(_part_dtype(self._dtype), views.select(reshaping.view_as_real(self._layout), -1, 0))

    @property
    def imag(self) -> Self:
        """The imaginary parts. Raises `LayoutError` for a real tensor, which has none to view."""
        _require_complex(self._dtype, "imag")
        return self._as(_part_dtype(self._dtype), views.select(reshaping.view_as_real(self._layout), -1, 1))

    def view_as_real(self) -> Self:
        """Complex elements as pairs of real ones, in a new last dim of size 2."""
        _require_complex(self._dtype, "view_as_real")
        return self._as(_part_dtype(self._dtype), reshaping.view_as_real(self._layout))

    def view_as_complex(self) -> Self:
        """Pairs of float32 or float64 elements, in a last dim of size 2 and stride 1, as complex ones."""
        if self._dtype not in _WHOLE_OF:
            raise LayoutError(f"view_as_complex needs float32 or float64 elements, not {self._dtype}")
        return self._as(_WHOLE_OF[self._dtype], reshaping.view_as_complex(self._layout))

    def transpose_(self, dim0: SupportsIndex, dim1: SupportsIndex) -> Self:
        """Swap two dims of this tensor, and return it."""
        self._layout = views.transpose(self._layout, dim0, dim1)
        return self

    swapaxes_ = transpose_
    swapdims_ = transpose_

    def t_(self) -> Self:
        """Transpose this matrix, and return it."""
        self._layout = _transposed(self._layout)
        return self

    def squeeze_(self, dim: Dims | None = None) -> Self:
        """Drop dims of size 1 of this tensor, and return it."""
        self._layout = views.squeeze(self._layout, dim)
        return self

    def unsqueeze_(self, dim: SupportsIndex) -> Self:
        """Give this tensor a dim of size 1 at ``dim``, and return it."""
        self._layout = views.unsqueeze(self._layout, dim)
        return self

    def as_strided_(
        self,
        size: Sequence[SupportsIndex],
        stride: Sequence[SupportsIndex],
        storage_offset: SupportsIndex | None = None,
    ) -> Self:
        """Give this tensor another layout over its storage, and return it. Raises as `as_strided`, changing
        nothing.
        """
        layout = views.as_strided(self._layout, size, stride, storage_offset)
        check_within(layout, self._dtype.itemsize, self._storage.block.nbytes)
        self._layout = layout
        return self

    def set_(
        self,
        source: TensorBase | Storage,
        storage_offset: SupportsIndex = 0,
        size: Sequence[SupportsIndex] | None = None,
        stride: Sequence[SupportsIndex] | None = None,
    ) -> Self:
        """Make this tensor a view of what ``source`` views, and return it.

        A tensor must have the same dtype, else `TypeError`. A storage is viewed as ``size`` (all of it in
        one dim unless given) with ``stride`` (contiguous unless given) at ``storage_offset``, in elements.
        Raises `StorageBoundsError`, changing nothing, past the storage's end: it is never grown (rule 9).
        """
        if isinstance(source, TensorBase):
            if source._dtype != self._dtype:
                raise TypeError(f"set_ of a {self._dtype} tensor to one of {source._dtype}: take source.view(dtype)")
            if size is None:
                self._storage, self._layout = source._storage, source._layout
                self._flags |= source._flags & READ_ONLY
                return self
        storage, kept = (source._storage, source._flags & READ_ONLY) if isinstance(source, TensorBase) else (source, 0)
        layout = _layout_over(storage, self._dtype.itemsize, index(storage_offset), size, stride)
        check_within(layout, self._dtype.itemsize, storage.block.nbytes)
        self._storage, self._layout = storage, layout
        self._flags |= kept
        return self


_WHOLE_OF: dict[DType, DType] = {dtypes.float32: dtypes.complex64, dtypes.float64: dtypes.complex128}


def _part_dtype(dtype: DType) -> DType:
    return dtypes.float32 if dtype == dtypes.complex64 else dtypes.float64


def _is_dtype(value: Any) -> bool:
    # A scalar class such as np.int64 has __index__ too, as an unbound method: ask for classes first.
    return isinstance(value, (type, str, np.dtype)) or not isinstance(value, (tuple, list, SupportsIndex))


def _transposed(layout: Layout) -> Layout:
    if layout.ndim > 2:
        raise LayoutError(f"t() is for 2 dims at most, the tensor has shape {layout.shape}: use permute or mT")
    return views.transpose(layout, 0, 1) if layout.ndim == 2 else layout


def _last_two_swapped(layout: Layout, name: str) -> Layout:
    if layout.ndim < 2:
        raise LayoutError(f"{name} needs 2 dims or more, the tensor has shape {layout.shape}")
    return views.transpose(layout, -2, -1)


def _refuse_complex(dtype: DType, name: str) -> None:
    if dtypes.is_complex(dtype):
        raise LayoutError(f"{name} of a {dtype} tensor is no view: use numpy.conj(t.mT), which copies")


def _require_complex(dtype: DType, name: str) -> None:
    if not dtypes.is_complex(dtype):
        raise LayoutError(f"{name} needs complex elements, not {dtype}")


def _equal_pieces(layout: Layout, sections: Dims, dim: int, name: str, least_ndim: int) -> tuple[Layout, ...]:
    if layout.ndim < least_ndim:
        raise LayoutError(f"{name} needs {least_ndim} dims or more, the tensor has shape {layout.shape}")
    if isinstance(sections, SupportsIndex) and index(sections) > 0 and layout.shape[dim] % index(sections):
        raise LayoutError(
            f"{name}: dim {dim} of shape {layout.shape} can't be split into {index(sections)} equal pieces. "
            "tensor_split makes unequal ones"
        )
    return views.tensor_split(layout, sections, dim)


def _layout_over(storage: Storage, itemsize: int, offset: int, size: Any, stride: Any) -> Layout:
    whole: Ints = (max(storage.block.nbytes // itemsize - offset, 0),)
    from_start = Layout((), (), 0)
    if size is None:
        return views.as_strided(from_start, whole, (1,), offset, "set_")
    return views.as_strided(from_start, size, _default(size) if stride is None else stride, offset, "set_")


def _default(size: Sequence[SupportsIndex]) -> Ints:
    return default_stride(checked_shape(size))
