"""Tensor: a storage, a dtype and a layout, with all that the mixins beside this file add.

Owns what makes a tensor a Python value: conversion to numbers, text, copying, and what travels when it is
pickled.
"""

from __future__ import annotations

import copy
import copyreg
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from shmtensor.arithmetic import Arithmetic
from shmtensor.base import KNOWN_FLAGS, READ_ONLY
from shmtensor.casting import Casting
from shmtensor.claims import pool_of_claim
from shmtensor.dtypes import CODES, DType, code_of, from_code
from shmtensor.errors import InvalidHeader, LayoutError
from shmtensor.exporting import Exporting
from shmtensor.layout import Layout, check_within, contiguous, validated
from shmtensor.metadata import Metadata
from shmtensor.picking import Picking
from shmtensor.printing import described
from shmtensor.storage import Storage, attached, over
from shmtensor.viewing import Viewing

if TYPE_CHECKING:
    from shmtensor.header import TensorHeader

__all__ = ["Tensor", "rebuild"]

new = object.__new__


class Tensor(Metadata, Viewing, Casting, Picking, Exporting, Arithmetic):
    """Elements of one dtype in shared memory, and the shape and strides that say how to read them.

    Made by `tensor`, `zeros`, `from_numpy` and their kin. Every process that gets a tensor, pickled by
    whatever means, reads and writes the same memory. Shapes, strides and offsets are in elements. Any
    access raises `StorageBoundsError` when the storage has been resized below what the tensor needs.
    """

    __slots__ = ()

    def item(self) -> Any:
        """The only element, as a Python number. Raises `LayoutError`, a `ValueError`, for any other number
        of elements.
        """
        if self._layout.numel != 1:
            raise LayoutError(
                f"a tensor of shape {self._layout.shape} is not one number: use tolist, or index it first"
            )
        return _plain(self.numpy()).item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; of a 0-d tensor the number."""
        return _plain(self.numpy()).tolist()

    def __len__(self) -> int:
        if not self._layout.shape:
            raise TypeError("a 0-d tensor has no length")
        return self._layout.shape[0]

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self._dtype.kind not in "biu" or self._layout.numel != 1:
            raise TypeError(f"only one integer is an index, not {self._dtype} of shape {self._layout.shape}")
        return int(self.item())

    def __contains__(self, value: object) -> bool:
        return bool(np.any(np.equal(self.numpy(), np.asarray(value))))

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self._layout.numel == 1 else format(repr(self), spec)

    def __repr__(self) -> str:
        return described(self)

    def __copy__(self) -> Self:
        """Another tensor over the same storage: what is copied is the record, as in torch's and NumPy's
        views.
        """
        return type(self)(self._storage, self._dtype, self._layout, self._flags)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A tensor over a copy of the storage; several views copied together stay views of one storage."""
        storage = copy.deepcopy(self._storage, memo)
        return type(self)(storage, self._dtype, self._layout, self._flags & ~READ_ONLY)

    def __reduce__(self) -> tuple[Any, ...]:
        """A claim on the memory, not its bytes: opened on this machine while the pool lives, once or more
        often.

        Raises `StorageBoundsError` for a tensor past the end of its storage. Each pickle makes a ticket,
        which keeps the storage alive until it is opened (see design: the ticket rule). To keep bytes use
        `save`.
        """
        storage, dtype, layout = self._storage, self._dtype, self._layout
        nbytes = storage.block.facts()[0]
        extent = layout.known_extent
        if extent < 0:
            extent = layout.extent()
        if extent * dtype.itemsize > nbytes:  # the receiver would refuse it
            check_within(layout, dtype.itemsize, nbytes)
        try:
            code = CODES[dtype]
        except KeyError:  # of an extension that was not met before
            code = code_of(dtype)
        if layout.plain and not self._flags:
            return received, (storage, code, layout.shape)
        return received, (storage, code, layout.shape, layout.stride, layout.offset, self._flags)

    def header(self) -> TensorHeader:
        """What pickling would send, as a value for a transport of one's own. It owes one ``open()`` or
        ``discard()``.
        """
        from shmtensor.header import TensorHeader

        return TensorHeader.of(self)


def received(a: Any, b: Any, c: Any, d: Any = None, e: Any = 0, f: Any = 0) -> Any:
    """What opens a pickled storage: host, pool, record, generation, ticket and serial; or a pickled tensor: storage,
    code and shape, and unless it is just contiguous stride, offset and flags too.

    One function for both, found in the package itself: a message names it once, and naming it is a third of the time
    that opening one takes. Calls are inlined here, since who receives has waited, and finds its caches cold.

    Raises `InvalidHeader` when the values can't be a claim or describe no tensor in the storage, `ForeignHost` on
    another machine than the sender's, and `StaleHandle` when the storage is gone.
    """
    if type(a) is str:
        try:
            possible = 0 <= c | d | e | f < 1 << 64  # the quickest way to ask all four
            pool = attached.get(b)
        except TypeError:
            possible = False
        if not possible or pool is None or pool.host != a:
            pool = pool_of_claim(a, b, c, d, e, f)
        return pool.receive(c, d, e, f, over)
    if d is None:  # nor are there offset and flags
        try:
            dtype, layout, nbytes = _whole(b, c)
        except (TypeError, LayoutError):
            pass  # no shape: `rebuild` says so
        else:
            if type(a) is Storage and nbytes <= a.block.facts()[0]:
                tensor = new(Tensor)
                tensor._storage = a
                tensor._dtype = dtype
                tensor._layout = layout
                tensor._flags = 0
                return tensor
            d = layout.stride
    return rebuild(a, b, c, d, e, f)


@lru_cache(maxsize=1024)
def _whole(code: Any, shape: Any) -> tuple[DType, Layout, int]:
    """Dtype, layout and bytes of the contiguous tensor that these values describe. Raises what is wrong with them."""
    dtype, layout = from_code(code), contiguous(shape)
    validated(shape, layout.stride, layout.offset, dtype.itemsize)
    return dtype, layout, layout.extent() * dtype.itemsize


def rebuild(storage: Storage, code: int, shape: Any, stride: Any, offset: Any, flags: int) -> Tensor:
    """The tensor that a pickled one describes. Reads nothing.

    Raises `InvalidHeader` unless ``code`` is a dtype's, all of the layout lies in the storage, and nothing
    is negative or overflows: the values may come from a damaged or a hostile message.
    """
    if type(storage) is not Storage or type(flags) is not int or flags & ~KNOWN_FLAGS:
        raise InvalidHeader(f"no tensor has a storage of type {type(storage).__name__} and flags {flags!r}")
    dtype = from_code(code)
    layout = validated(shape, stride, offset, dtype.itemsize)
    needed = layout.extent() * dtype.itemsize
    if needed > storage.block.facts()[0]:
        raise InvalidHeader(
            f"{layout} of {dtype} needs {needed} bytes, {storage!r} has fewer: a wrong header, or resized since"
        )
    return Tensor(storage, dtype, layout, flags)


def _plain(array: Any) -> Any:
    """``array`` with dtypes that Python's numbers come from: bfloat16 and float8 as float32, exactly."""
    return array if array.dtype.kind in "biufc" and array.dtype.str[1] != "V" else array.astype(np.float32)


def _storage_claim(storage: Storage) -> tuple[Any, ...]:
    block = storage.block
    return received, block.pool.send(block, storage)


received.__module__ = "shmtensor"
# Found in this table, a class costs a pickler half of what asking it how it is reduced does. Those of
# multiprocessing copy it.
copyreg.pickle(Tensor, Tensor.__reduce__)
copyreg.pickle(Storage, _storage_claim)
