"""torch tensors over the same memory, both ways. torch has no read-only tensors; bfloat16 and float8 go by
their bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from shmtensor.base import READ_ONLY, Array, TensorBase
from shmtensor.dtypes import EXTENSION_TABLE, extension
from shmtensor.provenance import address_of, remember, root_at

__all__ = ["array_of", "to_torch"]

_BITS = {1: (np.uint8, torch.uint8), 2: (np.int16, torch.int16)}


def to_torch(tensor: TensorBase) -> Any:
    """A torch tensor of the memory of ``tensor``. Raises `ValueError` for a read-only one, `TypeError` for
    a dtype that this torch has not.
    """
    array = tensor.numpy()
    if tensor._flags & READ_ONLY or not array.flags.writeable:
        raise ValueError("torch has no read-only tensors: use t.clone().torch()")
    shared = _from_bits(array) if array.dtype.name in EXTENSION_TABLE else torch.from_numpy(array)
    remember(array)
    return shared


def array_of(tensor: Any) -> Array:
    """The array of a torch tensor's memory, or of a copy on the CPU where it is elsewhere.

    For memory that came from a pool the array leads back to its storage.
    """
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    name = str(plain.dtype).removeprefix("torch.")
    array: Array = _to_bits(plain, name) if name in EXTENSION_TABLE else plain.numpy()
    root = root_at(plain.untyped_storage().data_ptr()) if array.size else None
    if root is None:
        return array
    return np.ndarray(array.shape, array.dtype, root, address_of(array) - address_of(root), array.strides)


def _from_bits(array: Array) -> Any:
    dtype = getattr(torch, array.dtype.name, None)
    if dtype is None:
        raise TypeError(f"this torch has no dtype {array.dtype.name}")
    return torch.from_numpy(array.view(_BITS[array.itemsize][0])).view(dtype)


def _to_bits(tensor: Any, name: str) -> Array:
    bits: Array = tensor.view(_BITS[tensor.element_size()][1]).numpy()
    return bits.view(extension(name))
