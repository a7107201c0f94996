"""Client slots: who is attached. A slot's word is its state, slot and generation; the generation is raised when it is
freed.
"""

from __future__ import annotations

import numpy as np

from allocator.core.format import STATE_MASK, Client, owner_of, slot_of
from allocator.core.tables import Table, Words


class Clients:
    """The client table. Everything here needs the pool lock held, except reading a single word."""

    __slots__ = ("table", "words")

    def __init__(self, table: Table) -> None:
        self.table = table
        self.words: Words = table.words

    def claim(self, state: int, pid: int, started: int, now_ns: int, parent: int = 0) -> int | None:
        """Take a free slot in `state`; its word, or None when all committed rows are taken."""
        for slot in range(self.table.rows):
            word = self.word(slot)
            if word & STATE_MASK == Client.FREE:
                at = slot * Client.WIDTH
                generation = (word >> 16) + 1 & 0xFFFFFFFF
                owner = owner_of(slot, generation)
                self.words[at + Client.PID] = pid
                self.words[at + Client.STARTED] = started
                self.words[at + Client.ATTACHED_NS] = now_ns
                self.words[at + Client.PARENT] = parent
                self.words[at] = state | owner
                return state | owner
        return None

    def word(self, slot: int) -> int:
        """The slot's word."""
        return self.words[slot * Client.WIDTH]

    def field(self, slot: int, field: int) -> int:
        """One of the fields of `format.Client`."""
        return self.words[slot * Client.WIDTH + field]

    def is_current(self, owner: int) -> bool:
        """Whether `owner` (or a word that names one) is an attached client still."""
        slot = slot_of(owner)
        if slot >= self.table.rows:
            return False
        word = self.word(slot)
        return word & STATE_MASK != Client.FREE and word >> 16 == owner >> 16

    def set_state(self, owner: int, state: int) -> None:
        """Move the client's slot to `state`; the owner stays."""
        slot = slot_of(owner)
        self.words[slot * Client.WIDTH] = state | self.word(slot) & ~STATE_MASK

    def free(self, slot: int) -> None:
        """Give the slot back. Its generation is raised when it is claimed again."""
        word = self.word(slot)
        self.words[slot * Client.WIDTH] = Client.FREE | word & ~STATE_MASK

    def attached(self) -> list[int]:
        """The words of all slots that aren't free."""
        words = self.table.column(Client.WORD)
        return [int(word) for word in words[words & np.uint64(STATE_MASK) != Client.FREE]]
