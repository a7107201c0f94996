"""Steps of random programs that index: views, copies and assignment (rule 14)."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
from oracle.drawing import Ints, draw_slice
from oracle.sides import Array, Sides, Step

import shmtensor as st


def draw_index(rng: random.Random, shape: Ints, *, picks: bool) -> tuple[Any, ...]:
    """A basic index, or with ``picks`` one that may have arrays, masks and lists too."""
    parts: list[Any] = []
    dim = 0
    length = rng.choice((1, 2, 3))  # that arrays of one index share, so that most of them broadcast
    kinds = ["int", "int", "slice", "slice", "slice", "none", "dots", "0d"]
    kinds += ["list", "array", "mask", "bool"] * picks
    while dim < len(shape) + (rng.random() < 0.02) and rng.random() < 0.85:
        kind = rng.choice(kinds)
        if kind == "dots" and any(part is Ellipsis for part in parts) and rng.random() < 0.95:
            continue
        part = draw_index_part(rng, kind, shape[dim:], length)
        parts.append(part)
        if kind == "dots":
            dim += rng.randint(0, len(shape) - dim) if dim < len(shape) else 0
        elif kind == "mask":
            dim += part.ndim
        elif kind not in ("none", "bool"):
            dim += 1
    return tuple(parts)


def draw_index_part(rng: random.Random, kind: str, rest: Ints, length: int) -> Any:
    size = rest[0] if rest else 1

    def place() -> int:
        off = rng.random() < 0.02
        return rng.randrange(-size - off, size + off) if size + off else 0

    if kind == "int":
        return place()
    if kind == "0d":
        return rng.choice((np.int64, np.int16))(place())
    if kind == "slice":
        cut = draw_slice(rng, size)
        return slice(cut.start, cut.stop, rng.choice((0, -1))) if rng.random() < 0.01 else cut
    if kind == "list":
        return [place() for _ in range(length)] if size else []
    if kind == "array":
        shape = (length,) if rng.random() < 0.6 else (rng.choice((1, 2)), length)
        return np.array([place() for _ in range(math.prod(shape))], np.int64).reshape(shape)
    if kind == "mask":
        sizes = tuple(n + (rng.random() < 0.01) for n in rest[: rng.randint(1, 2)] or (1,))
        return np.array([rng.random() < 0.5 for _ in range(math.prod(sizes))], bool).reshape(sizes)
    return {"none": None, "dots": Ellipsis, "bool": rng.random() < 0.7}[kind]


def in_torch_index(torch: Any, key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(in_torch_index(torch, part) for part in key)
    if isinstance(key, np.integer):
        return torch.tensor(int(key))
    return torch.from_numpy(key) if isinstance(key, np.ndarray) else key


def in_our_index(key: Any, as_tensors: bool) -> Any:
    if isinstance(key, tuple):
        return tuple(in_our_index(part, as_tensors) for part in key)
    return st.as_tensor(key) if as_tensors and isinstance(key, np.ndarray) else key


def is_pick(part: Any) -> bool:
    return isinstance(part, (list, np.ndarray, bool))


def reached(a: Array, key: tuple[Any, ...]) -> tuple[Array, Any]:
    """What ``key`` indexes once its ints are applied, and the rest of it, without an Ellipsis between arrays.

    Rule 14, as in torch: NumPy would put the dim of a list in front when an int that stands apart from it, or an
    Ellipsis for no dims, is in the same index.
    """
    if not any(is_pick(part) for part in key):
        return a, (*key, ...) if Ellipsis not in [part for part in key if part is Ellipsis] else key
    widths = widths_of(key)
    spare = a.ndim - sum(widths)
    if spare < 0 or sum(part is Ellipsis for part in key) > 1:
        raise IndexError("too many indices, or Ellipsis twice")
    first: list[Any] = []
    rest: list[Any] = []
    for part, width in zip(key, widths, strict=True):
        if part is Ellipsis:
            first += [slice(None)] * spare
            rest += [slice(None)] * spare
        elif is_int(part):
            first.append(part)
        else:
            first += [slice(None)] * width
            rest.append(part)
    return a[(*first, ...)], (*rest, ...)


def is_int(part: Any) -> bool:
    return isinstance(part, (int, np.integer)) and not isinstance(part, bool)


def width_of(part: Any) -> int:
    return part.ndim if isinstance(part, np.ndarray) and part.dtype == bool else 1


def check_slices(a: Array, key: tuple[Any, ...]) -> None:
    """Rules 6 and 15: no slice runs backwards, which NumPy's may."""
    if any(isinstance(part, slice) and part.step is not None and part.step < 1 for part in key):
        raise ValueError("step")


def widths_of(key: tuple[Any, ...]) -> list[int]:
    """How many dims each part of an index takes."""
    return [0 if part is None or part is Ellipsis or isinstance(part, bool) else width_of(part) for part in key]


def read(a: Array, key: tuple[Any, ...]) -> Array:
    check_slices(a, key)
    if a.size == 0 or any(isinstance(part, np.ndarray) and part.dtype == bool for part in key):
        check_masks(a, key)
    part, rest = reached(a, key)
    return part[rest]


def check_masks(a: Array, key: tuple[Any, ...]) -> None:
    """NumPy lets a mask of size 0 pass whatever its shape; rule 14 as in torch does not."""
    widths = widths_of(key)
    dim = 0
    for part, width in zip(key, widths, strict=True):
        if part is Ellipsis:
            dim += max(a.ndim - sum(widths), 0)
        if isinstance(part, np.ndarray) and part.dtype == bool and part.shape != a.shape[dim : dim + width]:
            raise IndexError("mask of another shape")
        dim += width


def draw_getitem(rng: random.Random, sides: Sides) -> Step:
    key = draw_index(rng, sides.array.shape, picks=rng.random() < 0.4)
    ours = in_our_index(key, rng.random() < 0.5)
    theirs = None if sides.torch is None else in_torch_index(sides.torch, key)
    differs = {}
    if sum(part is Ellipsis for part in key) > 1:
        differs["torch"] = "rule 14: a second Ellipsis is refused, as in NumPy; torch lets some pass"

    def in_torch(x: Any) -> Any:
        found = x[theirs]
        if found.numel() == 0 and is_refused(sides.array, key):
            raise IndexError("torch does not look at the values of an index whose result is empty")
        # A copy by index is contiguous with us; torch's follows the strides of its source.
        return found.clone(memory_format=sides.torch.contiguous_format) if any(is_pick(part) for part in key) else found

    return Step(f"[{key}]", lambda t: t[ours], in_torch, lambda a: read(a, key), differs, wrong_twice(key))


def wrong_twice(key: tuple[Any, ...]) -> dict[str, str]:
    """A step below 1 is a ValueError (rule 6); beside another mistake it depends on what is looked at first."""
    steps = [part.step for part in key if isinstance(part, slice) and part.step is not None]
    return {"numpy": "rule 6", "torch": "rule 6"} if min(steps, default=1) < 1 else {}


def is_refused(a: Array, key: tuple[Any, ...]) -> bool:
    try:
        read(a, key)
    except (IndexError, ValueError):
        return True
    return False
