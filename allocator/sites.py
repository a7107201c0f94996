"""Where blocks were made and messages pickled (`SHMTENSOR_TRACE=1`): for people who look for what keeps memory.

The texts lie in a sparse file of their own beside the pool's segments, one entry for each row of the reference and
record tables. It is read and written as a file, never mapped: a hole costs nothing to read, and a full /dev/shm costs a
text, not a SIGBUS. Nothing here ever fails a caller.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Final

from allocator.core.format import PLAN
from allocator.errors import AllocatorError
from allocator.system.files import open_own
from allocator.system.host import pool_path

ENTRY_BYTES: Final = 128
TEXT_BYTES: Final = ENTRY_BYTES - 8
_CARRIERS: Final = frozenset(
    ("allocator", "shmtensor", "multiprocessing", "concurrent", "threading", "queue", "pickle", "copyreg", "copy")
)
"""Packages whose lines tell nobody where a tensor was made or sent."""


class Sites:
    """The texts of one pool. `make` it once before anything is written."""

    __slots__ = ("path",)

    def __init__(self, host_id: str, name: str) -> None:
        self.path = pool_path(host_id, name, "s")

    def make(self) -> None:
        """Inside the critical section, whose fence sees that this process has a place: else the pool's names may be
        gone, and this one would stay behind.
        """
        try:
            os.close(open_own(self.path, os.O_CREAT | os.O_WRONLY))
        except (AllocatorError, OSError):
            pass  # no descriptor, or something else has the name

    def write_ticket(self, row: int, serial: int, text: str) -> None:
        """The ticket with this serial, in this row, was pickled there."""
        self._write(row, serial, text)

    def write_record(self, record: int, generation: int, text: str) -> None:
        """The block of this record was made there."""
        self._write(PLAN.references.rows + record, generation, text)

    def of_tickets(self, keys: Iterable[tuple[int, int]]) -> list[str]:
        """For each (row, serial) where it was pickled; "" where nobody wrote that down."""
        return self._read(keys)

    def of_records(self, keys: Iterable[tuple[int, int]]) -> list[str]:
        """For each (record, generation) where its block was made; "" where nobody wrote that down."""
        return self._read((PLAN.references.rows + record, generation) for record, generation in keys)

    def _write(self, entry: int, key: int, text: str) -> None:
        try:
            descriptor = open_own(self.path, os.O_WRONLY)
            try:
                os.pwrite(descriptor, struct.pack(f"<Q{TEXT_BYTES}s", key, _fit(text)), entry * ENTRY_BYTES)
            finally:
                os.close(descriptor)
        except (AllocatorError, OSError):
            pass  # no memory, no descriptor, no pool any more: a text less

    def _read(self, keys: Iterable[tuple[int, int]]) -> list[str]:
        try:
            descriptor = open_own(self.path, os.O_RDONLY)
        except (AllocatorError, OSError):
            return ["" for _ in keys]
        try:
            return [_text(os.pread(descriptor, ENTRY_BYTES, entry * ENTRY_BYTES), key) for entry, key in keys]
        finally:
            os.close(descriptor)


def _text(entry: bytes, key: int) -> str:
    """The text of an entry, if it is about `key`: rows are used again."""
    if len(entry) < ENTRY_BYTES or int.from_bytes(entry[:8], "little") != key:
        return ""
    return entry[8:].rstrip(b"\0").decode(errors="replace")


def _fit(text: str) -> bytes:
    """The end of a long text, since a path's end says most."""
    data = text.encode(errors="replace")
    return data if len(data) <= TEXT_BYTES else b"..." + data[3 - TEXT_BYTES :].decode(errors="ignore").encode()


def calling_site() -> str:
    """`file:line (function)` of the innermost caller that isn't this library or one that carries messages; where there
    is none, as in a queue's feeder thread, of the innermost outside this library.
    """
    nearest: FrameType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _CARRIERS:
            return _site(frame)
        if nearest is None and package not in ("allocator", "shmtensor"):
            nearest = frame
        frame = frame.f_back
    return "" if nearest is None else _site(nearest)


def _site(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
