"""Upkeep from outside, by a process without a place in the pool: under its lock, as a client does it.

A place would be one more client to wait for: who leaves last takes the pool away, and a visitor must not be that one.
Never for a pool that this process is attached to: see `looking`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic_ns
from typing import TypeVar

from allocator import reaper
from allocator.commons import Commons
from allocator.core import recover
from allocator.core.format import Header
from allocator.making import open_pool
from allocator.supply import Supply
from allocator.system.locks import MUTEX

Result = TypeVar("Result")


def reap(name: str) -> int:
    """Take back what dead processes had, and what the ticket rule allows; how many processes that were."""
    return _visit(name, _reap)


def purge(name: str) -> int:
    """Give memory that nobody uses back to the kernel; how many bytes that were."""
    return _visit(name, lambda commons: Supply(commons).purge_unused())


def _reap(commons: Commons) -> int:
    ledger = commons.ledger
    dead = reaper.reap(ledger, commons.lock, commons.heap, commons.owner, monotonic_ns())
    Supply(commons).take_back()
    return dead


def _visit(name: str, body: Callable[[Commons], Result]) -> Result:
    """`body` under the pool's lock, dirty meanwhile, as in the critical section. Raises as `Pool.attach` does."""
    with MUTEX:
        commons = open_pool(name)
        try:
            header = commons.ledger.header
            if header[Header.DIRTY]:
                recover.rebuild(commons.ledger)
            header[Header.DIRTY] = 1
            result = body(commons)
            header[Header.DIRTY] = 0
            return result
        finally:
            os.close(commons.lock.descriptor)  # and with it the lock
