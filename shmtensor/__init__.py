"""Tensors in shared memory: a view of any kind is sent to another process in about 200 bytes.

    import shmtensor as st

    frames = st.zeros((64, 3, 224, 224))
    queue.put(frames[8:16].permute(0, 2, 3, 1))      # nothing is copied

A name is looked up when it is first used, so importing the package costs little, and neither torch nor
ml_dtypes is imported unless asked for.
"""

# ruff: noqa: F403 -- type checkers re-export what a star import brings, and nothing else
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shmtensor.creation import *
    from shmtensor.dtypes import *
    from shmtensor.errors import *
    from shmtensor.files import *
    from shmtensor.header import *
    from shmtensor.incoming import *
    from shmtensor.layout import *
    from shmtensor.publishing import *
    from shmtensor.storage import *
    from shmtensor.tensors import *
    from shmtensor.together import *
    from shmtensor.typed_storage import *

# file -> the public names in it.
_NAMES = {
    "creation": (
        "arange empty empty_like eye full full_like linspace ones ones_like rand rand_like "
        "randn randn_like zeros zeros_like"
    ),
    "dtypes": ("bool_ complex64 complex128 float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64"),
    "errors": "InvalidHeader LayoutError StorageBoundsError",
    "files": "load save",
    "header": "TensorHeader",
    "incoming": "as_tensor from_dlpack from_numpy frombuffer tensor",
    "layout": "Layout MemoryFormat Size channels_last channels_last_3d contiguous_format preserve_format",
    "publishing": "lookup names publish unpublish",
    "storage": (
        "AllocatorError CorruptPool ForeignHost ForeignUser NameNotFound OutOfSharedMemory Pool PoolClosed PoolExists "
        "PoolNotFound PoolReentered StaleHandle Storage StorageCapacityError UntypedStorage default_pool "
        "set_default_pool"
    ),
    "tensors": "Tensor received",
    "together": "atleast_1d atleast_2d atleast_3d broadcast_tensors meshgrid",
    "typed_storage": "TypedStorage",
}
_FILES = {name: file for file, names in _NAMES.items() for name in names.split()}

__version__ = "0.1.0"
__all__ = sorted(_FILES.keys() - {"received"})  # noqa: PLE0605 -- the table above is the list; not "bool", for the sake of import *


def __getattr__(name: str) -> Any:
    if name in _FILES:
        found = getattr(import_module(f"shmtensor.{_FILES[name]}"), name)
    elif name == "bool":  # under this name no module could be written without hiding the builtin
        found = import_module("shmtensor.dtypes").bool_
    elif name == "bfloat16" or name.startswith("float8_"):
        found = _extension(name)
    else:
        raise AttributeError(f"module 'shmtensor' has no attribute {name!r}")
    globals()[name] = found
    return found


def _extension(name: str) -> Any:
    """A dtype of ml_dtypes; `AttributeError` without it, so that ``hasattr`` tells whether it is there."""
    dtypes = import_module("shmtensor.dtypes")
    if name not in dtypes.EXTENSION_TABLE:
        raise AttributeError(f"module 'shmtensor' has no attribute {name!r}")
    try:
        return dtypes.extension(name)
    except ImportError as error:
        raise AttributeError(str(error)) from error


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
