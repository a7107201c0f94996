"""Steps of random programs that copy, or copy where they must: memory formats, casts, elements in another order."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
from oracle.drawing import draw_dim, size_at
from oracle.sides import FORMATS, Array, Sides, Step
from oracle.steps import DTYPES, call, draw_format, in_order, order_of, refuse_0d, wrap

import shmtensor as st


def draw_contiguous(rng: random.Random, sides: Sides) -> Step:
    shape = sides.array.shape
    name = draw_format(rng, shape, FORMATS)

    def in_numpy(a: Array) -> Array:
        order = order_of(name, a.ndim)
        return a if a.transpose(order).flags.c_contiguous else in_order(a, name)

    differs = {}
    if 0 in shape and name != "contiguous_format":
        differs["numpy"] = "rule 4: no shortcut for numel 0"
    return Step(
        f"contiguous({name})",
        lambda t: t.contiguous(memory_format=getattr(st, name)),
        lambda x: x.contiguous(memory_format=getattr(sides.torch, name)),
        in_numpy,
        differs,
    )


def draw_clone(rng: random.Random, sides: Sides) -> Step:
    name = draw_format(rng, sides.array.shape, (*FORMATS, "preserve_format", "preserve_format"))
    return Step(
        f"clone({name})",
        lambda t: t.clone(memory_format=getattr(st, name)),
        lambda x: x.clone(memory_format=getattr(sides.torch, name)),
        lambda a: a.copy("K") if name == "preserve_format" else in_order(a, name),
    )


def draw_to(rng: random.Random, sides: Sides) -> Step:
    array = sides.array
    name = draw_format(rng, array.shape, (*FORMATS, "preserve_format", "preserve_format"))
    copy, dtype = rng.random() < 0.3, array.dtype.name
    small = array.dtype.kind in "biuf" and bool(np.all((array >= 0) & (array <= 100)))  # NaN is not
    if small and rng.random() < 0.5:  # what a cast does to larger numbers is nobody's promise
        dtype = rng.choice(DTYPES)

    def in_numpy(a: Array) -> Array:
        order = order_of(name, a.ndim) if name != "preserve_format" else None
        if not copy and a.dtype == dtype and (order is None or a.transpose(order).flags.c_contiguous):
            return a
        a = a.astype(dtype)
        return a if order is None else in_order(a, name)

    def in_torch(x: Any) -> Any:
        format_, kind = getattr(sides.torch, name), getattr(sides.torch, dtype)
        insists = copy
        if name != "preserve_format" and kind == x.dtype and not copy:
            # Rules 3 and 4: ours gives the format asked for; torch's is content with strides that go in its order.
            made = sides.torch.empty(x.shape, memory_format=format_, device="meta")
            fits = x.is_contiguous() if name == "contiguous_format" else x.stride() == made.stride()
            if fits:
                return x
            insists = True
        return x.to(kind, copy=insists, memory_format=format_)

    differs = {}
    if name.startswith("channels") and (0 in array.shape or 1 in array.shape):
        differs["numpy"] = "rule 4: to makes real channels_last strides where the shape is ambiguous"
    return Step(
        f"to({dtype}, copy={copy}, {name})",
        lambda t: t.to(dtype, copy=copy, memory_format=getattr(st, name)),
        in_torch,
        in_numpy,
        differs,
    )


def draw_picking(rng: random.Random, sides: Sides) -> Step:
    """flip, roll, repeat, tile and index_select."""
    shape = sides.array.shape
    dim = draw_dim(rng, shape)
    size = size_at(shape, dim)
    name = rng.choice(("flip", "roll", "repeat", "tile", "index_select", "masked_select"))
    if name == "flip":
        return call("flip", [dim], numpy=lambda a: flipped(a, dim))
    if name == "roll":
        by = rng.randint(-3, 3)
        differs = {} if math.prod(shape) else {"torch": "without elements torch does not look at the dim"}
        return Step(
            f"roll({by}, {dim})",
            lambda t: t.roll(by, dim),
            # Ours is contiguous; what torch's strides are where the size is 1 or 0 is of no consequence.
            lambda x: x.roll(by, dim).clone(memory_format=sides.torch.contiguous_format),
            lambda a: rolled(a, by, dim),
            differs,
        )
    if name in ("repeat", "tile"):
        counts = [
            rng.choice((0, 1, 1, 2))
            for _ in range(rng.randint(max(len(shape) - (rng.random() < 0.2), 0), len(shape) + 1))
        ]
        return call(name, counts, numpy=lambda a: repeated(a, counts, name))
    if name == "masked_select":
        mask = np.asarray(np.random.default_rng(rng.randrange(1 << 30)).random(shape) < 0.5)
        return Step(
            "masked_select",
            lambda t: t.masked_select(mask),
            lambda x: x.masked_select(sides.torch.from_numpy(mask)),
            lambda a: a[mask],
        )
    row = np.array([rng.randrange(size) for _ in range(rng.randint(0, 3) if size else 0)], np.int64)
    return Step(
        f"index_select({dim}, {row})",
        lambda t: t.index_select(dim, row),
        lambda x: x.index_select(dim, sides.torch.from_numpy(row)),
        lambda a: np.take(a, row, wrap(dim, a.ndim)) if a.ndim else selected(a, row, dim),
    )


def flipped(a: Array, dim: int) -> Array:
    at = wrap(dim, a.ndim)
    return np.flip(a, at).copy("K") if a.ndim else a.copy()


def rolled(a: Array, by: int, dim: int) -> Array:
    refuse_0d(a)
    return np.roll(a, by, wrap(dim, a.ndim))


def selected(a: Array, row: Array, dim: int) -> Array:
    wrap(dim, 0)
    if row.size != 1:
        raise ValueError("one index picks from a number")
    return a.copy()


def repeated(a: Array, counts: list[int], name: str) -> Array:
    if name == "repeat" and len(counts) < a.ndim:
        raise ValueError("a count for each dim")
    return np.tile(a, counts).copy()  # of an array without elements tile may give a view
