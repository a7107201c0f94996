"""Random programs of view operations, run side by side on NumPy arrays and on layouts.

NumPy is free to choose the stride of a dim of size 1, so what must agree is which bytes the elements are, in
which shape, and whether the step is possible. A failure names the program's seed; SHMTENSOR_SEED=<it>
SHMTENSOR_PROGRAMS=1 runs that program alone.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from oracle.drawing import draw_dense_stride

from shmtensor import views
from shmtensor.errors import LayoutError
from shmtensor.layout import Layout

FIRST_SEED = int(os.environ.get("SHMTENSOR_SEED", "70260"))
PROGRAM_COUNT = int(os.environ.get("SHMTENSOR_PROGRAMS", "3000"))
STORAGE = np.zeros(1 << 14, np.uint8)
MOST_ELEMENTS = 20_000

Ints = tuple[int, ...]
Array = np.ndarray[Any, Any]
Step = tuple[str, Callable[[Array], Any], Callable[[Layout], Any]]


def addresses(shape: Ints, byte_strides: Ints, start: int) -> Array:
    """The byte at which each element starts, counted from the start of the storage."""
    found = np.full(shape, start, np.int64)
    for dim, (size, step) in enumerate(zip(shape, byte_strides, strict=True)):
        found += (np.arange(size) * step).reshape(-1, *[1] * (len(shape) - dim - 1))
    return found


def numpy_addresses(array: Array) -> Array:
    start = array.__array_interface__["data"][0] - STORAGE.__array_interface__["data"][0]
    return addresses(array.shape, array.strides, start)


def layout_addresses(layout: Layout, itemsize: int) -> Array:
    return addresses(layout.shape, tuple(s * itemsize for s in layout.stride), layout.offset * itemsize)


def draw_start(rng: random.Random) -> tuple[Array, Layout]:
    shape = tuple(rng.choice((0, 1, 1, 2, 2, 3, 4, 6)) for _ in range(rng.randint(0, 4)))
    stride = tuple(rng.choice((0, 1, 1, 2, 3, 4, 6, 12, 24)) for _ in shape)
    if rng.random() < 0.5:
        stride = draw_dense_stride(rng, shape)
    offset = rng.choice((0, 1, 2, 8))
    elements = STORAGE.view(rng.choice((np.uint8, np.int16, np.float32, np.complex64, np.complex128)))
    itemsize = elements.itemsize
    array = as_strided(elements[offset:], shape, tuple(s * itemsize for s in stride))
    return array, Layout(shape, stride, offset)


def draw_new_shape(rng: random.Random, shape: Ints) -> Ints:
    sizes = list(shape)
    for _ in range(rng.randint(0, 3)):
        at = rng.randrange(len(sizes) + 1)
        act = rng.choice(("split", "merge", "one"))
        if act == "one":
            sizes.insert(at, 1)
        elif act == "split" and at < len(sizes) and sizes[at]:
            factor = rng.choice([f for f in range(1, sizes[at] + 1) if sizes[at] % f == 0])
            sizes[at : at + 1] = [factor, sizes[at] // factor]
        elif act == "merge" and at + 1 < len(sizes):
            sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
    if sizes and rng.random() < 0.1:
        sizes[rng.randrange(len(sizes))] = rng.choice((-1, 5))
    return tuple(sizes)


def draw_step(rng: random.Random, array: Array) -> Step:
    """One step for an array of this shape; dims and sizes are wrong now and then."""
    shape, ndim = array.shape, array.ndim
    name = rng.choice(STEP_NAMES if ndim else ("view", "unsqueeze", "expand", "select", "dtype"))
    if name == "view":
        new = draw_new_shape(rng, shape)
        return f"view{new}", lambda a: np.reshape(a, new, copy=False), lambda x: views.view(x, new)
    if name == "expand":
        new = (*[rng.choice((1, 2)) for _ in range(rng.randint(0, 2))], *[n if n != 1 else 3 for n in shape])
        return f"expand{new}", lambda a: np.broadcast_to(a, new), lambda x: views.expand(x, new)
    if name == "permute":
        dims = rng.sample(range(ndim), ndim)
        return f"permute{dims}", lambda a: a.transpose(dims), lambda x: views.permute(x, dims)
    if name == "movedim":
        count = rng.randint(0, ndim)
        pair = (tuple(rng.sample(range(ndim), count)), tuple(rng.sample(range(ndim), count)))
        return f"movedim{pair}", lambda a: np.moveaxis(a, *pair), lambda x: views.movedim(x, *pair)
    if name == "dtype":
        new_dtype = np.dtype(rng.choice((np.uint8, np.int16, np.float32, np.complex64, np.complex128)))
        sizes = (array.itemsize, new_dtype.itemsize)
        return f"dtype {new_dtype}", lambda a: a.view(new_dtype), lambda x: views.view_dtype(x, *sizes)
    return draw_dim_step(rng, name, shape)


def draw_dim_step(rng: random.Random, name: str, shape: Ints) -> Step:
    reach = len(shape) + (rng.random() < 0.05)
    dim, other = rng.randrange(-reach, max(reach, 1)), rng.randrange(-reach, max(reach, 1))
    size = shape[dim] if -len(shape) <= dim < len(shape) else 1
    a, b = rng.randint(-size - 1, size + 1), rng.randint(-size - 1, size + 1)
    count, step = rng.randint(1, 4), rng.choice((None, 1, 2, 3))
    cut = slice(rng.choice((None, a)), rng.choice((None, b)), step)
    steps: dict[str, Step] = {
        "unsqueeze": ("unsqueeze", lambda x: np.expand_dims(x, dim), lambda x: views.unsqueeze(x, dim)),
        "transpose": (
            "transpose",
            lambda x: x.swapaxes(dim, other),
            lambda x: views.transpose(x, dim, other),
        ),
        "select": ("select", lambda x: np.moveaxis(x, dim, 0)[a, ...], lambda x: views.select(x, dim, a)),
        "slice": (
            f"slice {cut}",
            lambda x: np.moveaxis(np.moveaxis(x, dim, 0)[cut], 0, dim),
            lambda x: views.slice_dim(x, dim, cut),
        ),
        "diagonal": (
            "diagonal",
            lambda x: x.diagonal(a, dim, other),
            lambda x: views.diagonal(x, a, dim, other),
        ),
        "unfold": (
            "unfold",
            lambda x: every(sliding_window_view(x, count, dim), dim if dim >= 0 else dim - 1, step or 1),
            lambda x: views.unfold(x, dim, count, step or 1),
        ),
        "tensor_split": (
            "tensor_split",
            lambda x: np.array_split(x, count, dim),
            lambda x: views.tensor_split(x, count, dim),
        ),
        "split_at": (
            "split_at",
            lambda x: np.array_split(x, [a, b], dim),
            lambda x: views.tensor_split(x, [a, b], dim),
        ),
    }
    said, on_numpy, on_layout = steps[name]
    return f"{said} {dim} {other} {a} {b} {count} {step}", on_numpy, on_layout


def every(array: Array, dim: int, step: int) -> Array:
    """Every ``step``-th index of ``dim``."""
    return np.moveaxis(np.moveaxis(array, dim, 0)[::step], 0, dim)


STEP_NAMES = (
    *(
        "view",
        "view",
        "expand",
        "permute",
        "movedim",
        "dtype",
        "unsqueeze",
        "transpose",
        "select",
        "slice",
        "slice",
    ),
    *("diagonal", "unfold", "tensor_split", "split_at"),
)


def outcome(act: Callable[[], Any]) -> Any:
    """What a step gives, or the exception it refuses with."""
    try:
        return act()
    except (IndexError, ValueError, LayoutError) as error:  # NumPy's AxisError is both of the first two
        return error


def known_to_differ(said: str, array: Array) -> bool:
    """NumPy views as another dtype what torch refuses: unaligned elements, and dims of size 1 of any stride."""
    if not said.startswith("dtype"):
        return False
    start = array.__array_interface__["data"][0] - STORAGE.__array_interface__["data"][0]
    is_aligned = all(number % 16 == 0 for number in (start, *array.strides[:-1]))
    return array.ndim == 0 or array.size == 0 or 1 in array.shape or not is_aligned


def run_program(seed: int) -> None:
    rng = random.Random(seed)
    array, layout = draw_start(rng)
    trace = [f"{layout} of {array.dtype}"]
    try:
        for _ in range(rng.randint(1, 8)):
            said, on_numpy, on_layout = draw_step(rng, array)
            if known_to_differ(said, array):
                continue
            trace.append(said)
            theirs, ours = (
                outcome(lambda f=on_numpy, x=array: f(x)),
                outcome(lambda f=on_layout, x=layout: f(x)),
            )
            assert isinstance(theirs, Exception) == isinstance(ours, Exception), f"{theirs!r} but {ours!r}"
            if isinstance(theirs, Exception):
                continue
            for one, other in zip(*((x if isinstance(x, (list, tuple)) else [x]) for x in (theirs, ours)), strict=True):
                assert other.shape == one.shape
                if one.size <= MOST_ELEMENTS:
                    assert np.array_equal(layout_addresses(other, one.itemsize), numpy_addresses(one))
            if one.size <= MOST_ELEMENTS and one.ndim < 12:
                array, layout = one, other
    except Exception as error:
        raise AssertionError(f"seed {seed}: {' -> '.join(trace)}: {error}") from None


def test_programs_of_view_operations_name_the_elements_that_numpy_names() -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + PROGRAM_COUNT):
        run_program(seed)
