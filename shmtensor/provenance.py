"""Whose memory an array views: the way back from an array, however it was derived, to the storage it came
from.
"""

from __future__ import annotations

import gc
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from shmtensor.layout import Layout
from shmtensor.storage import Storage, attached

__all__ = ["alias_of", "is_writable", "remember", "root_at", "root_of"]

# What DLPack and torch hold leads nowhere that Python could follow. Address of memory that went out that way -> its
# root. While the root is alive, nothing else can be at that address.
_roots: WeakValueDictionary[int, Any] = WeakValueDictionary()


def root_of(array: Any) -> Any:
    """The root of the storage that ``array`` is a view of, or None for an array of other memory."""
    view = None
    while isinstance(array, (np.ndarray, memoryview)):
        if _is_root(array):
            return array
        view = array
        array = _owner(array) if isinstance(array, memoryview) else array.base
    if array is None or not isinstance(view, np.ndarray):
        return None
    return root_at(address_of(view))  # of memory that an object of another library holds, such as a capsule


def alias_of(array: Any) -> tuple[Storage, Layout] | None:
    """The storage that ``array`` is a view of and its layout there; None for other memory, or where strides
    are negative or no multiple of the itemsize (rule 15).
    """
    root = root_of(array)
    if root is None:
        return None
    itemsize = array.itemsize
    distance = address_of(array) - address_of(root) if array.size else 0
    if distance < 0 or any(number < 0 or number % itemsize for number in (distance, *array.strides)):
        return None
    layout = Layout(array.shape, tuple(step // itemsize for step in array.strides), distance // itemsize)
    return root.keeper, layout


def is_writable(array: np.ndarray[Any, Any]) -> bool:
    """Whether ``array`` may be written. Those of `numpy.broadcast_arrays` may not be for long: NumPy warns who asks
    their flag, and reads of the array interface that they are read-only.
    """
    return not array.__array_interface__["data"][1]


def address_of(array: Any) -> int:
    """The address of the first element."""
    address: int = array.__array_interface__["data"][0]
    return address


def remember(array: Any) -> None:
    """Note whose memory ``array`` is, before it goes to a library that keeps it without saying so."""
    address = address_of(array)
    # torch takes no note of read-only memory: of two roots at an address, what comes back is of the writable one.
    if array.size and (array.flags.writeable or address not in _roots):
        _roots[address] = root_of(array)


def root_at(address: int) -> Any:
    """The root of the storage that has this address in it, or None.

    Quick for memory that was given to `remember`. Else, and only where the address is a pool's, all objects of this
    process are looked through once (0.1 to 0.3 us each): an array handed to torch by the user, say.
    """
    root = _roots.get(address)
    if root is None and _is_in_a_heap(address):
        roots = [each for each in gc.get_objects() if _is_root(each) and _spans(each, address)]
        root = max(roots, key=lambda each: bool(each.flags.writeable), default=None)
        if root is not None:
            _roots[address] = root
    return root


def _is_root(value: Any) -> bool:
    # By type: to ask a lazy object for its class may import half a library.
    return issubclass(type(value), np.ndarray) and isinstance(getattr(value, "keeper", None), Storage)


def _spans(root: Any, address: int) -> bool:
    start = address_of(root)
    return start <= address < start + int(root.nbytes)


def _owner(view: memoryview) -> Any:
    """What ``view`` is a view of. From Python 3.12 on, what ``__buffer__`` returned is wrapped in an object
    without attributes; the collector sees through it.
    """
    owner = view.obj
    if type(owner).__name__ != "_buffer_wrapper":
        return owner
    return next((each for each in gc.get_referents(owner) if isinstance(each, memoryview)), None)


def _is_in_a_heap(address: int) -> bool:
    """Whether this is an address in the heap of a pool that this process is attached to."""
    for pool in list(attached.values()):
        start = address_of(np.frombuffer(pool.heap_map, np.uint8, 1))
        if 0 <= address - start < len(pool.heap_map):
            return True
    return False
