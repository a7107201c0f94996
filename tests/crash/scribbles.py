"""Overwrites words of a pool's tables at random, then uses the pool from the process that has it and from one that
attaches.

    python scribbles.py FIRST_SEED COUNT

Whatever is done then works, or raises an `AllocatorError`: no other exception, no signal, no endless loop. Prints how
many seeds made an operation fail.
"""

from __future__ import annotations

import mmap
import os
import pickle
import random
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from allocator import AllocatorError, BlockHandle, Pool
from allocator.core.format import HEADER_BYTES, PLAN
from allocator.leaving import unlink_pool

FINE, REFUSED, WRONG = 0, 1, 2
SIZES = (100, 5000, 200_000, 900_000)
SECONDS = 60
ROWS_HIT = 64  # the first of each table, since those are in use


def scribble(pool: Pool, rng: random.Random) -> None:
    """Overwrite one to five words: of the header, or of rows in use."""
    tables = [PLAN.clients, PLAN.spans, PLAN.records, PLAN.references, PLAN.names]
    regions = [(0, HEADER_BYTES), *((table.base, ROWS_HIT * table.width * 8) for table in tables)]
    with open(pool.commons.control.path, "r+b") as file:
        words = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
    for _ in range(rng.choice([1, 1, 2, 5])):
        base, nbytes = rng.choice(regions)
        at = (base + rng.randrange(nbytes)) // 8
        was = words[at]
        flipped, more = was ^ 1 << rng.randrange(64), (was + 1) % 2**64
        words[at] = rng.choice([0, 1, 2, 3, 2**63, 2**64 - 1, flipped, more, rng.randrange(1000), rng.getrandbits(64)])


class Attempts:
    """Does what may be refused, and remembers whether anything was."""

    def __init__(self) -> None:
        self.status = FINE

    def __call__(self, operation: Callable[..., Any], *args: Any) -> Any:
        try:
            return operation(*args)
        except AllocatorError:
            self.status = REFUSED
        except (TypeError, ValueError) as error:
            if "sealed" not in str(error) and "read-only" not in str(error):  # the flag that was hit may say so
                raise
        return None


def fill(block: Any) -> None:
    block.memoryview()[:] = b"x" * block.nbytes


def use(pool: Pool, handles: list[BlockHandle]) -> int:
    """A bit of everything; whether some of it was refused."""
    may = Attempts()
    may(pool.check)
    made = [may(pool.allocate, nbytes) for nbytes in SIZES]
    opened = [may(handle.open) for handle in handles]
    blocks = [block for block in [*made, *opened] if block is not None]
    for block in made:
        if block is not None:
            may(fill, block)
    for block in blocks:
        may(block.holders)
        may(lambda block=block: bytes(block.memoryview()[:10]))
        if block.was_sent:
            may(block.resize, 10)
    sent = [may(block.share) for block in blocks]
    again = [may(handle.open) for handle in sent if handle is not None]
    for act in (pool.stats, pool.tickets, pool.purge, pool.reap):
        may(act)
    for name in may(pool.names) or ():
        may(pool.lookup, name)
    for name in ("kept", "new") if blocks else ():
        may(pool.publish, name, blocks[0])
        may(pool.lookup, name)
        may(pool.unpublish, name)
    may(pool.discard_tickets, 0)
    del made, opened, blocks, block, sent, again
    for act in (pool.check, pool.stats, pool.close):
        may(act)
    return may.status


def come(name: str, handles: list[BlockHandle]) -> int:
    """The same in a process that attaches."""
    try:
        pool = Pool.attach(name)
    except AllocatorError:
        return REFUSED
    return use(pool, handles)


def in_child(body: Callable[[], int]) -> int:
    """Runs it in a process of its own, with an alarm; its status, negative when a signal ended it."""
    pid = os.fork()
    if pid == 0:
        status = WRONG
        signal.alarm(SECONDS)
        try:
            status = body()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def attach_elsewhere(name: str, handles: list[BlockHandle]) -> int:
    """In a new program: a fork knows the pool already."""
    command = [sys.executable, __file__, "attach", name, pickle.dumps(handles).hex()]
    pid = os.posix_spawn(sys.executable, command, dict(os.environ))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def one(seed: int) -> int:
    """Scribbles with this seed; the worst status."""
    pool = Pool.create(limit=16 << 20, ticket_grace=0)
    try:
        kept = [pool.allocate(nbytes) for nbytes in SIZES]
        handles = [block.share() for block in kept]
        pool.publish("kept", kept[0])
        scribble(pool, random.Random(seed))
        statuses = [in_child(lambda: use(pool, handles)), attach_elsewhere(pool.name, handles)]
    finally:
        unlink_pool(pool.host, pool.name)
    return WRONG if set(statuses) - {FINE, REFUSED} else max(statuses)


def main(first: int, count: int) -> None:
    refused = 0
    for seed in range(first, first + count):
        status = in_child(lambda seed=seed: one(seed))
        if status not in (FINE, REFUSED):
            sys.exit(f"seed {seed}: a child failed")
        refused += status == REFUSED
    print(refused)


if __name__ == "__main__":
    if sys.argv[1] == "attach":
        sys.exit(in_child(lambda: come(sys.argv[2], pickle.loads(bytes.fromhex(sys.argv[3])))))
    main(int(sys.argv[1]), int(sys.argv[2]))
