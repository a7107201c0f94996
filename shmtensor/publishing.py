"""Tensors under names: published by one program, looked up by others, held by the pool itself."""

from __future__ import annotations

from typing import Any

from shmtensor.dtypes import as_dtype, code_of
from shmtensor.errors import InvalidHeader
from shmtensor.layout import Layout, check_within
from shmtensor.storage import Pool, Storage, default_pool, naming, over
from shmtensor.tensors import Tensor, rebuild

__all__ = ["lookup", "names", "publish", "unpublish"]


def publish(name: str, tensor: Tensor) -> None:
    """Put ``tensor``, or the view that it is, under ``name`` in its pool, in place of what was there.

    The pool holds it from now on: it outlives this process, until it is unpublished or replaced, or the pool goes,
    which it does with its last process unless a service keeps it. Nothing is copied, and writes are seen as ever.
    Replacing is atomic: who looks the name up gets the old tensor or the new one, and who has the old one keeps it.

    ``name`` is printable text of at most 255 bytes in UTF-8, else `ValueError`. Raises `StorageBoundsError` for a
    tensor past the end of its storage, and `OutOfSharedMemory` where there is no memory for the table of names; the
    name is as before then.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"publish takes a tensor, not {type(tensor).__name__}: make one with as_tensor")
    storage, layout = tensor.untyped_storage(), tensor.layout
    check_within(layout, tensor.dtype.itemsize, storage.nbytes())
    naming.publish(storage.block.pool, name, storage.block, storage, _note(tensor))


def lookup(name: str, *, timeout: float = 0.0, pool: Pool | None = None) -> Tensor:
    """The tensor published under ``name``, with the layout it was published with; over the same memory.

    Waits up to ``timeout`` seconds until it is there, then raises `NameNotFound`, a `LookupError`. ``pool`` is the
    default pool unless given. A block that `Pool.publish` put there comes as its bytes, in a uint8 tensor.
    """
    storage, note = naming.lookup(default_pool() if pool is None else pool, name, over, True, timeout)
    return _read(storage, note)


def unpublish(name: str, *, pool: Pool | None = None) -> None:
    """Let the pool go of what is published under ``name``; who has it keeps it. Raises `NameNotFound`."""
    (default_pool() if pool is None else pool).unpublish(name)


def names(*, pool: Pool | None = None) -> dict[str, Any]:
    """What is published in ``pool``, by name: sizes in bytes, ages in seconds, publishers, and notes that say dtype,
    shape, strides, offset and flags.
    """
    return (default_pool() if pool is None else pool).names()


def _note(tensor: Tensor) -> str:
    """How to read the bytes, for people too: dtype, shape, strides, offset and flags."""
    layout = tensor.layout
    return f"{tensor.dtype.name} {_listed(layout.shape)} {_listed(layout.stride)} {layout.offset} {tensor._flags}"


def _listed(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values)) or "()"


def _read(storage: Storage, note: str) -> Tensor:
    if not note:
        nbytes = storage.nbytes()
        return Tensor(storage, as_dtype("uint8"), Layout((nbytes,), (1,)))
    try:
        dtype, shape, stride, offset, flags = note.split(" ")
        code = code_of(as_dtype(dtype))
        return rebuild(storage, code, _unlisted(shape), _unlisted(stride), int(offset), int(flags))
    except (TypeError, ValueError) as error:
        raise InvalidHeader(f"{note[:80]!r} describes no tensor: {error}") from None


def _unlisted(text: str) -> tuple[int, ...]:
    return () if text == "()" else tuple(map(int, text.split(",")))
