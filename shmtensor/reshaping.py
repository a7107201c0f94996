"""The same elements read in another shape, or as elements of another size. Owns rules 1, 2 and 8, which are
PyTorch's.

Pure, and part of `views`, which has the words on names and errors and offers these functions too.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from operator import index
from typing import SupportsIndex

from shmtensor.errors import LayoutError
from shmtensor.layout import MAX_NDIM, Ints, Layout, checked_shape, contiguous, default_stride

Shape = Iterable[SupportsIndex]


def wrap_dim(dim: SupportsIndex, layout: Layout) -> int:
    """``dim`` counted from the start. A 0-d tensor has, for this purpose, one dim."""
    return wrapped_among(dim, layout.ndim or 1, layout)


def existing_dim(dim: SupportsIndex, layout: Layout, what: str) -> int:
    """As `wrap_dim`, but for ``what``, which a 0-d tensor has no dim for."""
    if not layout.shape:
        raise IndexError(f"{what}: a 0-d tensor has no dim {index(dim)}")
    return wrapped_among(dim, layout.ndim, layout)


def resolve_shape(shape: Shape, numel: int, whole: str = "the tensor") -> Ints:
    """``shape`` with its one -1 replaced by the size that makes ``numel`` elements (rule 2), as ``whole`` has."""
    sizes = tuple(map(index, shape))
    least = min(sizes) if sizes else 0
    if least >= 0:
        if prod(sizes) != numel or len(sizes) > MAX_NDIM:
            raise LayoutError(f"shape {checked_shape(sizes)} has {prod(sizes)} elements, {whole} has {numel}")
        return sizes
    if least < -1:
        raise LayoutError(f"shape {sizes} has a negative size; only -1 has a meaning: the size that fits")
    at = sizes.index(-1)
    if sizes.count(-1) > 1:
        raise LayoutError(f"shape {sizes} has more than one -1: only one size can be worked out")
    known = prod(sizes[:at] + sizes[at + 1 :])
    if known == 0:
        raise LayoutError(f"shape {sizes}: beside a size of 0, -1 could be any size; write the size itself")
    if numel % known:
        raise LayoutError(f"shape {sizes}: the {numel} elements of {whole} can't be divided by {known}")
    return (*sizes[:at], numel // known, *sizes[at + 1 :])


def try_view(layout: Layout, shape: Shape) -> Layout | None:
    """The layout of ``view(shape)``, or None where only a copy can do it (rules 1 and 2)."""
    return _try_view(layout, resolve_shape(shape, layout.numel))


def _try_view(layout: Layout, new: Ints) -> Layout | None:
    if layout.plain:
        return contiguous(new)  # cached: a third of the time
    if new == layout.shape and 0 in new:
        return layout
    if 0 in new:
        return Layout(new, default_stride(new), layout.offset)
    if not layout.shape:
        return Layout(new, (1,) * len(new), layout.offset)
    strides: list[int] = []  # from the last new dim to the first
    for _, chunk, base in _chunks(layout):
        taken = 1
        while len(strides) < len(new) and (taken < chunk or new[-1 - len(strides)] == 1):
            size = new[-1 - len(strides)]
            strides.append(taken * base)
            taken *= size
        if taken != chunk:
            return None
    return Layout(new, tuple(reversed(strides)), layout.offset)


def view(layout: Layout, shape: Shape) -> Layout:
    """As `try_view`, but raises the `LayoutError` that names the dims which can't be merged (rule 1)."""
    new = resolve_shape(shape, layout.numel)
    found = _try_view(layout, new)
    if found is None:
        raise explain_view_failure(layout, new)
    return found


def explain_view_failure(layout: Layout, shape: Shape) -> LayoutError:
    """The error for a ``shape`` that `try_view` declined: it names the dims that can't be merged (rule 1)."""
    new = resolve_shape(shape, layout.numel)
    remaining = list(new)
    for dim, chunk, base in _chunks(layout):
        taken = 1
        while remaining and (taken < chunk or remaining[-1] == 1):
            taken *= remaining.pop()
        if taken != chunk:
            return LayoutError(
                f"view {new} of shape {layout.shape} with strides {layout.stride}: dims {dim - 1} and {dim} "
                f"can't be merged, since stride {layout.stride[dim - 1]} of dim {dim - 1} is not the "
                f"{chunk * base} that dim {dim} and those merged with it span. reshape({new}) copies instead"
            )
    raise AssertionError(f"{layout} can be viewed as {new}")


def try_flatten(layout: Layout, start: SupportsIndex = 0, end: SupportsIndex = -1) -> Layout | None:
    """The dims ``start`` through ``end`` as one (rule 1); None where only a copy can. 0-d becomes (1,)."""
    first, last = wrap_dim(start, layout), wrap_dim(end, layout)
    if first > last:
        raise LayoutError(f"flatten: dim {index(start)} comes after dim {index(end)} in shape {layout.shape}")
    if first == last and layout.shape:
        return layout
    return try_view(layout, flat_shape(layout.shape, first, last))


def flat_shape(shape: Ints, first: int, last: int) -> Ints:
    """``shape`` with the dims ``first`` through ``last``, both counted from the start, made one (rule 1)."""
    return (*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :])


def unflatten(layout: Layout, dim: SupportsIndex, sizes: Shape) -> Layout:
    """``dim`` split into ``sizes``, one of which may be -1 (rules 1 and 2)."""
    at = existing_dim(dim, layout, "unflatten")
    inner = tuple(sizes)
    if not inner:
        raise LayoutError(f"unflatten: no sizes for dim {at} of shape {layout.shape}; it needs one at least")
    split = resolve_shape(inner, layout.shape[at], f"dim {at} of shape {layout.shape}")
    return view(layout, (*layout.shape[:at], *split, *layout.shape[at + 1 :]))


def view_dtype(layout: Layout, old_itemsize: int, new_itemsize: int) -> Layout:
    """The layout of the same bytes read as elements of another size (rule 8)."""
    if old_itemsize == new_itemsize:
        return layout
    what = f"view of {old_itemsize}-byte elements as {new_itemsize}-byte ones"
    if not layout.shape or layout.stride[-1] != 1:
        raise LayoutError(
            f"{what} needs a last dim with stride 1; the tensor has shape {layout.shape} and strides "
            f"{layout.stride}. Use contiguous() first, which copies"
        )
    if old_itemsize > new_itemsize:
        return _with_smaller_elements(layout, old_itemsize // new_itemsize)
    return _with_larger_elements(layout, new_itemsize // old_itemsize, what)


def view_as_real(layout: Layout) -> Layout:
    """Complex elements as pairs of real ones: a last dim of size 2 is added (rule 8, for elements half as large)."""
    doubled = tuple(2 * step for step in layout.stride)
    return Layout((*layout.shape, 2), (*doubled, 1), 2 * layout.offset)


def view_as_complex(layout: Layout) -> Layout:
    """Pairs of real elements as complex ones: the last dim, of size 2 and stride 1, goes (rule 8, for larger ones)."""
    if not layout.shape or layout.shape[-1] != 2 or layout.stride[-1] != 1:
        raise LayoutError(f"view_as_complex needs a last dim of size 2 and stride 1, not {layout}")
    # A dim of size 1 may have an odd stride: it is never stepped along.
    odd = [step for size, step in zip(layout.shape, layout.stride[:-1], strict=False) if step % 2 and size != 1]
    if layout.offset % 2 or odd:
        raise LayoutError(f"view_as_complex needs an even offset and even strides before the last dim, not {layout}")
    return Layout(layout.shape[:-1], tuple(step // 2 for step in layout.stride[:-1]), layout.offset // 2)


def wrapped_among(dim: SupportsIndex, count: int, layout: Layout) -> int:
    """``dim`` counted from the start, when there are ``count`` dims."""
    place = index(dim)
    if not -count <= place < count:
        raise IndexError(f"dim {place} is out of range for shape {layout.shape}: from {-count} to {count - 1}")
    return place + count if place < 0 else place


def _chunks(layout: Layout) -> list[tuple[int, int, int]]:
    """The runs of dims that can be merged, from the last: (first dim, element count, innermost stride)."""
    shape, stride = layout.shape, layout.stride
    found, size, base = [], 1, stride[-1]
    for dim in range(len(shape) - 1, -1, -1):
        size *= shape[dim]
        if dim == 0 or (shape[dim - 1] != 1 and stride[dim - 1] != size * base):
            found.append((dim, size, base))
            size, base = 1, stride[dim - 1]
    return found


def _with_smaller_elements(layout: Layout, ratio: int) -> Layout:
    shape = (*layout.shape[:-1], layout.shape[-1] * ratio)
    return Layout(shape, (*(step * ratio for step in layout.stride[:-1]), 1), layout.offset * ratio)


def _with_larger_elements(layout: Layout, ratio: int, what: str) -> Layout:
    if any(number % ratio for number in (layout.shape[-1], layout.offset, *layout.stride[:-1])):
        raise LayoutError(
            f"{what}: the last size, the offset and all strides but the last must be divisible by {ratio}; "
            f"the tensor has shape {layout.shape}, strides {layout.stride} and offset {layout.offset}"
        )
    shape = (*layout.shape[:-1], layout.shape[-1] // ratio)
    return Layout(shape, (*(step // ratio for step in layout.stride[:-1]), 1), layout.offset // ratio)
