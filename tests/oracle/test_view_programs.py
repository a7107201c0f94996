"""Random programs of view operations, run side by side on torch tensors and on layouts.

After every step both must agree on shape, strides and offset, and on whether the step is possible at all.
A failure names the program's seed; SHMTENSOR_SEED=<it> SHMTENSOR_PROGRAMS=1 runs that program alone, and a
larger SHMTENSOR_PROGRAMS runs more of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from oracle.drawing import (
    Ints,
    draw_dim,
    draw_expanded,
    draw_moves,
    draw_permutation,
    draw_pieces,
    draw_shape,
    draw_slice,
    draw_squeezed,
    draw_strided,
    draw_view_shape,
    size_at,
)

from shmtensor import views
from shmtensor.errors import LayoutError, StorageBoundsError
from shmtensor.layout import Layout, MemoryFormat, check_within, dim_order, preserved, stride_for

FIRST_SEED = int(os.environ.get("SHMTENSOR_SEED", "20260"))
PROGRAM_COUNT = int(os.environ.get("SHMTENSOR_PROGRAMS", "2500"))
STORAGE_BYTES = 1 << 14
REFUSED = (IndexError, LayoutError, StorageBoundsError, ValueError)


# Programs against torch: shape, strides and offset.

Step = tuple[str, Callable[[Any], Any], Callable[[Layout], Any]]


def same_call(name: str, *args: Any) -> Step:
    """A step whose name and arguments are the same on both sides."""
    return (
        f"{name}{args}",
        lambda t: getattr(t, name)(*args),
        lambda layout: getattr(views, name)(layout, *args),
    )


def draw_step(rng: random.Random, t: Any, torch: Any) -> Step:
    """One step for a torch tensor of this shape."""
    shape = tuple(t.shape)
    dim = draw_dim(rng, shape)
    size = size_at(shape, dim)
    name = rng.choice(STEP_NAMES)
    if name in ("select", "unbind", "unsqueeze", "transpose", "unfold", "diagonal", "tensor_split", "chunk"):
        return same_call(name, *draw_plain_arguments(rng, name, shape, dim, size))
    if name == "view":
        new = draw_view_shape(rng, shape)
        return f"view{new}", lambda t: t.view(new), lambda layout: view_or_refuse(layout, new)
    if name == "flatten":
        first, last = dim, draw_dim(rng, shape)
        return (
            f"flatten({first}, {last})",
            lambda t: viewed(t, t.flatten(first, last)),
            lambda layout: views.try_flatten(layout, first, last),
        )
    if name == "slice":
        cut = draw_slice(rng, size)
        return (
            f"slice({dim}, {cut})",
            lambda t: torch.ops.aten.slice(t, dim, cut.start, cut.stop, cut.step or 1),
            lambda layout: views.slice_dim(layout, dim, cut),
        )
    if name == "as_strided":
        args = draw_strided(rng)
        itemsize = t.element_size()
        return f"as_strided{args}", lambda t: t.as_strided(*args), lambda x: strided_within(x, args, itemsize)
    if name == "dtype":
        return draw_dtype_step(rng, t, torch)
    draw = {
        "expand": lambda: (draw_expanded(rng, shape),),
        "permute": lambda: (draw_permutation(rng, shape),),
        "movedim": lambda: draw_moves(rng, shape),
        "squeeze": lambda: () if rng.random() < 0.3 else (draw_squeezed(rng, shape),),
        "narrow": lambda: (dim, rng.randint(-size - 1, size + 1), rng.randint(0, size)),
        "unflatten": lambda: (dim, draw_view_shape(rng, (size,))),
        "split": lambda: (draw_pieces(rng, size), dim),
    }[name]
    return same_call(name, *draw())


STEP_NAMES = (
    *(
        "view",
        "view",
        "view",
        "expand",
        "expand",
        "permute",
        "permute",
        "transpose",
        "movedim",
        "squeeze",
        "unsqueeze",
    ),
    *(
        "select",
        "slice",
        "slice",
        "narrow",
        "diagonal",
        "unfold",
        "flatten",
        "unflatten",
        "as_strided",
        "dtype",
    ),
    *("unbind", "split", "chunk", "tensor_split"),
)


def draw_plain_arguments(rng: random.Random, name: str, shape: Ints, dim: int, size: int) -> tuple[Any, ...]:
    if name == "select":
        return dim, rng.randrange(-size - 1, size + 1)
    if name == "transpose":
        return dim, draw_dim(rng, shape)
    if name == "unfold":
        return dim, rng.randint(0, size + (rng.random() < 0.1)), rng.randint(rng.random() > 0.05, 3)
    if name == "diagonal":
        return rng.randint(-3, 3), dim, draw_dim(rng, shape)
    if name == "tensor_split":
        cuts = [rng.randint(-size - 1, size + 1) for _ in range(rng.randint(0, 3))]
        return rng.choice((rng.randint(0, size + 2), cuts)), dim
    if name == "chunk":
        return rng.randint(0, size + 2), dim
    return (rng.randint(-len(shape) - 1, len(shape)),) if name == "unsqueeze" else (dim,)


def draw_dtype_step(rng: random.Random, t: Any, torch: Any) -> Step:
    if t.is_complex() and rng.random() < 0.6:
        return "view_as_real()", torch.view_as_real, views.view_as_real
    if t.is_floating_point() and t.element_size() > 2 and rng.random() < 0.5:
        return "view_as_complex()", torch.view_as_complex, views.view_as_complex
    new = rng.choice((torch.uint8, torch.int16, torch.float32, torch.float64, torch.complex64, torch.complex128))
    return (
        f"view({new})",
        lambda t: t.view(new),
        lambda layout: views.view_dtype(layout, t.element_size(), new.itemsize),
    )


def view_or_refuse(layout: Layout, shape: Ints) -> Layout:
    """`try_view`, and when it declines, the explanation."""
    found = views.try_view(layout, shape)
    if found is None:
        raise views.explain_view_failure(layout, shape)
    return found


def viewed(base: Any, result: Any) -> Any:
    """The result where it is a view of ``base``, None where it is a copy."""
    return result if result.untyped_storage().data_ptr() == base.untyped_storage().data_ptr() else None


def strided_within(layout: Layout, args: tuple[Ints, Ints, int], itemsize: int) -> Layout:
    found = views.as_strided(layout, *args)
    check_within(found, itemsize, STORAGE_BYTES)
    return found


def outcome(act: Callable[[], Any], refusals: tuple[type[Exception], ...]) -> Any:
    """What a step gives, or the exception it refuses with."""
    try:
        return act()
    except refusals as error:
        return error


def torch_triples(found: Any) -> Any:
    if isinstance(found, (tuple, list)):
        return [torch_triples(each) for each in found]
    return found if found is None else (tuple(found.shape), found.stride(), found.storage_offset())


def layout_triples(found: Any) -> Any:
    if isinstance(found, tuple):
        return [layout_triples(each) for each in found]
    return found if found is None else (found.shape, found.stride, found.offset)


def start_pair(rng: random.Random, torch: Any) -> tuple[Any, Layout]:
    """A torch tensor, and its layout as torch states it."""
    storage = torch.zeros(STORAGE_BYTES, dtype=torch.uint8)
    elements = storage.view(rng.choice((torch.uint8, torch.float32, torch.float32, torch.float64, torch.complex64)))
    kind = rng.choice(("contiguous", "channels_last", "strided", "strided"))
    shape = draw_shape(rng) if kind != "channels_last" else tuple(rng.choice((1, 2, 3, 4)) for _ in range(4))
    if kind == "strided":
        found = outcome(lambda: elements.as_strided(*draw_strided(rng)), (RuntimeError,))
        t = elements if isinstance(found, Exception) else found
    else:
        count = int(np.prod(shape))
        t = elements[:count].view(shape) if count <= len(elements) else elements
        if kind == "channels_last":
            n, c, h, w = shape
            t = elements[:count].view(n, h, w, c).permute(0, 3, 1, 2)
    return t, Layout(tuple(t.shape), t.stride(), t.storage_offset())


def check_properties(t: Any, layout: Layout, torch: Any) -> None:
    """What torch says about the tensor as it is; empty_like on the meta device needs no memory."""
    for name in ("contiguous_format", "channels_last", "channels_last_3d", "preserve_format"):
        theirs = t.is_contiguous(memory_format=getattr(torch, name))
        assert layout.is_contiguous(MemoryFormat[name]) == theirs, f"is_contiguous({name})"
    assert layout.is_dense() == torch.ops.aten.is_non_overlapping_and_dense(t), "is_dense"
    assert preserved(layout) == torch.empty_like(t, device="meta").stride(), "preserved"
    assert dim_order(layout) == t.dim_order(), "dim_order"
    assert (layout.ndim, layout.numel) == (t.ndim, t.numel())
    name = {4: "channels_last", 5: "channels_last_3d"}.get(t.ndim, "contiguous_format")
    made = torch.empty(t.shape, memory_format=getattr(torch, name), device="meta")
    assert stride_for(layout.shape, MemoryFormat[name]) == made.stride(), f"stride_for({name})"


def run_torch_program(seed: int, torch: Any) -> None:
    rng = random.Random(seed)
    t, layout = start_pair(rng, torch)
    trace = [f"{layout} of {t.dtype}"]
    try:
        for _ in range(rng.randint(1, 8)):
            said, on_torch, on_layout = draw_step(rng, t, torch)
            trace.append(said)
            theirs = outcome(lambda act=on_torch, x=t: act(x), (RuntimeError, IndexError, ValueError))
            ours = outcome(lambda act=on_layout, x=layout: act(x), REFUSED)
            assert isinstance(theirs, Exception) == isinstance(ours, Exception), f"{theirs!r} but {ours!r}"
            if isinstance(theirs, Exception):
                continue
            assert layout_triples(ours) == torch_triples(theirs)
            if isinstance(theirs, (tuple, list)):
                at = rng.randrange(len(theirs)) if theirs else None
                theirs, ours = (t, layout) if at is None else (theirs[at], ours[at])
            if theirs is None or theirs.ndim > 8 or theirs.numel() > 1_000_000:
                continue
            t, layout = theirs, ours
        check_properties(t, layout, torch)
    except Exception as error:
        raise AssertionError(f"seed {seed}: {' -> '.join(trace)}: {error}") from None


def test_programs_of_view_operations_give_the_layouts_that_torch_gives() -> None:
    torch = pytest.importorskip("torch", reason="torch is the oracle here, and comes with the extra 'torch'")
    for seed in range(FIRST_SEED, FIRST_SEED + PROGRAM_COUNT):
        run_torch_program(seed, torch)
