"""The tensor rules 1 to 15 as cases for two processes. What is expected is written out by hand.

Each case: tensors made by a parent and sent to a worker; what the worker finds; what the worker then writes,
and how the parent sees it; what the parent writes after that, and how the worker sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import shmtensor as st

Act = Callable[..., Any]


@dataclass(frozen=True)
class Raises:
    """Expects an error of this class, or a subclass; its message has all ``parts``."""

    error: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """The callables take the tensors that ``make`` gave, as they arrived."""

    make: Callable[[], tuple[st.Tensor, ...]]
    facts: Act  # in the worker
    expected: dict[str, Any]
    worker_writes: Act
    parent_sees: Act
    seen_by_parent: Any
    parent_writes: Act
    worker_sees: Act
    seen_by_worker: Any


def facts(t: st.Tensor) -> tuple[Any, ...]:
    return *lies(t), t.tolist()


def lies(t: st.Tensor) -> tuple[Any, ...]:
    """Without the values, which need not be there."""
    return tuple(t.shape), t.stride(), t.storage_offset()


def refusal(act: Callable[[], Any]) -> tuple[list[str], str]:
    """The classes of the error that a call raises, and its message."""
    try:
        gave = act()
    except Exception as error:
        return [each.__name__ for each in type(error).__mro__], str(error)
    return [], f"no error, but {gave!r}"


def agrees(found: Any, expected: Any) -> bool:
    if isinstance(expected, Raises):
        classes, message = found
        return expected.error in classes and all(part in message for part in expected.parts)
    return bool(found == expected)


def share(one: st.Tensor, other: st.Tensor) -> bool:
    return one.untyped_storage() is other.untyped_storage()


def put(t: st.Tensor, key: Any, value: Any) -> None:
    t[key] = value


def rows(*ranges: range) -> list[list[int]]:
    return [list(each) for each in ranges]


RULES: dict[int, Case] = {
    1: Case(
        lambda: (st.arange(24).as_strided((3, 2, 4), (4, 12, 1)), st.arange(3).expand(4, 3)),
        lambda t, row: {
            "split": facts(t.view(3, 2, 2, 2)),
            "all in one": refusal(lambda: t.view(24)),
            "last two": refusal(lambda: t.view(3, 8)),
            "first two": refusal(lambda: t.view(6, 4)),
            "no copy": refusal(lambda: t.reshape(24, copy=False)),
            "reshape copies": share(t.reshape(24), t),
            "repeated": lies(row.view(2, 2, 3)),
            "repeated in one": refusal(lambda: row.view(12)),
        },
        {
            "split": (
                (3, 2, 2, 2),
                (4, 12, 2, 1),
                0,
                [
                    [[[0, 1], [2, 3]], [[12, 13], [14, 15]]],
                    [[[4, 5], [6, 7]], [[16, 17], [18, 19]]],
                    [[[8, 9], [10, 11]], [[20, 21], [22, 23]]],
                ],
            ),
            "all in one": Raises("LayoutError", ("dims 1 and 2", "stride 12", "reshape")),
            "last two": Raises("LayoutError", ("dims 1 and 2", "reshape")),
            "first two": Raises("LayoutError", ("dims 0 and 1", "stride 4", "reshape")),
            "no copy": Raises("LayoutError", ("dims 1 and 2", "reshape")),
            "reshape copies": False,
            "repeated": ((2, 2, 3), (0, 0, 1), 0),
            "repeated in one": Raises("LayoutError", ("dims 0 and 1", "stride 0", "reshape")),
        },
        lambda t, row: put(t.view(3, 2, 2, 2), (2, 1, 1, 1), -1),
        lambda t, row: t.tolist()[2],
        [[8, 9, 10, 11], [20, 21, 22, -1]],
        lambda t, row: put(row, (0, 2), 9),
        lambda t, row: row.view(2, 2, 3)[1, 1].tolist(),
        [0, 1, 9],
    ),
    2: Case(
        lambda: (st.arange(12).view(3, 4), st.zeros(4, 6)[:, 2:2], st.zeros(2, 0, 3)),
        lambda t, kept, empty: {
            "worked out": facts(t.view(-1, 6)),
            "twice": refusal(lambda: t.view(-1, -1)),
            "indivisible": refusal(lambda: t.view(5, -1)),
            "negative": refusal(lambda: t.view(-2, 6)),
            "any size": refusal(lambda: empty.view(0, -1)),
            "same shape": lies(kept.view(4, 0)),
            "other shape": lies(kept.view(0, 4)),
            "flat": lies(empty.view(-1)),
        },
        {
            "worked out": ((2, 6), (6, 1), 0, rows(range(6), range(6, 12))),
            "twice": Raises("LayoutError", ("(-1, -1)", "more than one -1")),
            "indivisible": Raises("LayoutError", ("(5, -1)", "12 elements")),
            "negative": Raises("LayoutError", ("(-2, 6)",)),
            "any size": Raises("LayoutError", ("(0, -1)",)),
            "same shape": ((4, 0), (6, 1), 2),
            "other shape": ((0, 4), (4, 1), 2),
            "flat": ((0,), (1,), 0),
        },
        lambda t, kept, empty: put(t.view(-1, 6), (1, 5), -1),
        lambda t, kept, empty: t[2].tolist(),
        [8, 9, 10, -1],
        lambda t, kept, empty: put(t, 0, 7),
        lambda t, kept, empty: t.view(2, -1)[0].tolist(),
        [7, 7, 7, 7, 4, 5],
    ),
    3: Case(
        lambda: (
            st.zeros(2, 0, 3),
            st.arange(3).as_strided((1, 3), (100, 1)),
            st.tensor([5]).as_strided((1,), (0,)),
            st.arange(6).view(2, 3).t(),
        ),
        lambda empty, wide, one, turned: {
            "empty": (empty.stride(), empty.is_contiguous()),
            "odd stride": (wide.stride(), wide.is_contiguous(), wide.contiguous() is wide),
            "stride 0": (one.stride(), one.is_contiguous(), one.contiguous() is one),
            "turned": (turned.stride(), turned.is_contiguous()),
            "made contiguous": facts(turned.contiguous()),
        },
        {
            "empty": ((3, 3, 1), True),
            "odd stride": ((100, 1), True, True),
            "stride 0": ((0,), True, True),
            "turned": ((1, 3), False),
            "made contiguous": ((3, 2), (2, 1), 0, [[0, 3], [1, 4], [2, 5]]),
        },
        lambda empty, wide, one, turned: put(wide.contiguous(), (0, 1), 8),
        lambda empty, wide, one, turned: wide.tolist(),
        [[0, 8, 2]],
        lambda empty, wide, one, turned: put(turned, (2, 0), 9),
        lambda empty, wide, one, turned: turned.tolist(),
        [[0, 3], [1, 4], [9, 5]],
    ),
    4: Case(
        lambda: (
            st.empty((2, 0, 4, 5), memory_format=st.channels_last),
            st.arange(40).view(2, 1, 4, 5),
            st.arange(12).view(1, 3, 2, 2).contiguous(memory_format=st.channels_last),
        ),
        lambda empty, single, last: {
            "empty": (empty.stride(), empty.is_contiguous(memory_format=st.channels_last)),
            "both": (single.is_contiguous(), single.is_contiguous(memory_format=st.channels_last)),
            "itself": single.contiguous(memory_format=st.channels_last) is single,
            "to": single.to(memory_format=st.channels_last).stride(),
            "clone": single.clone(memory_format=st.channels_last).stride(),
            "arrived": facts(last),
            "another rank": single[0].is_contiguous(memory_format=st.channels_last),
            "another rank made": refusal(lambda: single[0].contiguous(memory_format=st.channels_last)),
            "another rank to": refusal(lambda: single[0].to(memory_format=st.channels_last)),
            "another rank empty": refusal(lambda: st.empty((2, 3), memory_format=st.channels_last_3d)),
        },
        {
            # The 0 stays in the product: no max(size, 1) here.
            "empty": ((0, 1, 0, 0), True),
            "both": (True, True),
            "itself": True,
            "to": (20, 1, 5, 1),
            "clone": (20, 1, 5, 1),
            "arrived": ((1, 3, 2, 2), (12, 1, 6, 3), 0, [[[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10, 11]]]]),
            "another rank": False,
            "another rank made": Raises("LayoutError", ("channels_last", "4 dims", "(1, 4, 5)")),
            "another rank to": Raises("LayoutError", ("channels_last", "4 dims", "(1, 4, 5)")),
            "another rank empty": Raises("LayoutError", ("channels_last_3d", "5 dims", "(2, 3)")),
        },
        lambda empty, single, last: put(last, (0, 2, 1, 1), -1),
        lambda empty, single, last: last[0, 2].tolist(),
        [[8, 9], [10, -1]],
        lambda empty, single, last: put(last, (0, 0), 5),
        lambda empty, single, last: last[0, :, 0, 0].tolist(),
        [5, 4, 8],
    ),
    5: Case(
        lambda: (
            st.arange(3).expand(4, 3),
            st.arange(60).as_strided((2, 4, 3), (1, 12, 4)),
            st.arange(6).view(2, 3).t(),
        ),
        lambda row, gaps, dense: {
            "expanded": facts(row.clone()),
            "with gaps": lies(gaps.clone()),
            "values": gaps.clone().tolist()[1],
            "dense": facts(dense.clone()),
            "like": lies(st.empty_like(gaps)),
            "nothing to follow": refusal(lambda: st.empty(2, memory_format=st.preserve_format)),
        },
        {
            "expanded": ((4, 3), (3, 1), 0, [[0, 1, 2]] * 4),
            "with gaps": ((2, 4, 3), (1, 6, 2), 0),
            "values": [[1, 5, 9], [13, 17, 21], [25, 29, 33], [37, 41, 45]],
            "dense": ((3, 2), (1, 3), 0, [[0, 3], [1, 4], [2, 5]]),
            "like": ((2, 4, 3), (1, 6, 2), 0),
            "nothing to follow": Raises("LayoutError", ("preserve_format", "empty_like")),
        },
        lambda row, gaps, dense: (dense.clone().fill_(7), dense.fill_(8)),
        lambda row, gaps, dense: dense.tolist(),
        [[8, 8]] * 3,
        lambda row, gaps, dense: put(gaps, (1, 3, 2), 7),
        lambda row, gaps, dense: gaps.clone().tolist()[1][3],
        [37, 41, 7],
    ),
    6: Case(
        lambda: (st.arange(10), st.arange(12).view(3, 4)),
        lambda t, grid: {
            "step": facts(t[1::4]),
            "clamped": facts(t[-100:3]),
            "nothing left": lies(t[100:]),
            "step below 1": refusal(lambda: t[::-1]),
            "step 0": refusal(lambda: t[::0]),
            "int": refusal(lambda: t[10]),
            "narrow": facts(t.narrow(0, -3, 2)),
            "narrow to the end": lies(t.narrow(0, 10, 0)),
            "narrow past it": refusal(lambda: t.narrow(0, 11, 0)),
            "diagonal above": facts(grid.diagonal(1)),
            "diagonal below": facts(grid.diagonal(-1)),
            "diagonal outside": lies(grid.diagonal(4)),
            "unfold": facts(t.unfold(0, 4, 3)),
            "chunk": [piece.tolist() for piece in t.chunk(6)],
            "chunk of nothing": [lies(piece) for piece in t[:0].chunk(2)],
            "tensor_split": [piece.tolist() for piece in t.tensor_split(4)],
        },
        {
            "step": ((3,), (4,), 1, [1, 5, 9]),
            "clamped": ((3,), (1,), 0, [0, 1, 2]),
            "nothing left": ((0,), (1,), 10),
            "step below 1": Raises("ValueError", ("step -1", "flip")),
            "step 0": Raises("ValueError", ("step 0",)),
            "int": Raises("IndexError", ("index 10", "size 10")),
            "narrow": ((2,), (1,), 7, [7, 8]),
            "narrow to the end": ((0,), (1,), 10),
            "narrow past it": Raises("IndexError", ("start 11", "size 10")),
            "diagonal above": ((3,), (5,), 1, [1, 6, 11]),
            "diagonal below": ((2,), (5,), 4, [4, 9]),
            "diagonal outside": ((0,), (5,), 0),
            "unfold": ((3, 4), (3, 1), 0, rows(range(4), range(3, 7), range(6, 10))),
            "chunk": [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]],
            "chunk of nothing": [((0,), (1,), 0)] * 2,
            "tensor_split": [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]],
        },
        lambda t, grid: grid.diagonal(1).fill_(-1),
        lambda t, grid: grid.tolist(),
        [[0, -1, 2, 3], [4, 5, -1, 7], [8, 9, 10, -1]],
        lambda t, grid: put(t, slice(1, None, 4), 0),
        lambda t, grid: t.unfold(0, 4, 3).tolist(),
        [[0, 0, 2, 3], [3, 4, 0, 6], [6, 7, 8, 0]],
    ),
    7: Case(
        lambda: (st.arange(3).view(3, 1), st.arange(3).view(3, 1).expand(2, 3, 4)),
        lambda t, repeated: {
            "repeated": facts(t.expand(3, 2)),
            "kept": lies(t.expand(-1, 1)),
            "new dim": lies(t.expand(2, 3, 1)),
            "new dim of size 1": lies(t.expand(1, 3, 1)),
            "-1 in a new dim": refusal(lambda: t.expand(-1, 3, 1)),
            "another size": refusal(lambda: t.expand(4, 1)),
            "unsqueezed": lies(t.unsqueeze(0)),
            "unsqueezed at the end": lies(t.unsqueeze(2)),
            "None": lies(t[:, None]),
            "arrived": lies(repeated),
        },
        {
            "repeated": ((3, 2), (1, 0), 0, [[0, 0], [1, 1], [2, 2]]),
            "kept": ((3, 1), (1, 1), 0),
            "new dim": ((2, 3, 1), (0, 1, 1), 0),
            "new dim of size 1": ((1, 3, 1), (3, 1, 1), 0),
            "-1 in a new dim": Raises("LayoutError", ("(-1, 3, 1)", "(3, 1)")),
            "another size": Raises("LayoutError", ("(4, 1)", "size 3 of dim 0", "repeat")),
            "unsqueezed": ((1, 3, 1), (3, 1, 1), 0),
            "unsqueezed at the end": ((3, 1, 1), (1, 1, 1), 0),
            "None": ((3, 1, 1), (1, 1, 1), 0),
            "arrived": ((2, 3, 4), (0, 1, 0), 0),
        },
        lambda t, repeated: repeated.select(0, 0).select(1, 0).fill_(6),
        lambda t, repeated: repeated[1].tolist(),
        [[6] * 4] * 3,
        lambda t, repeated: put(t, 1, 5),
        lambda t, repeated: t.expand(3, 2).tolist(),
        [[0, 0], [5, 5], [2, 2]],
    ),
    8: Case(
        lambda: (st.arange(8, dtype="int32").view(2, 4), st.arange(6, dtype="int32").view("uint8")[4:12]),
        lambda t, raw: {
            "same size": (lies(t.view("float32")), lies(t.t().view("float32"))),
            "smaller": lies(t[1:].view("uint8")),
            "larger": facts(t.view("int64")),
            "size": refusal(lambda: t[:, :3].view("int64")),
            "offset": refusal(lambda: t[:, 1:3].view("int64")),
            "last stride": refusal(lambda: t.t().view("uint8")),
            "0-d": refusal(lambda: t[0, 0].view("uint8")),
            "arrived as bytes": (lies(raw), facts(raw.view("int32"))),
        },
        {
            "same size": (((2, 4), (4, 1), 0), ((4, 2), (1, 4), 0)),
            "smaller": ((1, 16), (16, 1), 16),
            "larger": ((2, 2), (2, 1), 0, [[1 << 32, 2 + (3 << 32)], [4 + (5 << 32), 6 + (7 << 32)]]),
            "size": Raises("LayoutError", ("4-byte", "8-byte", "(2, 3)", "divisible by 2")),
            "offset": Raises("LayoutError", ("offset 1", "divisible by 2")),
            "last stride": Raises("LayoutError", ("stride 1", "(1, 4)", "contiguous()")),
            "0-d": Raises("LayoutError", ("last dim",)),
            "arrived as bytes": (((8,), (1,), 4), ((2,), (1,), 1, [1, 2])),
        },
        lambda t, raw: put(t.view("int64"), (1, 1), 9),
        lambda t, raw: t.tolist(),
        [[0, 1, 2, 3], [4, 5, 9, 0]],
        lambda t, raw: put(raw, 1, 1),
        lambda t, raw: raw.view("int32").tolist(),
        [257, 2],
    ),
    9: Case(
        lambda: (st.arange(6)[2:4], st.arange(4)),
        lambda t, other: {
            "its own offset": facts(t.as_strided((2, 2), (2, 1))),
            "all of the storage": facts(t.as_strided((6,), (1,), 0)),
            "past the end": refusal(lambda: t.as_strided((7,), (1,), 0)),
            "no elements": lies(t.as_strided((0,), (9,), 1000)),
            "negative stride": refusal(lambda: t.as_strided((2,), (-1,), 3)),
            "negative offset": refusal(lambda: t.as_strided((2,), (1,), -1)),
            "set_ past the end": refusal(lambda: t.set_(other.untyped_storage(), 1, (2,), (3,))),
            "set_ changed nothing": (facts(t), other.untyped_storage().nbytes()),
            "set_": facts(t.alias().set_(other.untyped_storage(), 1, (2,), (2,))),
        },
        {
            "its own offset": ((2, 2), (2, 1), 2, [[2, 3], [4, 5]]),
            "all of the storage": ((6,), (1,), 0, [0, 1, 2, 3, 4, 5]),
            "past the end": Raises("StorageBoundsError", ("(7,)", "56 bytes", "has 48")),
            "no elements": ((0,), (9,), 1000),
            "negative stride": Raises("LayoutError", ("(-1,)", "flip")),
            "negative offset": Raises("LayoutError", ("offset -1",)),
            "set_ past the end": Raises("StorageBoundsError", ("(2,)", "40 bytes", "has 32")),
            "set_ changed nothing": (((2,), (1,), 2, [2, 3]), 32),
            "set_": ((2,), (2,), 1, [1, 3]),
        },
        lambda t, other: put(t.as_strided((6,), (1,), 0), 3, -1),
        lambda t, other: t.tolist(),
        [2, -1],
        lambda t, other: put(other, 3, 7),
        lambda t, other: t.alias().set_(other.untyped_storage(), 1, (2,), (2,)).tolist(),
        [1, 7],
    ),
    10: Case(
        lambda: (st.zeros(1, 3).expand(2, 3), st.arange(6), st.arange(9).view(3, 3)),
        lambda row, t, square: {
            "copy_": refusal(lambda: row.copy_(st.ones(2, 3))),
            "by index": refusal(lambda: put(row, ..., st.ones(2, 3))),
            "in place": refusal(lambda: row.__iadd__(1)),
            "nothing was written": row.tolist(),
            "fill_": row.fill_(2).tolist(),
            "zero_": row.zero_().tolist(),
            "one element": (put(row, (1, 2), 4), row.tolist())[1],
        },
        {
            "copy_": Raises("RuntimeError", ("(2, 3)", "(0, 1)", "clone()", "fill_")),
            "by index": Raises("RuntimeError", ("(2, 3)", "(0, 1)", "clone()", "fill_")),
            "in place": Raises("RuntimeError", ("(2, 3)", "(0, 1)", "clone()")),
            "nothing was written": [[0.0] * 3] * 2,
            "fill_": [[2.0] * 3] * 2,
            "zero_": [[0.0] * 3] * 2,
            "one element": [[0.0, 0.0, 4.0]] * 2,
        },
        lambda row, t, square: (put(t, slice(1, None), t[:-1]), square.copy_(square.t())),
        lambda row, t, square: (row.tolist(), t.tolist(), square.tolist()),
        ([[0.0, 0.0, 4.0]] * 2, [0, 0, 1, 2, 3, 4], [[0, 3, 6], [1, 4, 7], [2, 5, 8]]),
        lambda row, t, square: put(t, slice(0, 3), t[0:6:2]),
        lambda row, t, square: t.tolist(),
        [0, 1, 3, 2, 3, 4],
    ),
    11: Case(
        lambda: (st.empty(3, 2, dtype="int64", capacity=1 << 13).copy_(st.arange(6).view(3, 2))[1:],),
        lambda t: {
            "same shape": (facts(t.alias().resize_(2, 2)), t.untyped_storage().nbytes()),
            "smaller": (facts(t.alias().resize_(3)), t.untyped_storage().nbytes()),
            "too large": refusal(lambda: t.resize_(1 << 20)),
            "nothing changed": (facts(t), t.untyped_storage().nbytes()),
            "grown": (lies(t.alias().resize_(2, 5)), t.untyped_storage().nbytes()),
            "never smaller": (lies(t.alias().resize_(1)), t.untyped_storage().nbytes()),
            "in a format": lies(t.alias().resize_(1, 2, 2, 2, memory_format=st.channels_last)),
        },
        {
            "same shape": (((2, 2), (2, 1), 2, [[2, 3], [4, 5]]), 48),
            "smaller": (((3,), (1,), 2, [2, 3, 4]), 48),
            "too large": Raises("StorageCapacityError", ("capacity",)),
            "nothing changed": (((2, 2), (2, 1), 2, [[2, 3], [4, 5]]), 48),
            "grown": (((2, 5), (5, 1), 2), 96),
            "never smaller": (((1,), (1,), 2), 96),
            "in a format": ((1, 2, 2, 2), (8, 1, 4, 2), 2),
        },
        lambda t: put(t.alias().resize_(10), 9, 7),
        lambda t: (facts(t), t.untyped_storage().nbytes(), t.alias().resize_(10)[9].item()),
        (((2, 2), (2, 1), 2, [[2, 3], [4, 5]]), 96, 7),
        lambda t: t.alias().resize_(100).fill_(3),
        lambda t: (t.untyped_storage().nbytes(), t.tolist(), t.alias().resize_(100)[99].item()),
        (816, [[3, 3], [3, 3]], 3),
    ),
    12: Case(
        lambda: (st.arange(6),),
        lambda t: {
            "bytes": (t.untyped_storage().nbytes(), t.untyped_storage().size(), len(t.untyped_storage())),
            "shrunk": t.untyped_storage().resize_(16).nbytes(),
            "shape": lies(t),
            "read": refusal(t.tolist),
            "written": refusal(lambda: t.fill_(1)),
            "what is left": t[:2].tolist(),
        },
        {
            "bytes": (48, 48, 48),
            "shrunk": 16,
            "shape": ((6,), (1,), 0),
            "read": Raises("StorageBoundsError", ("48 bytes", "has 16", "resize_")),
            "written": Raises("StorageBoundsError", ("48 bytes", "has 16", "resize_")),
            "what is left": [0, 1],
        },
        lambda t: put(t[:2], 1, 7),
        lambda t: (lies(t), "StorageBoundsError" in refusal(t.tolist)[0], t[:2].tolist()),
        (((6,), (1,), 0), True, [0, 7]),
        lambda t: (t.untyped_storage().resize_(48), put(t, slice(2, None), 5)),
        lambda t: (t.untyped_storage().nbytes(), t.tolist()),
        (48, [0, 7, 5, 5, 5, 5]),
    ),
    13: Case(
        lambda: views_of_one(),
        lambda base, view, other: {
            "on one storage": (share(base, view), share(base, other)),
            "the same object": base.untyped_storage() == view.untyped_storage(),
            "layouts": (lies(base), lies(view), lies(other)),
        },
        {
            "on one storage": (True, False),
            "the same object": True,
            "layouts": (((3, 4), (4, 1), 0), ((4, 2), (1, 4), 4), ((2,), (1,), 0)),
        },
        lambda base, view, other: put(view, (0, 0), -1),
        lambda base, view, other: (base[1].tolist(), view[0].tolist()),
        ([-1, 5, 6, 7], [-1, 8]),
        lambda base, view, other: put(base, (2, 3), 0),
        lambda base, view, other: view.tolist(),
        [[-1, 8], [5, 9], [6, 10], [7, 0]],
    ),
    14: Case(
        lambda: (st.arange(12).view(3, 4), st.tensor(1), st.arange(12).view(3, 4)[:, 0] > 3),
        lambda t, one, mask: {
            "views": [
                (lies(t[key]), share(t, t[key]))
                for key in (1, np.int64(1), one, (slice(None), 2), (..., 3), (None, 0), (1, 2), slice(1, None))
            ],
            "copies": [
                (t[key].tolist(), share(t, t[key]))
                for key in ([0, 2], mask, (0, [1, 2]), (slice(0, 1), [1, 2]), np.array([[1]]), (2, True))
            ],
            "len of a number": refusal(lambda: len(t[0, 0])),
            "iteration over a number": refusal(lambda: iter(t[0, 0])),
            "bool of several": refusal(lambda: bool(t)),
            "an int outside": refusal(lambda: t[0, 4]),
            "too many": refusal(lambda: t[0, 0, 0]),
        },
        {
            "views": [
                (((4,), (1,), 4), True),
                (((4,), (1,), 4), True),
                (((4,), (1,), 4), True),
                (((3,), (4,), 2), True),
                (((3,), (4,), 3), True),
                (((1, 4), (12, 1), 0), True),
                (((), (), 6), True),
                (((2, 4), (4, 1), 4), True),
            ],
            "copies": [
                ([[0, 1, 2, 3], [8, 9, 10, 11]], False),
                ([[4, 5, 6, 7], [8, 9, 10, 11]], False),
                ([1, 2], False),
                ([[1, 2]], False),
                ([[[4, 5, 6, 7]]], False),
                ([[8, 9, 10, 11]], False),
            ],
            "len of a number": Raises("TypeError", ("0-d",)),
            "iteration over a number": Raises("TypeError", ("0-d",)),
            "bool of several": Raises("ValueError", ("(3, 4)",)),
            "an int outside": Raises("IndexError", ("index 4", "dim 1", "size 4")),
            "too many": Raises("IndexError", ("too many", "3", "(3, 4)")),
        },
        lambda t, one, mask: (
            put(t, (slice(None), [0, 3]), -1),
            put(t, mask, [[5, 5, 5, 6]]),
            put(t[0], slice(1, 3), 9),
        ),
        lambda t, one, mask: t.tolist(),
        [[-1, 9, 9, -1], [5, 5, 5, 6], [5, 5, 5, 6]],
        lambda t, one, mask: put(t, one, 0),
        lambda t, one, mask: t[one].tolist(),
        [0, 0, 0, 0],
    ),
    15: Case(
        lambda: (st.from_numpy(np.arange(6)[::-1]), st.tensor(np.flip(np.arange(6).reshape(2, 3)))),
        lambda row, grid: {
            "arrived": (facts(row), facts(grid)),
            "flipped": (facts(row.flip(0)), facts(np.flip(row))),
            "reversed slice": refusal(lambda: row[::-1]),
            "exported": (np.asarray(row).strides, np.asarray(np.flip(grid)).strides),
        },
        {
            "arrived": (((6,), (1,), 0, [5, 4, 3, 2, 1, 0]), ((2, 3), (3, 1), 0, [[5, 4, 3], [2, 1, 0]])),
            "flipped": (((6,), (1,), 0, [0, 1, 2, 3, 4, 5]), ((6,), (1,), 0, [0, 1, 2, 3, 4, 5])),
            "reversed slice": Raises("ValueError", ("step -1", "flip")),
            "exported": ((8,), (24, 8)),
        },
        lambda row, grid: put(row, 0, 9),
        lambda row, grid: row.tolist(),
        [9, 4, 3, 2, 1, 0],
        lambda row, grid: put(grid, (1, 2), 9),
        lambda row, grid: np.flip(grid).tolist(),
        [[9, 1, 2], [3, 4, 5]],
    ),
}


def views_of_one() -> tuple[st.Tensor, ...]:
    base = st.arange(12).view(3, 4)
    return base, base[1:].t(), st.arange(2)
