"""Random arguments of view operations, drawn from a shape alone. Wrong on purpose every now and then."""

from __future__ import annotations

import random
from typing import Any

Ints = tuple[int, ...]


def draw_shape(rng: random.Random, most_dims: int = 5) -> Ints:
    return tuple(rng.choice((0, 1, 1, 2, 2, 3, 4, 5, 6)) for _ in range(rng.randint(0, most_dims)))


def draw_dim(rng: random.Random, shape: Ints) -> int:
    reach = max(len(shape), 1) + (rng.random() < 0.03)
    return rng.randrange(-reach, reach)


def size_at(shape: Ints, dim: int) -> int:
    return shape[dim] if -len(shape) <= dim < len(shape) else 1


def draw_view_shape(rng: random.Random, shape: Ints) -> Ints:
    """Mostly a shape of as many elements: dims split into factors, neighbours merged, 1s sprinkled in."""
    sizes = list(shape)
    for _ in range(rng.randint(0, 3)):
        at = rng.randrange(len(sizes) + 1)
        act = rng.choice(("split", "merge", "one", "drop"))
        if act == "one":
            sizes.insert(at, 1)
        elif at < len(sizes) and act == "split" and sizes[at] > 0:
            factor = rng.choice([f for f in range(1, sizes[at] + 1) if sizes[at] % f == 0])
            sizes[at : at + 1] = [factor, sizes[at] // factor]
        elif at + 1 < len(sizes) and act == "merge":
            sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
        elif at < len(sizes) and act == "drop" and sizes[at] == 1:
            del sizes[at]
    if 0 in sizes and rng.random() < 0.5:
        rng.shuffle(sizes)
    if sizes and rng.random() < 0.15:
        sizes[rng.randrange(len(sizes))] = -1
    if sizes and rng.random() < 0.04:
        sizes[rng.randrange(len(sizes))] = rng.choice((-2, -1, 0, 7))
    return tuple(sizes)


def draw_expanded(rng: random.Random, shape: Ints) -> Ints:
    kept = [rng.choice((-1, size)) if size != 1 else rng.choice((-1, 0, 1, 2, 3)) for size in shape]
    if kept and rng.random() < 0.05:
        kept[rng.randrange(len(kept))] = 4
    new = [rng.choice((1, 1, 2, 3, 0)) for _ in range(rng.choice((0, 0, 1, 2)))]
    if new and shape and rng.random() < 0.05:
        new[0] = -1
    return (*new, *kept)


def draw_permutation(rng: random.Random, shape: Ints) -> list[int]:
    dims = [dim - rng.choice((0, len(shape))) for dim in rng.sample(range(len(shape)), len(shape))]
    if dims and rng.random() < 0.04:
        dims[0] = dims[-1]
    return dims


def draw_moves(rng: random.Random, shape: Ints) -> tuple[Any, Any]:
    if rng.random() < 0.4:
        return draw_dim(rng, shape), draw_dim(rng, shape)
    count = rng.randint(0, len(shape))
    source, target = rng.sample(range(len(shape)), count), rng.sample(range(len(shape)), count)
    return tuple(source), tuple(target)


def draw_squeezed(rng: random.Random, shape: Ints) -> Any:
    if rng.random() < 0.5:
        return draw_dim(rng, shape)
    return tuple(rng.sample(range(len(shape)), rng.randint(0, len(shape))))


def draw_slice(rng: random.Random, size: int) -> slice:
    bound = [None, *range(-size - 2, size + 3)]
    return slice(rng.choice(bound), rng.choice(bound), rng.choice((None, 1, 2, 3, size + 1)))


def draw_pieces(rng: random.Random, size: int) -> Any:
    if rng.random() < 0.6:
        return rng.randint(-1 if rng.random() < 0.03 else 0, size + 2)
    cuts = sorted(rng.randint(0, size) for _ in range(rng.randint(0, 3)))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
    return [each + (rng.random() < 0.02) for each in sizes]


def draw_dense_stride(rng: random.Random, shape: Ints) -> Ints:
    """Strides that follow one another but for an odd one now and then, and any stride at all where the size is 1."""
    strides, running = [0] * len(shape), rng.choice((1, 1, 1, 2))
    dims = list(range(len(shape)))[::-1] if rng.random() < 0.7 else rng.sample(range(len(shape)), len(shape))
    for dim in dims:
        running += rng.random() < 0.1
        strides[dim] = running if shape[dim] != 1 else rng.choice((0, 1, 7, running))
        running *= max(shape[dim], 1)
    return tuple(strides)


def draw_strided(rng: random.Random) -> tuple[Ints, Ints, int]:
    shape = draw_shape(rng, 4)
    stride = tuple(rng.choice((0, 1, 1, 2, 3, 4, 6, 12, 20)) for _ in shape)
    if rng.random() < 0.5:
        stride = draw_dense_stride(rng, shape)
    if stride and rng.random() < 0.02:
        stride = (-1, *stride[1:])
    return shape, stride, rng.choice((0, 1, 2, 4, 8, 24, 1000, 6000))
