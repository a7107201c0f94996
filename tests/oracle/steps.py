"""What the steps of random programs share: how a call is put to all sides, and what NumPy has no word for."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from oracle.drawing import Ints
from oracle.sides import Act, Array, Step

DTYPES = ("bool", "uint8", "int16", "int64", "float16", "float32", "float64", "complex64", "complex128")


def call(name: str, *args: Any, numpy: Act, torch: Act | None = None, **more: Any) -> Step:
    """A method that we and torch call alike, and what NumPy does in its place."""
    said = f"{name}({', '.join(map(repr, args))})"
    return Step(said, lambda t: getattr(t, name)(*args), torch or (lambda x: getattr(x, name)(*args)), numpy, **more)


def wrap(dim: int, ndim: int) -> int:
    """A dim counted from the start; a 0-d tensor counts as having one, as in torch."""
    reach = max(ndim, 1)
    if not -reach <= dim < reach:
        raise IndexError(dim)
    return dim % reach


def refuse_0d(a: Array) -> None:
    if a.ndim == 0:
        raise IndexError("no dim")


def draw_format(rng: random.Random, shape: Ints, names: tuple[str, ...]) -> str:
    fitting = {4: "channels_last", 5: "channels_last_3d"}.get(len(shape), "contiguous_format")
    return rng.choice((fitting, fitting, *names))


def order_of(name: str, ndim: int) -> list[int]:
    """The dims from the outermost in memory; raises for a rank the format is not for."""
    orders = {"channels_last": [0, 2, 3, 1], "channels_last_3d": [0, 2, 3, 4, 1]}
    order = orders.get(name, list(range(ndim)))
    if len(order) != ndim:
        raise ValueError(name)
    return order


def in_order(a: Array, name: str) -> Array:
    """A copy whose elements lie in the order of a format."""
    order = order_of(name, a.ndim)
    return a.transpose(order).copy().transpose(np.argsort(order)) if a.ndim else a.copy()
