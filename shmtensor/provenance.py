"""Whose memory an array views: the way back from an array, however it was derived, to the storage it came
from.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

from shmtensor.layout import Layout
from shmtensor.storage import Storage

__all__ = ["alias_of", "is_writable", "root_of"]


def root_of(array: Any) -> Any:
    """The root of the storage that ``array`` is a view of, or None for an array of other memory."""
    while isinstance(array, (np.ndarray, memoryview)):
        if isinstance(getattr(array, "keeper", None), Storage):
            return array
        array = _owner(array) if isinstance(array, memoryview) else array.base
    return None


def _owner(view: memoryview) -> Any:
    """What ``view`` is a view of. From Python 3.12 on, what ``__buffer__`` returned is wrapped in an object
    without attributes; the collector sees through it.
    """
    owner = view.obj
    if type(owner).__name__ != "_buffer_wrapper":
        return owner
    return next((each for each in gc.get_referents(owner) if isinstance(each, memoryview)), None)


def alias_of(array: Any) -> tuple[Storage, Layout] | None:
    """The storage that ``array`` is a view of and its layout there; None for other memory, or where strides
    are negative or no multiple of the itemsize (rule 15).
    """
    root = root_of(array)
    if root is None:
        return None
    itemsize = array.itemsize
    distance = array.__array_interface__["data"][0] - root.__array_interface__["data"][0] if array.size else 0
    if distance < 0 or any(number < 0 or number % itemsize for number in (distance, *array.strides)):
        return None
    layout = Layout(array.shape, tuple(step // itemsize for step in array.strides), distance // itemsize)
    return root.keeper, layout


def is_writable(array: np.ndarray[Any, Any]) -> bool:
    """Whether ``array`` may be written. Those of `numpy.broadcast_arrays` may not be for long: NumPy warns who asks
    their flag, and reads of the array interface that they are read-only.
    """
    return not array.__array_interface__["data"][1]
