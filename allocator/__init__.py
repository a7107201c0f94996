"""A shared-memory allocator: pools of blocks that processes hand to each other, crash-safe and without a server.

A name is looked up when it is first used: `shmtensor ls` answers before NumPy would be imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allocator.block import Block as Block
    from allocator.block import BlockHandle as BlockHandle
    from allocator.default import default_pool as default_pool
    from allocator.default import set_default_pool as set_default_pool
    from allocator.errors import AllocatorError as AllocatorError
    from allocator.errors import CorruptPool as CorruptPool
    from allocator.errors import ForeignHost as ForeignHost
    from allocator.errors import ForeignUser as ForeignUser
    from allocator.errors import NameNotFound as NameNotFound
    from allocator.errors import OutOfSharedMemory as OutOfSharedMemory
    from allocator.errors import PoolClosed as PoolClosed
    from allocator.errors import PoolExists as PoolExists
    from allocator.errors import PoolNotFound as PoolNotFound
    from allocator.errors import PoolReentered as PoolReentered
    from allocator.errors import StaleHandle as StaleHandle
    from allocator.errors import StorageCapacityError as StorageCapacityError
    from allocator.lifecycle import attached as attached
    from allocator.naming import Published as Published
    from allocator.pool import Pool as Pool
    from allocator.pool import find_pool as find_pool
    from allocator.pool import sweep_leftovers as sweep_leftovers
    from allocator.stats import Holder as Holder
    from allocator.stats import PoolStats as PoolStats
    from allocator.stats import SizeClassStats as SizeClassStats
    from allocator.stats import Statistics as Statistics
    from allocator.stats import Ticket as Ticket

# file -> the public names in it.
_NAMES = {
    "block": "Block BlockHandle",
    "default": "default_pool set_default_pool",
    "errors": (
        "AllocatorError CorruptPool ForeignHost ForeignUser NameNotFound OutOfSharedMemory PoolClosed PoolExists "
        "PoolNotFound PoolReentered StaleHandle StorageCapacityError"
    ),
    "lifecycle": "attached",
    "naming": "Published",
    "pool": "Pool find_pool sweep_leftovers",
    "stats": "Holder PoolStats SizeClassStats Statistics Ticket",
}
_FILES = {name: file for file, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_FILES)  # noqa: PLE0605 -- the table above is the list


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module 'allocator' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"allocator.{_FILES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
