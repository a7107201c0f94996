"""The view operations: each takes a `Layout` and gives the `Layout` of the view. Owns their rules, which are
PyTorch's.

Pure: no dtype, no storage, no bytes. A function named ``try_`` returns None where no strides can express the
result, so that only a copy can do it; every other function gives a view or raises. "Rule N" is a rule of the
tensor semantics.

Errors, the same for all: `IndexError` for a dim or an index that does not exist, `LayoutError` for sizes that
don't fit, `TypeError` for what is no integer. A negative dim counts from the end; a 0-d tensor accepts the
dims 0 and -1 where torch does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import index
from typing import SupportsIndex

from shmtensor.errors import LayoutError
from shmtensor.layout import Ints, Layout, checked_shape
from shmtensor.reshaping import (
    Shape,
    existing_dim,
    explain_view_failure,
    flat_shape,
    resolve_shape,
    try_flatten,
    try_view,
    unflatten,
    view,
    view_as_complex,
    view_as_real,
    view_dtype,
    wrap_dim,
    wrapped_among,
)

__all__ = [
    "Shape",
    "explain_view_failure",
    "flat_shape",
    "resolve_shape",
    "try_flatten",
    "try_view",
    "unflatten",
    "view",
    "view_as_complex",
    "view_as_real",
    "view_dtype",
    "wrap_dim",
    "as_strided",
    "atleast",
    "broadcast_shapes",
    "broadcast_to",
    "chunk",
    "diagonal",
    "expand",
    "movedim",
    "narrow",
    "place_in_dim",
    "permute",
    "select",
    "slice_dim",
    "span_in_dim",
    "split",
    "squeeze",
    "tensor_split",
    "transpose",
    "unbind",
    "unfold",
    "unsqueeze",
]


def expand(layout: Layout, shape: Shape) -> Layout:
    """Dims of size 1 repeated, and new dims in front, with stride 0 (rule 7). -1 leaves a dim as it is."""
    target = tuple(map(index, shape))
    added = len(target) - layout.ndim
    if added < 0:
        raise LayoutError(
            f"expand to {target}: the tensor has more dims, its shape is {layout.shape}. squeeze or select drops some"
        )
    sizes, strides = list(layout.shape), list(layout.stride)
    for dim in range(layout.ndim):
        wanted = target[added + dim]
        if wanted in (-1, sizes[dim]):
            continue
        if sizes[dim] != 1 or wanted < 0:
            raise LayoutError(
                f"expand to {target}: size {sizes[dim]} of dim {dim} in shape {layout.shape} can't become "
                f"{wanted}; only a size of 1 can be repeated. To repeat others use repeat, which copies"
            )
        sizes[dim], strides[dim] = wanted, 0
    for wanted in reversed(target[:added]):
        if wanted < 0:
            raise LayoutError(f"expand to {target}: a new dim needs a size, the tensor has shape {layout.shape}")
        strides.insert(0, sizes[0] * strides[0] if wanted == 1 and sizes and layout.shape else 0)
        sizes.insert(0, wanted)
    return Layout(tuple(sizes), tuple(strides), layout.offset)


broadcast_to = expand  # two names in torch for one rule


def broadcast_shapes(*shapes: Shape) -> Ints:
    """The shape that all ``shapes`` can be expanded to (rule 7)."""
    known = [checked_shape(shape) for shape in shapes]
    ndim = max(map(len, known), default=0)
    result = [1] * ndim
    for sizes in known:
        for dim, size in enumerate(sizes, ndim - len(sizes)):
            if size != 1 and result[dim] not in (1, size):
                raise LayoutError(
                    f"shapes {', '.join(map(str, known))} can't be broadcast: dim {dim - ndim} is both "
                    f"{result[dim]} and {size}"
                )
            result[dim] = size if size != 1 else result[dim]
    return tuple(result)


def permute(layout: Layout, dims: Iterable[SupportsIndex]) -> Layout:
    """The dims in the order ``dims``, which names each once."""
    shape, stride, named = layout.shape, layout.stride, tuple(map(index, dims))
    if not _is_order(named, len(shape)):
        for dim in named:
            wrap_dim(dim, layout)  # raises for a dim that does not exist
        raise LayoutError(f"permute {named} must name each of the {len(shape)} dims of shape {shape} once")
    return Layout(tuple([shape[d] for d in named]), tuple([stride[d] for d in named]), layout.offset)


@lru_cache(maxsize=256)  # programs permute in few ways: a hit is half of the time
def _is_order(dims: Ints, ndim: int) -> bool:
    """Whether ``dims``, which count from either end, name each of so many dims once."""
    return sorted(dim + ndim if dim < 0 else dim for dim in dims) == list(range(ndim))


def transpose(layout: Layout, dim0: SupportsIndex, dim1: SupportsIndex) -> Layout:
    """Two dims in each other's place."""
    first, second = wrap_dim(dim0, layout), wrap_dim(dim1, layout)
    if first == second:
        return layout
    shape, stride = list(layout.shape), list(layout.stride)
    shape[first], shape[second] = shape[second], shape[first]
    stride[first], stride[second] = stride[second], stride[first]
    return Layout(tuple(shape), tuple(stride), layout.offset)


def movedim(
    layout: Layout,
    source: SupportsIndex | Sequence[SupportsIndex],
    destination: SupportsIndex | Sequence[SupportsIndex],
) -> Layout:
    """The ``source`` dims moved to the places ``destination``; the other dims keep their order."""
    sources, places = _dims(source, layout), _dims(destination, layout)
    if len(sources) != len(places) or len(set(sources)) < len(sources) or len(set(places)) < len(places):
        raise LayoutError(
            f"movedim: dims {sources} of shape {layout.shape} can't move to {places}: it takes as many places as dims, "
            "and none twice"
        )
    if not layout.shape:
        return layout
    target = dict(zip(places, sources, strict=True))
    others = iter(dim for dim in range(layout.ndim) if dim not in sources)
    return permute(layout, [target[place] if place in target else next(others) for place in range(layout.ndim)])


def squeeze(layout: Layout, dims: SupportsIndex | Sequence[SupportsIndex] | None = None) -> Layout:
    """Without those of ``dims`` that have size 1; without all dims of size 1 for None."""
    named = range(layout.ndim) if dims is None else _dims(dims, layout)
    if len(set(named)) < len(named):
        raise LayoutError(f"squeeze: a dim of shape {layout.shape} is named twice in {tuple(named)}")
    kept = [dim for dim in range(layout.ndim) if dim not in named or layout.shape[dim] != 1]
    return Layout(tuple(layout.shape[d] for d in kept), tuple(layout.stride[d] for d in kept), layout.offset)


def unsqueeze(layout: Layout, dim: SupportsIndex) -> Layout:
    """With a new dim of size 1 before ``dim``; its stride spans what follows it (rule 7)."""
    shape, stride = layout.shape, layout.stride
    at = wrapped_among(dim, len(shape) + 1, layout)
    step = shape[at] * stride[at] if at < len(shape) else 1
    return Layout((*shape[:at], 1, *shape[at:]), (*stride[:at], step, *stride[at:]), layout.offset)


def atleast(layout: Layout, ndim: int) -> Layout:
    """With dims of size 1 added until there are ``ndim`` (1, 2 or 3), at the places torch adds them."""
    if not layout.shape:
        return view(layout, (1,) * ndim)
    if layout.ndim == 1 and ndim > 1:
        layout = unsqueeze(layout, 0)
    return unsqueeze(layout, -1) if layout.ndim == 2 and ndim == 3 else layout


def select(layout: Layout, dim: SupportsIndex, at: SupportsIndex) -> Layout:
    """Without ``dim``, at its index ``at`` (rule 6)."""
    d = existing_dim(dim, layout, "select")
    shape, stride = layout.shape, layout.stride
    offset = layout.offset + place_in_dim(shape, d, index(at)) * stride[d]
    return Layout(shape[:d] + shape[d + 1 :], stride[:d] + stride[d + 1 :], offset)


def slice_dim(layout: Layout, dim: SupportsIndex, cut: slice) -> Layout:
    """``dim`` cut as by Python's slice; the bounds clamp, the offset moves even if nothing is left (rule 6).

    Raises `ValueError` for a step below 1: strides are never negative (rule 15).
    """
    d = existing_dim(dim, layout, "slice")
    start, count, step = span_in_dim(layout.shape, d, cut)
    return _cut(layout, d, start, count, step)


def place_in_dim(shape: Ints, dim: int, at: int) -> int:
    """Index ``at`` of an existing ``dim``, counted from the start. Raises `IndexError` when out of range."""
    size = shape[dim]
    if not -size <= at < size:
        raise IndexError(f"index {at} is out of range for dim {dim} with size {size} of shape {shape}")
    return at + size if at < 0 else at


def span_in_dim(shape: Ints, dim: int, cut: slice) -> tuple[int, int, int]:
    """Where ``cut`` starts in an existing ``dim``, how many indices it takes, and how far they are apart."""
    if cut.start is cut.stop is cut.step is None:
        return 0, shape[dim], 1  # a bare colon, as in t[:, 2]
    if cut.step is not None and index(cut.step) < 1:
        raise ValueError(f"slice step {index(cut.step)} of dim {dim}: it must be 1 or more. flip copies instead")
    start, stop, step = cut.indices(shape[dim])
    return start, max(0, (stop - start + step - 1) // step), step


def narrow(layout: Layout, dim: SupportsIndex, start: SupportsIndex, length: SupportsIndex) -> Layout:
    """``length`` indices of ``dim`` from ``start`` on, which lies in [-n, n] for a dim of size n (rule 6)."""
    d = existing_dim(dim, layout, "narrow")
    size, first, count = layout.shape[d], index(start), index(length)
    if not -size <= first <= size:
        raise IndexError(f"narrow: start {first} is out of range for dim {d} with size {size} of shape {layout.shape}")
    first += size if first < 0 else 0
    if count < 0 or first + count > size:
        raise LayoutError(
            f"narrow: {count} indices from {first} on don't fit dim {d} with size {size} of shape {layout.shape}"
        )
    return _cut(layout, d, first, count, 1)


def diagonal(layout: Layout, offset: int = 0, dim1: SupportsIndex = 0, dim2: SupportsIndex = 1) -> Layout:
    """The ``offset``-th diagonal of two dims, as a new last dim (rule 6)."""
    first, second = wrap_dim(dim1, layout), wrap_dim(dim2, layout)
    if first == second or not layout.shape:
        raise LayoutError(f"diagonal needs two dims, got {first} and {second} of shape {layout.shape}")
    rows, columns = layout.shape[first] + min(offset, 0), layout.shape[second] - max(offset, 0)
    length = max(min(rows, columns), 0)
    moved = (max(offset, 0) * layout.stride[second] - min(offset, 0) * layout.stride[first]) if length else 0
    kept = [dim for dim in range(layout.ndim) if dim not in (first, second)]
    shape = (*(layout.shape[dim] for dim in kept), length)
    stride = (*(layout.stride[dim] for dim in kept), layout.stride[first] + layout.stride[second])
    return Layout(shape, stride, layout.offset + moved)


def unfold(layout: Layout, dim: SupportsIndex, size: SupportsIndex, step: SupportsIndex) -> Layout:
    """Every window of ``size`` indices of ``dim``, ``step`` apart, as a new last dim (rule 6)."""
    d, window, apart = wrap_dim(dim, layout), index(size), index(step)
    whole, span = (layout.shape[d], layout.stride[d]) if layout.shape else (1, 1)
    if not 0 <= window <= whole or apart < 1:
        raise LayoutError(
            f"unfold: windows of size {window}, {apart} apart, don't fit dim {d} with size {whole} of shape "
            f"{layout.shape}: their size is 0 to {whole}, and they are 1 or more apart"
        )
    if not layout.shape:
        return Layout((window,), (1,), layout.offset)
    shape = (*layout.shape[:d], (whole - window) // apart + 1, *layout.shape[d + 1 :], window)
    stride = (*layout.stride[:d], span * apart, *layout.stride[d + 1 :], span)
    return Layout(shape, stride, layout.offset)


def as_strided(
    layout: Layout, shape: Shape, stride: Shape, offset: SupportsIndex | None = None, what: str = "as_strided"
) -> Layout:
    """Any layout over the same storage, at this one's offset unless given (rule 9).

    The caller must `check_within` the storage. Negative numbers raise `LayoutError`, which says ``what`` was called.
    """
    sizes, strides = checked_shape(shape), tuple(map(index, stride))
    start = layout.offset if offset is None else index(offset)
    if len(sizes) != len(strides):
        raise LayoutError(f"{what}: shape {sizes} and strides {strides} differ in length")
    if start < 0 or any(step < 0 for step in strides):
        raise LayoutError(f"{what}: strides {strides} and offset {start} must not be negative. To reverse use flip")
    return Layout(sizes, strides, start)


def unbind(layout: Layout, dim: SupportsIndex = 0) -> tuple[Layout, ...]:
    """`select` at each index of ``dim`` (rule 6)."""
    d = existing_dim(dim, layout, "unbind")
    return tuple(select(layout, d, at) for at in range(layout.shape[d]))


def split(layout: Layout, size: SupportsIndex | Sequence[SupportsIndex], dim: SupportsIndex = 0) -> tuple[Layout, ...]:
    """Pieces of ``dim`` of one ``size``, the last maybe smaller; or of the given sizes, which must add up (rule 6)."""
    d = existing_dim(dim, layout, "split")
    whole = layout.shape[d]
    if isinstance(size, SupportsIndex):
        each = index(size)
        if each < 0 or (each == 0 and whole):
            raise LayoutError(f"split: dim {d} with size {whole} of shape {layout.shape} has no pieces of size {each}")
        count = max(-(-whole // each), 1) if each else 1
        return _pieces(layout, d, [min(each, whole - each * piece) for piece in range(count)])
    sizes = list(map(index, size))
    if sum(sizes) != whole or any(each < 0 for each in sizes):
        raise LayoutError(
            f"split: sizes {sizes} must be 0 or more and add up to size {whole} of dim {d} of shape {layout.shape}; "
            f"they make {sum(sizes)}"
        )
    return _pieces(layout, d, sizes)


def chunk(layout: Layout, chunks: SupportsIndex, dim: SupportsIndex = 0) -> tuple[Layout, ...]:
    """Pieces of ``ceil(n / chunks)``, maybe fewer than ``chunks``; size 0 gives all of them (rule 6)."""
    d, count = existing_dim(dim, layout, "chunk"), index(chunks)
    if count < 1:
        raise LayoutError(f"chunk: dim {d} of shape {layout.shape} into {count} pieces; it needs 1 or more")
    whole = layout.shape[d]
    return split(layout, -(-whole // count), d) if whole else _pieces(layout, d, [0] * count)


def tensor_split(
    layout: Layout, sections: SupportsIndex | Sequence[SupportsIndex], dim: SupportsIndex = 0
) -> tuple[Layout, ...]:
    """So many pieces, the first ``n % sections`` one longer; or those between the given indices (rule 6)."""
    d = existing_dim(dim, layout, "tensor_split")
    if isinstance(sections, SupportsIndex):
        count = index(sections)
        if count < 1:
            raise LayoutError(f"tensor_split: dim {d} of shape {layout.shape} into {count} pieces; it needs 1 or more")
        each, longer = divmod(layout.shape[d], count)
        return _pieces(layout, d, [each + (piece < longer) for piece in range(count)])
    bounds = [None, *map(index, sections), None]
    return tuple(slice_dim(layout, d, slice(*pair)) for pair in pairwise(bounds))


def _dims(dims: SupportsIndex | Sequence[SupportsIndex], layout: Layout) -> list[int]:
    named = (dims,) if isinstance(dims, SupportsIndex) else dims
    return [wrap_dim(dim, layout) for dim in named]


def _cut(layout: Layout, dim: int, start: int, size: int, step: int) -> Layout:
    shape, stride = layout.shape, layout.stride
    return Layout(
        (*shape[:dim], size, *shape[dim + 1 :]),
        (*stride[:dim], stride[dim] * step, *stride[dim + 1 :]),
        layout.offset + start * stride[dim],
    )


def _pieces(layout: Layout, dim: int, sizes: list[int]) -> tuple[Layout, ...]:
    starts = accumulate(sizes, initial=0)
    return tuple(_cut(layout, dim, start, size, 1) for start, size in zip(starts, sizes, strict=False))
