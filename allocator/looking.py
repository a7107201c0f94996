"""A look at pools from outside: what their headers and clients say, read as files. Changes nothing and waits for
nobody; needs no NumPy, so it is quick.

Never for a pool that this process is attached to: closing its lock file here would drop this process's locks.
"""

from __future__ import annotations

import os
from time import monotonic_ns
from typing import BinaryIO, NamedTuple

from allocator.config import SERVICE_GRACE_SECONDS
from allocator.core.format import HEADER_BYTES, MAGIC, PLAN, STATE_MASK, Client, Header, Name, Span, TableShape
from allocator.errors import PoolNotFound
from allocator.system import host
from allocator.system.locks import PoolLock, open_lock_file

STATES = {Client.PENDING: "forked", Client.LIVE: "live", Client.LEAVING: "leaving"}


class ClientFacts(NamedTuple):
    """An attached process. `alive`: whether the kernel says so. `started` is in clock ticks after boot."""

    slot: int
    pid: int
    started: int
    state: str
    alive: bool
    age_seconds: float


class Glance(NamedTuple):
    """A pool as it is about now; sizes in bytes.

    `state`: "served" (a service keeps it), "live", "orphaned" (no client lives: it goes when the next pool is made,
    once its messages and its service have been awaited), or "unfinished" (its maker died, or it is another version's).
    """

    name: str
    state: str
    limit_bytes: int
    used_bytes: int
    committed_bytes: int
    peak_bytes: int
    names: int
    age_seconds: float
    clients: tuple[ClientFacts, ...]

    @property
    def living(self) -> int:
        """How many clients live."""
        return sum(client.alive for client in self.clients)


def glance(name: str) -> Glance:
    """The pool of that name, seen from outside. Raises PoolNotFound, and PermissionError where it is another user's."""
    host_id = host.boot_id()
    try:
        with open(host.pool_path(host_id, name, "c"), "rb", buffering=0) as file:
            lock = PoolLock(open_lock_file(host.pool_path(host_id, name, "l"), create=False))
            try:
                return _glance(name, file, lock)
            finally:
                os.close(lock.descriptor)
    except FileNotFoundError:
        raise PoolNotFound(f"no pool {name!r} on this machine: shmtensor ls lists those there are") from None


def glance_at_all() -> list[Glance]:
    """This user's pools."""
    found = []
    for name in host.pool_names(host.boot_id()):
        try:
            found.append(glance(name))
        except (PoolNotFound, PermissionError):
            pass  # gone since, or another user's
    return found


def _glance(name: str, file: BinaryIO, lock: PoolLock) -> Glance:
    header = memoryview(file.read(HEADER_BYTES)).cast("Q")
    if len(header) < HEADER_BYTES // 8 or header[Header.MAGIC] != MAGIC:
        return Glance(name, "unfinished", 0, 0, 0, 0, 0, 0.0, ())
    now = monotonic_ns()
    clients = tuple(_clients(read_rows(file, PLAN.clients, header), lock, now))
    spans, names = read_rows(file, PLAN.spans, header), read_rows(file, PLAN.names, header)
    state = "live" if any(client.alive for client in clients) else "orphaned"
    return Glance(
        name,
        "served" if state == "live" and is_served(header, now) else state,
        header[Header.LIMIT],
        sum(spans[Span.USED :: Span.WIDTH]),
        header[Header.RESERVED],
        header[Header.PEAK],
        sum(word == Name.NAMED for word in names[Name.WORD :: Name.WIDTH]),
        (now - header[Header.CREATED_NS]) / 1e9,
        clients,
    )


def is_served(header: memoryview, now_ns: int) -> bool:
    """Whether a service has the pool, or had it until lately and may come again."""
    served = header[Header.SERVED_NS]
    return served != 0 and now_ns - served < SERVICE_GRACE_SECONDS * 1e9


def read_rows(file: BinaryIO, shape: TableShape, header: memoryview) -> memoryview:
    """The table's rows that have memory. Read as a file: mapping would make pages of holes."""
    file.seek(shape.base)
    return memoryview(file.read(min(header[shape.count_at], shape.rows) * shape.width * 8)).cast("Q")


def _clients(words: memoryview, lock: PoolLock, now: int) -> list[ClientFacts]:
    found = []
    for slot in range(len(words) // Client.WIDTH):
        at = slot * Client.WIDTH
        state = words[at] & STATE_MASK
        if state != Client.FREE:
            age = (now - words[at + Client.ATTACHED_NS]) / 1e9
            pid, started = words[at + Client.PID], words[at + Client.STARTED]
            found.append(ClientFacts(slot, pid, started, STATES.get(state, "?"), lock.lives(slot), age))
    return found
