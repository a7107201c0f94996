"""Checked arguments of storages: sizes and positions as ints, values as bytes, apart from where they go. Pure."""

from __future__ import annotations

from operator import index
from typing import Any, SupportsIndex, TypeAlias

import numpy as np

__all__ = ["Bytes", "apart", "as_bytes", "buffer_bytes", "byte_count", "position", "to_write"]

Array: TypeAlias = "np.ndarray[Any, Any]"
Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"


def byte_count(value: SupportsIndex) -> int:
    """``value`` as a number of bytes. Raises `ValueError` when it is negative."""
    count = index(value)
    if count < 0:
        raise ValueError(f"{count} bytes: a storage can't have fewer than 0")
    return count


def position(key: Any) -> int:
    """``key`` as an index of a storage. Raises `TypeError` for what is no int, such as two of them."""
    try:
        return index(key)
    except TypeError:
        raise TypeError(f"a storage has one dim: index it with an int or a slice, not {key!r}") from None


def buffer_bytes(buffer: Any) -> Bytes:
    """The bytes of anything with the buffer protocol, in the order of its elements."""
    view = memoryview(buffer)
    return np.frombuffer(view if view.c_contiguous else view.tobytes(), np.uint8)


def as_bytes(value: Any) -> Bytes:
    """``value`` as an array of bytes. Raises `ValueError` where a number is not 0 to 255."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return np.frombuffer(value, np.uint8)
    array = np.asarray(value)
    if array.dtype == np.uint8:
        return array
    is_integer = array.dtype.kind in "iub"
    if not is_integer or (array.size and not 0 <= array.min() <= array.max() <= 255):
        raise ValueError(f"{value!r} is no byte: 0 to 255")
    return array.astype(np.uint8)


def to_write(array: Array) -> Array:
    """``array``, of a tensor or storage. Raises `ValueError` when it can't be written."""
    if not array.flags.writeable:
        raise ValueError("this is read-only, by readonly() or because its storage is sealed: write to a clone()")
    return array


def apart(source: Any, target: Array) -> Any:
    """``source``, copied where it may share memory with ``target`` (rule 10).

    NumPy does so itself, but not where both have one dim and step forward, nor for masks: there it trusts in an
    order of writing that is the right one for equal strides only.
    """
    # How much work NumPy itself puts into the question; its stubs know fewer numbers than it takes.
    if isinstance(source, np.ndarray) and np.may_share_memory(source, target, max_work=1):  # type: ignore[arg-type]
        return source.copy()
    return source
