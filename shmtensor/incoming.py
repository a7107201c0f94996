"""Functions that take something in: numbers, arrays, buffers, tensors of other libraries.

Memory that is in a pool already is aliased; any other is copied in, once. ``copy=True`` always copies,
``copy=False`` raises `ValueError` where it would have to. The other options are those of `creation.empty`.
"""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np

from shmtensor.base import READ_ONLY, VIEW, Array, TensorBase, dense_layout_of, new_layout, plain_array
from shmtensor.dtypes import DEFAULT_DTYPE, DType, as_dtype, complex64
from shmtensor.layout import MemoryFormat, contiguous_format, preserve_format
from shmtensor.provenance import alias_of, is_writable
from shmtensor.storage import Pool, default_pool
from shmtensor.tensors import Tensor

__all__ = ["as_tensor", "from_dlpack", "from_numpy", "frombuffer", "tensor"]


def tensor(
    data: Any,
    *,
    dtype: Any = None,
    pool: Pool | None = None,
    memory_format: MemoryFormat = contiguous_format,
    capacity: SupportsIndex | None = None,
    timeout: float | None = None,
) -> Tensor:
    """A copy of ``data``: a number, nested lists, an array or a tensor of any library.

    The dtype is that of ``data`` unless given: int64 for Python ints, float32 for floats, complex64 for
    complex numbers. Raises `TypeError` for what is no number, `ValueError` for lists of unequal length.
    """
    array = _as_array(data, dtype)
    kind = as_dtype(array.dtype)
    return _copied(array, kind, pool, memory_format, capacity, timeout)


def as_tensor(
    data: Any,
    *,
    dtype: Any = None,
    pool: Pool | None = None,
    copy: bool | None = None,
    memory_format: MemoryFormat = preserve_format,
    capacity: SupportsIndex | None = None,
    timeout: float | None = None,
) -> Tensor:
    """``data`` as a tensor: itself, or an alias of its memory when that is in a pool, else a copy.

    A ``dtype`` that differs, and a ``pool`` other than the one that holds it, need a copy. Memory of a pool
    that the user handed to another library, by ``torch.from_numpy(t.numpy())`` say, is found by a search
    through all Python objects, once: quicker are ``t.torch()`` and DLPack.
    """
    if copy is not True:
        found = _aliased(data, dtype, pool)
        if found is not None:
            return found
        if copy is False:
            raise ValueError(
                f"this {type(data).__name__} can't become a tensor without a copy: that takes memory of the pool, the "
                "dtype that is asked for, and strides that are whole elements and not negative. Leave copy= out"
            )
    array = _as_array(data, dtype)
    return _copied(array, as_dtype(array.dtype), pool, memory_format, capacity, timeout)


def from_numpy(array: Any, *, pool: Pool | None = None, copy: bool | None = None, **options: Any) -> Tensor:
    """A NumPy array as a tensor, its strides kept where they are not negative. Raises `TypeError` for
    anything else.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy takes an array, not a {type(array).__name__}: use as_tensor")
    return as_tensor(array, pool=pool, copy=copy, **options)


def from_dlpack(source: Any, *, pool: Pool | None = None, copy: bool | None = None, **options: Any) -> Tensor:
    """A tensor or array of any library that speaks DLPack, on the CPU."""
    if isinstance(source, TensorBase) or _is_torch(source):
        return as_tensor(source, pool=pool, copy=copy, **options)
    return as_tensor(np.from_dlpack(source), pool=pool, copy=copy, **options)


def frombuffer(
    buffer: Any,
    *,
    dtype: Any = DEFAULT_DTYPE,
    count: int = -1,
    offset: int = 0,
    pool: Pool | None = None,
    copy: bool | None = None,
    **options: Any,
) -> Tensor:
    """The bytes of ``buffer`` from ``offset``, in bytes, as ``count`` elements (all unless given) of
    ``dtype``, in one dim.
    """
    kind = as_dtype(dtype)
    array = np.frombuffer(buffer, np.uint8, -1, offset)
    whole = array.size // kind.itemsize if count < 0 else count
    if count < 0 and array.size % kind.itemsize:
        raise ValueError(f"{array.size} bytes are no whole number of {kind} elements")
    if whole * kind.itemsize > array.size:
        raise ValueError(f"{count} elements of {kind} don't fit into the {array.size} bytes after offset {offset}")
    return as_tensor(array[: whole * kind.itemsize].view(kind), pool=pool, copy=copy, **options)


def _copied(
    array: Array,
    dtype: DType,
    pool: Pool | None,
    memory_format: MemoryFormat,
    capacity: SupportsIndex | None,
    timeout: float | None,
) -> Tensor:
    follows = memory_format is preserve_format
    layout = dense_layout_of(array) if follows else new_layout(array.shape, memory_format)
    home = default_pool() if pool is None else pool
    return Tensor._copy_of(array, home, dtype, layout, capacity=capacity, timeout=timeout)


def _aliased(data: Any, dtype: Any, pool: Pool | None) -> Tensor | None:
    """``data`` as a tensor without copying it, or None where that can't be."""
    found = data if isinstance(data, Tensor) else _tensor_over(data)
    if found is None or (dtype is not None and as_dtype(dtype) != found.dtype):
        return None
    return found if pool is None or pool is found._pool else None


def _tensor_over(data: Any) -> Tensor | None:
    array = _foreign_array(data)
    if array is None:
        return None
    alias = alias_of(array)
    if alias is None:
        return None
    plain_array(array)
    storage, layout = alias
    return Tensor(storage, as_dtype(array.dtype), layout, VIEW if is_writable(array) else VIEW | READ_ONLY)


def _as_array(data: Any, dtype: Any) -> Array:
    """``data`` as an array of a dtype that can be shared. Python's numbers get this library's default
    dtypes.
    """
    wanted = None if dtype is None else as_dtype(dtype)
    if isinstance(data, TensorBase):
        array = data.numpy()
    elif _is_torch(data):
        array = _torch_array(data)
    else:
        array = plain_array(data, wanted if _is_python(data) else None)
    if wanted is None and _is_python(data):
        wanted = {"f": DEFAULT_DTYPE, "c": complex64}.get(array.dtype.kind)
    if wanted is None or wanted == array.dtype:
        as_dtype(array.dtype)
        return array
    return array.astype(wanted)


def _is_python(data: Any) -> bool:
    """Whether the first number in ``data`` is a Python number, which has no dtype of its own."""
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return not hasattr(data, "dtype") and not hasattr(data, "__array__")


def _foreign_array(data: Any) -> Array | None:
    """The array of what has memory of its own, a buffer or another library's array say, without copying it; else
    None.
    """
    if isinstance(data, np.ndarray):
        return data
    if _is_torch(data):
        return _torch_array(data)
    if isinstance(data, memoryview) or hasattr(data, "__array_interface__"):
        return np.asarray(data)
    return None


def _is_torch(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "torch" and hasattr(data, "detach")


def _torch_array(data: Any) -> Array:
    from shmtensor.interop.torch import array_of

    return array_of(data)
