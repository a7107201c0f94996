"""The default pool: used where none is named, and found by children through the environment."""

from __future__ import annotations

import os

from allocator.config import POOL_VARIABLE
from allocator.errors import ForeignUser, PoolNotFound
from allocator.pool import Pool
from allocator.system.locks import MUTEX


class _Default:
    """The pool that is used where none is named."""

    pool: Pool | None = None


def default_pool() -> Pool:
    """The pool used where none is named: the parent's, found by the environment variable SHMTENSOR_POOL, else a new
    one.

    Call it before workers start if they are to share it whatever the start method.
    """
    pool = _Default.pool
    if pool is not None and not pool.closed:
        return pool
    with MUTEX:
        pool = _Default.pool
        if pool is None or pool.closed:
            pool = _find_default() or Pool.create()
            set_default_pool(pool)
    return pool


def _find_default() -> Pool | None:
    name = os.environ.get(POOL_VARIABLE)
    try:
        pool = Pool.attach(name) if name else None
    except (ForeignUser, PoolNotFound, ValueError):
        return None  # a stale name: its processes have ended, or this one has become another user's
    return None if pool is None or pool.closed else pool  # closed, but blocks of it live here


def set_default_pool(pool: Pool | None) -> None:
    """Use this pool where none is named, here and in processes started from now on; None: find or make one when it is
    needed.
    """
    _Default.pool = pool
    if pool is None:
        os.environ.pop(POOL_VARIABLE, None)
    else:
        os.environ[POOL_VARIABLE] = pool.name
