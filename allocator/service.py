"""The service: a client that keeps a pool while others come and go, and does at once what they do when they must.

Nothing on the way of a tensor needs it. Killed at any moment it is missed by nobody: what it had comes back as any
client's does, its pool waits for it for `SERVICE_GRACE_SECONDS`, and the next service of that name takes it over.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, monotonic_ns
from types import FrameType
from typing import Any

from allocator import reaper
from allocator.core.format import STATE_MASK, Client, Header, slot_of
from allocator.errors import PoolExists, PoolNotFound
from allocator.pool import Pool
from allocator.stats import PoolStats, snapshot
from allocator.system.host import process_name

TICK_SECONDS = 1.0
DRAIN_TICK_SECONDS = 0.1
log = logging.getLogger("shmtensor")


def make_or_take_over(name: str, **options: Any) -> tuple[Pool, bool]:
    """The pool of that name, made with these options of `Pool.create` if there is none; and whether there was one."""
    while True:
        try:
            return Pool.attach(name), True
        except PoolNotFound:
            pass
        try:
            return Pool.create(name, **options), False
        except PoolExists:
            continue  # made meanwhile


@dataclass(frozen=True, slots=True)
class Member:
    """A client as events name it. `key` is its slot and generation."""

    key: int
    pid: int
    started: int
    alive: bool


class Service:
    """Keeps one pool. `run` returns when it is told to, or when nobody has used the pool for `idle_exit` seconds."""

    def __init__(self, pool: Pool, *, drain: float = 10.0, idle_exit: float | None = None) -> None:
        self.pool = pool
        self.drain = drain
        self.idle_exit = idle_exit
        self.members: dict[int, Member] = {}
        self.stops = 0  # how often it was told to
        self.woken, self.waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    # ---- the pool

    def begin(self) -> None:
        """Say that this process is the pool's service. Raises PoolExists where another one lives."""
        other = self.pool.commons.section(self._begin)
        if other:
            raise PoolExists(f"pool {self.pool.name!r} has a service already: process {other}")

    def _begin(self) -> int:
        """Inside the critical section: 0, or the pid of another service."""
        commons = self.pool.commons
        header, clients = commons.ledger.header, commons.ledger.clients
        server = header[Header.SERVER]
        if server and clients.is_current(server) and commons.lock.lives(slot_of(server)):
            return clients.field(slot_of(server), Client.PID)
        header[Header.SERVER] = commons.owner
        header[Header.REFUSES_NS] = 0  # an earlier service may have been killed while it was leaving
        header[Header.SERVED_NS] = monotonic_ns()
        return 0

    def tick(self) -> PoolStats:
        """Take back what the dead had and what nobody holds, and tell what happened. Messages wait as ever."""
        members, dead, gone, stats = self.pool.commons.section(self._tick)
        for key, member in members.items():
            if key not in self.members and member.alive:
                log.info("client came", extra=self._facts(member))
        for key, member in self.members.items():
            if key not in members:
                log.info("client went", extra=self._facts(member))
        if dead:
            log.info("reaped", extra={"clients": dead})
        if gone:
            log.debug("swept", extra={"blocks": gone, "used_bytes": stats.used_bytes})
        self.members = members
        return stats

    def _tick(self) -> tuple[dict[int, Member], int, int, PoolStats]:
        """Inside the critical section."""
        commons = self.pool.commons
        ledger = commons.ledger
        ledger.header[Header.SERVED_NS] = monotonic_ns()
        dead = reaper.reap(ledger, commons.lock, commons.heap, commons.owner, monotonic_ns())
        gone = ledger.sweep()
        members = {}
        for word in ledger.clients.attached():
            slot, key = slot_of(word), word & ~STATE_MASK
            if key != commons.owner:
                field = ledger.clients.field
                alive = word & STATE_MASK != Client.PENDING
                members[key] = Member(key, field(slot, Client.PID), field(slot, Client.STARTED), alive)
        return members, dead, gone, snapshot(commons)

    def _facts(self, member: Member) -> dict[str, Any]:
        return {"pid": member.pid, "program": process_name(member.pid, member.started)}

    def refuse(self) -> None:
        """Let no new client in until the drain is over."""
        until = monotonic_ns() + int(self.drain * 1e9)
        self.pool.commons.section(self.pool.commons.ledger.header.__setitem__, Header.REFUSES_NS, until)

    def end(self) -> None:
        """Leave. The pool goes with its last client."""
        self.pool.commons.section(self._end)
        self.pool.close()

    def _end(self) -> None:
        header = self.pool.commons.ledger.header
        header[Header.SERVED_NS] = header[Header.SERVER] = header[Header.REFUSES_NS] = 0

    # ---- its life

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve. `ready` is called once clients can come."""
        handlers = {number: signal.signal(number, self._told) for number in (signal.SIGTERM, signal.SIGINT)}
        before = signal.set_wakeup_fd(self.waker, warn_on_full_buffer=False)
        try:
            self.begin()
            ready()
            self._serve()
            if self.stops == 1:
                self._drain()
            notify("STOPPING=1")
            self.end()
            log.info("left", extra={"pool": self.pool.name})
        finally:
            signal.set_wakeup_fd(before)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            os.close(self.woken)
            os.close(self.waker)

    def _told(self, number: int, frame: FrameType | None) -> None:
        self.stops += 1

    def _serve(self) -> None:
        used = monotonic()
        while not self.stops:
            self.tick()
            notify("WATCHDOG=1")
            if self.members:
                used = monotonic()
            elif self.idle_exit is not None and monotonic() - used >= self.idle_exit:
                log.info("idle", extra={"seconds": self.idle_exit})
                return
            self._sleep(TICK_SECONDS)

    def _drain(self) -> None:
        """Told to stop once: wait for the clients to go. Told again: don't."""
        log.info("draining", extra={"clients": len(self.members), "seconds": self.drain})
        self.refuse()
        deadline = monotonic() + self.drain
        while self.stops == 1:
            self.tick()
            if not self.members or monotonic() >= deadline:
                return
            self._sleep(DRAIN_TICK_SECONDS)

    def _sleep(self, seconds: float) -> None:
        """Until then, or until a signal comes. A signal that came before is noticed too: it left a byte in the pipe."""
        poll = select.poll()
        poll.register(self.woken, select.POLLIN)
        if poll.poll(int(seconds * 1000)):
            os.read(self.woken, 64)


def notify(state: str) -> None:
    """Tell systemd, where it started us with Type=notify."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.connect("\0" + address[1:] if address.startswith("@") else address)
            channel.send(state.encode())
    except OSError as error:
        log.warning("systemd can't be told", extra={"state": state, "error": str(error)})
