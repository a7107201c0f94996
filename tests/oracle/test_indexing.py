"""Indexing, against torch: rules 6, 14 and 15 by example, then random indices read and assigned.

A failure names the seed of its index; SHMTENSOR_SEED=<it> SHMTENSOR_PROGRAMS=1 runs that one alone.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from shmtensor.indexing import Advanced, plan
from shmtensor.layout import Layout

FIRST_SEED = int(os.environ.get("SHMTENSOR_SEED", "140260"))
PROGRAM_COUNT = int(os.environ.get("SHMTENSOR_PROGRAMS", "4000"))
ELEMENT_COUNT = 1300
CUBE = Layout((2, 3, 4), (12, 4, 1), 5)

Array = np.ndarray[Any, Any]


class ScalarTensor:
    """A 0-d tensor of some other library: all it shows is ``__array__``."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Array:
        return np.asarray(self.value)


def array_of(layout: Layout, storage: Array) -> Array:
    step = storage.itemsize
    return as_strided(storage[layout.offset :], layout.shape, tuple(s * step for s in layout.stride))


def read(layout: Layout, index: object) -> Array:
    """The elements that an index picks of a layout over 0, 1, 2, ..."""
    planned = plan(layout, index)
    storage = np.arange(ELEMENT_COUNT)
    if isinstance(planned, Advanced):
        return array_of(planned.layout, storage)[planned.index]
    return array_of(planned, storage)


# Rule 14: view or copy.


@pytest.mark.parametrize(
    ("index", "shape", "stride", "offset"),
    [
        (1, (3, 4), (4, 1), 17),
        (-1, (3, 4), (4, 1), 17),
        (slice(1, None), (1, 3, 4), (12, 4, 1), 17),
        (None, (1, 2, 3, 4), (24, 12, 4, 1), 5),
        (Ellipsis, (2, 3, 4), (12, 4, 1), 5),
        ((), (2, 3, 4), (12, 4, 1), 5),
        ((Ellipsis, None), (2, 3, 4, 1), (12, 4, 1, 1), 5),
        ((Ellipsis, 2), (2, 3), (12, 4), 7),
        ((slice(None), slice(None, None, 2)), (2, 2, 4), (12, 8, 1), 5),
        ((1, Ellipsis, slice(1, 3)), (3, 2), (4, 1), 18),
        ((0, None, 1), (1, 4), (12, 1), 9),
    ],
)
def test_ints_slices_none_and_ellipsis_make_a_view(index: Any, shape: Any, stride: Any, offset: int) -> None:
    assert plan(CUBE, index) == Layout(shape, stride, offset)


def test_a_full_index_is_a_0d_view() -> None:
    assert plan(CUBE, (1, 2, 3)) == Layout((), (), 5 + 12 + 8 + 3)


@pytest.mark.parametrize("one", [np.int64(1), np.uint8(1), np.array(1), ScalarTensor(np.array(1, np.int16))])
def test_numpy_integers_and_0d_integer_tensors_make_a_view(one: Any) -> None:
    assert plan(CUBE, one) == plan(CUBE, 1)
    assert plan(CUBE, (slice(None), one)) == plan(CUBE, (slice(None), 1))


@pytest.mark.parametrize(
    "index",
    [
        True,
        False,
        np.True_,
        ScalarTensor(True),
        [0],
        [],
        [True, False],
        np.array([0]),
        np.zeros((2, 3), bool),
        range(2),
    ],
)
def test_bools_masks_lists_and_arrays_make_a_copy_also_beside_ints_and_slices(index: Any) -> None:
    assert isinstance(plan(CUBE, index), Advanced)
    assert isinstance(plan(CUBE, (index, Ellipsis)), Advanced)
    assert isinstance(plan(CUBE, (None, index, Ellipsis, slice(1, 2))), Advanced)


def test_an_int_beside_a_list_is_applied_first_so_that_the_dim_of_the_list_stays_in_its_place() -> None:
    assert read(CUBE, (0, slice(None), [1, 2])).shape == (3, 2)
    assert np.arange(24).reshape(2, 3, 4)[0, :, [1, 2]].shape == (2, 3)  # NumPy's surprise, not ours


def test_true_and_false_pick_one_or_none_of_a_new_dim() -> None:
    assert read(CUBE, True).shape == (1, 2, 3, 4)
    assert read(CUBE, False).shape == (0, 2, 3, 4)
    assert read(CUBE, (slice(None), True)).shape == (2, 1, 3, 4)


def test_a_list_of_lists_is_one_array() -> None:
    assert read(CUBE, [[0, 1], [1, 0]]).shape == (2, 2, 3, 4)


def test_a_list_of_0d_tensors_is_a_list_of_their_values() -> None:
    assert np.array_equal(read(CUBE, [np.array(1), np.int8(0)]), read(CUBE, [1, 0]))


@pytest.mark.parametrize("sizes", [(0,), (1,), (3,), (2, 2), (2, 0), (0, 3)])
def test_a_mask_of_other_sizes_is_an_index_error_even_when_it_has_none(sizes: Any) -> None:
    with pytest.raises(IndexError, match=r"mask of shape .* doesn't fit"):
        plan(CUBE, np.zeros(sizes, bool))


@pytest.mark.parametrize("index", [2, -3, (0, 3), (0, 0, -5)])
def test_an_int_out_of_range_is_an_index_error_that_names_dim_and_size(index: Any) -> None:
    with pytest.raises(IndexError, match=r"out of range for dim \d with size \d"):
        plan(CUBE, index)


@pytest.mark.parametrize(
    "index",
    [(0, 0, 0, 0), (Ellipsis, 0, 0, 0, 0), (np.zeros((2, 3), bool), 0, 0), np.zeros((1, 1, 1, 1), bool)],
)
def test_too_many_indices_are_an_index_error(index: Any) -> None:
    with pytest.raises(IndexError, match="too many indices"):
        plan(CUBE, index)


def test_a_second_ellipsis_is_an_index_error() -> None:
    with pytest.raises(IndexError, match="one Ellipsis"):
        plan(CUBE, (Ellipsis, 0, Ellipsis))


@pytest.mark.parametrize(
    "index",
    [
        1.0,
        "a",
        [1.5],
        np.array([1.0]),
        np.float32(1),
        [[0], [0, 1]],
        {0: 1},
        [None],
        1j,
        np.timedelta64(1, "s"),
    ],
)
def test_what_is_no_index_is_an_index_error_that_names_it(index: Any) -> None:
    with pytest.raises(IndexError, match="can't have a"):
        plan(CUBE, index)
    with pytest.raises(IndexError, match="can't have a"):
        plan(CUBE, (0, index))


@pytest.mark.parametrize("index", [0, slice(None), [0], (Ellipsis, 0)])
def test_a_0d_tensor_can_only_be_indexed_by_none_ellipsis_and_bools(index: Any) -> None:
    with pytest.raises(IndexError):
        plan(Layout((), (), 7), index)
    assert plan(Layout((), (), 7), ...) == Layout((), (), 7)
    assert plan(Layout((), (), 7), None) == Layout((1,), (1,), 7)
    assert read(Layout((), (), 7), True).tolist() == [7]


# Rules 6 and 15: slices.


@pytest.mark.parametrize("step", [0, -1, -3])
@pytest.mark.parametrize("put", [lambda s: s, lambda s: (0, s), lambda s: ([0], s), lambda s: (..., s)])
def test_a_step_below_one_is_a_value_error_everywhere(step: int, put: Callable[[slice], Any]) -> None:
    with pytest.raises(ValueError, match="step"):
        plan(CUBE, put(slice(None, None, step)))


def test_slice_bounds_clamp_and_the_offset_moves_even_when_nothing_is_left() -> None:
    row = Layout((10,), (3,), 2)
    assert plan(row, slice(-100, 100)) == row
    assert plan(row, slice(4, 2)) == Layout((0,), (3,), 14)
    assert plan(row, slice(100, None)) == Layout((0,), (3,), 32)
    assert plan(row, slice(1, None, 4)) == Layout((3,), (12,), 5)


# Random indices.


def draw_layout(rng: random.Random) -> Layout:
    """A layout that does not overlap itself, so that assignment is defined."""
    shape = tuple(rng.choice((0, 1, 2, 3, 3, 4, 5)) if rng.random() < 0.9 else 2 for _ in range(rng.randint(0, 4)))
    stride, running = [0] * len(shape), rng.choice((1, 1, 2))
    for dim in rng.sample(range(len(shape)), len(shape)):
        stride[dim] = running
        running *= max(shape[dim], 1)
    return Layout(shape, tuple(stride), rng.choice((0, 3)))


def draw_index(rng: random.Random, shape: tuple[int, ...]) -> Any:
    parts: list[Any] = []
    dim = 0
    picks = [rng.choice((1, 2, 3)), 1]  # sizes that arrays of one index share, so that most of them broadcast
    while dim < len(shape) + (rng.random() < 0.02) and rng.random() < 0.85:
        size = shape[dim] if dim < len(shape) else 1
        kind = rng.choice(("int", "int", "slice", "slice", "none", "bool", "list", "array", "mask", "0d", "dots"))
        part = draw_part(rng, kind, shape[dim:], size, picks)
        if part is Ellipsis and Ellipsis in [p for p in parts if p is Ellipsis]:
            continue
        parts.append(part)
        if kind == "mask":
            dim += part.ndim
        elif kind not in ("none", "bool"):
            dim += 1 if kind != "dots" else rng.randint(0, 2)
    return tuple(parts) if len(parts) != 1 or rng.random() < 0.5 else parts[0]


def draw_part(rng: random.Random, kind: str, rest: tuple[int, ...], size: int, picks: list[int]) -> Any:
    def place() -> int:
        off = rng.random() < 0.01
        return rng.randrange(-size - off, size + off) if size + off else 0

    bounds = (None, *range(-size - 1, size + 2))
    if kind == "list":
        return [place() for _ in range(rng.choice((*picks, *picks, 0)))] if size else []
    if kind == "array":
        shape = tuple(rng.choice(picks) for _ in range(rng.randint(1, 2)))
        return np.array([place() for _ in range(int(np.prod(shape)))], np.int64).reshape(shape)
    if kind == "mask":
        shape = rest[: rng.randint(1, 2)] or (1,)
        shape = tuple(n + (rng.random() < 0.01) for n in shape)
        return np.array([rng.random() < 0.4 for _ in range(int(np.prod(shape)))], bool).reshape(shape)
    simple: dict[str, Callable[[], Any]] = {
        "int": place,
        "0d": lambda: np.array(place()),
        "slice": lambda: slice(rng.choice(bounds), rng.choice(bounds), rng.choice((None, 1, 2, 3))),
        "none": lambda: None,
        "bool": lambda: rng.random() < 0.7,
        "dots": lambda: Ellipsis,
    }
    return simple[kind]()


def in_torch(torch: Any, index: Any) -> Any:
    """The same index with torch tensors for arrays."""
    if isinstance(index, tuple):
        return tuple(in_torch(torch, part) for part in index)
    return torch.from_numpy(index) if isinstance(index, np.ndarray) else index


def outcome(act: Callable[[], Any]) -> Any:
    """What an index gives, or the exception it is refused with."""
    try:
        return act()
    except (IndexError, ValueError, RuntimeError) as error:
        return error


def assign(layout: Layout, index: Any) -> Array:
    """A storage of 0, 1, 2, ... after -1 was assigned to an index of a layout over it."""
    storage = np.arange(ELEMENT_COUNT)
    planned = plan(layout, index)
    if isinstance(planned, Advanced):
        array_of(planned.layout, storage)[planned.index] = -1
    else:
        array_of(planned, storage)[...] = -1
    return storage


def compare(torch: Any, layout: Layout, index: Any) -> None:
    storage = torch.arange(ELEMENT_COUNT)
    t = storage.as_strided(layout.shape, layout.stride, layout.offset)
    their_index = in_torch(torch, index)
    theirs, ours = outcome(lambda: t[their_index]), outcome(lambda: read(layout, index))
    if isinstance(theirs, Exception) or isinstance(ours, Exception):
        # torch does not look at the values of an index whose result is empty; NumPy does.
        is_refused = isinstance(theirs, Exception) or theirs.numel() == 0
        assert is_refused, f"{theirs!r} but {ours!r}"
        assert isinstance(ours, IndexError), f"{theirs!r} but {ours!r}"
        return
    assert ours.shape == tuple(theirs.shape)
    assert np.array_equal(ours, theirs.numpy())
    planned = plan(layout, index)
    is_view = theirs.untyped_storage().data_ptr() == storage.untyped_storage().data_ptr()
    if isinstance(planned, Layout):
        assert is_view
        assert (planned.stride, planned.offset) == (theirs.stride(), theirs.storage_offset())
    t[their_index] = -1
    assert np.array_equal(assign(layout, index), storage.numpy())


def test_random_indices_read_and_assign_what_they_do_in_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is the oracle here, and comes with the extra 'torch'")
    for seed in range(FIRST_SEED, FIRST_SEED + PROGRAM_COUNT):
        rng = random.Random(seed)
        layout = draw_layout(rng)
        index = draw_index(rng, layout.shape)
        try:
            compare(torch, layout, index)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {layout} indexed by {index!r}: {error}") from None
