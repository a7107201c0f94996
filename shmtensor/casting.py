"""The short names of casts, in a file of their own: as methods they hide the builtins ``float``, ``int``
and ``bool``.
"""

from __future__ import annotations

from typing import Any, Self

from shmtensor import dtypes
from shmtensor.base import TensorBase
from shmtensor.copying import Copying

__all__ = ["Casting"]


class Casting(Copying):
    """`to`, by the name of a dtype: the tensor itself when it has that dtype already, else a copy."""

    __slots__ = ()

    def type(self, dtype: Any = None) -> Any:
        """The dtype; or, given one, the tensor as that (see `to`)."""
        return self._dtype if dtype is None else self.to(dtype=dtype)

    def type_as(self, other: TensorBase) -> Self:
        """The tensor in the dtype of ``other``."""
        return self.to(dtype=other._dtype)

    def cpu(self) -> Self:
        """The tensor itself: it is in host memory."""
        return self

    def float(self) -> Self:
        """As float32."""
        return self.to(dtype=dtypes.float32)

    def double(self) -> Self:
        """As float64."""
        return self.to(dtype=dtypes.float64)

    def half(self) -> Self:
        """As float16."""
        return self.to(dtype=dtypes.float16)

    def bfloat16(self) -> Self:
        """As bfloat16. Raises `ImportError` without ml_dtypes."""
        return self.to(dtype="bfloat16")

    def int(self) -> Self:
        """As int32."""
        return self.to(dtype=dtypes.int32)

    def long(self) -> Self:
        """As int64."""
        return self.to(dtype=dtypes.int64)

    def short(self) -> Self:
        """As int16."""
        return self.to(dtype=dtypes.int16)

    def char(self) -> Self:
        """As int8."""
        return self.to(dtype=dtypes.int8)

    def byte(self) -> Self:
        """As uint8."""
        return self.to(dtype=dtypes.uint8)

    def bool(self) -> Self:
        """As bool."""
        return self.to(dtype=dtypes.bool_)
