"""Pools: wiring of the parts into what callers use. No algorithm lives here."""

from __future__ import annotations

import os
import re
from operator import index
from time import monotonic_ns
from types import TracebackType
from typing import Any

from allocator import leaving, making, naming
from allocator.block import Block
from allocator.commons import Commons
from allocator.config import (
    DEFAULT_LIMIT_SHARE,
    MAX_SLOT_BYTES,
    PAGE_BYTES,
    TICKET_GRACE_SECONDS,
    TRACE_VARIABLE,
)
from allocator.core import recover
from allocator.core.format import Header
from allocator.core.sizes import CLASS_BY_UNITS
from allocator.errors import ForeignHost, PoolNotFound, StaleHandle
from allocator.exchange import Exchange
from allocator.lifecycle import REGISTRY
from allocator.local_heap import LocalHeap
from allocator.naming import Published
from allocator.sites import Sites
from allocator.stats import (
    PoolStats,
    SizeClassStats,
    Statistics,
    Ticket,
    list_tickets,
    size_classes,
    snapshot,
    with_sites,
)
from allocator.supply import Pause, Supply
from allocator.system import host
from allocator.system.locks import AWAKE, MUTEX

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,13}")
_LONGEST_SECONDS = 1e9  # 30 years stand for ever, and fit the header's words in nanoseconds


class Pool:
    """A heap shared by processes of one user on one machine. Made with `create` or `attach`, ended by `close` or by
    exit.

    As a context manager it is closed at the end of the block.
    """

    __slots__ = (
        "commons",
        "discard",
        "exchange",
        "heap",
        "heap_map",
        "host",
        "introduce",
        "limit",
        "name",
        "receive",
        "record_words",
        "send",
        "supply",
        "timeout",
    )

    def __init__(self, commons: Commons) -> None:
        header = commons.ledger.header
        self.commons = commons
        self.name = commons.name
        self.host = commons.host
        self.limit: int = header[Header.LIMIT]
        self.timeout: float = header[Header.TIMEOUT_NS] / 1e9
        self.supply = Supply(commons)
        self.heap = LocalHeap(commons, self.supply)
        self.heap_map = commons.heap.map
        self.record_words = commons.ledger.records.words
        self.exchange = Exchange(self, commons, self.heap)
        self.send = self.exchange.send
        self.introduce = self.exchange.introduce
        self.receive = self.exchange.receive
        self.discard = self.exchange.discard

    # ---- making and finding

    @classmethod
    def create(
        cls,
        name: str | None = None,
        *,
        limit: int | None = None,
        timeout: float = 0.0,
        ticket_grace: float = TICKET_GRACE_SECONDS,
        ticket_ttl: float | None = None,
    ) -> Pool:
        """A new, empty pool.

        Parameters
        ----------
        name
            Up to 14 letters, digits, `_`, `.` or `-`; one of its own by default.
        limit
            Bytes that all blocks together may use. By default 80 % of the smallest of free /dev/shm, available RAM
            and cgroup room.
        timeout
            Seconds that `allocate` waits for memory unless told otherwise.
        ticket_grace
            Seconds that a dead sender's message is safe even when memory is needed.
        ticket_ttl
            Seconds after which messages of living senders may be ended too when memory is needed; None: never.

        Raises
        ------
        PoolExists
            A pool of that name is alive.
        ForeignUser, CorruptPool
            The name is another user's, or something's that is no pool.
        OutOfSharedMemory
            There is not even memory for the tables.
        """
        sweep_leftovers()
        name = _checked(os.urandom(5).hex() if name is None else name)
        if limit is None:
            limit = int(host.room().nbytes * DEFAULT_LIMIT_SHARE)
        if limit < PAGE_BYTES:
            raise ValueError(f"limit={limit} bytes is less than a page ({PAGE_BYTES} bytes)")
        timeout_ns, grace_ns = _nanoseconds(timeout, "timeout"), _nanoseconds(ticket_grace, "ticket_grace")
        ttl_ns = 0 if ticket_ttl is None else max(_nanoseconds(ticket_ttl, "ticket_ttl"), 1)  # 0 means never
        with MUTEX:
            return making.create(name, limit, timeout_ns=timeout_ns, grace_ns=grace_ns, ttl_ns=ttl_ns, enter=_enter)

    @classmethod
    def attach(cls, name: str, *, timeout: float = 0.0) -> Pool:
        """The pool of that name; in one process always the same object, until it is closed.

        Raises
        ------
        PoolNotFound
            There is none, also after `timeout` seconds.
        ForeignUser
            It is another user's.
        PoolClosed
            It lets no new process in: all places are taken, or its service is leaving.
        CorruptPool
            It was never finished, is another version's, or something wrote into it.
        OutOfSharedMemory
            This process may not map that much (`ulimit -v`).
        """
        pause = Pause(timeout)
        while True:
            try:
                with MUTEX:
                    known = REGISTRY.pools.get(name)
                    return making.attach(_checked(name), enter=_enter) if known is None or known.is_lost else known
            except PoolNotFound:
                if not pause.more():
                    raise

    def close(self) -> None:
        """Refuse new work; leave the pool once the last block here has died. The last process to leave removes it."""
        leaving.close(self)

    def forget(self) -> bool:
        """It is closed: `attach` makes a new object from now on. Whether it was known."""
        known = REGISTRY.pools.get(self.name) is self
        if known:
            del REGISTRY.pools[self.name]
        return known

    @property
    def closed(self) -> bool:
        """Whether this process can't use the pool any more."""
        return self.commons.refusing or self.commons.closed_because is not None

    @property
    def is_lost(self) -> bool:
        """Whether this object is of no use for good: this process left, or lost its place."""
        return self.commons.closed_because is not None

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- blocks

    def allocate(self, nbytes: int, *, capacity: int | None = None, timeout: float | None = None) -> Block:
        """A block of `nbytes` bytes, 64-byte aligned; what is in them is undefined.

        Parameters
        ----------
        nbytes
            0 is fine.
        capacity
            Bytes up to which it can be resized in place. Costs address space, not memory. At least what rounding
            leaves.
        timeout
            Seconds to wait for memory; None: the pool's.

        Raises
        ------
        OutOfSharedMemory
            There is no room, after collecting everything that nobody uses and waiting; nothing has changed.
        PoolClosed
            The pool was closed in this process.
        """
        if capacity is None and 0 <= nbytes <= MAX_SLOT_BYTES and AWAKE[0]:
            span = self.heap.current[CLASS_BY_UNITS[(nbytes + 63) >> 6]]
            try:
                start = span.free.pop()
            except IndexError:
                pass
            else:
                span.words[span.used_at] = span.room * (span.carved - len(span.free))
                return Block(self, span, start, nbytes)
        return self._allocate(
            nbytes, nbytes if capacity is None else capacity, self.timeout if timeout is None else timeout
        )

    def _allocate(self, nbytes: int, capacity: int, timeout: float) -> Block:
        if not AWAKE[0]:
            self.commons.pass_through()  # which says why not
        nbytes, capacity = index(nbytes), index(capacity)
        if nbytes < 0 or capacity < nbytes:
            raise ValueError(f"can't allocate {nbytes} bytes with a capacity of {capacity}")
        if capacity <= MAX_SLOT_BYTES:
            home, start = self.heap.take_slot(CLASS_BY_UNITS[(capacity + 63) >> 6], nbytes, capacity, timeout)
            return Block(self, home, start, nbytes)
        whole, start = self.heap.take_whole(nbytes, capacity, timeout)
        return Block(self, whole, start, nbytes)

    def open(self, record: int, generation: int, ticket: int, serial: int) -> Block:
        """A received block, with a hold of its own. `BlockHandle.open` checks the numbers. Raises StaleHandle."""
        block: Block = self.exchange.receive(record, generation, ticket, serial, _itself, shared=False)
        return block

    # ---- names

    def publish(self, name: str, block: Block) -> None:
        """Put the block under this name, in place of what was there. The pool holds it from now on, not this process.

        Who looks the name up gets the old block or the new one; who has the old one keeps it. `name` is printable text
        of at most 255 bytes in UTF-8.

        Raises
        ------
        OutOfSharedMemory
            There is no memory for the table of names, or it is full; the name is as before.
        """
        naming.publish(self, name, block)

    def lookup(self, name: str, *, timeout: float = 0.0) -> Block:
        """The block published under this name, with a hold of this process's own.

        Raises
        ------
        NameNotFound
            There is none, also after `timeout` seconds.
        """
        block: Block = naming.lookup(self, name, _itself, False, timeout)[0]
        return block

    def unpublish(self, name: str) -> None:
        """Let go of what is published under this name. It lives on where it is held. Raises NameNotFound."""
        naming.unpublish(self, name)

    def names(self) -> dict[str, Published]:
        """What is published, by name."""
        return self.commons.section(naming.list_names, self.commons)

    # ---- facts and upkeep

    def stats(self) -> PoolStats:
        """A snapshot after a sweep."""
        self.commons.check_accepts()
        return self.commons.section(self._stats)

    def _stats(self) -> PoolStats:
        self.commons.ledger.sweep()
        return snapshot(self.commons)

    def size_classes(self) -> list[SizeClassStats]:
        """The spans in use by size class, the smallest slots first, those with one block each last."""
        return self.commons.section(size_classes, self.commons)

    def statistics(self) -> Statistics:
        """For a `with` block: what happened in the pool, in all of its processes, within it."""
        return Statistics(self.stats)

    def check(self) -> None:
        """Prove that the shared tables agree with each other; raises CorruptPool."""
        self.commons.section(recover.check, self.commons.ledger)

    def reap(self) -> None:
        """Take back what dead processes had, now rather than when memory is needed."""
        self.commons.section(self.supply.take_back)

    def purge(self) -> int:
        """Give memory that nobody uses back to the kernel; how many bytes that were."""
        self.heap.give_back_idle()
        return self.commons.section(self.supply.purge_unused)

    def tickets(self) -> list[Ticket]:
        """The messages in flight, the oldest first: tensors that were pickled and not opened yet."""
        host.load_psutil()
        found = self.commons.section(list_tickets, self.commons)
        return with_sites(found, Sites(self.host, self.name))

    def discard_tickets(self, older_than: float) -> int:
        """End the messages in flight that are older than so many seconds; how many there were. Opening one is
        StaleHandle then.
        """
        before = monotonic_ns() - int(older_than * 1e9)
        references = self.commons.ledger.references
        return self.commons.section(lambda: references.expire(without_sender_before_ns=before, before_ns=before))

    def __repr__(self) -> str:
        return f"Pool({self.name!r}, limit={self.limit}{', closed' if self.closed else ''})"

    def __reduce__(self) -> tuple[Any, ...]:
        return find_pool, (self.host, self.name)


def sweep_leftovers() -> list[str]:
    """Remove what pools left behind whose processes were all killed; their names. `Pool.create` does it first.

    Left alone are other users' pools, and those with messages younger than their `ticket_grace`.
    """
    return leaving.sweep_leftovers(REGISTRY.pools)


def _itself(block: Block) -> Block:
    return block


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} can't name a pool: 1 to 14 letters, digits, '_', '.' or '-', not beginning with '.' or '-'"
        )
    return name


def _enter(commons: Commons) -> Pool:
    if os.environ.get(TRACE_VARIABLE, "0") in ("", "0"):
        pool = Pool(commons)
    else:
        from allocator.tracing import TracedPool  # above us, and seldom needed

        pool = TracedPool(commons)
    REGISTRY.add(pool)
    return pool


def _nanoseconds(seconds: float, option: str) -> int:
    if not seconds >= 0:
        raise ValueError(f"{option}={seconds}: it needs seconds of 0 or more")
    return int(min(seconds, _LONGEST_SECONDS) * 1e9)


def find_pool(host_id: str, name: str) -> Pool:
    """The pool that a handle names; attaches when it must.

    Raises
    ------
    ForeignHost
        The handle comes from another machine, or from before a reboot.
    StaleHandle
        The pool is gone, and with it what the handle names.
    """
    pool = REGISTRY.pools.get(name)
    if pool is not None and pool.host == host_id:
        return pool
    if host_id != host.boot_id():
        raise ForeignHost(
            f"the handle was made on host {host_id!r}, this is {host.boot_id()!r}: send the bytes instead (st.save)"
        )
    try:
        return Pool.attach(name)
    except (PoolNotFound, ValueError) as error:
        raise StaleHandle(f"pool {name!r} is gone, and with it what this handle names") from error
