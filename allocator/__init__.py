"""A shared-memory allocator: pools of blocks that processes hand to each other, crash-safe and without a server."""

from __future__ import annotations

from allocator.block import Block, BlockHandle
from allocator.default import default_pool, set_default_pool
from allocator.errors import (
    AllocatorError,
    CorruptPool,
    ForeignHost,
    ForeignUser,
    NameNotFound,
    OutOfSharedMemory,
    PoolClosed,
    PoolExists,
    PoolNotFound,
    PoolReentered,
    StaleHandle,
    StorageCapacityError,
)
from allocator.lifecycle import REGISTRY
from allocator.naming import Published
from allocator.pool import Pool, find_pool, sweep_leftovers
from allocator.stats import Holder, PoolStats, Ticket

attached = REGISTRY.pools
"""The pools this process is attached to, by name. For looking; it changes as pools come and go."""

__all__ = [
    "AllocatorError",
    "Block",
    "BlockHandle",
    "CorruptPool",
    "ForeignHost",
    "ForeignUser",
    "Holder",
    "NameNotFound",
    "OutOfSharedMemory",
    "Pool",
    "PoolClosed",
    "PoolExists",
    "PoolNotFound",
    "PoolReentered",
    "PoolStats",
    "Published",
    "StaleHandle",
    "StorageCapacityError",
    "Ticket",
    "attached",
    "default_pool",
    "find_pool",
    "set_default_pool",
    "sweep_leftovers",
]
