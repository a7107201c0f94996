"""Methods that rearrange or pick elements, as PyTorch names them; NumPy does the work. All copy, or write
in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, SupportsIndex

import numpy as np

from shmtensor import reshaping, views
from shmtensor.base import Array, TensorBase, layout_like
from shmtensor.copying import assign, expanded, one_element, refuse_writing
from shmtensor.errors import LayoutError
from shmtensor.layout import contiguous, preserve_format
from shmtensor.viewing import spread

__all__ = ["Picking"]

Dims = SupportsIndex | Sequence[SupportsIndex]


class Picking(TensorBase):
    """Copies of some elements, or of all in another order."""

    __slots__ = ()

    def _copied(self, array: Array) -> Self:
        return self._copy_of(array, self._pool, self._dtype, contiguous(array.shape))

    def _rearranged(self, array: Array) -> Self:
        """A copy in the order of dims that `clone` would give it (rule 5)."""
        return self._copy_of(array, self._pool, self._dtype, layout_like(self._layout, preserve_format))

    def flip(self, *dims: Any) -> Self:
        """A copy with the order of ``dims`` reversed."""
        axes = tuple(reshaping.wrap_dim(dim, self._layout) for dim in spread(dims))
        return self._rearranged(np.flip(self.numpy(), axes if self._layout.shape else ()))

    def fliplr(self) -> Self:
        """A copy with dim 1 reversed."""
        return self.flip(1)

    def flipud(self) -> Self:
        """A copy with dim 0 reversed."""
        return self.flip(0)

    def roll(self, shifts: Dims, dims: Dims | None = None) -> Self:
        """A copy shifted along ``dims``, what leaves at one end coming back at the other; flattened for
        None.
        """
        if dims is None:
            return self._copied(np.roll(self.numpy(), shifts))
        named = (dims,) if isinstance(dims, SupportsIndex) else dims
        axes = [reshaping.existing_dim(dim, self._layout, "roll") for dim in named]
        return self._copied(np.roll(self.numpy(), shifts, axes))

    def repeat(self, *repeats: Any) -> Self:
        """A copy repeated so many times along each dim; there may be more counts than dims, for new leading
        dims.
        """
        counts = spread(repeats)
        if len(counts) < self._layout.ndim:
            raise LayoutError(f"repeat needs a count for each dim of shape {self._layout.shape}, got {counts}")
        return self._copied(np.tile(self.numpy(), counts))

    def tile(self, *repeats: Any) -> Self:
        """As `repeat`, but counts that are missing in front are 1."""
        return self._copied(np.tile(self.numpy(), spread(repeats)))

    def index_select(self, dim: SupportsIndex, index: Any) -> Self:
        """A copy of the indices ``index``, a row of ints, of one dim."""
        axis = reshaping.wrap_dim(dim, self._layout)
        picked = np.take(np.atleast_1d(self.numpy()), _row(index), axis)
        if self._layout.shape:
            return self._copied(picked)
        if picked.size != 1:
            raise LayoutError(f"index_select: {picked.size} indices of a 0-d tensor, which has one element: give one")
        return self._copied(picked.reshape(()))

    def take(self, index: Any) -> Self:
        """A copy of the elements at ``index`` of the flattened tensor, in the shape of ``index``."""
        return self._copied(np.take(self.numpy(), np.asarray(index)))

    def masked_select(self, mask: Any) -> Self:
        """A copy, in one dim, of the elements where ``mask`` is true; the two are expanded to one shape."""
        chosen = np.asarray(mask)
        array, chosen = np.broadcast_arrays(self.numpy(), chosen)
        return self._copied(array[chosen])

    def masked_fill_(self, mask: Any, value: Any) -> Self:
        """Set the elements where ``mask``, expanded to this shape, is true; returns the tensor."""
        refuse_writing(self)
        chosen = np.asarray(mask)
        array = self.numpy()
        assign(array, (expanded(chosen, array.shape, "masked_fill_: a mask"),), one_element(value, "masked_fill_"))
        return self

    def masked_fill(self, mask: Any, value: Any) -> Self:
        """A copy with the elements where ``mask`` is true set to ``value``; the two are expanded to one
        shape.
        """
        shape = views.broadcast_shapes(self._layout.shape, np.shape(mask))
        return self._copied(np.broadcast_to(self.numpy(), shape)).masked_fill_(mask, value)

    def index_fill_(self, dim: SupportsIndex, index: Any, value: Any) -> Self:
        """Set the indices ``index``, a row of ints, of one dim to ``value``; returns the tensor."""
        refuse_writing(self)
        assign(self.numpy(), self._at(dim, index), one_element(value, "index_fill_"))
        return self

    def index_copy_(self, dim: SupportsIndex, index: Any, source: Any) -> Self:
        """Write ``source`` to the indices ``index``, a row of ints, of one dim; returns the tensor."""
        refuse_writing(self)
        assign(self.numpy(), self._at(dim, index), np.asarray(source))
        return self

    def _at(self, dim: SupportsIndex, index: Any) -> tuple[Any, ...]:
        axis = reshaping.existing_dim(dim, self._layout, "index")
        return (*(slice(None),) * axis, _row(index))


def _row(index: Any) -> Array:
    row = np.atleast_1d(np.asarray(index))
    if row.ndim > 1 or row.dtype.kind not in "iu":
        raise IndexError(f"the indices of a dim are a row of ints, not {row.dtype} of shape {row.shape}")
    return row
