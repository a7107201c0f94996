"""DLPack: NumPy's, over the shared memory."""

from __future__ import annotations

from typing import Any

from shmtensor.base import Array
from shmtensor.provenance import remember

__all__ = ["capsule"]


def capsule(array: Array, **request: Any) -> Any:
    """What ``__dlpack__`` returns. Options that ask for nothing are left out: NumPy 2.0 doesn't know them."""
    if not request.get("copy"):
        remember(array)
    return array.__dlpack__(**{name: value for name, value in request.items() if value is not None})
