"""The ways in which others see a tensor's memory: NumPy's and Python's protocols, DLPack, torch. Nothing is
copied.

Every export leads back to the storage's root array, so it keeps the memory by itself, whatever becomes of
the tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from shmtensor.base import Array, TensorBase
from shmtensor.dtypes import EXTENSION_TABLE
from shmtensor.storage import MemoryView

__all__ = ["Exporting"]


class Exporting(TensorBase):
    """Protocols that hand out the tensor's memory."""

    __slots__ = ()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """The shared array, or a copy where ``dtype`` needs one. ``copy=True|False`` insists; `ValueError`
        if it can't.
        """
        array = self.numpy()
        if dtype is None or array.dtype == dtype:
            return array.copy() if copy else array
        if copy is False:
            raise ValueError(f"a {self._dtype} tensor can't be seen as {np.dtype(dtype)} without a copy")
        return array.astype(dtype)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's array interface, version 3. Not there for bfloat16 and float8, which it has no name for."""
        array = self.numpy()
        if array.dtype.name in EXTENSION_TABLE:
            raise AttributeError(f"the array interface has no name for {self._dtype}")
        interface = dict(array.__array_interface__)
        interface["strides"] = array.strides
        interface["data"] = _memory_of(array)
        return interface

    def __buffer__(self, flags: int) -> MemoryView:
        """Python's buffer protocol, which classes can offer from Python 3.12 on. Raises `BufferError` for
        bfloat16.
        """
        return self.memoryview()

    def memoryview(self) -> MemoryView:
        """A memoryview of the elements, with shape and strides. Raises `BufferError` for bfloat16 and
        float8.
        """
        try:
            return memoryview(self.numpy())  # type: ignore[arg-type]
        except ValueError as error:
            raise BufferError(f"Python's buffers have no format for {self._dtype}: use view('uint8')") from error

    def __array_namespace__(self, /, *, api_version: str | None = None) -> ModuleType:
        """The functions of the Python array API standard, which take tensors and give tensors.

        Raises `ValueError` for an ``api_version``, such as "2024.12", that the NumPy installed doesn't have.
        """
        from shmtensor.array_api import namespace

        return namespace(api_version)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """A DLPack capsule. Raises `BufferError` where NumPy can't make one: read-only for an old consumer,
        bfloat16.
        """
        from shmtensor.interop.dlpack import capsule

        return capsule(self.numpy(), stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's name of the CPU."""
        return (1, 0)

    def torch(self) -> Any:
        """A torch tensor of the same memory, bfloat16 included.

        Raises `ImportError` without torch, `ValueError` for a read-only tensor, which torch can't express.
        """
        from shmtensor.interop.torch import to_torch

        return to_torch(self)


class _Memory(np.ndarray[Any, Any]):
    """The ``data`` of an array interface: a buffer, so that who reads it holds the memory and not just the
    tensor.

    The interface allows a buffer or a pair (address, read-only). Of a pair NumPy would keep the tensor
    alive, and the storage couldn't know that an array of it is out. Those who expect the pair can still
    take this for one.
    """

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._pair())

    def __getitem__(self, key: Any) -> Any:
        return self._pair()[key]

    def __len__(self) -> int:
        return 2

    def __repr__(self) -> str:
        return repr(self._pair())

    __str__ = __repr__

    def _pair(self) -> tuple[int, bool]:
        pair: tuple[int, bool] = self.__array_interface__["data"]
        return pair


def _memory_of(array: Array) -> _Memory:
    """The bytes from the first element of ``array`` to the end of its root."""
    root: Any = array.base
    address = array.__array_interface__["data"][0]
    tail: _Memory = root[address - root.__array_interface__["data"][0] :].view(_Memory)
    return tail
