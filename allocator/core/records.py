"""Records: the shared entries of blocks that were sent. A generation tells a record from an earlier one in the same
row.
"""

from __future__ import annotations

import numpy as np

from allocator.core.format import STATE_MASK, Record
from allocator.core.tables import Rows, Table, Words, isin_state


class Records:
    """The record table. Needs the pool lock held, except for reading one field and for an owner's own rows."""

    __slots__ = ("table", "words")

    def __init__(self, table: Table) -> None:
        self.table = table
        self.words: Words = table.words

    def field(self, row: int, field: int) -> int:
        """One of the fields of `format.Record`."""
        return self.words[row * Record.WIDTH + field]

    def state(self, row: int) -> int:
        """One of the states of `format.Record`."""
        return self.words[row * Record.WIDTH] & STATE_MASK

    def is_live(self, row: int, generation: int) -> bool:
        """Whether the row is that very record, still."""
        if not 0 <= row < self.table.rows:
            return False
        at = row * Record.WIDTH
        return self.words[at] & STATE_MASK == Record.LIVE and self.words[at + Record.GENERATION] == generation

    def reserve(self, owner: int, count: int) -> list[int]:
        """Up to `count` spare rows for `owner`, which fills them without the lock."""
        rows = self.table.find_free(count)
        at = np.array(rows, np.intp)
        self.table.grid[at, Record.FLAGS] = 0
        self.table.grid[at, Record.WORD] = Record.RESERVED | owner
        return rows

    def fill(self, row: int, span: int, start: int, nbytes: int, capacity: int) -> int:
        """Describe a block in a reserved row; its generation. No lock: the row is the owner's until `publish`.

        (`Exchange.publish` has both inlined.)
        """
        words, at = self.words, row * Record.WIDTH
        words[at + Record.SPAN] = span
        words[at + Record.START] = start
        words[at + Record.NBYTES] = nbytes
        words[at + Record.CAPACITY] = capacity
        return words[at + Record.GENERATION]

    def publish(self, row: int, owner: int) -> None:
        """The record lives, from this store on. Its HELD reference must stand before."""
        self.words[row * Record.WIDTH] = Record.LIVE | owner

    def seal(self, row: int) -> None:
        """Read-only from now on."""
        self.words[row * Record.WIDTH + Record.FLAGS] |= Record.SEALED

    def free(self, row: int) -> None:
        """End the record: old handles miss it from here on."""
        at = row * Record.WIDTH
        self.words[at + Record.GENERATION] += 1
        self.words[at] = Record.FREE

    def free_many(self, rows: Rows) -> None:
        """`free`, for many rows at once."""
        self.table.grid[rows, Record.GENERATION] += np.uint64(1)
        self.table.grid[rows, Record.WORD] = Record.FREE

    def in_state(self, state: int) -> Rows:
        """All rows in one state."""
        return np.flatnonzero(isin_state(self.table.column(Record.WORD), state))

    def owned(self, state: int, owner: int) -> Rows:
        """All rows in `state` whose word names `owner`."""
        return np.flatnonzero(self.table.column(Record.WORD) == np.uint64(state | owner))

    def give_back(self, row: int, owner: int) -> None:
        """Nobody refers to it: the owner of its slot span takes the slot back."""
        self.words[row * Record.WIDTH] = Record.RETURNED | owner

    def give_back_many(self, rows: Rows, owners: np.ndarray[tuple[int, ...], np.dtype[np.uint64]]) -> None:
        """`give_back`, for many rows at once."""
        self.table.grid[rows, Record.WORD] = owners | np.uint64(Record.RETURNED)
