"""The methods that copy elements: out of a tensor into a new one in the same pool, or into the tensor in
place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import index
from typing import Any, Self, SupportsIndex

import numpy as np

from shmtensor import reshaping, views
from shmtensor.base import READ_ONLY, Array, TensorBase, layout_like, plain_array
from shmtensor.bytevalues import apart, to_write
from shmtensor.device import check_device
from shmtensor.dtypes import as_dtype
from shmtensor.errors import LayoutError
from shmtensor.indexing import Advanced, plan
from shmtensor.layout import (
    Ints,
    Layout,
    MemoryFormat,
    checked_shape,
    contiguous,
    contiguous_format,
    preserve_format,
    stride_for,
)
from shmtensor.viewing import spread

__all__ = ["Copying"]


class Copying(TensorBase):
    """Copies, views that become copies where they must, assignment, and access by index."""

    __slots__ = ()

    def clone(self, *, memory_format: MemoryFormat = preserve_format) -> Self:
        """A copy in a storage of its own, in the same pool; never read-only (rules 4 and 5)."""
        return self._copy_of(self.numpy(), self._pool, self._dtype, layout_like(self._layout, memory_format))

    def contiguous(self, memory_format: MemoryFormat = contiguous_format) -> Self:
        """The tensor itself when contiguous in that format, else a copy that is (rules 3 and 4)."""
        if self._layout.is_contiguous(memory_format):
            return self
        return self.clone(memory_format=memory_format)

    def reshape(self, *shape: Any, copy: bool | None = None) -> Self:
        """The same elements in another shape, one size of which may be -1: a view where possible, else a
        copy (rules 1 and 2).

        ``copy=True`` always copies; ``copy=False`` raises `LayoutError` where a view is impossible.
        """
        sizes = reshaping.resolve_shape(spread(shape), self._layout.numel)
        layout = None if copy else reshaping.try_view(self._layout, sizes)
        if layout is not None:
            return self._over(layout)
        if copy is False:
            raise reshaping.explain_view_failure(self._layout, sizes)
        return self._copy_of(self.numpy().reshape(sizes), self._pool, self._dtype, contiguous(sizes))

    def reshape_as(self, other: TensorBase) -> Self:
        """`reshape` to the shape of ``other``."""
        return self.reshape(other._layout.shape)

    def flatten(self, start_dim: SupportsIndex = 0, end_dim: SupportsIndex = -1) -> Self:
        """The dims from ``start_dim`` through ``end_dim`` as one: a view where possible, else a copy (rule 1)."""
        layout = reshaping.try_flatten(self._layout, start_dim, end_dim)
        if layout is not None:
            return self if layout is self._layout else self._over(layout)
        first = reshaping.wrap_dim(start_dim, self._layout)
        last = reshaping.wrap_dim(end_dim, self._layout)
        return self.reshape(reshaping.flat_shape(self._layout.shape, first, last))

    def ravel(self) -> Self:
        """All elements in one contiguous dim: a view of a contiguous tensor, else a copy, as in torch and NumPy."""
        flat = (self._layout.numel,)
        if self._layout.is_contiguous():
            return self._over(reshaping.view(self._layout, flat))
        return self._copy_of(self.numpy().reshape(flat), self._pool, self._dtype, contiguous(flat))

    def to(
        self,
        *target: Any,
        dtype: Any = None,
        device: Any = None,
        copy: bool = False,
        memory_format: MemoryFormat = preserve_format,
    ) -> Self:
        """The tensor itself when it already has that dtype and format, else (or with ``copy=True``) a copy (rules 4
        and 5).

        ``target`` is a dtype, a device, or a tensor whose dtype is meant. Raises `ValueError` for a device
        but "cpu". Casts as NumPy's ``astype``.
        """
        for each in target:
            if isinstance(each, TensorBase):
                dtype = each._dtype
            elif isinstance(each, str) and each.partition(":")[0] in ("cpu", "cuda"):
                device = each
            else:
                dtype = each
        check_device(device)
        wanted = self._dtype if dtype is None else as_dtype(dtype)
        layout = layout_like(self._layout, memory_format)
        if not copy and wanted == self._dtype and self._is_laid_out(layout, memory_format):
            return self
        return self._copy_of(self.numpy(), self._pool, wanted, layout)

    def to_device(self, device: Any, /, *, stream: object = None) -> Self:
        """The tensor itself: it is on the only device there is. Raises `ValueError` for a device but "cpu", or a
        stream.
        """
        check_device(device)
        if stream is not None:
            raise ValueError(f"stream {stream!r}: host memory has no streams")
        return self

    def _is_laid_out(self, wanted: Layout, memory_format: MemoryFormat) -> bool:
        """Whether `to` need not copy. Dims of size 1 get the real strides of channels_last (rule 4)."""
        if memory_format is contiguous_format:
            return self._layout.is_contiguous()
        return memory_format is preserve_format or self._layout.stride == wanted.stride

    def share_memory_(self) -> Self:
        """Does nothing, and returns the tensor: it is shared already."""
        return self

    def copy_(self, source: Any, non_blocking: object = False) -> Self:
        """Write the elements of ``source``, expanded to this shape and cast to this dtype; returns the
        tensor.

        Where the two overlap, it is as if the source had been copied first. Raises `LayoutError` when it
        can't be expanded, `RuntimeError` when this tensor repeats its elements (rule 10); nothing is
        written then.
        """
        array = _as_array(source)
        if array.shape != self._layout.shape:
            array = expanded(array, self._layout.shape, "copy_: a source")
        target = self._array_to_write()
        np.copyto(target, apart(array, target), casting="unsafe")
        return self

    def fill_(self, value: Any) -> Self:
        """Set every element to ``value``, a number or a tensor of one element, and return the tensor (rule 10)."""
        to_write(self.numpy())[...] = value if np.isscalar(value) else one_element(value, "fill_")
        return self

    def zero_(self) -> Self:
        """Set every element to 0, and return the tensor (rule 10)."""
        to_write(self.numpy())[...] = 0
        return self

    def _array_to_write(self) -> Array:
        refuse_writing(self)
        return self.numpy()

    def __getitem__(self, key: Any) -> Self:
        """A view for ints, slices, None and Ellipsis; a copy for lists, masks and tensors of more dims
        (rule 14).
        """
        planned = plan(self._layout, key)
        if type(planned) is Layout:
            return self._over(planned)
        return self._picked(planned)  # type: ignore[arg-type]

    def _picked(self, planned: Advanced) -> Self:
        array = self._storage.array(self._dtype, planned.layout, False)[planned.index]
        return self._copy_of(array, self._pool, self._dtype, contiguous(array.shape))

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write in place, through a view or through a mask or list (rule 14).

        ``value`` is expanded and cast; its surplus leading dims of size 1 go. Raises `OverflowError` for a
        Python int that the dtype can't hold, `LayoutError` for a value that can't be expanded, and where the
        place written to repeats its elements and ``value`` is not a single one (rule 10).
        """
        planned = plan(self._layout, key)
        array = value.numpy() if isinstance(value, TensorBase) else value
        if isinstance(array, np.ndarray):
            array = plain_array(array)
        layout = planned if isinstance(planned, Layout) else planned.layout
        if layout.overlaps_itself() and np.ndim(array):
            raise _repeats(layout)
        target = self._storage.array(self._dtype, layout, not self._flags & READ_ONLY)
        assign(to_write(target), ... if isinstance(planned, Layout) else planned.index, array)

    def __iter__(self) -> Iterator[Self]:
        if not self._layout.shape:
            raise TypeError("a 0-d tensor can't be iterated over")
        return iter(self._over_each(views.unbind(self._layout)))

    def resize_(self, *sizes: Any, memory_format: MemoryFormat = contiguous_format) -> Self:
        """Give this tensor another shape, its storage growing where it must, and return it (rule 11).

        The same shape changes nothing. Else the strides are those of ``memory_format``, the offset stays,
        and new elements are undefined. The storage never shrinks. Raises as `Storage.resize_`, and
        `ValueError` for a read-only tensor, changing nothing.
        """
        shape = checked_shape(spread(sizes))
        if shape == self._layout.shape:
            return self
        if self._flags & READ_ONLY or self._storage.is_sealed():
            raise ValueError(
                f"a read-only tensor of shape {self._layout.shape} can't be resized to {shape}: use clone()"
            )
        layout = Layout(shape, stride_for(shape, memory_format), self._layout.offset)
        needed = layout.extent() * self._dtype.itemsize
        if needed > self._storage.nbytes():
            self._storage.resize_(needed)
        self._layout = layout
        return self

    def new_empty(self, *size: Any, dtype: Any = None, memory_format: MemoryFormat = contiguous_format) -> Self:
        """A tensor of shape ``size`` in the same pool, of this dtype unless given, with undefined content."""
        shape = checked_shape(spread(size))
        layout = Layout(shape, stride_for(shape, memory_format))
        return self._allocate(self._pool, self._dtype if dtype is None else as_dtype(dtype), layout)

    def new_full(self, size: Any, fill_value: Any, *, dtype: Any = None) -> Self:
        """As `new_empty`, every element ``fill_value``."""
        return self.new_empty(*_sized(size), dtype=dtype).fill_(fill_value)

    def new_zeros(self, *size: Any, dtype: Any = None) -> Self:
        """As `new_empty`, every element 0."""
        return self.new_empty(*size, dtype=dtype).zero_()

    def new_ones(self, *size: Any, dtype: Any = None) -> Self:
        """As `new_empty`, every element 1."""
        return self.new_empty(*size, dtype=dtype).fill_(1)

    def new_tensor(self, data: Any, *, dtype: Any = None) -> Self:
        """A copy of ``data`` in the same pool, with this dtype unless given."""
        array = _as_array(data)
        wanted = self._dtype if dtype is None else as_dtype(dtype)
        return self._copy_of(array, self._pool, wanted, contiguous(array.shape))


def assign(target: Array, place: Any, value: Any) -> None:
    """``target[place] = value``, as NumPy does it (rules 10 and 14). Raises `LayoutError` for a value that can't be
    expanded.
    """
    if type(place) is tuple:
        place = tuple([apart(each, target) for each in place])  # a mask of the tensor itself, say
        if np.ndim(value) > 1:
            place = (*place, ...)  # without it NumPy keeps the surplus dims of a value for a mask, and refuses it
    if isinstance(value, np.ndarray) and not value.size:
        _check_expandable(value.shape, target[place].shape)  # NumPy lets any pass that has no element
    try:
        target[place] = apart(value, target)
    except ValueError:
        _check_expandable(np.shape(value), target[place].shape)
        raise


def _check_expandable(given: Ints, wanted: Ints) -> None:
    surplus = max(len(given) - len(wanted), 0)
    aligned = zip(reversed(given), reversed(wanted), strict=False)
    if any(size != 1 for size in given[:surplus]) or any(size not in (1, into) for size, into in aligned):
        raise LayoutError(
            f"a value of shape {given} can't be written to a place of shape {wanted}: each of its sizes must be "
            "1 or the same, counted from the last, and what it has more in front must be 1"
        )


def expanded(array: Array, shape: Ints, what: str) -> Array:
    """``array`` repeated to ``shape`` (rule 7). Raises `LayoutError`, which says ``what`` the array is."""
    try:
        views.expand(contiguous(array.shape), shape)
    except LayoutError as error:
        raise LayoutError(
            f"{what} of shape {array.shape} can't be expanded to shape {shape}: each of its sizes must be 1 or the "
            "same, counted from the last, and it can't have more dims"
        ) from error
    return np.broadcast_to(array, shape)


def one_element(value: Any, name: str) -> Array:
    """The element of ``value`` as an array without dims. Raises `LayoutError` when it has none, or several."""
    array = _as_array(value)
    if array.size != 1:
        raise LayoutError(f"{name} takes one element, not {array.size} of shape {array.shape}")
    return array.reshape(())


def refuse_writing(tensor: TensorBase) -> None:
    """Raise `ValueError` when ``tensor`` is read-only, `RuntimeError` when it repeats its elements, so that writes
    would meet (rule 10).
    """
    to_write(tensor.numpy())
    if tensor._layout.overlaps_itself():
        raise _repeats(tensor._layout)


def _repeats(layout: Layout) -> LayoutError:
    return LayoutError(
        f"can't write a tensor of shape {layout.shape} with strides {layout.stride}: several of its elements "
        "are one place in memory. Write to a clone(), or use fill_"
    )


def _as_array(value: Any) -> Array:
    return value.numpy() if isinstance(value, TensorBase) else plain_array(value)


def _sized(size: Any) -> Sequence[Any]:
    return (index(size),) if isinstance(size, SupportsIndex) else tuple(size)
