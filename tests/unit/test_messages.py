"""What errors say: what was asked, what was there, and what to call instead where there is something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor.errors import LayoutError, StorageBoundsError

Refused = tuple[Callable[[], Any], type[Exception], tuple[str, ...]]


def grid(*shape: int) -> st.Tensor:
    return st.arange(int(np.prod(shape))).view(shape)


def put(tensor: st.Tensor, key: Any, value: Any) -> None:
    tensor[key] = value


def number() -> st.Tensor:
    return st.tensor(3)


REFUSED: dict[str, Refused] = {
    # Another shape: rules 1, 2 and 8.
    "view of a transpose": (
        lambda: grid(3, 4).t().view(12),
        LayoutError,
        ("view (12,)", "shape (4, 3)", "strides (1, 4)", "dims 0 and 1", "stride 1 of dim 0", "12", "reshape((12,))"),
    ),
    "view of a part": (
        lambda: grid(2, 3, 4)[:, :2].view(4, 4),
        LayoutError,
        ("view (4, 4)", "shape (2, 2, 4)", "(12, 4, 1)", "dims 0 and 1", "stride 12 of dim 0", "8", "reshape"),
    ),
    "view of repeated rows": (
        lambda: grid(3).expand(4, 3).view(12),
        LayoutError,
        ("dims 0 and 1", "stride 0 of dim 0"),
    ),
    "reshape without a copy": (
        lambda: grid(3, 4).t().reshape(12, copy=False),
        LayoutError,
        ("view (12,)", "dims 0 and 1", "stride 1 of dim 0", "reshape((12,)) copies"),
    ),
    "view of another number": (lambda: grid(6).view(5), LayoutError, ("(5,)", "5 elements", "6")),
    "reshape to another number": (lambda: grid(6).reshape(4, 2), LayoutError, ("(4, 2)", "8 elements", "6")),
    "two sizes of -1": (lambda: grid(6).view(-1, -1), LayoutError, ("(-1, -1)", "more than one -1")),
    "a negative size": (lambda: grid(6).view(-2, 3), LayoutError, ("(-2, 3)", "negative")),
    "a negative size beside -1": (lambda: grid(6).view(-2, -1), LayoutError, ("(-2, -1)", "negative")),
    "-1 that can't be worked out": (lambda: grid(6).view(4, -1), LayoutError, ("(4, -1)", "6 elements", "4")),
    "-1 beside 0": (lambda: st.zeros(0).view(0, -1), LayoutError, ("(0, -1)", "any size")),
    "a size that is no int": (lambda: grid(6).view(2.0, 3), TypeError, ("float",)),
    "view_as": (lambda: grid(6).view_as(grid(5)), LayoutError, ("(5,)", "5 elements", "6")),
    "flatten backwards": (lambda: grid(2, 3).flatten(1, 0), LayoutError, ("dim 1", "dim 0", "(2, 3)")),
    "flatten a missing dim": (lambda: grid(2, 3).flatten(0, 2), IndexError, ("dim 2", "(2, 3)", "-2 to 1")),
    "unflatten to other sizes": (
        lambda: grid(2, 6).unflatten(1, (2, 4)),
        LayoutError,
        ("(2, 4)", "dim 1 of shape (2, 6)"),
    ),
    "unflatten indivisibly": (
        lambda: grid(2, 6).unflatten(1, (4, -1)),
        LayoutError,
        ("(4, -1)", "dim 1 of shape (2, 6)"),
    ),
    "unflatten to nothing": (lambda: grid(2, 6).unflatten(1, ()), LayoutError, ("unflatten", "dim 1", "(2, 6)")),
    "unflatten a number": (lambda: number().unflatten(0, (1,)), IndexError, ("unflatten", "0-d", "dim 0")),
    "larger elements of odd rows": (
        lambda: grid(2, 3).view("complex128"),
        LayoutError,
        ("8-byte", "16-byte", "divisible by 2", "(2, 3)", "(3, 1)", "offset 0"),
    ),
    "larger elements at an odd offset": (
        lambda: grid(6)[1:5].view("complex128"),
        LayoutError,
        ("offset 1", "divisible by 2"),
    ),
    "other elements of a transpose": (
        lambda: grid(2, 4).t().view("int32"),
        LayoutError,
        ("8-byte", "4-byte", "stride 1", "(4, 2)", "(1, 4)", "contiguous()"),
    ),
    "other elements of a number": (lambda: number().view("int32"), LayoutError, ("last dim", "shape ()")),
    "view_as_complex without pairs": (
        lambda: st.zeros(2, 3).view_as_complex(),
        LayoutError,
        ("size 2 and stride 1", "(2, 3)"),
    ),
    "view_as_complex at an odd place": (
        lambda: st.zeros(5)[1:3].view_as_complex(),
        LayoutError,
        ("even offset", "offset=1"),
    ),
    "view_as_complex of ints": (lambda: grid(2).view_as_complex(), LayoutError, ("float32 or float64", "int64")),
    "view_as_real of real numbers": (lambda: grid(2).view_as_real(), LayoutError, ("view_as_real", "complex", "int64")),
    "imag of real numbers": (lambda: grid(2).imag, LayoutError, ("imag", "complex", "int64")),
    # The order and the number of dims.
    "t of three dims": (lambda: grid(2, 1, 2).t(), LayoutError, ("(2, 1, 2)", "permute")),
    "mT of a row": (lambda: grid(3).mT, LayoutError, ("mT", "2 dims", "(3,)")),
    "mH of a row": (lambda: grid(3).mH, LayoutError, ("mH", "2 dims", "(3,)")),
    "H of a row": (lambda: grid(3).H, LayoutError, ("H", "matrix", "(3,)")),
    "H of complex numbers": (lambda: st.zeros(2, 2, dtype="complex64").H, LayoutError, ("H", "complex64", "conj")),
    "adjoint of complex numbers": (
        lambda: st.zeros(2, 2, dtype="complex64").adjoint(),
        LayoutError,
        ("adjoint", "conj"),
    ),
    "permute a dim twice": (lambda: grid(2, 3).permute(0, 0), LayoutError, ("(0, 0)", "2 dims", "(2, 3)")),
    "permute too few dims": (lambda: grid(2, 3).permute(1), LayoutError, ("(1,)", "2 dims", "(2, 3)")),
    "permute a missing dim": (lambda: grid(2, 3).permute(0, 2), IndexError, ("dim 2", "(2, 3)")),
    "transpose a missing dim": (lambda: grid(2, 3).transpose(0, -3), IndexError, ("dim -3", "(2, 3)", "-2 to 1")),
    "movedim twice": (lambda: grid(2, 3).movedim((0, 0), (0, 1)), LayoutError, ("[0, 0]", "[0, 1]", "(2, 3)")),
    "movedim to too few": (lambda: grid(2, 3).movedim((0, 1), (0,)), LayoutError, ("[0, 1]", "[0]", "as many places")),
    "squeeze twice": (lambda: grid(1, 3).squeeze((0, 0)), LayoutError, ("squeeze", "(1, 3)", "twice", "(0, 0)")),
    "unsqueeze a missing dim": (lambda: grid(2).unsqueeze(2), IndexError, ("dim 2", "(2,)", "-2 to 1")),
    "expand a size": (lambda: grid(3).expand(4), LayoutError, ("(4,)", "size 3 of dim 0", "(3,)", "repeat")),
    "expand to fewer dims": (lambda: grid(2, 3).expand(3), LayoutError, ("(3,)", "more dims", "(2, 3)")),
    "expand by -1": (lambda: grid(3).expand(-1, 3), LayoutError, ("(-1, 3)", "new dim", "(3,)")),
    "broadcast_to": (lambda: grid(3).broadcast_to((2, 4)), LayoutError, ("(2, 4)", "size 3", "4")),
    "broadcast_tensors": (lambda: st.broadcast_tensors(grid(3), grid(4)), LayoutError, ("(3,)", "(4,)", "dim -1")),
    # Parts: rule 6.
    "select": (lambda: grid(2, 3).select(1, 3), IndexError, ("index 3", "dim 1", "size 3", "(2, 3)")),
    "select of a number": (lambda: number().select(0, 0), IndexError, ("select", "0-d", "dim 0")),
    "narrow from outside": (lambda: grid(2, 3).narrow(1, 4, 0), IndexError, ("start 4", "dim 1", "size 3", "(2, 3)")),
    "narrow too far": (
        lambda: grid(2, 3).narrow(1, 2, 2),
        LayoutError,
        ("2 indices from 2", "dim 1", "size 3", "(2, 3)"),
    ),
    "slice backwards": (lambda: grid(3)[::-1], ValueError, ("step -1", "dim 0", "flip")),
    "diagonal of one dim": (lambda: grid(2, 3).diagonal(0, 1, 1), LayoutError, ("two dims", "1 and 1", "(2, 3)")),
    "diagonal of a row": (lambda: grid(3).diagonal(), IndexError, ("dim 1", "(3,)")),
    "unfold too far": (lambda: grid(2, 3).unfold(1, 4, 1), LayoutError, ("size 4", "dim 1", "size 3", "(2, 3)")),
    "unfold without a step": (lambda: grid(3).unfold(0, 2, 0), LayoutError, ("0 apart", "1 or more")),
    "split into sizes": (lambda: grid(6).split([2, 3]), LayoutError, ("[2, 3]", "size 6 of dim 0", "(6,)", "5")),
    "split into nothing": (lambda: grid(6).split(0), LayoutError, ("dim 0 with size 6", "(6,)", "size 0")),
    "split a number": (lambda: number().split(1), IndexError, ("split", "0-d")),
    "chunk": (lambda: grid(6).chunk(0), LayoutError, ("chunk", "0 pieces", "dim 0", "(6,)", "1 or more")),
    "tensor_split": (lambda: grid(6).tensor_split(0), LayoutError, ("tensor_split", "0 pieces", "(6,)", "1 or more")),
    "hsplit": (lambda: grid(2, 3).hsplit(2), LayoutError, ("hsplit", "dim 1", "(2, 3)", "2 equal", "tensor_split")),
    "vsplit a row": (lambda: grid(3).vsplit(1), LayoutError, ("vsplit", "2 dims", "(3,)")),
    "unbind a number": (lambda: number().unbind(), IndexError, ("unbind", "0-d")),
    # The storage: rules 9, 11 and 12.
    "as_strided past the end": (
        lambda: grid(6)[2:].as_strided((3, 2), (2, 1), 1),
        StorageBoundsError,
        ("(3, 2)", "(2, 1)", "offset 1", "56 bytes", "8 an element", "has 48", "resize_"),
    ),
    "as_strided backwards": (lambda: grid(6).as_strided((2,), (-1,), 5), LayoutError, ("as_strided", "(-1,)", "flip")),
    "as_strided of two lengths": (lambda: grid(6).as_strided((2, 1), (1,)), LayoutError, ("(2, 1)", "(1,)", "length")),
    "as_strided_ past the end": (lambda: grid(6).as_strided_((7,), (1,)), StorageBoundsError, ("(7,)", "56", "has 48")),
    "set_ past the end": (
        lambda: grid(6).set_(st.Storage(16), 1, (2,)),
        StorageBoundsError,
        ("(2,)", "offset 1", "24 bytes", "has 16"),
    ),
    "set_ backwards": (lambda: grid(6).set_(st.Storage(16), 0, (2,), (-1,)), LayoutError, ("set_", "(-1,)", "flip")),
    "set_ to another dtype": (lambda: grid(6).set_(st.zeros(2)), TypeError, ("int64", "float32", "view")),
    "a negative resize_": (lambda: grid(6).resize_(-1), LayoutError, ("(-1,)", "negative")),
    "resize_ in a format": (
        lambda: grid(6).resize_(2, 3, memory_format=st.channels_last),
        LayoutError,
        ("channels_last", "4 dims", "(2, 3)"),
    ),
    "past a shrunken storage": (
        lambda: shrunken().tolist(),
        StorageBoundsError,
        ("(6,)", "48 bytes", "has 16", "resize_"),
    ),
    # Copies.
    "contiguous in a format": (
        lambda: grid(2, 3).contiguous(memory_format=st.channels_last),
        LayoutError,
        ("channels_last", "4 dims", "(2, 3)"),
    ),
    "clone in a format": (
        lambda: grid(2, 3).clone(memory_format=st.channels_last_3d),
        LayoutError,
        ("channels_last_3d", "5 dims", "(2, 3)"),
    ),
    "to another device": (lambda: grid(2).to("cuda:0"), ValueError, ("cuda:0", "host memory")),
    "repeat too few": (lambda: grid(2, 3).repeat(2), LayoutError, ("repeat", "(2, 3)", "(2,)")),
    "roll a missing dim": (lambda: grid(2, 3).roll(1, 2), IndexError, ("dim 2", "(2, 3)")),
    "roll a number": (lambda: number().roll(1, 0), IndexError, ("roll", "0-d")),
    "flip a missing dim": (lambda: grid(2, 3).flip(2), IndexError, ("dim 2", "(2, 3)")),
    "index_select with floats": (lambda: grid(3).index_select(0, [0.5]), IndexError, ("float64", "(1,)", "ints")),
    "index_select outside": (lambda: grid(3).index_select(0, [3]), IndexError, ("index 3", "size 3")),
    "index_select of a number": (lambda: number().index_select(0, [0, 0]), LayoutError, ("2 indices", "0-d")),
    "masked_select": (lambda: grid(3).masked_select([True, False]), ValueError, ("(3,)", "(2,)")),
    # Reading by index: rule 14.
    "an int outside": (lambda: grid(2, 3)[0, 3], IndexError, ("index 3", "dim 1", "size 3", "(2, 3)")),
    "an int outside, alone": (lambda: grid(2, 3)[-3], IndexError, ("index -3", "dim 0", "size 2", "(2, 3)")),
    "a list outside": (lambda: grid(2, 3)[[0, 2]], IndexError, ("index 2", "size 2")),
    "too many indices": (lambda: grid(2, 3)[0, 0, 0], IndexError, ("too many", "3", "2 dims", "(2, 3)")),
    "an Ellipsis twice": (lambda: grid(2, 3)[..., 0, ...], IndexError, ("one Ellipsis",)),
    "a mask of another shape": (
        lambda: grid(2, 3)[np.ones((2, 2), bool)],
        IndexError,
        ("mask", "(2, 2)", "dims 0 to 1", "(2, 3)"),
    ),
    "a float": (lambda: grid(3)[1.0], IndexError, ("float", "ints, slices")),
    "a tensor of floats": (lambda: grid(3)[st.zeros(2)], IndexError, ("Tensor of float32",)),
    "lists of two lengths": (lambda: grid(3, 3)[[0, 1], [0, 1, 2]], IndexError, ("(2,)", "(3,)")),
    "an index of a number": (lambda: number()[0], IndexError, ("0-d",)),
    # Writing: rules 10 and 14, and section 1 on overflow.
    "an int that overflows": (
        lambda: put(st.zeros(3, dtype="uint8"), 0, 256),
        OverflowError,
        ("256", "uint8"),
    ),
    "an int below 0": (lambda: put(st.zeros(3, dtype="uint8"), slice(2), -1), OverflowError, ("-1", "uint8")),
    "an int that overflows, by list": (
        lambda: put(st.zeros(3, dtype="int8"), [0], 128),
        OverflowError,
        ("128", "int8"),
    ),
    "fill_ that overflows": (lambda: st.zeros(3, dtype="int8").fill_(1000), OverflowError, ("1000", "int8")),
    "a value of another shape": (
        lambda: put(grid(2, 3), ..., np.zeros((3, 2))),
        LayoutError,
        ("(3, 2)", "(2, 3)", "1 or the same"),
    ),
    "a value for a list": (lambda: put(grid(3, 3), [0, 2], np.zeros((3, 3))), LayoutError, ("(3, 3)", "(2, 3)")),
    "a value for a mask": (lambda: put(grid(4), np.eye(4, dtype=bool)[0], [1, 2]), LayoutError, ("(2,)", "(1,)")),
    "a value without elements": (lambda: put(grid(4), [], np.zeros((2, 0))), LayoutError, ("(2, 0)", "(0,)")),
    "a place that repeats": (
        lambda: put(grid(1, 3).expand(2, 3), ..., np.zeros(3)),
        LayoutError,
        ("(2, 3)", "(0, 1)", "clone()", "fill_"),
    ),
    "copy_ where places repeat": (
        lambda: grid(1, 3).expand(2, 3).copy_(grid(3)),
        LayoutError,
        ("(2, 3)", "(0, 1)", "clone()", "fill_"),
    ),
    "copy_ of another shape": (lambda: grid(2, 3).copy_(grid(2)), LayoutError, ("copy_", "(2,)", "(2, 3)")),
    "copy_ of more dims": (lambda: grid(3).copy_(grid(1, 3)), LayoutError, ("copy_", "(1, 3)", "(3,)", "more dims")),
    "fill_ with several": (lambda: grid(3).fill_(grid(2)), LayoutError, ("fill_", "one element", "(2,)")),
    "masked_fill_ with several": (
        lambda: grid(3).masked_fill_(grid(3) > 1, [1, 2]),
        LayoutError,
        ("masked_fill_", "one element", "(2,)"),
    ),
    "masked_fill_ by another shape": (
        lambda: grid(3).masked_fill_(grid(2) > 1, 0),
        LayoutError,
        ("masked_fill_", "mask", "(2,)", "(3,)"),
    ),
    "index_fill_ outside": (lambda: grid(3).index_fill_(0, [3], 0), IndexError, ("index 3", "size 3")),
    "index_fill_ of a number": (lambda: number().index_fill_(0, [0], 0), IndexError, ("0-d", "dim 0")),
    "index_copy_ of another shape": (
        lambda: grid(3, 2).index_copy_(0, [0, 1], grid(3, 2)),
        LayoutError,
        ("(3, 2)", "(2, 2)"),
    ),
}


def shrunken() -> st.Tensor:
    tensor = grid(6)
    tensor.untyped_storage().resize_(16)
    return tensor


@pytest.mark.parametrize("name", REFUSED)
def test_an_error_says_what_was_asked_and_what_was_there(name: str) -> None:
    act, error, parts = REFUSED[name]
    with pytest.raises(error) as caught:
        act()
    message = str(caught.value)
    missing = [part for part in parts if part not in message]
    assert not missing, f"{missing} not in: {message}"


def test_a_layout_error_is_what_torch_and_what_numpy_raise() -> None:
    with pytest.raises(RuntimeError):
        grid(3, 4).t().view(12)
    with pytest.raises(ValueError, match="dims 0 and 1"):
        grid(3, 4).t().view(12)
