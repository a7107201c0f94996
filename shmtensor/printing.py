"""How a tensor looks as text: torch's form, values shortened, with dtype, shape where it helps, and storage
id.
"""

from __future__ import annotations

import numpy as np

from shmtensor.base import READ_ONLY, TensorBase
from shmtensor.errors import StorageBoundsError

__all__ = ["described"]


def described(tensor: TensorBase) -> str:
    """The text of ``repr``. Never raises: a tensor past the end of its storage says so in place of values."""
    storage = tensor._storage
    notes = [f"dtype={tensor._dtype.name}", f"storage={storage.id:#x}"]
    if tensor._flags & READ_ONLY:
        notes.append("readonly")
    try:
        array = tensor.numpy()
    except StorageBoundsError:
        notes.insert(0, f"shape={tensor._layout.shape}")
        return f"tensor(<past the end of its storage of {storage.nbytes()} bytes>, {', '.join(notes)})"
    if array.size == 0 and array.ndim != 1:
        notes.insert(0, f"size={tensor._layout.shape}")
    values = np.array2string(array, separator=", ", prefix="tensor(", threshold=1000, edgeitems=3)
    return f"tensor({values}, {', '.join(notes)})"
