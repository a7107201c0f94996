"""Functions of several tensors, or of one given as a list, that share memory with what they are given."""

from __future__ import annotations

from typing import Any

from shmtensor import views
from shmtensor.errors import LayoutError
from shmtensor.incoming import as_tensor
from shmtensor.tensors import Tensor

__all__ = ["atleast_1d", "atleast_2d", "atleast_3d", "broadcast_tensors", "meshgrid"]


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Views of all tensors in the one shape that they can be expanded to. Raises `LayoutError` when there
    is none.
    """
    given = [as_tensor(each) for each in tensors]
    shape = views.broadcast_shapes(*[each.layout.shape for each in given])
    return tuple(each.expand(shape) for each in given)


def meshgrid(*tensors: Tensor, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Views of tensors of one dim, the i-th varying along dim i of a grid; with ``indexing="xy"`` the first
    two swap.
    """
    given = [as_tensor(each) for each in tensors]
    if any(each.ndim > 1 for each in given):
        raise LayoutError(f"meshgrid takes tensors of one dim at most, not {[tuple(each.shape) for each in given]}")
    if indexing not in ("ij", "xy"):
        raise ValueError(f"indexing is 'ij' or 'xy', not {indexing!r}")
    sizes = [each.numel() for each in given]
    grids = []
    for place, each in enumerate(given):
        alone = [1] * len(sizes)
        alone[place] = sizes[place]
        grids.append(each.view(alone).expand(sizes))
    if indexing == "xy" and len(grids) > 1:
        return tuple(grid.transpose(0, 1) for grid in grids)
    return tuple(grids)


def atleast_1d(*tensors: Any) -> Any:
    """Each tensor with a dim added if it has none: one tensor, or a tuple for several."""
    return _atleast(tensors, 1)


def atleast_2d(*tensors: Any) -> Any:
    """Each tensor with dims added until there are two: one tensor, or a tuple for several."""
    return _atleast(tensors, 2)


def atleast_3d(*tensors: Any) -> Any:
    """Each tensor with dims added until there are three: one tensor, or a tuple for several."""
    return _atleast(tensors, 3)


def _atleast(tensors: tuple[Any, ...], ndim: int) -> Any:
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    made = tuple(_with_dims(as_tensor(each), ndim) for each in given)
    return made[0] if len(tensors) == 1 and given is tensors else made


def _with_dims(tensor: Tensor, ndim: int) -> Tensor:
    return tensor if tensor.ndim >= ndim else tensor._over(views.atleast(tensor.layout, ndim))
