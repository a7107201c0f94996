"""How a tensor's elements lie in its storage. Owns `Layout` and the rules on strides, density, overlap and
bounds.

Pure: nothing here knows bytes in memory, dtypes or storages; an itemsize or a storage's size comes in as a
number. Strides and offsets are in elements and never negative. "Rule N" is a rule of the tensor semantics,
which are PyTorch's.

Every layout function may assume a well-formed `Layout`: as many strides as sizes, plain ints, none negative.
Values that come from outside the process go through `validated` first.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from functools import lru_cache
from math import prod
from operator import index
from typing import Any, Final, SupportsIndex

from shmtensor.errors import InvalidHeader, LayoutError, StorageBoundsError

__all__ = [
    "Ints",
    "Layout",
    "MemoryFormat",
    "Size",
    "channels_last",
    "channels_last_3d",
    "check_within",
    "contiguous",
    "contiguous_format",
    "default_stride",
    "dim_order",
    "preserve_format",
    "preserved",
    "stride_for",
    "validated",
]

Ints = tuple[int, ...]

MAX_NDIM = 64  # what NumPy 2 can hold
MAX_BYTES = 2**63 - 1  # sizes, strides and extents are signed 64-bit numbers below us


class MemoryFormat(enum.Enum):
    """The order in which dims are laid out, when a tensor is made or copied."""

    contiguous_format = "contiguous_format"
    channels_last = "channels_last"
    channels_last_3d = "channels_last_3d"
    preserve_format = "preserve_format"

    def __repr__(self) -> str:
        return f"shmtensor.{self.value}"

    __str__ = __repr__


contiguous_format = MemoryFormat.contiguous_format
channels_last = MemoryFormat.channels_last
channels_last_3d = MemoryFormat.channels_last_3d
preserve_format = MemoryFormat.preserve_format

# The dims of a format that fixes their order, innermost first. The length is the one rank the format is for.
_DIMS_INNERMOST_FIRST: dict[MemoryFormat, Ints] = {
    channels_last: (1, 3, 2, 0),
    channels_last_3d: (1, 4, 3, 2, 0),
}


class Size(tuple[int, ...]):
    """A tensor's shape: a tuple of ints that knows how many elements it makes."""

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements: the product of the sizes, 1 for no dims."""
        return prod(self)

    def __repr__(self) -> str:
        return f"Size({list(self)})"

    def __getitem__(self, key: Any) -> Any:
        """A size, or for a slice a `Size`, as in torch."""
        found = tuple.__getitem__(self, key)
        return Size(found) if type(key) is slice else found

    def __reduce__(self) -> tuple[Any, ...]:
        return Size, (tuple(self),)


class Layout:
    """Shape, strides and offset, all in elements. Immutable: nothing assigns to a layout, they are shared and
    cached.

    That is checked by the type checker alone: refusing assignment at run time would more than double the cost
    of making one, which every view and every tensor received pays.
    """

    __slots__ = ("known_extent", "offset", "plain", "shape", "stride")

    shape: Final[Ints]
    stride: Final[Ints]
    offset: Final[int]
    plain: bool  # known to be contiguous at offset 0; False where nobody looked
    known_extent: int  # `extent()`, for those who can't wait for a call; -1 before it was first asked for

    def __init__(self, shape: Ints, stride: Ints, offset: int = 0) -> None:
        self.shape = shape
        self.stride = stride
        self.offset = offset
        self.plain = False
        self.known_extent = -1

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    @property
    def numel(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    def extent(self) -> int:
        """How many elements a storage must have for this layout, from its start on; 0 without elements."""
        if self.known_extent < 0:
            last = 0 if 0 in self.shape else self.offset + 1
            if last:
                for size, step in zip(self.shape, self.stride, strict=True):
                    last += (size - 1) * step
            self.known_extent = last
        return self.known_extent

    def is_contiguous(self, memory_format: MemoryFormat = contiguous_format) -> bool:
        """Whether the elements follow one another in the order of ``memory_format`` (rules 3 and 4).

        A dim of size 1 may have any stride. A format for another rank is never matched. preserve_format asks
        for what contiguous_format does, as in torch.
        """
        dims = _DIMS_INNERMOST_FIRST.get(memory_format)
        if dims is None:
            return 0 in self.shape or self._follows(range(len(self.shape) - 1, -1, -1))
        return len(dims) == len(self.shape) and self._follows(dims)

    def is_dense(self) -> bool:
        """Whether the elements fill one gapless stretch, each place once, in any order of dims (rule 5)."""
        if 0 in self.shape:
            return True
        filled = 1
        for step, size in sorted(pair for pair in zip(self.stride, self.shape, strict=True) if pair[1] != 1):
            if step != filled:
                return False
            filled *= size
        return True

    def overlaps_itself(self) -> bool:
        """Whether a dim repeats its elements, with stride 0 and size above 1: not to be written (rule 10).

        Layouts that `as_strided` and `unfold` make can share elements in subtler ways; as in torch, those
        pass.
        """
        if 0 not in self.stride or 0 in self.shape:
            return False
        return any(step == 0 and size > 1 for size, step in zip(self.shape, self.stride, strict=True))

    def _follows(self, dims: Iterable[int]) -> bool:
        """Whether the strides of ``dims``, innermost first, are the running product of their sizes."""
        shape, stride, expected = self.shape, self.stride, 1
        for dim in dims:
            size = shape[dim]
            if size != 1:
                if stride[dim] != expected:
                    return False
                expected *= size
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return (self.shape, self.stride, self.offset) == (other.shape, other.stride, other.offset)

    def __hash__(self) -> int:
        return hash((self.shape, self.stride, self.offset))

    def __reduce__(self) -> tuple[Any, ...]:
        return Layout, (self.shape, self.stride, self.offset)

    def __repr__(self) -> str:
        return f"Layout(shape={self.shape}, stride={self.stride}, offset={self.offset})"


def default_stride(shape: Ints) -> Ints:
    """Strides of a contiguous layout: the running product of ``max(size, 1)`` from the right (rule 3)."""
    strides, running = [], 1
    for size in reversed(shape):
        strides.append(running)
        running *= size or 1
    return tuple(reversed(strides))


@lru_cache(maxsize=1024)  # programs make many tensors of few shapes: a hit costs a tenth of a new layout
def contiguous(shape: tuple[SupportsIndex, ...]) -> Layout:
    """The contiguous layout of ``shape``, at offset 0 (rule 3). Raises as `checked_shape`."""
    sizes = checked_shape(shape)
    layout = Layout(sizes, default_stride(sizes))
    layout.plain = True
    layout.extent()
    return layout


def checked_shape(shape: Iterable[SupportsIndex]) -> Ints:
    """``shape`` as plain ints.

    Raises `TypeError` for a size that is no integer; `LayoutError` for a negative one, or for too many dims.
    """
    sizes = tuple(map(index, shape))
    if len(sizes) > MAX_NDIM:
        raise LayoutError(f"a shape of {len(sizes)} dims: at most {MAX_NDIM} can be had")
    if sizes and min(sizes) < 0:
        raise LayoutError(f"shape {sizes} has a negative size")
    return sizes


def stride_for(shape: Ints, memory_format: MemoryFormat) -> Ints:
    """The strides of a new tensor in ``memory_format`` (rules 3 and 4).

    Raises `LayoutError` when the format is for another rank, or is preserve_format, which needs a tensor to
    follow.
    """
    if memory_format is contiguous_format:
        return default_stride(shape)
    dims = _DIMS_INNERMOST_FIRST.get(memory_format)
    if dims is None:
        raise LayoutError("preserve_format needs a tensor to follow: use clone or empty_like")
    if len(dims) != len(shape):
        raise LayoutError(f"{memory_format!r} needs {len(dims)} dims; shape {shape} has {len(shape)}")
    return _stacked(shape, dims)


def preserved(layout: Layout) -> Ints:
    """The strides that preserve_format gives a copy: its own when dense, else a dense order (rule 5)."""
    if layout.is_dense():
        return layout.stride
    return _stacked(layout.shape, _dims_by_stride(layout))


def dim_order(layout: Layout) -> Ints:
    """The dims from the outermost in memory to the innermost, as in torch; ties keep their order."""
    is_contiguous, is_channels_last = layout.is_contiguous(), layout.is_contiguous(channels_last)
    if is_contiguous and not is_channels_last:
        return tuple(range(layout.ndim))
    if is_channels_last and not is_contiguous:
        return tuple(reversed(_DIMS_INNERMOST_FIRST[channels_last]))
    return tuple(reversed(_dims_by_stride(layout)))


def check_within(layout: Layout, itemsize: int, nbytes: int) -> None:
    """Raise `StorageBoundsError` unless a storage of ``nbytes`` bytes holds every element (rule 9)."""
    needed = layout.extent() * itemsize
    if needed > nbytes:
        raise StorageBoundsError(
            f"a tensor of shape {layout.shape}, strides {layout.stride} and offset {layout.offset} needs "
            f"{needed} bytes ({itemsize} an element), its storage has {nbytes}: grow it with resize_, or "
            "take a smaller view"
        )


def validated(shape: object, stride: object, offset: object, itemsize: int) -> Layout:
    """A layout from values that came from outside, checked.

    Raises `InvalidHeader` unless NumPy could hold such an array. Afterwards types are exact, nothing is
    negative and nothing overflows 64 bits. Whether the storage is large enough is for `check_within`, at each
    access: it may be resized.
    """
    # One loop that also finds the extent: every tensor that is received passes here.
    if type(shape) is not tuple or type(stride) is not tuple or type(offset) is not int:
        raise _invalid(shape, stride, offset, itemsize)
    largest = MAX_BYTES // itemsize
    if len(shape) != len(stride) or len(shape) > MAX_NDIM or not 0 <= offset < largest:
        raise _invalid(shape, stride, offset, itemsize)
    extent, volume = offset + 1, 1
    for size, step in zip(shape, stride, strict=True):
        if type(size) is not int or type(step) is not int or size < 0 or not 0 <= step <= largest:
            raise _invalid(shape, stride, offset, itemsize)
        extent += (size - 1) * step
        volume *= size or 1  # NumPy refuses a product that overflows even where another size is 0
    if 0 in shape:
        extent = 0
    if extent > largest or volume > largest:
        raise _invalid(shape, stride, offset, itemsize)
    layout = Layout(shape, stride, offset)
    layout.known_extent = extent
    return layout


def _invalid(shape: object, stride: object, offset: object, itemsize: int) -> InvalidHeader:
    return InvalidHeader(
        f"shape {_short(shape)}, strides {_short(stride)} and offset {_short(offset)} are no layout: it needs "
        f"ints of 0 or more, as many strides as sizes, at most {MAX_NDIM}, and less than 2**63 bytes in all "
        f"with elements of {itemsize} bytes"
    )


def _stacked(shape: Ints, dims: Iterable[int]) -> Ints:
    """Strides that lay out ``dims``, innermost first, densely. No max(size, 1): rule 4 wants the zeros."""
    strides, running = [0] * len(shape), 1
    for dim in dims:
        strides[dim] = running
        running *= shape[dim]
    return tuple(strides)


def _dims_by_stride(layout: Layout) -> list[int]:
    """The dims from the innermost to the outermost, as torch sorts them (rule 5).

    An insertion sort, because the comparison is no ordering: a stride of 0 ties with every other, and a tie
    is passed over in search of a dim that decides. Another sort would give other results.
    """
    dims = list(range(layout.ndim - 1, -1, -1))
    for place in range(1, len(dims)):
        moving = place
        for other in range(place - 1, -1, -1):
            verdict = _compare(layout, dims[other], dims[moving])
            if verdict > 0:
                dims[other], dims[moving] = dims[moving], dims[other]
                moving = other
            elif verdict < 0:
                break
    return dims


def _compare(layout: Layout, inner: int, outer: int) -> int:
    """Above 0: the two dims must change places; below: they are in order; 0: their strides don't decide."""
    inner_stride, outer_stride = layout.stride[inner], layout.stride[outer]
    if inner_stride == 0 or outer_stride == 0:
        return 0
    if inner_stride != outer_stride:
        return 1 if inner_stride > outer_stride else -1
    return int(layout.shape[inner] > layout.shape[outer])


def _short(value: object) -> str:
    """``repr`` cut to what fits into a message: a hostile header may hold a number of a million digits."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, tuple):
        shown = ", ".join(map(_short, value[:8]))
        return f"({shown}, ...)" if len(value) > 8 else f"({shown})"
    text = repr(value) if isinstance(value, (int, str, float, type(None))) else type(value).__name__
    return text if len(text) <= 80 else f"{text[:80]}..."
