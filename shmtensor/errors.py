"""What shmtensor itself raises. Owns three classes; knows nothing of pools, whose errors are the allocator's
own.

Each class says what to do next, and is also the builtin that callers already catch.
"""

from __future__ import annotations

__all__ = ["InvalidHeader", "LayoutError", "StorageBoundsError"]


class StorageBoundsError(RuntimeError):
    """A tensor reaches past the end of its storage: grow the storage back, or take a smaller view.

    Raised before anything is read or written. The tensor itself stays valid and works again once
    ``storage.resize_`` has brought the bytes back.
    """


class LayoutError(RuntimeError, ValueError):
    """The shape, sizes or strides asked for don't fit the tensor; the message names the dims, and the copying
    call that does it where there is one, such as ``reshape``.

    A `RuntimeError` for those who come from torch and a `ValueError` for those who come from NumPy. A dim or
    an index that does not exist is an `IndexError`.
    """


class InvalidHeader(ValueError):
    """A header does not describe a tensor inside its storage: it is damaged or hostile. Nothing was read."""
