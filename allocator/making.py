"""Making a pool, attaching to one, and taking a place among its clients.

Both run with MUTEX and the lock file held, before there is a client that could enter the critical section.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic_ns
from typing import TypeVar

from allocator import reaper
from allocator.commons import Commons
from allocator.config import ADDRESS_SPACE_PER_LIMIT, MIN_ADDRESS_SPACE_BYTES, PAGE_BYTES
from allocator.core import recover
from allocator.core.format import PLAN, Client, Header
from allocator.errors import CorruptPool, OutOfSharedMemory, PoolClosed, PoolExists, PoolNotFound
from allocator.leaving import unlink_pool
from allocator.system import host, memory
from allocator.system.files import check_own
from allocator.system.locks import PoolLock, lock_file, open_lock_file, unlock_file

Made = TypeVar("Made")


def create(
    name: str, limit: int, *, timeout_ns: int, grace_ns: int, ttl_ns: int, enter: Callable[[Commons], Made]
) -> Made:
    """`enter` of a new pool, in which this process has a place; if that fails, nothing of the pool is left.

    Raises
    ------
    PoolExists
        A pool of that name is alive.
    ForeignUser, CorruptPool
        The name is another user's, or that of something else.
    OutOfSharedMemory
        There is not even memory for the tables.
    """
    host_id = host.boot_id()
    lock = _new_lock(host_id, name)
    try:
        wanted = max(MIN_ADDRESS_SPACE_BYTES, ADDRESS_SPACE_PER_LIMIT * limit)
        space = memory.largest_mappable(wanted, at_least=-(-limit // PAGE_BYTES) * PAGE_BYTES, beside=PLAN.nbytes)
        if not space:
            raise OutOfSharedMemory(
                f"no address space here holds limit={limit} bytes for pool {name!r} (ulimit -v, -f): choose less"
            )
        heap_name, control_name = (host.segment_name(host_id, name, kind) for kind in ("h", "c"))
        memory.create_segment(control_name, PLAN.nbytes)
        memory.create_segment(heap_name, space)
        commons = Commons(name, host_id, memory.Segment(heap_name), memory.Segment(control_name), lock)
        _commit_tables(commons)
        commons.ledger.format(
            limit=limit,
            address_space=space,
            host=int(host_id, 16),
            grace_ns=grace_ns,
            ttl_ns=ttl_ns,
            timeout_ns=timeout_ns,
            now_ns=monotonic_ns(),
        )
        _join(commons)
        return enter(commons)
    except BaseException:
        unlink_pool(host_id, name)
        os.close(lock.descriptor)
        raise


def _new_lock(host_id: str, name: str) -> PoolLock:
    """The new pool's lock file, locked."""
    path = host.pool_path(host_id, name, "l")
    while True:
        try:
            descriptor = open_lock_file(path, create=True)
        except FileExistsError:
            try:
                check_own(path)
            except FileNotFoundError:
                continue  # gone meanwhile
            raise PoolExists(f"a pool {name!r} exists: attach to it, or choose another name") from None
        try:
            lock_file(descriptor)
            lock = PoolLock(descriptor)
            if lock.is_linked():
                return lock
        except BaseException:
            memory.unlink(host.segment_name(host_id, name, "l"))
            os.close(descriptor)
            raise
        os.close(descriptor)  # between opening and locking, another process took it for a leftover


def _commit_header(commons: Commons) -> None:
    if not commons.control.populate(0, PLAN.clients.base):
        raise OutOfSharedMemory(f"no memory for the header of pool {commons.name!r}: {host.room().bound} is full")


def _commit_tables(commons: Commons) -> None:
    ledger, control = commons.ledger, commons.control
    _commit_header(commons)
    for shape in PLAN:
        step = ledger.next_step(shape)
        assert step is not None
        if not control.populate(step[0], step[1]):
            raise OutOfSharedMemory(f"no memory for the tables of pool {commons.name!r}: {host.room().bound} is full")
        ledger.grow(shape, step[2])


def attach(name: str, *, enter: Callable[[Commons], Made]) -> Made:
    """`enter` of the pool of that name, in which this process has a place from now on.

    Raises
    ------
    PoolNotFound
        There is none.
    PoolClosed
        All of its places are taken, or its service is leaving and lets nobody in.
    ForeignUser
        It is another user's.
    CorruptPool
        It was never finished, is another version's, or was cut.
    OutOfSharedMemory
        This process may not map that much (`ulimit -v`).
    """
    commons = open_pool(name)
    try:
        if commons.ledger.header[Header.REFUSES_NS] > monotonic_ns():
            raise PoolClosed(f"pool {name!r} lets no new process in: its service is leaving; try again later")
        _join(commons)
        return enter(commons)
    except BaseException:
        os.close(commons.lock.descriptor)
        raise


def open_pool(name: str) -> Commons:
    """The pool of that name, its lock held, in which this process has no place. Raises as `attach` does."""
    host_id = host.boot_id()
    missing = PoolNotFound(f"no pool {name!r} on this machine: create it first, or check the name")
    try:
        descriptor = open_lock_file(host.pool_path(host_id, name, "l"), create=False)
    except FileNotFoundError:
        raise missing from None
    try:
        lock_file(descriptor)
        lock = PoolLock(descriptor)
        if not lock.is_linked():
            raise missing
        heap, control = (memory.Segment(host.segment_name(host_id, name, kind)) for kind in ("h", "c"))
        if control.nbytes != PLAN.nbytes:
            raise CorruptPool(f"the control segment of pool {name!r} has {control.nbytes} bytes, not {PLAN.nbytes}")
        commons = Commons(name, host_id, heap, control, lock)
        _commit_header(commons)  # never made, it is a hole, which can't even be read where memory has run out
        if not commons.ledger.is_formatted:
            raise CorruptPool(f"pool {name!r} was never finished, or is of another version of this library")
        if heap.nbytes != commons.header[Header.ADDRESS_SPACE]:
            raise CorruptPool(
                f"the heap of pool {name!r} has {heap.nbytes} bytes, not {commons.header[Header.ADDRESS_SPACE]}"
            )
        return commons
    except FileNotFoundError:
        os.close(descriptor)
        raise missing from None
    except BaseException:
        os.close(descriptor)
        raise


def _join(commons: Commons) -> None:
    """Take a place among the clients, and let the lock file go."""
    word = _claim(commons)
    if word is None:
        raise PoolClosed(
            f"pool {commons.name!r} has all of its {PLAN.clients.rows} places taken: end some processes first"
        )
    commons.lock.live(commons.take_place(word).slot)
    unlock_file(commons.lock.descriptor)


def _claim(commons: Commons) -> int | None:
    """The word of a client slot that is ours; None when all are taken. As in the critical section, dirty meanwhile."""
    ledger, now = commons.ledger, monotonic_ns()
    if ledger.dirty:
        recover.rebuild(ledger)
    ledger.header[Header.DIRTY] = 1
    word = reaper.claim_place(ledger, commons.lock, commons.heap, 0, now, state=Client.LIVE, pid=os.getpid())
    ledger.header[Header.DIRTY] = 0
    return word
