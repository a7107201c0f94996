"""TensorHeader: what travels when a tensor is sent, as a plain value for transports of one's own.

Pickling does not use it: `Tensor.__reduce__` sends the same values without making an object of them. The
values are strings, ints and tuples of ints, so any format that has those can carry them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from shmtensor.claims import pool_of_claim
from shmtensor.dtypes import as_dtype, code_of
from shmtensor.errors import InvalidHeader
from shmtensor.layout import Ints, check_within
from shmtensor.tensors import Tensor, rebuild, received

__all__ = ["TensorHeader"]


@dataclass(frozen=True)
class TensorHeader:
    """A claim on a tensor in shared memory. The storage lives at least until it is opened or discarded.

    Owes one `open` or `discard`, in whatever process it ends up; opening it again, anywhere, works while
    the storage lives. ``shape``, ``stride`` and ``offset`` are in elements; ``dtype`` is a name. As a
    context manager it discards at the end what was not opened or discarded here, so use it as one where it
    arrives, not where it leaves.
    """

    host: str
    pool: str
    record: int
    generation: int
    ticket: int
    serial: int
    dtype: str
    shape: Ints
    stride: Ints
    offset: int
    flags: int

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """The header of ``tensor``, with a ticket of its own. Raises `StorageBoundsError` for one past its
        storage's end.
        """
        storage, dtype, layout = tensor.untyped_storage(), tensor.dtype, tensor.layout
        check_within(layout, dtype.itemsize, storage.nbytes())
        return cls(*storage.claim(), dtype.name, layout.shape, layout.stride, layout.offset, tensor._flags)

    def open(self) -> Tensor:
        """The tensor. Raises `StaleHandle` when it is gone, `ForeignHost` on another machine, and
        `InvalidHeader` for values that describe no tensor in its storage.
        """
        code = self._code()
        storage = received(self.host, self.pool, self.record, self.generation, self.ticket, self.serial)
        object.__setattr__(self, "_settled", True)
        return rebuild(storage, code, _listless(self.shape), _listless(self.stride), self.offset, self.flags)

    def discard(self) -> None:
        """Give the claim up without opening it. The storage may then die with its other users."""
        object.__setattr__(self, "_settled", True)
        claim = (self.host, self.pool, self.record, self.generation, self.ticket, self.serial)
        pool_of_claim(*claim).discard(*claim[2:])

    def _code(self) -> int:
        if type(self.dtype) is not str:
            raise InvalidHeader("a header names its dtype, as in 'float32'")
        try:
            return code_of(as_dtype(self.dtype))
        except TypeError as error:
            raise InvalidHeader(str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.__dict__.get("_settled"):
            self.discard()

    def __reduce__(self) -> tuple[Any, ...]:
        """All fields, and not whether this one was opened: the copy is another process's to open."""
        return TensorHeader, tuple(getattr(self, name) for name in self.__dataclass_fields__)


def _listless(value: Any) -> Any:
    """JSON and its like bring tuples back as lists."""
    return tuple(value) if type(value) is list else value
