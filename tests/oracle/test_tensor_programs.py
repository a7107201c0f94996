"""Random programs of views, copies, indexing and writing, run on our tensors, on torch's and on NumPy's arrays.

After every step all must agree: on the outcome or the kind of error, on shape, dtype, values and sharing, on
every byte of the storage; and with torch on strides, offset and contiguity too. Where we differ on purpose,
the step names the rule of the tensor semantics.

A failure names the program's seed; SHMTENSOR_SEED=<it> SHMTENSOR_PROGRAMS=1 runs that program alone, and a
larger SHMTENSOR_PROGRAMS runs more of them.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from oracle.copy_steps import draw_clone, draw_contiguous, draw_picking, draw_to
from oracle.drawing import draw_shape, draw_strided
from oracle.index_steps import draw_getitem
from oracle.sides import MOST_ELEMENTS, Sides, Step, check_equal, check_refusals, follow, place_of
from oracle.steps import DTYPES, order_of
from oracle.view_steps import (
    draw_alias,
    draw_as_other,
    draw_as_strided,
    draw_atleast,
    draw_diagonal,
    draw_even_pieces,
    draw_expand,
    draw_flatten,
    draw_in_place,
    draw_movedim,
    draw_narrow,
    draw_part,
    draw_permute,
    draw_pieces_step,
    draw_ravel,
    draw_reshape,
    draw_resize,
    draw_reversed,
    draw_select,
    draw_set,
    draw_squeeze,
    draw_together,
    draw_transpose,
    draw_unflatten,
    draw_unfold,
    draw_unsqueeze,
    draw_view,
    draw_view_as_complex,
    draw_view_as_real,
    draw_view_dtype,
)
from oracle.write_steps import (
    draw_copy,
    draw_fill,
    draw_index_write,
    draw_masked_fill,
    draw_overlapping_copy,
    draw_overlapping_pick,
    draw_own_mask,
    draw_setitem,
)

FIRST_SEED = int(os.environ.get("SHMTENSOR_SEED", "120260"))
PROGRAM_COUNT = int(os.environ.get("SHMTENSOR_PROGRAMS", "1500"))
STORAGE_BYTES = 1 << 12

Draw = Callable[[random.Random, Sides], Step]

# How often each is drawn.
STEPS: dict[Draw, int] = {
    draw_view: 6,
    draw_reshape: 4,
    draw_flatten: 2,
    draw_ravel: 1,
    draw_unflatten: 2,
    draw_as_other: 2,
    draw_view_dtype: 4,
    draw_view_as_real: 1,
    draw_view_as_complex: 1,
    draw_part: 1,
    draw_contiguous: 3,
    draw_clone: 2,
    draw_to: 3,
    draw_picking: 2,
    draw_permute: 4,
    draw_transpose: 3,
    draw_movedim: 2,
    draw_reversed: 2,
    draw_expand: 5,
    draw_squeeze: 2,
    draw_unsqueeze: 2,
    draw_atleast: 1,
    draw_alias: 1,
    draw_together: 1,
    draw_narrow: 2,
    draw_select: 2,
    draw_unfold: 2,
    draw_diagonal: 2,
    draw_pieces_step: 3,
    draw_even_pieces: 1,
    draw_as_strided: 3,
    draw_set: 2,
    draw_resize: 2,
    draw_in_place: 2,
    draw_getitem: 8,
    draw_fill: 2,
    draw_copy: 3,
    draw_overlapping_copy: 3,
    draw_overlapping_pick: 2,
    draw_own_mask: 1,
    draw_setitem: 6,
    draw_masked_fill: 1,
    draw_index_write: 1,
}


def draw_start(rng: random.Random, torch: Any) -> Sides:
    """A whole tensor, in some memory format, or any layout that fits, over bytes that are equal on all sides."""
    dtype = np.dtype(rng.choice(DTYPES))
    count = STORAGE_BYTES // dtype.itemsize
    numbers = np.arange(count) % (2 if dtype.kind == "b" else 101)
    content = numbers.astype(dtype).view(np.uint8)
    shape, stride, offset = draw_strided(rng)
    if rng.random() < 0.4:
        shape, offset = draw_shape(rng), 0
        outer = np.empty(
            [shape[dim] for dim in order_of({4: "channels_last"}.get(len(shape), ""), len(shape))], np.int8
        )
        outer = (
            outer.transpose(np.argsort(order_of({4: "channels_last"}.get(len(shape), ""), len(shape))))
            if shape
            else outer
        )
        stride = outer.strides
    reach = 0 if 0 in shape else offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    if reach > count or min(stride, default=0) < 0 or math.prod(shape) > MOST_ELEMENTS:
        shape, stride, offset = (count,), (1,), 0
    return Sides.start(torch, content, dtype.name, shape, stride, offset)


def run_step(sides: Sides, step: Step, rng: random.Random) -> Sides | None:
    """The sides after a step that all agree on; None when the program must end."""
    step.is_0d = sides.array.ndim == 0
    ours, theirs, array = sides.take(step)
    others = {"numpy": array} if sides.torch is None else {"numpy": array, "torch": theirs}
    if check_refusals(step, ours, others):
        sides.check_storages()
        return sides
    if isinstance(ours, tuple):
        answers = [each for each in (ours, theirs, array) if each is not None]
        assert len({len(each) for each in answers}) == 1, f"so many pieces: {[len(each) for each in answers]}"
        pieces = list(zip(*[each or [None] * len(ours) for each in (ours, theirs, array)], strict=True))
        for piece in pieces:
            check_equal(sides, *piece)
        if not pieces:
            return sides
        ours, theirs, array = rng.choice(pieces)
    else:
        check_equal(sides, ours, theirs, array)
    after = follow(sides, ours, theirs, array)
    if ours is not sides.ours:
        sides.check_storages()
    if after is not None:
        after.check_storages()
    return after


def run_program(seed: int, torch: Any) -> None:
    rng = random.Random(seed)
    sides: Sides | None = draw_start(rng, torch)
    array = sides.array
    trace = [f"{array.shape} of {array.dtype} with byte strides {array.strides} from {place_of(array)}"]
    draws = list(STEPS)
    try:
        for _ in range(rng.randint(1, 10)):
            step = rng.choices(draws, list(STEPS.values()))[0](rng, sides)
            trace.append(step.said)
            sides = run_step(sides, step, rng)
            if sides is None:
                return
    except Exception as error:
        raise AssertionError(f"seed {seed}: {' -> '.join(trace)}: {error or type(error)}") from error


def test_programs_give_the_tensors_that_numpy_and_torch_give() -> None:
    torch = pytest.importorskip("torch", reason="torch is the second oracle here, and comes with the extra 'torch'")
    for seed in range(FIRST_SEED, FIRST_SEED + PROGRAM_COUNT):
        run_program(seed, torch)


def test_programs_give_the_tensors_that_numpy_gives() -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + PROGRAM_COUNT):
        run_program(seed, None)
