"""Publishing: blocks under names that all processes of a pool can look up.

The pool itself holds what is published: it outlives its publisher, until it is unpublished or replaced, or the pool
goes. Replacing is one store in the tables, so whoever looks a name up gets the old block or the new one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Final, NamedTuple

from allocator.block import Block
from allocator.commons import Commons
from allocator.core.format import PLAN, Name, Record
from allocator.errors import NameNotFound, StaleHandle
from allocator.exchange import Keeper
from allocator.stats import Seen
from allocator.supply import Pause
from allocator.system.locks import AWAKE

if TYPE_CHECKING:
    from allocator.pool import Pool

_NO_TICKET: Final = PLAN.references.rows
"""A row that no table has: a name is no message."""


class Published(NamedTuple):
    """What is published under a name: a block of `nbytes`, `age_seconds` ago, by the process `publisher_pid`, which
    need not live any more. `note` is what that left for those who look it up: of a tensor, how to read the bytes.
    """

    record: int
    nbytes: int
    age_seconds: float
    publisher_pid: int
    note: str


def publish(pool: Pool, name: str, block: Block, keeper: Keeper = None, note: str = "") -> None:
    """Let the pool hold the block under this name, in place of what it held under it so far."""
    text, left = _text(name), note.encode()
    if len(left) > Name.MAX_NOTE_BYTES:
        raise ValueError(f"a note of {len(left)} bytes: at most {Name.MAX_NOTE_BYTES} go with a name")
    commons = pool.commons
    commons.check_accepts()
    if block.pool is not pool:
        raise ValueError(f"{block!r} can't be published in pool {pool.name!r}: copy it there first")
    if not AWAKE[0]:
        commons.pass_through()  # which says why not
    pool.introduce(block, keeper)
    while not commons.section(commons.ledger.publish, text, left, block.record, monotonic_ns(), os.getpid()):
        pool.supply.grow(commons.ledger.plan.names)


def lookup(pool: Pool, name: str, make: Callable[[Block], Keeper], shared: bool, timeout: float) -> tuple[Keeper, str]:
    """The keeper that this process has for the block of that name, else `make(block)`; and the publisher's note."""
    text, commons = _text(name), pool.commons
    pause = Pause(timeout)
    commons.check_accepts()
    while True:
        found = commons.section(_find, commons, text)
        if found is not None:
            record, generation, note = found
            try:
                return pool.exchange.receive(record, generation, _NO_TICKET, 0, make, shared), note
            except StaleHandle:
                continue  # another block has the name since
        if not pause.more():
            waited = f", nor was within {timeout:g} s" if timeout > 0 else ""
            raise NameNotFound(f"{_missing(pool, name)}{waited}: publish it first, or wait longer (timeout=)")


def _find(commons: Commons, text: bytes) -> tuple[int, int, str] | None:
    """Inside the critical section: record, generation and note."""
    names, records = commons.ledger.names, commons.ledger.records
    row = names.find(text)
    if row is None:
        return None
    record = names.field(row, Name.RECORD)
    if record >= records.table.rows:
        raise ValueError(f"a name names record {record}")
    return record, records.field(record, Record.GENERATION), names.note(row).decode()


def unpublish(pool: Pool, name: str) -> None:
    """Let go of what is published under this name; who has it keeps it."""
    if not pool.commons.section(pool.commons.ledger.unpublish, _text(name)):
        raise NameNotFound(_missing(pool, name))


def _missing(pool: Pool, name: str) -> str:
    return f"nothing is published as {name!r} in pool {pool.name!r}"


def list_names(pool: Seen) -> dict[str, Published]:
    """Inside the critical section: everything that is published, by name."""
    names, records, now = pool.ledger.names, pool.ledger.records, monotonic_ns()
    found = {}
    for row in names.rows().tolist():
        record = names.field(row, Name.RECORD)
        found[names.text(row).decode()] = Published(
            record,
            records.field(record, Record.NBYTES),
            (now - names.field(row, Name.SINCE_NS)) / 1e9,
            names.field(row, Name.PID),
            names.note(row).decode(),
        )
    return dict(sorted(found.items()))


def _text(name: str) -> bytes:
    if type(name) is not str:
        raise TypeError(f"a name is a str, not {type(name).__name__}")
    if not name.isprintable() or not 0 < len(text := name.encode()) <= Name.MAX_TEXT_BYTES:
        raise ValueError(f"{name[:80]!r} can't be a name: 1 to {Name.MAX_TEXT_BYTES} bytes of printable text, as UTF-8")
    return text
