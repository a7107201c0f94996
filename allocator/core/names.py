"""Names: texts by which records are found. A name keeps its record alive, whatever becomes of its publisher.

    FREE -> NAMED   lock   published; the word last
    NAMED -> FREE   lock   unpublished, or replaced by a newer row with the same text

A row that replaces another stands before the other ends, so that the name is never missing: from the store of its word
on it is the name. Where a death came between the two, `end_replaced` ends the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import numpy as np

from allocator.core.format import Name
from allocator.core.tables import Column, Rows, Table, Words
from allocator.errors import CorruptPool


class Names:
    """The name table. Everything needs the pool lock held."""

    __slots__ = ("octets", "table", "words")

    def __init__(self, table: Table) -> None:
        self.table = table
        self.words: Words = table.words
        self.octets = table.words.cast("B")

    def field(self, row: int, field: int) -> int:
        """One of the fields of `format.Name`."""
        return self.words[row * Name.WIDTH + field]

    def text(self, row: int) -> bytes:
        """The row's text, UTF-8."""
        return self._octets(row, 0, self._text_bytes(row))

    def note(self, row: int) -> bytes:
        """What the publisher left for those who look the name up, UTF-8."""
        return self._octets(row, self._text_bytes(row), self.field(row, Name.NOTE_BYTES))

    def _text_bytes(self, row: int) -> int:
        return self.field(row, Name.KEY) >> 32

    def _octets(self, row: int, skip: int, count: int) -> bytes:
        start = (row * Name.WIDTH + Name.TEXT) * 8 + skip
        if start + count > (row + 1) * Name.WIDTH * 8:
            raise CorruptPool(f"name {row} has {count} bytes, more than fit: recreate the pool")
        return bytes(self.octets[start : start + count])

    def rows(self) -> Rows:
        """The NAMED rows."""
        return np.flatnonzero(self.table.column(Name.WORD) == Name.NAMED)

    def records(self) -> Column:
        """The records that have names."""
        return self.table.column(Name.RECORD)[self.rows()]

    def find(self, text: bytes) -> int | None:
        """The row of that name."""
        for row in np.flatnonzero(self.table.column(Name.KEY) == np.uint64(_key(text))).tolist():
            if self.field(row, Name.WORD) == Name.NAMED and self.text(row) == text:
                return int(row)
        return None

    def fill(self, text: bytes, note: bytes, record: int, serial: int, now_ns: int, pid: int) -> int | None:
        """A free row with all but its word; None when there is none."""
        rows = self.table.find_free(1)
        if not rows:
            return None
        words, at = self.words, rows[0] * Name.WIDTH
        words[at + Name.KEY] = _key(text)
        words[at + Name.SERIAL] = serial
        words[at + Name.RECORD] = record
        words[at + Name.SINCE_NS] = now_ns
        words[at + Name.PID] = pid
        words[at + Name.NOTE_BYTES] = len(note)
        start = (at + Name.TEXT) * 8
        self.octets[start : start + len(text) + len(note)] = text + note
        return rows[0]

    def name(self, row: int) -> None:
        """The filled row is the name, from this store on."""
        self.words[row * Name.WIDTH] = Name.NAMED

    def free(self, row: int) -> None:
        """End it. Perhaps nothing else keeps its record: references were loosened before."""
        self.words[row * Name.WIDTH] = Name.FREE

    def replaced(self) -> Iterator[int]:
        """The rows with a text that a newer row has."""
        newest: dict[bytes, int] = {}
        for row in sorted(self.rows().tolist(), key=lambda row: self.field(row, Name.SERIAL)):
            text = self.text(row)
            if text in newest:
                yield newest[text]
            newest[text] = row

    def end_replaced(self) -> None:
        """After a death: where two rows have one text, the newer one is the name."""
        for row in list(self.replaced()):
            self.free(row)


def _key(text: bytes) -> int:
    return len(text) << 32 | crc32(text)
