"""Steps of random programs that write elements (rules 10 and 14)."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from oracle.drawing import Ints, size_at
from oracle.index_steps import (
    check_slices,
    draw_index,
    in_our_index,
    in_torch_index,
    is_pick,
    is_refused,
    reached,
    read,
    wrong_twice,
)
from oracle.sides import Array, Sides, Step, root_of, strided
from oracle.steps import call

import shmtensor as st


def repeats(a: Array) -> bool:
    """Whether an element stands for several places, by a stride of 0 (rule 10)."""
    return a.size > 0 and any(step == 0 and size > 1 for size, step in zip(a.shape, a.strides, strict=True))


def shares_places(a: Array) -> bool:
    """Whether any two elements are one place, by whatever strides: the order of writing would matter then."""
    places = np.zeros(a.shape, np.int64)
    for dim, (size, step) in enumerate(zip(a.shape, a.strides, strict=True)):
        places += (np.arange(size) * step).reshape(-1, *[1] * (a.ndim - dim - 1))
    near = np.unique(places)
    return near.size < places.size or bool(np.any(np.diff(near) < a.itemsize))


def draw_scalar(rng: random.Random, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return rng.random() < 0.5
    if dtype.kind in "fc" and rng.random() < 0.5:
        return rng.choice((0.5, 2.25))
    return rng.randint(0, 100)


def draw_fill(rng: random.Random, sides: Sides) -> Step:
    value = draw_scalar(rng, sides.array.dtype)
    if rng.random() < 0.3:
        return call("zero_", numpy=lambda a: assigned(a, ..., 0))
    if sides.array.dtype.name in ("uint8", "int16") and rng.random() < 0.1:
        value = rng.choice((256, 1 << 15)) if sides.array.dtype == np.uint8 else 1 << 15
    error_differs = {"torch": "section 1: what a dtype can't hold is an OverflowError; torch's is a RuntimeError"}
    return call("fill_", value, numpy=lambda a: assigned(a, ..., value), error_differs=error_differs)


def assigned(a: Array, key: Any, value: Any) -> Array:
    a[key] = value
    return a


def draw_source(rng: random.Random, shape: Ints, dtype: np.dtype[Any], *, ones: bool) -> Array:
    """Something that can be expanded to ``shape``, mostly; ``ones`` allows surplus dims of size 1 in front."""
    sizes = [size if rng.random() < 0.7 else 1 for size in shape]
    if rng.random() < 0.3:
        sizes = sizes[rng.randint(0, len(sizes)) :]
    if ones and rng.random() < 0.2:
        sizes = [1, *[1] * (len(shape) - len(sizes)), *sizes]
    if sizes and rng.random() < 0.04:
        sizes[rng.randrange(len(sizes))] += 1
    values = np.random.default_rng(rng.randrange(1 << 30)).integers(0, 100, sizes)
    return values.astype(rng.choice((dtype, np.dtype(np.int8))))


def copied_over(a: Array, source: Array) -> Array:
    np.copyto(a, np.broadcast_to(source, a.shape), casting="unsafe")
    return a


def draw_copy(rng: random.Random, sides: Sides) -> Step:
    """copy_ of a tensor with memory of its own."""
    array = sides.array
    source = draw_source(rng, array.shape, array.dtype, ones=False)
    source = source if not shares_places(array) or repeats(array) else source.reshape(-1)[:1].reshape(())

    def in_numpy(a: Array) -> Array:
        if repeats(a):
            raise ValueError("rule 10")
        return copied_over(a, source)

    return Step(
        f"copy_ of {source.dtype} {source.shape}",
        lambda t: t.copy_(source),
        lambda x: x.copy_(sides.torch.from_numpy(source)),
        in_numpy,
    )


def draw_overlapping_copy(rng: random.Random, sides: Sides) -> Step:
    """A part of the storage written to another part (rule 10: as if the source had been copied first)."""
    array = sides.array
    stride = tuple(rng.choice((0, 1, 2, 3, 5, size_at(array.shape, -1))) for _ in array.shape)
    offset = rng.randint(0, 20)
    reach = 0 if array.size == 0 else offset + 1 + sum((n - 1) * s for n, s in zip(array.shape, stride, strict=True))
    if shares_places(array) or reach * array.itemsize > root_of(array).size:
        return draw_fill(rng, sides)
    by_index = rng.random() < 0.5

    def ours(t: st.Tensor) -> st.Tensor:
        source = t.as_strided(t.shape, stride, offset)
        if by_index:
            t[...] = source
            return t
        return t.copy_(source)

    return Step(
        f"copy_ of as_strided({array.shape}, {stride}, {offset}), by index: {by_index}",
        ours,
        lambda x: x.copy_(x.as_strided(x.shape, stride, offset).clone()),  # rule 10, ours: torch would refuse
        lambda a: assigned(a, ..., strided(root_of(a), a.dtype, a.shape, stride, offset).copy()),
    )


def draw_overlapping_pick(rng: random.Random, sides: Sides) -> Step:
    """A part of the storage written through a list or a mask that may lie in the same storage (rule 10)."""
    array = sides.array
    if not array.ndim or shares_places(array) or not array.size:
        return draw_fill(rng, sides)
    rows = rng.sample(range(array.shape[0]), rng.randint(1, array.shape[0]))
    shape, offset = (len(rows), *array.shape[1:]), rng.randint(0, 20)
    stride = tuple(rng.choice((0, 1, 2, 3)) for _ in shape)
    reach = offset + 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if reach * array.itemsize > root_of(array).size:
        return draw_fill(rng, sides)
    name = rng.choice(("index_copy_", "[list]", "[mask]"))
    mask = np.isin(np.arange(array.shape[0]), rows)
    key: Any = mask if name == "[mask]" else sorted(rows) if name == "[list]" else rows

    def ours(t: st.Tensor) -> st.Tensor:
        source = t.as_strided(shape, stride, offset)
        return t.index_copy_(0, rows, source) if name == "index_copy_" else set_item(t, key, source)

    return Step(
        f"{name} {rows} = as_strided({shape}, {stride}, {offset})",
        ours,
        # Rule 10, ours: as if the source had been copied first; torch may refuse, or read what it has written.
        lambda x: set_item(x, sides.torch.as_tensor(key), x.as_strided(shape, stride, offset).clone()),
        lambda a: assigned(a, key, strided(root_of(a), a.dtype, shape, stride, offset).copy()),
    )


def draw_own_mask(rng: random.Random, sides: Sides) -> Step:
    """Bools masked by bools of the same storage (rule 10)."""
    array = sides.array
    if array.dtype != bool or array.ndim != 1 or array.size < 2 or shares_places(array):
        return draw_overlapping_copy(rng, sides)
    value, back = rng.random() < 0.5, rng.random() < 0.5
    to, of = (slice(None, -1), slice(1, None)) if back else (slice(1, None), slice(None, -1))
    if rng.random() < 0.5:
        return Step(
            f"[{to}].masked_fill_([{of}], {value})",
            lambda t: (t[to].masked_fill_(t[of], value), t)[1],
            lambda x: (x[to].masked_fill_(x[of].clone(), value), x)[1],
            lambda a: (assigned(a[to], a[of].copy(), value), a)[1],
        )
    return Step(
        f"[{to}][[{of}]] = {value}",
        lambda t: (set_item(t[to], t[of], value), t)[1],
        lambda x: (set_item(x[to], x[of].clone(), value), x)[1],
        lambda a: (assigned(a[to], a[of].copy(), value), a)[1],
    )


def draw_setitem(rng: random.Random, sides: Sides) -> Step:
    array = sides.array
    key = draw_index(rng, array.shape, picks=rng.random() < 0.5)
    try:
        part, rest = reached(array, key)
        target = part[rest]
        check_slices(array, key)
    except (IndexError, ValueError):
        part = target = array[:0] if array.ndim else array
    picks = any(is_pick(each) for each in key)
    base = part if picks else target
    if rng.random() < 0.4 or shares_places(array) or (picks and picks_twice(array, key)):
        value: Any = draw_scalar(rng, array.dtype)
    else:
        value = draw_source(rng, target.shape, array.dtype, ones=True)
    differs = {}
    if sum(part is Ellipsis for part in key) > 1:
        differs["torch"] = "rule 14: a second Ellipsis is refused, as in NumPy; torch lets some pass"
    if repeats(base):
        if picks:
            differs["torch"] = "rule 10, ours: torch only warns of writing through a mask or list where places repeat"
        elif np.ndim(value) == 0:
            differs["torch"] = "rule 10: a single element may be written; torch looks at its kind of number"
    if picks and is_refused(array, key):
        differs["torch"] = "what is refused changes nothing; torch may have written before it came to a wrong index"
    ours = in_our_index(key, rng.random() < 0.5)
    theirs = None if sides.torch is None else in_torch_index(sides.torch, key)
    their_value = value
    if sides.torch is not None and isinstance(value, np.ndarray):  # which torch does not cast for a mask or list
        their_value = sides.torch.from_numpy(value.astype(array.dtype))

    def in_numpy(a: Array) -> Array:
        room = read(a, key).shape
        part, rest = reached(a, key)
        if np.ndim(value):
            if repeats(part if picks else part[rest]):
                raise ValueError("rule 10")
            surplus = max(value.ndim - len(room), 0)
            if value.shape[:surplus] != (1,) * surplus:  # NumPy lets any value pass that has no element
                raise ValueError(value.shape)
            np.broadcast_to(value.reshape(value.shape[surplus:]), room)
        part[rest] = value
        return a

    said = f"[{key}] = {value if np.ndim(value) == 0 else f'{value.dtype} {value.shape}'}"
    step = Step(said, lambda t: set_item(t, ours, value), lambda x: set_item(x, theirs, their_value), in_numpy, differs)
    step.error_differs = wrong_twice(key)
    return step


def set_item(tensor: Any, key: Any, value: Any) -> Any:
    tensor[key] = value
    return tensor


def picks_twice(array: Array, key: tuple[Any, ...]) -> bool:
    """Whether an index names an element twice: which value stays is nobody's promise."""
    if is_refused(array, key):
        return True
    found = read(np.arange(array.size).reshape(array.shape), key)
    return np.unique(found).size < found.size


def draw_masked_fill(rng: random.Random, sides: Sides) -> Step:
    array = sides.array
    mask = np.asarray(draw_source(rng, array.shape, np.dtype(bool), ones=False) % 2 == 1)
    value = draw_scalar(rng, array.dtype)

    def in_numpy(a: Array) -> Array:
        if repeats(a):
            raise ValueError("rule 10")
        return assigned(a, np.broadcast_to(mask, a.shape), value)

    differs = {"torch": "rule 10, ours: torch only warns"} if repeats(array) else {}
    return Step(
        f"masked_fill_({mask.shape}, {value})",
        lambda t: t.masked_fill_(mask, value),
        lambda x: x.masked_fill_(sides.torch.from_numpy(mask), value),
        in_numpy,
        differs,
    )


def draw_index_write(rng: random.Random, sides: Sides) -> Step:
    """index_fill_ and index_copy_."""
    array = sides.array
    dim = rng.randrange(array.ndim) if array.ndim else 0
    size = size_at(array.shape, dim)
    if not array.ndim or shares_places(array):
        return draw_fill(rng, sides)
    row = np.array(rng.sample(range(size), rng.randint(0, size)), np.int64)
    if rng.random() < 0.5:
        value = draw_scalar(rng, array.dtype)
        return Step(
            f"index_fill_({dim}, {row}, {value})",
            lambda t: t.index_fill_(dim, row, value),
            lambda x: x.index_fill_(dim, sides.torch.from_numpy(row), value),
            lambda a: assigned(a, (slice(None),) * dim + (row,), value),
        )
    source = np.ones((*array.shape[:dim], row.size, *array.shape[dim + 1 :]), array.dtype)
    return Step(
        f"index_copy_({dim}, {row}, {source.shape})",
        lambda t: t.index_copy_(dim, row, source),
        lambda x: x.index_copy_(dim, sides.torch.from_numpy(row), sides.torch.from_numpy(source)),
        lambda a: assigned(a, (slice(None),) * dim + (row,), source),
    )
