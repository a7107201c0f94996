"""What an index expression means for a layout. Owns rule 14, view or copy by index, which is PyTorch's.

Ints, slices, None and Ellipsis make a view: `plan` gives its `Layout`. Lists, arrays, masks, True and False
pick elements, which only a copy can hold: `plan` gives an `Advanced`, whose index NumPy applies.

Pure: of an array only the dtype and the dims matter here; its values are for NumPy to read and to check.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import index as as_int
from typing import Any, TypeAlias

import numpy as np

from shmtensor.layout import Ints, Layout
from shmtensor.views import place_in_dim, select, slice_dim, span_in_dim

__all__ = ["Advanced", "plan"]

Array: TypeAlias = "np.ndarray[Any, Any]"

_EVERYTHING = slice(None)
_INTS_AND_SLICES = frozenset((int, slice))


class Advanced:
    """An index that copies: ``array[index]`` reads or writes, ``array`` being the NumPy array of ``layout``.

    As in torch, and unlike in NumPy, an int beside a list is applied first, as part of ``layout``:
    ``t[0, :, [1, 2]]`` is ``t[0][:, [1, 2]]``, with the dim of the list last. So ``index`` has nothing but
    arrays and full slices.
    """

    __slots__ = ("index", "layout")

    def __init__(self, layout: Layout, index: tuple[slice | Array, ...]) -> None:
        self.layout = layout
        self.index = index

    def __repr__(self) -> str:
        return f"Advanced({self.layout}, {self.index})"


def plan(layout: Layout, index: object) -> Layout | Advanced:
    """The layout of the view that ``index`` makes; the `Advanced` index where it makes a copy (rule 14).

    Raises `IndexError` for an int out of range, for too many indices, for a second Ellipsis and for what
    can't be an index; `ValueError` for a slice whose step is not positive. NumPy checks the values in arrays.
    """
    if type(index) is int:
        return select(layout, 0, index)
    if type(index) is slice:
        return slice_dim(layout, 0, index)
    given = index if isinstance(index, tuple) else (index,)
    if _INTS_AND_SLICES.issuperset(map(type, given)) and len(given) <= layout.ndim:
        return _applied(layout, given)[0]  # nothing to classify: a third of the time
    parts = [_classified(part) for part in given]
    spelled_out = _without_ellipsis(parts, layout)
    view, picks = _applied(layout, spelled_out)
    return Advanced(view, picks) if picks else view


def _applied(layout: Layout, parts: Iterable[Any]) -> tuple[Layout, tuple[slice | Array, ...]]:
    """The view that the ints, slices and Nones of ``parts`` make, and the arrays at its dims, if any."""
    shape, stride, offset = layout.shape, layout.stride, layout.offset
    sizes: list[int] = []
    steps: list[int] = []
    picks: list[slice | Array] = []
    array_end = 0  # one after the last array in picks
    dim = 0  # of the layout, that the next part applies to
    for part in parts:
        kind = type(part)
        if kind is int:
            offset += place_in_dim(shape, dim, part) * stride[dim]
            dim += 1
            continue
        if kind is slice:
            start, count, step = span_in_dim(shape, dim, part)
            offset += start * stride[dim]
            sizes.append(count)
            steps.append(step * stride[dim])
            dim += 1
            picks.append(_EVERYTHING)
            continue
        if part is None or kind is bool:
            sizes.append(1)
            steps.append(shape[dim] * stride[dim] if dim < len(shape) else 1)
        else:
            _check_mask(part, shape, dim)
            end = dim + _consumed(part)
            sizes += shape[dim:end]
            steps += stride[dim:end]
            dim = end
        pick = _pick(part)
        picks.append(pick)
        array_end = array_end if pick is _EVERYTHING else len(picks)
    view = Layout((*sizes, *shape[dim:]), (*steps, *stride[dim:]), offset)
    return view, tuple(picks[:array_end])


def _pick(part: Any) -> slice | Array:
    """What NumPy applies to the dims that a part leaves; True and False pick 1 or 0 indices of theirs."""
    if type(part) is bool:
        return np.zeros(int(part), np.intp)
    return part if isinstance(part, np.ndarray) else _EVERYTHING


def _check_mask(part: Array, shape: Ints, dim: int) -> None:
    """Raise unless a mask has the sizes of the dims it applies to: NumPy lets a mask of size 0 pass."""
    masked = shape[dim : dim + part.ndim]
    if part.dtype.kind == "b" and part.shape != masked:
        last = dim + part.ndim - 1
        raise IndexError(f"a mask of shape {part.shape} doesn't fit dims {dim} to {last}, of sizes {masked}")


def _without_ellipsis(parts: list[Any], layout: Layout) -> list[Any]:
    """``parts`` with the Ellipsis, if any, written as full slices."""
    named = sum(map(_consumed, parts))
    if named > layout.ndim:
        raise IndexError(f"too many indices: {named} for the {layout.ndim} dims of shape {layout.shape}")
    places = [place for place, part in enumerate(parts) if part is Ellipsis]
    if not places:
        return parts
    if len(places) > 1:
        raise IndexError("an index can have one Ellipsis ('...') only")
    at = places[0]
    return [*parts[:at], *[_EVERYTHING] * (layout.ndim - named), *parts[at + 1 :]]


def _consumed(part: object) -> int:
    """How many dims a part applies to."""
    if part is None or part is Ellipsis or type(part) is bool:
        return 0
    if isinstance(part, np.ndarray) and part.dtype.kind == "b":
        return part.ndim
    return 1


def _classified(part: object) -> Any:
    """One part of an index as None, Ellipsis, a slice, an int, a bool or an array of ints or bools.

    A 0-d array, or a 0-d tensor of any library, is the int or the bool that it holds.
    """
    if part is None or part is Ellipsis or type(part) in (int, bool, slice):
        return part
    if isinstance(part, np.bool_):
        return bool(part)
    if isinstance(part, np.integer) and part.dtype.kind in "iu":  # a timedelta64 is an np.integer, too
        return int(part)
    if hasattr(part, "__array__") or isinstance(part, (list, range, tuple)):
        return _from_array(part)
    if hasattr(part, "__index__"):
        return as_int(part)
    raise _no_index(part)


def _from_array(part: Any) -> Any:
    """An array-like part as an array that NumPy can index with; an int or a bool when it has no dims."""
    try:
        array: Array = np.asarray(part)
    except ValueError as error:  # a list of lists of different lengths
        raise _no_index(part) from error
    if array.size == 0 and isinstance(part, (list, tuple)):
        array = array.astype(np.intp)  # an empty list is float64 to NumPy
    if array.dtype.kind not in "biu":
        raise _no_index(part)
    return array if array.ndim else array.item()


def _no_index(part: object) -> IndexError:
    dtype = getattr(part, "dtype", None)
    what = type(part).__name__ if dtype is None else f"{type(part).__name__} of {dtype}"
    return IndexError(
        "an index is made of ints, slices, None, Ellipsis, and lists or arrays of ints or bools; "
        f"it can't have a {what}"
    )
