"""Every shared structure: its fields, who writes them, under which lock; and the equations that hold between them.

The control segment is 64-bit words: one header, then tables of rows. Nothing else of the package knows an offset.

    word       64 bits, read and written in one piece
    owner      a client as the tables name it: its slot and its generation, already shifted into place (`owner_of`)
    state      the low four bits of a row's word; together with the owner it is the row's *primary* fact, written last
    derived    could be computed again from primary facts; `recover.rebuild` does, after a death inside the lock

Written under the pool lock, unless said otherwise. "no lock" means: by the owner that the row's word names, and
nobody else.

Equations, proved by `recover.check`:
    1. every span row below `span_count` is ALLOCATED, ORPHAN or FREE; a FREE one is on the stack of its order, once;
       no other is
    2. spans tile the address space up to `bump` in the order of their rows
    3. live records of one span don't overlap and lie inside its committed front
    4. a LIVE record is named by at least one HELD, FLIGHT or DROPPED reference, or has a name, unless LOOSE is set
    5. `live` of an ORPHAN span is the number of its LIVE records, and is not 0
    6. the sum of `reserved` over all spans is the header's, and at most the limit
    7. no row names an owner whose client slot is FREE or has another generation (FLIGHT rows without a sender name
       `NOBODY`)
    8. a NAMED row has a text that no other has, and names a LIVE record
"""

from __future__ import annotations

from typing import Final, NamedTuple

from allocator.config import COMMIT_STEP_BYTES

MAGIC: Final = 0x32524F534E544D53  # b"SMTNSOR2": written last when a pool is made
HEADER_BYTES: Final = COMMIT_STEP_BYTES  # the header never shares a step with a table
ORDERS: Final = 64

STATE_MASK: Final = 15
SLOT_SHIFT: Final = 4
GENERATION_SHIFT: Final = 16
SLOT_MASK: Final = 0xFFF
GENERATION_MASK: Final = 0xFFFFFFFF
OWNER_MASK: Final = (SLOT_MASK << SLOT_SHIFT) | (GENERATION_MASK << GENERATION_SHIFT)
NOBODY: Final = SLOT_MASK << SLOT_SHIFT  # the owner of a message whose sender died: no client has this slot


def owner_of(slot: int, generation: int) -> int:
    """A client as the tables name it."""
    return (slot << SLOT_SHIFT) | ((generation & GENERATION_MASK) << GENERATION_SHIFT)


def slot_of(word: int) -> int:
    """The client slot that a word's owner names."""
    return (word >> SLOT_SHIFT) & SLOT_MASK


class Header:
    """Indices of the header's words."""

    MAGIC: Final = 0
    DIRTY: Final = 1  # set on entry to the critical section, cleared by the last statement of its body
    LIMIT: Final = 2  # bytes; fixed
    ADDRESS_SPACE: Final = 3  # bytes of the heap segment; fixed
    HOST: Final = 4  # the first 32 bits of the boot id; fixed
    GRACE_NS: Final = 5  # fixed
    TTL_NS: Final = 6  # fixed; 0: messages of living senders don't expire
    TIMEOUT_NS: Final = 7  # fixed: how long allocate waits unless told otherwise
    CREATED_NS: Final = 8  # monotonic; fixed
    NEXT_SERIAL: Final = 9  # only grows; a serial is never given twice
    BUMP: Final = 10  # derived: the end of the last span
    SPAN_COUNT: Final = 11  # derived: rows of the span table in use
    RESERVED: Final = 12  # derived: the sum of the spans' `reserved`
    PEAK: Final = 13  # the highest RESERVED seen; for people
    LOOSE: Final = 14  # a reference row was freed by something else than the sweep: it must look at all records
    SERVED_NS: Final = 15  # monotonic time at which a service last said that it keeps the pool; 0: none does
    ROWS: Final = 16  # a word for each table: its rows that have memory; only grows
    REFUSES_NS: Final = 32  # monotonic time until which no new client is let in: a service is leaving
    SERVER: Final = 33  # the client that is the service, as owner; 0: none
    REAPED: Final = 34  # from here on counters since the pool was made, for people: dead clients taken back from,
    PURGED: Final = 35  # bytes given back to the kernel,
    DELAYED: Final = 36  # allocations that weren't met at once,
    REFUSED: Final = 37  # and those that were refused in the end
    STACKS: Final = 64  # ORDERS words: 1 + the top free span of each order, 0 when empty; derived


class Client:
    """One attached process. 8 words; the word is `state | owner`."""

    WIDTH: Final = 8
    WORD: Final = 0
    PID: Final = 1  # pid and start time are for people, never for judging
    STARTED: Final = 2
    ATTACHED_NS: Final = 3  # monotonic
    PARENT: Final = 4  # the word of the client it was forked from, 0 otherwise

    FREE: Final = 0
    PENDING: Final = 1  # a fork's child, not yet up: judged by its parent's pipe, or once the parent is dead
    LIVE: Final = 2
    LEAVING: Final = 3  # its exit hook ran; it lives until the kernel drops its byte


class Span:
    """2^order bytes of address space. 8 words; the word packs state, order, slot class and owner, so that one store
    moves it.
    """

    WIDTH: Final = 8
    WORD: Final = 0
    START: Final = 1  # byte offset in the heap; fixed
    KIND: Final = 2  # order | class << 8; the order is fixed, the class changes only while the span is FREE
    COMMITTED: Final = 3  # bytes of its front that have memory
    RESERVED: Final = 4  # bytes of its front counted against the limit; [committed, reserved) is in doubt until settled
    USED: Final = 5  # bytes in use, for stats and trimming; of slot spans written by the owner, no lock
    LIVE: Final = 6  # derived; ORPHAN spans only: how many LIVE records lie in it
    NEXT: Final = 7  # derived; FREE spans only: 1 + the next one on the stack

    FREE: Final = 1  # 0 is a row that was never used
    ALLOCATED: Final = 2
    ORPHAN: Final = 3  # its owner died; freed with its last record


class Record:
    """The shared entry of a block that was sent. 8 words; the word is `state | owner`."""

    WIDTH: Final = 8
    WORD: Final = 0
    GENERATION: Final = 1  # raised when the record is freed, so that old handles miss
    SPAN: Final = 2
    START: Final = 3  # byte offset in the heap
    NBYTES: Final = 4  # resized in place, seen by everybody at once
    CAPACITY: Final = 5
    FLAGS: Final = 6

    FREE: Final = 0
    RESERVED: Final = 1  # a client's spare; it fills the fields and stores LIVE without the lock
    LIVE: Final = 2
    RETURNED: Final = 3  # nobody refers to it; the owner of its slot span takes the slot back

    SEALED: Final = 1  # read-only for good
    UNSIZED: Final = 2  # made by a fork for a block that was never sent; the first to look at it writes NBYTES


class Reference:
    """What keeps a record alive. 4 words; the word is `state | owner`."""

    WIDTH: Final = 4
    WORD: Final = 0
    RECORD: Final = 1  # written by the owner before the word leaves RESERVED
    SERIAL: Final = 2  # FLIGHT: its own, written when the row was reserved; HELD and DROPPED: that of the ticket below
    SINCE_NS: Final = 3  # FLIGHT: monotonic time of sending, or of finding the sender dead
    REDEEMED: Final = 3  # HELD and DROPPED: 1 + the row of the ticket it came by, which is *spent*; 0: it came by none

    FREE: Final = 0
    RESERVED: Final = 1
    NAMING: Final = 2  # from this state on a row names a record
    FLIGHT: Final = 2  # a ticket: inside a message
    HELD: Final = 3  # a hold: a process has it open
    DROPPED: Final = 4  # given up, to be swept


class Name:
    """A text by which a record is found, and which keeps it alive: no client's, the pool's own. 256 words: 8, then the
    text, then the note, which is text too, for those who look the name up.
    """

    WIDTH: Final = 256
    WORD: Final = 0  # the state; written last
    KEY: Final = 1  # length and checksum of the text, to search by
    SERIAL: Final = 2  # of two rows with one text, which a death may leave, the higher one counts
    RECORD: Final = 3
    SINCE_NS: Final = 4  # monotonic time of publishing
    PID: Final = 5  # the publisher's, for people
    NOTE_BYTES: Final = 6
    TEXT: Final = 8  # from this word on

    FREE: Final = 0
    NAMED: Final = 1

    MAX_TEXT_BYTES: Final = 255
    MAX_NOTE_BYTES: Final = WIDTH * 8 - TEXT * 8 - MAX_TEXT_BYTES


class TableShape(NamedTuple):
    """Where a table lies: `rows` rows of `width` words from byte `base`; its committed rows are counted in header
    word `count_at`.
    """

    base: int
    rows: int
    width: int
    count_at: int

    @property
    def end(self) -> int:
        return self.base + self.rows * self.width * 8


class Plan(NamedTuple):
    """The shapes of all tables, in the order in which they lie, and with them the size of the control segment."""

    clients: TableShape
    spans: TableShape
    records: TableShape
    references: TableShape
    names: TableShape

    @property
    def nbytes(self) -> int:
        return self[-1].end


def plan_tables(clients: int, spans: int, records: int, references: int, names: int) -> Plan:
    """Lay the tables out behind the header; each begins on a commit step so that they grow on their own."""
    base, shapes = HEADER_BYTES, []
    sizes = (
        (clients, Client.WIDTH),
        (spans, Span.WIDTH),
        (records, Record.WIDTH),
        (references, Reference.WIDTH),
        (names, Name.WIDTH),
    )
    for i, (rows, width) in enumerate(sizes):
        shapes.append(TableShape(base, rows, width, Header.ROWS + i))
        base = -(-shapes[-1].end // COMMIT_STEP_BYTES) * COMMIT_STEP_BYTES
    return Plan(*shapes)


MAX_CLIENTS: Final = 1023
PLAN: Final = plan_tables(MAX_CLIENTS, 1 << 20, 1 << 21, 1 << 22, 1 << 14)
"""A million spans, two million records, four million references, 16,384 names: sparse, so only rows in use cost memory.
"""
