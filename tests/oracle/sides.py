"""One tensor held three times: as ours, as torch's and as NumPy's, over memory with the same bytes.

Owns what is compared and how; knows nothing of which calls are made. NumPy is always there and says which
bytes the elements are; torch, where it is installed, also says the strides, the offset and the contiguity.
What each side is asked is its own; nothing of the code under test computes what is expected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import shmtensor as st

Array = np.ndarray[Any, Any]
Act = Callable[[Any], Any]

FORMATS = ("contiguous_format", "channels_last", "channels_last_3d")
REFUSALS = (IndexError, OverflowError, RuntimeError, TypeError, ValueError)
MOST_ELEMENTS = 4000
MOST_DIMS = 8

# Which error of ours stands for which of theirs. Ours say what to do next and are subclasses of these.
OUR_CLASS = {
    "torch": {IndexError: IndexError, RuntimeError: RuntimeError, ValueError: ValueError, TypeError: TypeError},
    # NumPy's AxisError, a dim that does not exist, is both; so the first that fits is meant.
    "numpy": {IndexError: IndexError, OverflowError: OverflowError, ValueError: ValueError, TypeError: TypeError},
}


@dataclass
class Step:
    """One call, as each side spells it. ``differs`` names the rule by which a side is not asked at all."""

    said: str
    ours: Act
    torch: Act
    numpy: Act
    differs: dict[str, str] = field(default_factory=dict)
    error_differs: dict[str, str] = field(default_factory=dict)  # both refuse; the class differs, and why
    is_0d: bool = False


class Sides:
    """The three tensors, of equal shape and dtype. ``theirs`` is None without torch."""

    def __init__(self, torch: Any, ours: st.Tensor, theirs: Any, array: Array) -> None:
        self.torch = torch
        self.ours = ours
        self.theirs = theirs
        self.array = array
        # Calls that work in place change the tensors, not these.
        self.storage = ours.untyped_storage()
        self.their_storage = None if theirs is None else theirs.untyped_storage()
        self.root = root_of(array)

    @classmethod
    def start(cls, torch: Any, content: Array, dtype: str, shape: Any, stride: Any, offset: int) -> Sides:
        """Views of three copies of ``content``, which is bytes."""
        ours = st.tensor(content).view(dtype).as_strided(shape, stride, offset)
        theirs = None
        if torch is not None:
            theirs = torch.empty(content.size, dtype=torch.uint8)  # torch's own memory, so that it can be resized
            theirs.copy_(torch.from_numpy(content))
            theirs = theirs.view(getattr(torch, dtype)).as_strided(shape, stride, offset)
        return cls(torch, ours, theirs, strided(content.copy(), dtype, shape, stride, offset))

    def take(self, step: Step) -> tuple[Any, Any, Any]:
        """What each side answers; None from one that is not asked."""
        theirs = None
        if self.torch is not None and "torch" not in step.differs:
            theirs = outcome(step.torch, self.theirs)
        array = None if "numpy" in step.differs else outcome(step.numpy, self.array)
        return outcome(step.ours, self.ours), theirs, array

    def check_storages(self) -> None:
        """All bytes, also those that the tensors don't show, are equal."""
        mine = np.asarray(self.ours.untyped_storage()[:])
        root = root_of(self.array)
        assert np.array_equal(mine, root), f"the bytes differ from NumPy's at {np.flatnonzero(mine != root)[:8]}"
        if self.torch is not None:
            theirs = torch_bytes(self.torch, self.theirs)
            assert np.array_equal(mine, theirs), (
                f"the bytes differ from torch's at {np.flatnonzero(mine != theirs)[:8]}"
            )


def outcome(act: Act, tensor: Any) -> Any:
    """What a call gives, or the exception it refuses with."""
    try:
        return act(tensor)
    except REFUSALS as error:
        # A traceback holds arrays of the frames it passed, and while one lives no storage can move.
        error.__context__ = error.__cause__ = None
        return error.with_traceback(None)


def strided(root: Array, dtype: Any, shape: Any, stride: Any, offset: int) -> Array:
    """An array over ``root``; stride and offset in elements. NumPy itself refuses one that does not fit."""
    itemsize = np.dtype(dtype).itemsize
    if not root.size and math.prod(shape):
        raise ValueError("nothing there")  # which NumPy takes for a buffer of unknown size
    start = 0 if math.prod(shape) == 0 else offset * itemsize
    return np.ndarray(shape, dtype, root, start, tuple(step * itemsize for step in stride))


def root_of(array: Array) -> Array:
    """The array of bytes that owns the memory of ``array``."""
    owner: Any = array
    while owner.base is not None:  # which need not be an array: NumPy's as_strided puts a stand-in between
        owner = owner.base
    return owner


def place_of(array: Array) -> int:
    """How many bytes after the start of its root ``array`` starts."""
    return int(array.__array_interface__["data"][0] - root_of(array).__array_interface__["data"][0])


def torch_bytes(torch: Any, theirs: Any) -> Array:
    """A copy of the storage's bytes. A copy, because a storage that numpy() has seen can't be resized any more."""
    storage: Array = bytes_of(torch, theirs).clone().numpy().copy()
    return storage


def bytes_of(torch: Any, theirs: Any) -> Any:
    """The storage as a torch tensor of bytes that shares it."""
    return torch.empty(0, dtype=torch.uint8).set_(theirs.untyped_storage())


def check_refusals(step: Step, ours: Any, others: dict[str, Any]) -> bool:
    """Whether the step was refused by all; raises when only some did, or with errors of different kinds."""
    for side, answer in others.items():
        if answer is None and side in step.differs:
            continue
        if not isinstance(answer, Exception):
            assert not isinstance(ours, Exception), f"we refuse with {ours!r} what {side} does"
            continue
        assert isinstance(ours, Exception), f"{side} refuses with {answer!r} what we do"
        if side in step.error_differs or (step.is_0d and isinstance(ours, IndexError)):
            continue  # a dim that does not exist is an IndexError; of a 0-d tensor torch says RuntimeError
        wanted = next(mine for theirs, mine in OUR_CLASS[side].items() if isinstance(answer, theirs))
        assert isinstance(ours, wanted), f"{side} refuses with {answer!r}, we with {ours!r}"
    return isinstance(ours, Exception)


def check_equal(before: Sides, ours: Any, theirs: Any, array: Any) -> None:
    """One result of a step; None stands for a side that was not asked."""
    assert isinstance(ours, st.Tensor), f"{type(ours).__name__} is no tensor"
    shares = ours.untyped_storage() is before.storage
    values = np.asarray(ours) if ours.numel() <= MOST_ELEMENTS else None
    if theirs is not None:
        check_against_torch(before, ours, theirs, shares, values)
    if array is not None:
        check_against_numpy(before, ours, array, shares, values)


def check_against_torch(before: Sides, ours: st.Tensor, theirs: Any, shares: bool, values: Array | None) -> None:
    torch = before.torch
    expected = (tuple(theirs.shape), theirs.stride(), theirs.storage_offset(), str(theirs.dtype))
    said = (ours.shape, ours.stride(), ours.storage_offset(), f"torch.{ours.dtype.name}")
    assert said == expected, f"we say {said}, torch {expected}"
    for name in FORMATS:
        follows = ours.is_contiguous(memory_format=getattr(st, name))
        assert follows == theirs.is_contiguous(memory_format=getattr(torch, name)), f"is_contiguous({name}): {follows}"
    # Not by address: all empty storages have the same.
    they_share = theirs.untyped_storage()._cdata == before.their_storage._cdata
    assert shares == they_share, f"we share: {shares}; torch does not agree"
    assert (ours is before.ours) == (theirs is before.theirs), "one gives itself, the other a new tensor"
    assert ours.untyped_storage().nbytes() == theirs.untyped_storage().nbytes(), "storages of different size"
    if values is not None:
        assert values.tobytes() == theirs.clone().numpy().tobytes(), "values differ from torch's"


def check_against_numpy(before: Sides, ours: st.Tensor, array: Array, shares: bool, values: Array | None) -> None:
    assert (ours.shape, ours.dtype) == (array.shape, array.dtype), f"NumPy has {array.shape} of {array.dtype}"
    assert shares == (root_of(array) is before.root), f"we share: {shares}; NumPy does not agree"
    if values is not None:
        assert values.tobytes() == array.tobytes(), "values differ from NumPy's"
    if shares and array.size:
        assert ours.storage_offset() * array.itemsize == place_of(array), "NumPy's elements start elsewhere"
        steps = {(size, step) for size, step in zip(array.shape, array.strides, strict=True) if size != 1}
        mine = zip(ours.shape, ours.stride(), strict=True)
        assert {(size, step * array.itemsize) for size, step in mine if size != 1} == steps, "NumPy's strides differ"


def follow(before: Sides, ours: st.Tensor, theirs: Any, array: Array | None) -> Sides | None:
    """The sides after a step; None when the program must end, since nobody here knows how NumPy's should lie."""
    if ours is not before.ours and (ours.numel() > MOST_ELEMENTS or ours.ndim > MOST_DIMS):
        return before
    shares = ours.untyped_storage() is before.storage
    if before.torch is not None:
        if theirs is None:
            return None
        grown = theirs.untyped_storage().nbytes() != before.root.size
        root = before.root if shares and not grown else torch_bytes(before.torch, theirs)
        layout = (tuple(theirs.shape), theirs.stride(), theirs.storage_offset())
        return Sides(before.torch, ours, theirs, strided(root, ours.dtype, *layout))
    if array is None:
        return None
    root, place = before.root, place_of(array)
    if not shares:
        if not array.flags.c_contiguous or not ours.is_contiguous():
            return None
        root, place = np.frombuffer(array.tobytes(), np.uint8).copy(), 0
    array = np.ndarray(array.shape, array.dtype, root, place if array.size else 0, array.strides)
    return Sides(None, ours, None, array)
