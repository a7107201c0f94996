"""Files: `save` keeps the bytes of tensors, `load` brings them back. No pickle: a file can't run code.

A file is the magic, the length of a JSON manifest (8 bytes, little-endian), the manifest, and the bytes of
each storage that the tensors view, from a multiple of 64 on. The manifest tells the storages' sizes and the
saved structure; tensors that shared a storage share one again. Of a storage only the range that some saved
tensor can see is written.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from shmtensor.base import TensorBase
from shmtensor.dtypes import as_dtype, code_of, uint8
from shmtensor.errors import InvalidHeader
from shmtensor.layout import Layout
from shmtensor.storage import Pool, Storage, default_pool
from shmtensor.tensors import Tensor, rebuild

__all__ = ["load", "save"]

MAGIC = b"SHMTENSOR-1\n"
_LENGTH_BYTES = 8
_ALIGNMENT = 64  # of the bytes of each storage: what an allocated block has as well
_LONGEST_MANIFEST = 1 << 30  # a damaged length must not become a request for memory
_PIECE_BYTES = 1 << 24  # read at a time: large against a system call, small against memory

PathLike = str | os.PathLike[str]


def save(value: Any, file: PathLike | BinaryIO) -> None:
    """Write ``value``, a tensor or tuples, lists and dicts (keys: strings) of tensors, numbers, strings and
    None.

    Given a path, the file is complete or as it was before. Raises `TypeError` for any other value,
    `StorageBoundsError` for a tensor past the end of its storage.
    """
    if isinstance(file, (str, os.PathLike)):
        _replace(Path(file), value)
    else:
        _write(value, file)


def load(file: PathLike | BinaryIO, *, pool: Pool | None = None, timeout: float | None = None) -> Any:
    """What `save` wrote, its tensors in new storages of ``pool`` (the default pool).

    Raises `InvalidHeader` for a file that is damaged or none of ours, `OutOfSharedMemory` when there is no
    room.
    """
    if isinstance(file, (str, os.PathLike)):
        with open(file, "rb") as opened:
            return _read(opened, pool, timeout)
    return _read(file, pool, timeout)


class _Seen:
    """A storage to be written: the nodes of the tensors that view it, and the range of its bytes that they
    see.
    """

    __slots__ = ("first", "index", "last", "nodes", "storage")

    def __init__(self, storage: Storage, index: int) -> None:
        self.storage = storage
        self.index = index
        self.nodes: list[tuple[dict[str, Any], int]] = []  # with the itemsize
        self.first = self.last = 0

    def node(self, tensor: TensorBase) -> dict[str, Any]:
        """The JSON node of ``tensor``, whose offset `settle` completes."""
        layout, itemsize = tensor._layout, tensor._dtype.itemsize
        last = layout.extent() * itemsize
        first = layout.offset * itemsize // _ALIGNMENT * _ALIGNMENT
        if last:
            self.first = min(self.first, first) if self.last else first
            self.last = max(self.last, last)
        node = {
            "tensor": self.index,
            "dtype": tensor._dtype.name,
            "shape": layout.shape,
            "stride": layout.stride,
            "offset": layout.offset if last else 0,
            "flags": tensor._flags,
        }
        self.nodes.append((node, itemsize))
        return node

    def settle(self) -> None:
        """Count offsets from the first byte that is written. It is a multiple of 64, and so of every
        itemsize.
        """
        for node, itemsize in self.nodes:
            node["offset"] = max(node["offset"] - self.first // itemsize, 0)


def _node(value: Any, seen: dict[int, _Seen]) -> dict[str, Any]:
    """``value`` as JSON: an object whose first key says what it is."""
    if isinstance(value, TensorBase):
        value.numpy()  # raises when it is past the end of its storage
        key = id(value._storage)
        if key not in seen:
            seen[key] = _Seen(value._storage, len(seen))
        return seen[key].node(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    if isinstance(value, (list, tuple)):
        return {"tuple" if isinstance(value, tuple) else "list": [_node(part, seen) for part in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _node(part, seen) for key, part in value.items()}}
    raise TypeError(
        f"a {type(value).__name__} can't be saved: only tensors, numbers, strings and None, in tuples, lists "
        "and dicts whose keys are strings"
    )


def _write(value: Any, file: BinaryIO) -> None:
    seen: dict[int, _Seen] = {}
    tree = _node(value, seen)
    for each in seen.values():
        each.settle()
    sizes = [each.last - each.first for each in seen.values()]
    manifest = json.dumps({"storages": sizes, "saved": tree}).encode()
    written = file.write(MAGIC) + file.write(len(manifest).to_bytes(_LENGTH_BYTES, "little")) + file.write(manifest)
    for each, size in zip(seen.values(), sizes, strict=True):
        written += file.write(bytes(-written % _ALIGNMENT))
        content = each.storage.array(uint8, Layout((size,), (1,), each.first), writable=False)
        written += file.write(content.data)


def _replace(path: Path, value: Any) -> None:
    """Write beside ``path``, then take its place: a reader sees the old file or the new one."""
    descriptor, name = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            _write(value, file)
        if path.exists():
            os.chmod(name, path.stat().st_mode & 0o777)
        else:
            os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _read(file: BinaryIO, pool: Pool | None, timeout: float | None) -> Any:
    sizes, tree, position = _read_manifest(file)
    storages = []
    for size in sizes:
        if type(size) is not int or not 0 <= size < 2**63:
            raise InvalidHeader("the file is damaged: no storage has such a size")
        position += len(_exactly(file, -position % _ALIGNMENT))
        storages.append(_read_storage(file, size, pool, timeout))
        position += size
    try:
        return _built(tree, storages)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise InvalidHeader(f"the file is damaged: {error}") from error


def _read_manifest(file: BinaryIO) -> tuple[list[Any], Any, int]:
    if file.read(len(MAGIC)) != MAGIC:
        raise InvalidHeader("not a file that shmtensor.save wrote")
    length = int.from_bytes(_exactly(file, _LENGTH_BYTES), "little")
    if length > _LONGEST_MANIFEST:
        raise InvalidHeader("the file is damaged: its manifest can't be so long")
    try:
        manifest = json.loads(_exactly(file, length))
        return list(manifest["storages"]), manifest["saved"], len(MAGIC) + _LENGTH_BYTES + length
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidHeader(f"the file is damaged: {error}") from error


def _exactly(file: BinaryIO, count: int) -> bytes:
    found = file.read(count)
    if len(found) != count:
        raise InvalidHeader("the file is damaged: it ends too early")
    return found


def _read_storage(file: BinaryIO, size: int, pool: Pool | None, timeout: float | None) -> Storage:
    """The next ``size`` bytes of ``file``, read straight into shared memory."""
    storage = Storage(size, pool=default_pool() if pool is None else pool, timeout=timeout)
    target = storage.memoryview()
    filled = 0
    while filled < size:
        piece = file.read(min(size - filled, _PIECE_BYTES))
        if not piece:
            raise InvalidHeader("the file is damaged: it ends too early")
        target[filled : filled + len(piece)] = piece
        filled += len(piece)
    return storage


def _built(node: Any, storages: list[Storage]) -> Any:
    if "tensor" in node:
        return _built_tensor(node, storages[node["tensor"]])
    if "list" in node:
        return [_built(part, storages) for part in node["list"]]
    if "tuple" in node:
        return tuple(_built(part, storages) for part in node["tuple"])
    if "dict" in node:
        return {key: _built(part, storages) for key, part in node["dict"].items()}
    return node["value"]


def _built_tensor(node: Any, storage: Storage) -> Tensor:
    code = code_of(as_dtype(node["dtype"]))
    return rebuild(storage, code, tuple(node["shape"]), tuple(node["stride"]), node["offset"], node["flags"])
