"""Every way in which a tensor's memory goes to others, and what they derive from it: one table for tests here and
for the programs that tests start (`runpy.run_path`).

A way gives an object of another library over the tensor's memory, a derivation another one over the same memory.
`as_array` reads and writes any of them.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]


class Foreign:
    """Something that only speaks the array interface."""

    def __init__(self, tensor: Any) -> None:
        self.__array_interface__ = tensor.__array_interface__


EXPORTS: dict[str, Any] = {
    "numpy": lambda t: t.numpy(),
    "asarray": np.asarray,
    "__array__": lambda t: t.__array__(copy=False),
    "array interface": lambda t: np.asarray(Foreign(t)),
    "memoryview": lambda t: t.memoryview(),
    "frombuffer": lambda t: np.frombuffer(t.memoryview(), t.dtype).reshape(t.shape),
    "storage memoryview": lambda t: t.untyped_storage().memoryview().cast(t.memoryview().format, t.shape),
    "dlpack": np.from_dlpack,
}
if sys.version_info >= (3, 12):
    EXPORTS["buffer"] = memoryview
if torch is not None:
    EXPORTS |= {
        "torch": lambda t: t.torch(),
        "torch of dlpack": torch.from_dlpack,
        "torch of numpy": lambda t: torch.from_numpy(t.numpy()),
        "torch of memoryview": lambda t: torch.frombuffer(t.memoryview(), dtype=t.torch().dtype).view(t.shape),
    }

# By the type of what is exported. Each takes a matrix.
DERIVED: dict[str, dict[str, Any]] = {
    "ndarray": {
        "itself": lambda a: a,
        "slice": lambda a: a[1:, ::2],
        "transpose": lambda a: a.T,
        "reshaped": lambda a: a.reshape(-1),
        "reversed": lambda a: a[::-1],
        "bytes": lambda a: a.view("uint8"),
        "diagonal": np.diagonal,
        "memoryview": memoryview,
        "dlpack": np.from_dlpack,
    },
    "memoryview": {
        "itself": lambda v: v,
        "slice": lambda v: v[1:],
        "bytes": lambda v: v.cast("B"),
        "array": np.asarray,
        "read-only": lambda v: v.toreadonly(),
    },
    "Tensor": {
        "itself": lambda x: x,
        "slice": lambda x: x[1:, ::2],
        "transpose": lambda x: x.t(),
        "reshaped": lambda x: x.view(-1),
        "detached": lambda x: x.detach(),
        "numpy": lambda x: x.numpy(),
        "as storage": lambda x: torch.empty(0, dtype=x.dtype).set_(x.untyped_storage()),
    },
}

_MEMORYVIEWS = ("memoryview", "storage memoryview", "buffer")


def _kind(way: str) -> str:
    return "Tensor" if way.startswith("torch") else "memoryview" if way in _MEMORYVIEWS else "ndarray"


CASES = {way: tuple(DERIVED[_kind(way)]) for way in EXPORTS}


def export(tensor: Any, way: str, derivation: str) -> Any:
    """What a way, and a derivation from that, make of a tensor."""
    made = EXPORTS[way](tensor)
    return DERIVED[_kind(way)][derivation](made)


def as_array(held: Any) -> Any:
    """A NumPy array over the memory of an export."""
    return held.numpy() if hasattr(held, "numpy") else np.asarray(held)
