"""Steps of random programs that view: another shape, other elements, another order of dims, parts, any layout."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from oracle.drawing import (
    Ints,
    draw_dim,
    draw_expanded,
    draw_moves,
    draw_permutation,
    draw_pieces,
    draw_shape,
    draw_squeezed,
    draw_strided,
    draw_view_shape,
    size_at,
)
from oracle.sides import FORMATS, Act, Array, Sides, Step, bytes_of, place_of, root_of, strided
from oracle.steps import DTYPES, call, draw_format, order_of, refuse_0d, wrap

import shmtensor as st

# A view as bool is left out: what a byte above 1 means as a bool is nobody's promise.
VIEWED_DTYPES = DTYPES[1:]
BOUNDS_ERROR = {"numpy": "rule 9: StorageBoundsError is a RuntimeError, as torch's; NumPy's is a ValueError"}


# --- another shape


def resolved(shape: Ints, numel: int) -> Ints:
    """NumPy takes any negative size for -1: rule 2 does not."""
    if sum(size < 0 for size in shape) > 1 or min(shape, default=0) < -1:
        raise ValueError(shape)
    return shape


def draw_view(rng: random.Random, sides: Sides) -> Step:
    new = draw_view_shape(rng, sides.array.shape)
    return call("view", new, numpy=lambda a: np.reshape(a, resolved(new, a.size), copy=False))


def draw_reshape(rng: random.Random, sides: Sides) -> Step:
    new, copy = draw_view_shape(rng, sides.array.shape), rng.choice((None, None, True, False))

    def in_torch(x: Any) -> Any:
        if copy is False:  # torch has no copy=: view raises where reshape would copy
            return x.view(new)
        return x.reshape(new).clone(memory_format=sides.torch.contiguous_format) if copy else x.reshape(new)

    return Step(
        f"reshape({new}, copy={copy})",
        lambda t: t.reshape(new, copy=copy),
        in_torch,
        lambda a: np.reshape(a, resolved(new, a.size), copy=copy),
    )


def draw_flatten(rng: random.Random, sides: Sides) -> Step:
    first, last = draw_dim(rng, sides.array.shape), draw_dim(rng, sides.array.shape)

    def in_numpy(a: Array) -> Array:
        begin, end = wrap(first, a.ndim), wrap(last, a.ndim)
        if begin > end:
            raise ValueError("dims in the wrong order")
        return a.reshape((*a.shape[:begin], math.prod(a.shape[begin : end + 1]), *a.shape[end + 1 :]))

    return call("flatten", first, last, numpy=in_numpy)


def draw_ravel(rng: random.Random, sides: Sides) -> Step:
    return call("ravel", numpy=lambda a: a.ravel())


def draw_unflatten(rng: random.Random, sides: Sides) -> Step:
    shape = sides.array.shape
    dim = draw_dim(rng, shape)
    sizes = draw_view_shape(rng, (size_at(shape, dim),))

    def in_numpy(a: Array) -> Array:
        refuse_0d(a)
        at = wrap(dim, a.ndim)
        if not sizes:
            raise ValueError("no sizes")
        split = np.empty(a.shape[at], np.bool_).reshape(resolved(sizes, a.shape[at])).shape
        return np.reshape(a, (*a.shape[:at], *split, *a.shape[at + 1 :]), copy=False)

    error_differs = {} if sizes else {"torch": "a wrong dim, and no sizes: it depends on what is looked at first"}
    return call("unflatten", dim, sizes, numpy=in_numpy, error_differs=error_differs)


def draw_as_other(rng: random.Random, sides: Sides) -> Step:
    """view_as, reshape_as and expand_as: the shape comes from another tensor."""
    name = rng.choice(("view_as", "reshape_as", "expand_as"))
    shape = sides.array.shape
    new = tuple(max(n, 0) for n in draw_view_shape(rng, shape))
    if name == "expand_as":
        new = tuple(
            size if size >= 0 else kept
            for size, kept in zip(draw_expanded(rng, shape)[::-1], [*shape[::-1], 1, 1], strict=False)
        )[::-1]
    in_numpy: dict[str, Act] = {
        "view_as": lambda a: np.reshape(a, new, copy=False),
        "reshape_as": lambda a: np.reshape(a, new),
        "expand_as": lambda a: np.broadcast_to(a, new),
    }
    return Step(
        f"{name} of {new}",
        lambda t: getattr(t, name)(st.empty(new, dtype="uint8")),
        lambda x: getattr(x, name)(sides.torch.empty(new, dtype=sides.torch.uint8)),
        in_numpy[name],
    )


# --- other elements


def draw_view_dtype(rng: random.Random, sides: Sides) -> Step:
    new = rng.choice(VIEWED_DTYPES)
    differs = {}
    if not numpy_views_alike(sides.array, np.dtype(new)):
        differs["numpy"] = "rule 8: the last stride must be 1 even where the size is 1, and everything be divisible"
    return Step(
        f"view({new})",
        lambda t: t.view(new),
        lambda x: x.view(getattr(sides.torch, new)),
        lambda a: a.view(new),
        differs,
    )


def numpy_views_alike(array: Array, new: np.dtype[Any]) -> bool:
    """NumPy views as another dtype what rule 8 refuses: unaligned elements, and dims of size 1 of any stride."""
    if array.itemsize == new.itemsize:
        return True
    is_aligned = all(number % new.itemsize == 0 for number in (place_of(array), *array.strides[:-1]))
    return array.ndim > 0 and array.size > 0 and 1 not in array.shape and is_aligned


def part_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"f{dtype.itemsize // 2}")


def require_complex(a: Array) -> None:
    if a.dtype.kind != "c":
        raise ValueError("no complex elements")


def draw_view_as_real(rng: random.Random, sides: Sides) -> Step:
    def in_numpy(a: Array) -> Array:
        require_complex(a)
        return a[..., None].view(part_of(a.dtype))

    return Step("view_as_real", lambda t: t.view_as_real(), lambda x: sides.torch.view_as_real(x), in_numpy)


def draw_view_as_complex(rng: random.Random, sides: Sides) -> Step:
    def in_numpy(a: Array) -> Array:
        if a.dtype.name not in ("float32", "float64"):
            raise ValueError("no parts of complex numbers")
        if not a.ndim or a.shape[-1] != 2:
            raise ValueError("no pairs")
        return a.view(f"c{a.itemsize * 2}")[..., 0]

    array, differs = sides.array, {}
    pair = array.itemsize * 2
    if array.size == 0 or any(number % pair for number in (place_of(array), *array.strides[:-1])):
        differs["numpy"] = "rule 8: elements must lie at a multiple of their size, and NumPy's need not"
    if array.dtype == np.float16:
        return draw_view_as_real(rng, sides)  # torch has complex numbers of halves; no dtype of ours has
    return Step(
        "view_as_complex", lambda t: t.view_as_complex(), lambda x: sides.torch.view_as_complex(x), in_numpy, differs
    )


def draw_part(rng: random.Random, sides: Sides) -> Step:
    name = rng.choice(("real", "imag"))

    def in_numpy(a: Array) -> Array:
        if name == "imag":
            require_complex(a)  # NumPy makes zeros up: rule 14 knows only views here
        return getattr(a, name) if a.dtype.kind == "c" else a

    return Step(name, lambda t: getattr(t, name), lambda x: getattr(x, name), in_numpy)


# --- dims in another order, more of them and fewer


def draw_permute(rng: random.Random, sides: Sides) -> Step:
    dims = draw_permutation(rng, sides.array.shape)
    return call("permute", dims, numpy=lambda a: a.transpose(dims) if dims else a.view())


def draw_transpose(rng: random.Random, sides: Sides, tail: str = "") -> Step:
    one, two = draw_dim(rng, sides.array.shape), draw_dim(rng, sides.array.shape)
    name = rng.choice(("transpose", "swapaxes", "swapdims"))

    def in_numpy(a: Array) -> Array:
        at, there = wrap(one, a.ndim), wrap(two, a.ndim)
        return a.swapaxes(at, there) if a.ndim else a.view()

    return call(name + tail, one, two, numpy=in_numpy)


def draw_movedim(rng: random.Random, sides: Sides) -> Step:
    source, target = draw_moves(rng, sides.array.shape)

    def in_numpy(a: Array) -> Array:
        if a.ndim:
            return np.moveaxis(a, source, target)
        for dim in (source, target):
            for each in dim if isinstance(dim, tuple) else (dim,):
                wrap(each, 0)
        return a.view()

    return call(rng.choice(("movedim", "moveaxis")), source, target, numpy=in_numpy)


def draw_reversed(rng: random.Random, sides: Sides) -> Step:
    """T, mT, t, H, mH, adjoint."""
    name = rng.choice(("T", "mT", "t", "H", "mH", "adjoint"))
    if sides.array.dtype.kind == "c" or not sides.array.ndim:
        # Conjugating copies here, and is lazy in torch; of a 0-d tensor torch has deprecated them.
        name = rng.choice(("T", "t"))

    def in_numpy(a: Array) -> Array:
        if name == "T":
            return a.T
        fits = {"t": a.ndim < 3, "H": a.ndim == 2}.get(name, a.ndim > 1)
        if not fits:
            raise ValueError("no matrix")
        return a.swapaxes(-1, -2) if a.ndim > 1 else a.view()

    def in_torch(x: Any) -> Any:
        if name == "T":  # deprecated in torch for other than 2 dims, with a warning
            return x.permute(tuple(range(x.ndim))[::-1])
        return getattr(x, name)() if name in ("t", "adjoint") else getattr(x, name)

    return Step(
        name, lambda t: getattr(t, name)() if name in ("t", "adjoint") else getattr(t, name), in_torch, in_numpy
    )


def draw_expand(rng: random.Random, sides: Sides) -> Step:
    new = draw_expanded(rng, sides.array.shape)

    def in_numpy(a: Array) -> Array:
        added = len(new) - a.ndim
        if added < 0 or min(new, default=0) < -1 or -1 in new[:added]:
            raise ValueError(new)
        kept = zip(new[added:], a.shape, strict=True)
        return np.broadcast_to(a, (*new[:added], *(size if wanted == -1 else wanted for wanted, size in kept)))

    return call(rng.choice(("expand", "broadcast_to")), new, numpy=in_numpy)


def draw_squeeze(rng: random.Random, sides: Sides, tail: str = "") -> Step:
    if rng.random() < 0.3:
        return call("squeeze" + tail, numpy=lambda a: a.squeeze())
    dims = draw_squeezed(rng, sides.array.shape)

    def in_numpy(a: Array) -> Array:
        named = [wrap(dim, a.ndim) for dim in (dims if isinstance(dims, tuple) else (dims,))]
        return a.squeeze(tuple(dim for dim in named if a.ndim and a.shape[dim] == 1))

    return call("squeeze" + tail, dims, numpy=in_numpy)


def draw_unsqueeze(rng: random.Random, sides: Sides, tail: str = "") -> Step:
    ndim = sides.array.ndim
    dim = rng.randint(-ndim - 1 - (rng.random() < 0.05), ndim + (rng.random() < 0.05))
    return call("unsqueeze" + tail, dim, numpy=lambda a: np.expand_dims(a, dim))


def draw_atleast(rng: random.Random, sides: Sides) -> Step:
    name = rng.choice(("atleast_1d", "atleast_2d", "atleast_3d"))
    return Step(
        name, lambda t: getattr(st, name)(t), lambda x: getattr(sides.torch, name)(x), lambda a: getattr(np, name)(a)
    )


def draw_together(rng: random.Random, sides: Sides) -> Step:
    """broadcast_tensors and meshgrid, of the tensor and a part of it."""
    shape = sides.array.shape
    if len(shape) == 1 and shape[0] < 30:
        order = rng.choice(("ij", "xy"))
        return Step(
            f"meshgrid({order})",
            lambda t: st.meshgrid(t, t[:2], indexing=order),
            lambda x: sides.torch.meshgrid(x, x[:2], indexing=order),
            lambda a: tuple(np.meshgrid(a, a[:2], indexing=order, copy=False)),
        )
    key = (..., slice(rng.choice((1, 2)))) if shape else ...
    return Step(
        f"broadcast_tensors with [{key}]",
        lambda t: st.broadcast_tensors(t, t[key]),
        lambda x: tuple(each[...] for each in sides.torch.broadcast_tensors(x, x[key])),
        lambda a: np.broadcast_arrays(a, a[key]),
    )


def draw_alias(rng: random.Random, sides: Sides) -> Step:
    return call("detach", numpy=lambda a: a.view())


# --- parts


def draw_narrow(rng: random.Random, sides: Sides) -> Step:
    dim = draw_dim(rng, sides.array.shape)
    size = size_at(sides.array.shape, dim)
    start, length = rng.randint(-size - 1, size + 1), rng.randint(0, size)

    def in_numpy(a: Array) -> Array:
        refuse_0d(a)
        at = wrap(dim, a.ndim)
        if not -size <= start <= size:
            raise IndexError(start)
        first = start + size if start < 0 else start
        if first + length > size:
            raise ValueError(length)
        return a[(slice(None),) * at + (slice(first, first + length),)]

    return call("narrow", dim, start, length, numpy=in_numpy)


def draw_select(rng: random.Random, sides: Sides) -> Step:
    dim = draw_dim(rng, sides.array.shape)
    size = size_at(sides.array.shape, dim)
    at = rng.randrange(-size - (rng.random() < 0.1), size + (rng.random() < 0.1)) if size else 0

    def in_numpy(a: Array) -> Array:
        refuse_0d(a)
        return a[(slice(None),) * wrap(dim, a.ndim) + (at, ...)]

    return call("select", dim, at, numpy=in_numpy)


def draw_unfold(rng: random.Random, sides: Sides) -> Step:
    dim = draw_dim(rng, sides.array.shape)
    size = size_at(sides.array.shape, dim)
    window, step = rng.randint(0, size + (rng.random() < 0.1)), rng.randint(rng.random() > 0.05, 3)

    def in_numpy(a: Array) -> Array:
        at = wrap(dim, a.ndim)
        if step < 1 or window > (a.shape[at] if a.ndim else 1):
            raise ValueError("windows that don't fit")
        if not a.ndim:
            return a[None][:window]
        windows = sliding_window_view(a, window, at) if window else empty_windows(a, at)
        return windows[(slice(None),) * at + (slice(None, None, step),)]

    return call("unfold", dim, window, step, numpy=in_numpy)


def empty_windows(a: Array, at: int) -> Array:
    """Windows of size 0, one more than there are elements, which sliding_window_view does not make."""
    shape = (*a.shape[:at], a.shape[at] + 1, *a.shape[at + 1 :], 0)
    return np.ndarray(shape, a.dtype, root_of(a))


def draw_diagonal(rng: random.Random, sides: Sides) -> Step:
    offset = rng.randint(-3, 3)
    one, two = draw_dim(rng, sides.array.shape), draw_dim(rng, sides.array.shape)

    def in_numpy(a: Array) -> Array:
        wrap(one, a.ndim), wrap(two, a.ndim)
        return a.diagonal(offset, one, two)

    return call("diagonal", offset, one, two, numpy=in_numpy)


def draw_pieces_step(rng: random.Random, sides: Sides) -> Step:
    """split, split_with_sizes, chunk, tensor_split, unbind."""
    shape = sides.array.shape
    dim = draw_dim(rng, shape)
    size = size_at(shape, dim)
    name = rng.choice(("split", "split", "split_with_sizes", "chunk", "tensor_split", "tensor_split", "unbind"))
    if name == "unbind":
        return call(name, dim, numpy=lambda a: all_of(a, dim))
    if name == "chunk":
        count = rng.randint(rng.random() > 0.05, size + 2)
        error_differs = (
            {} if count else {"torch": "no pieces, and maybe a wrong dim: it depends on what is looked at first"}
        )
        return call(name, count, dim, numpy=lambda a: chunks_of(a, count, dim), error_differs=error_differs)
    if name == "tensor_split":
        cuts = [rng.randint(-size - 1, size + 1) for _ in range(rng.randint(0, 3))]
        sections = rng.choice((rng.randint(rng.random() > 0.05, size + 2), cuts))
        return call(name, sections, dim, numpy=lambda a: sections_of(a, sections, dim))
    pieces = draw_pieces(rng, size)
    while name == "split_with_sizes" and isinstance(pieces, int):
        pieces = draw_pieces(rng, size)
    is_wrong = pieces < 0 if isinstance(pieces, int) else sum(pieces) != size
    error_differs = (
        {"torch": "wrong pieces, and maybe a wrong dim: it depends on what is looked at first"} if is_wrong else {}
    )
    return call(name, pieces, dim, numpy=lambda a: splits_of(a, pieces, dim), error_differs=error_differs)


def all_of(a: Array, dim: int) -> list[Array]:
    refuse_0d(a)
    at = wrap(dim, a.ndim)
    return [a[(slice(None),) * at + (place, ...)] for place in range(a.shape[at])]


def cut_at(a: Array, at: int, sizes: list[int]) -> list[Array]:
    ends = np.cumsum([0, *sizes])
    return [a[(slice(None),) * at + (slice(begin, begin + size),)] for begin, size in zip(ends, sizes, strict=False)]


def chunks_of(a: Array, count: int, dim: int) -> list[Array]:
    refuse_0d(a)
    at = wrap(dim, a.ndim)
    if count < 1:
        raise ValueError(count)
    size = a.shape[at]
    each = -(-size // count)
    return cut_at(a, at, [min(each, size - begin) for begin in range(0, size, each)] if size else [0] * count)


def sections_of(a: Array, sections: Any, dim: int) -> list[Array]:
    refuse_0d(a)
    at = wrap(dim, a.ndim)
    if isinstance(sections, int) and sections < 1:
        raise ValueError(sections)
    return np.array_split(a, sections, at)


def splits_of(a: Array, pieces: Any, dim: int) -> list[Array]:
    refuse_0d(a)
    at = wrap(dim, a.ndim)
    size = a.shape[at]
    if isinstance(pieces, int):
        if pieces < 0 or (pieces == 0 and size):
            raise ValueError(pieces)
        pieces = [min(pieces, size - begin) for begin in range(0, size, pieces)] if size else [0]
    if sum(pieces) != size:
        raise ValueError(pieces)
    return cut_at(a, at, pieces)


def draw_even_pieces(rng: random.Random, sides: Sides) -> Step:
    """hsplit, vsplit and dsplit: equal pieces only."""
    name = rng.choice(("hsplit", "vsplit", "dsplit"))
    sections = rng.choice((1, 2, 3, [1], [1, 2]))
    return call(name, sections, numpy=lambda a: getattr(np, name)(a, sections))


# --- any layout at all, and the storage itself


def draw_as_strided(rng: random.Random, sides: Sides) -> Step:
    shape, stride, offset = draw_strided(rng)
    where = None if sides.array.size and rng.random() < 0.3 else offset
    name = rng.choice(("as_strided", "as_strided", "as_strided_"))

    def in_numpy(a: Array) -> Array:
        if min(stride, default=0) < 0:
            raise ValueError("rule 9: no negative strides")
        return strided(root_of(a), a.dtype, shape, stride, place_of(a) // a.itemsize if where is None else where)

    return call(name, shape, stride, where, numpy=in_numpy, error_differs=BOUNDS_ERROR)


def draw_set(rng: random.Random, sides: Sides) -> Step:
    """set_ to a part of the storage, or to another tensor's."""
    if rng.random() < 0.3:
        return Step(
            "set_ to a clone",
            lambda t: t.set_(t.clone(memory_format=st.contiguous_format)),
            lambda x: x.set_(x.clone(memory_format=sides.torch.contiguous_format)),
            lambda a: a.copy(),
        )
    shape, stride, offset = draw_strided(rng)
    array = sides.array
    reach = 0 if 0 in shape else offset + 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    differs = {}
    if min(stride, default=0) < 0:
        differs["torch"] = "rule 9: negative strides are refused; torch takes them where there is no element"
    elif reach * array.itemsize > root_of(array).size:
        differs["torch"] = "rule 9, ours: set_ past the end raises; torch's grows the storage"

    def in_numpy(a: Array) -> Array:
        if min(stride, default=0) < 0:
            raise ValueError("rule 9: no negative strides")
        return strided(root_of(a), a.dtype, shape, stride, offset)

    return Step(
        f"set_({offset}, {shape}, {stride})",
        lambda t: t.set_(t.untyped_storage(), offset, shape, stride),
        lambda x: x.set_(x.untyped_storage(), offset, shape, stride),
        in_numpy,
        differs,
        BOUNDS_ERROR,
    )


def draw_resize(rng: random.Random, sides: Sides) -> Step:
    shape = draw_shape(rng) if rng.random() < 0.9 else sides.array.shape
    name = draw_format(rng, shape, FORMATS) if rng.random() < 0.3 else "contiguous_format"

    def ours(t: st.Tensor) -> st.Tensor:
        before = t.untyped_storage().nbytes()
        t.resize_(shape, memory_format=getattr(st, name))
        t.untyped_storage()[before:].fill_(1)  # new bytes are undefined: make them equal
        return t

    def in_torch(x: Any) -> Any:
        before = x.untyped_storage().nbytes()
        x.resize_(shape, memory_format=getattr(sides.torch, name))
        bytes_of(sides.torch, x)[before:] = 1
        return x

    differs = {}
    try:
        order_of(name, len(shape))
    except ValueError:
        differs["torch"] = "rule 11, ours: what is refused changes nothing; torch has changed the shape by then"
    if shape == sides.array.shape:
        differs["torch"] = "rule 11: the same shape changes nothing; torch applies the format"
    if sides.array.size == 0:
        differs["numpy"] = "an array without elements does not keep its offset (rule 6)"

    return Step(f"resize_({shape}, {name})", ours, in_torch, lambda a: resized(a, shape, name), differs)


def resized(a: Array, shape: Ints, name: str) -> Array:
    if shape == a.shape:
        return a
    order = order_of(name, len(shape))
    root, place = root_of(a), place_of(a)
    before = root.size
    if 0 not in shape:
        needed = place + math.prod(shape) * a.itemsize
        if needed > before:
            root.resize(needed, refcheck=False)  # in place, so that it stays the same root
            root[before:] = 1
    outer = np.ndarray([shape[dim] for dim in order], a.dtype, root, place if 0 not in shape else 0)
    return outer.transpose(np.argsort(order)) if shape else outer


def draw_in_place(rng: random.Random, sides: Sides) -> Step:
    """The calls that change the layout of the tensor itself: what the view of that name does, in place."""
    return rng.choice((draw_transpose, draw_squeeze, draw_unsqueeze, draw_t))(rng, sides, "_")


def draw_t(rng: random.Random, sides: Sides, tail: str = "") -> Step:
    def in_numpy(a: Array) -> Array:
        if a.ndim > 2:
            raise ValueError("no matrix")
        return a.T

    return call("t" + tail, numpy=in_numpy)
