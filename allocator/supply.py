"""Spans with memory behind them: limit, free memory of the machine, what can be taken back, and waiting for it.

Order of efforts before a request is refused: sweep, purge what nobody uses, the collector once and a reap, what the
ticket rule allows, waiting (`timeout=`).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from time import monotonic, monotonic_ns
from typing import NamedTuple, NoReturn

from allocator import reaper, stats
from allocator.commons import Commons
from allocator.config import (
    MIB,
    PAGE_BYTES,
    ROOM_RECHECK_BYTES,
    ROOM_RECHECK_SECONDS,
    WAIT_FIRST_SECONDS,
    WAIT_LONGEST_SECONDS,
)
from allocator.core.format import ORDERS, Header, Record, Span, TableShape
from allocator.core.spans import Purge
from allocator.errors import OutOfSharedMemory
from allocator.sites import Sites
from allocator.system import host


class Shortage(NamedTuple):
    """Why a request can't be met now: the bytes that were wanted more, and the bound that is in the way."""

    wanted: int
    bound: str


def pages(nbytes: int) -> int:
    """`nbytes`, rounded up to whole pages."""
    return -(-nbytes // PAGE_BYTES) * PAGE_BYTES


class Supply:
    """Where one process gets committed spans of one pool."""

    __slots__ = ("commons", "give_back_idle", "room", "room_checked")

    def __init__(self, commons: Commons) -> None:
        self.commons = commons
        self.give_back_idle: Callable[[], None] = _nothing  # the local heap's, once there is one
        self.room = 0  # bytes this process may commit before it looks at the machine's memory again
        self.room_checked = 0.0

    # ---- taking

    def take_span(self, order: int, slot_class: int, nbytes: int, timeout: float) -> tuple[int, int, int]:
        """(row, start, committed bytes) of a span whose first `nbytes` have memory.

        Raises
        ------
        OutOfSharedMemory
            after every effort and `timeout` seconds; nothing has changed then.
        """
        efforts = None
        while isinstance(taken := self.try_span(order, slot_class, nbytes), Shortage):
            efforts = efforts or Efforts(self, nbytes, timeout)
            efforts.next(taken)
        return taken

    def try_span(self, order: int, slot_class: int, nbytes: int) -> tuple[int, int, int] | Shortage:
        """What `take_span` gives, or why not now."""
        commons, need = self.commons, pages(nbytes)
        if order >= ORDERS or 1 << order > commons.ledger.header[Header.ADDRESS_SPACE]:
            return Shortage(need, "the pool's address space")
        while (row := commons.section(self._take, order, slot_class, need)) is None:
            if (short := self.try_grow(commons.ledger.plan.spans)) is not None:
                return Shortage(need, short.bound)
        if isinstance(row, Shortage):
            return row
        try:
            short = self._populate(row, need)
        except BaseException:  # Ctrl-C: gigabytes take seconds
            commons.section(commons.ledger.spans.free, row)  # who takes it next settles what is in doubt
            raise
        if short is not None:
            commons.section(self._undo, row, True)
            return short
        spans = commons.ledger.spans
        return row, spans.field(row, Span.START), spans.field(row, Span.COMMITTED)

    def _take(self, order: int, slot_class: int, need: int) -> int | Shortage | None:
        """Inside the critical section: a span's row, why not, or None: the span table has to grow first."""
        ledger = self.commons.ledger
        spans = ledger.spans
        top = spans.top(order)
        if top is None or spans.field(top, Span.COMMITTED) < need:
            ledger.sweep()  # before committing anything new
        row = spans.allocate(order, slot_class, self.commons.membership.owner)
        if row is None:
            return None if spans.count() >= spans.table.rows else Shortage(need, "the pool's address space")
        doubt = spans.doubt(row)
        if doubt is not None:
            self._purge([doubt])
        short = self._reserve(row, need)
        if short is not None:
            spans.free(row)
            return short
        return row

    def try_commit_more(self, row: int, nbytes: int) -> int | Shortage:
        """The committed bytes of a slot span of ours, once its first `nbytes` have memory; or why not now."""
        commons, need = self.commons, pages(nbytes)
        short = commons.section(self._reserve, row, need)
        if short is not None:
            return short
        short = self._populate(row, need)
        if short is not None:
            commons.section(self._undo, row, False)
            return short
        return commons.ledger.spans.field(row, Span.COMMITTED)

    def resize(self, row: int, record: int | None, nbytes: int, timeout: float) -> None:
        """Commit a whole-span block's first `nbytes` and say so, in one section: any process may do this to the same
        block.

        Raises as `take_span` does.
        """
        efforts = None
        while (short := self.commons.section(self._resize, row, record, nbytes)) is not None:
            efforts = efforts or Efforts(self, nbytes, timeout)
            efforts.next(short)

    def _resize(self, row: int, record: int | None, nbytes: int) -> Shortage | None:
        commons, need = self.commons, pages(nbytes)
        spans = commons.ledger.spans
        doubt = spans.doubt(row)
        if doubt is not None:
            self._purge([doubt])
        used = spans.field(row, Span.USED)
        spans.words[row * Span.WIDTH + Span.USED] = max(used, nbytes)  # so that reserving doesn't trim this very span
        short = self._reserve(row, need)
        committed = spans.field(row, Span.COMMITTED)
        if short is None and committed < need:
            if commons.heap.populate(spans.field(row, Span.START) + committed, need - committed):
                spans.raise_committed(row, need)
            else:
                self._undo(row, False)
                short = self._machine_shortage(need - committed)
        if short is not None:
            spans.words[row * Span.WIDTH + Span.USED] = used
        elif record is not None:
            commons.ledger.records.words[record * Record.WIDTH + Record.NBYTES] = nbytes
        # Shrinking leaves `used` as it is: arrays over the old extent may be alive, so nobody may purge what they show.
        return short

    def trim(self, row: int, nbytes: int) -> int:
        """Inside the critical section: purge what lies behind a block's `nbytes` in its span; how many bytes."""
        spans = self.commons.ledger.spans
        spans.words[row * Span.WIDTH + Span.USED] = nbytes
        keep, committed = pages(nbytes), spans.field(row, Span.COMMITTED)
        if keep >= committed:
            return 0
        self._purge([Purge(row, spans.field(row, Span.START) + keep, committed - keep, keep)])
        return committed - keep

    # ---- memory

    def _reserve(self, row: int, need: int) -> Shortage | None:
        """Inside the critical section: count the span's first `need` bytes against the limit, making room if there is
        none.
        """
        ledger = self.commons.ledger
        spans, header = ledger.spans, ledger.header
        extra = need - spans.field(row, Span.RESERVED)
        used_at = row * Span.WIDTH + Span.USED
        if spans.slot_class(row) == 0:
            spans.words[used_at] = max(spans.words[used_at], need)
        if extra <= 0:
            return None
        over = header[Header.RESERVED] + extra - header[Header.LIMIT]
        if over > 0:
            ledger.sweep()
            self._purge(spans.plan_purges(over))
            if header[Header.RESERVED] + extra > header[Header.LIMIT]:
                return Shortage(extra, f"the pool's limit ({header[Header.LIMIT]} bytes)")
        if not self._has_room(extra):
            self._purge(spans.plan_purges(extra))
            if not self._has_room(extra):
                return self._machine_shortage(extra)
        self.room -= extra
        spans.raise_reserved(row, need)
        return None

    def _has_room(self, extra: int) -> bool:
        """Whether the machine has the memory now: what tmpfs grants beyond RAM is paid by the OOM killer's victims."""
        now = monotonic()
        if extra > self.room or now - self.room_checked > ROOM_RECHECK_SECONDS:
            room = host.room().nbytes
            self.room_checked = now
            self.room = room if room < ROOM_RECHECK_BYTES else max(room // 8, min(room, 2 * extra))
        return extra <= self.room

    def _machine_shortage(self, wanted: int) -> Shortage:
        self.room = 0
        return Shortage(wanted, host.room().bound)

    def _populate(self, row: int, need: int) -> Shortage | None:
        """Outside the critical section, since it takes long: get the memory, then say so."""
        spans = self.commons.ledger.spans
        start, committed = spans.field(row, Span.START), spans.field(row, Span.COMMITTED)
        if committed >= need:
            return None
        if not self.commons.heap.populate(start + committed, need - committed):
            return self._machine_shortage(need - committed)
        self.commons.section(spans.raise_committed, row, need)
        return None

    def _undo(self, row: int, free: bool) -> None:
        """Inside the critical section: a commit failed half-way."""
        spans = self.commons.ledger.spans
        doubt = spans.doubt(row)
        if doubt is not None:
            self._purge([doubt])
        if free:
            spans.free(row)
        self.purge_all()  # the machine is out of memory

    def _purge(self, purges: Sequence[Purge]) -> None:
        spans, heap = self.commons.ledger.spans, self.commons.heap
        for purge in purges:
            spans.begin_purge(purge)
            heap.purge(purge.start, purge.nbytes)
            spans.settle(purge)
            self.commons.ledger.header[Header.PURGED] += purge.nbytes

    def purge_unused(self) -> int:
        """Inside the critical section: sweep, then `purge_all`."""
        self.commons.ledger.sweep()
        return self.purge_all()

    def purge_all(self) -> int:
        """Inside the critical section: give back all memory that nobody uses; how many bytes that were."""
        purges = self.commons.ledger.spans.plan_purges(1 << 62)
        self._purge(purges)
        return sum(purge.nbytes for purge in purges)

    # ---- tables

    def try_grow(self, shape: TableShape) -> Shortage | None:
        """Give a table more rows, with memory that no block needs; why not, if that can't be."""
        commons = self.commons
        step = commons.ledger.next_step(shape)
        if step is None:
            return Shortage(0, f"the pool's table of {shape.rows} {commons.ledger.name_of(shape)}")
        start, nbytes, rows = step
        if not commons.control.populate(start, nbytes):
            commons.section(self.purge_all)
            if not commons.control.populate(start, nbytes):
                return self._machine_shortage(nbytes)
        commons.section(commons.ledger.grow, shape, rows)
        return None

    def grow(self, shape: TableShape) -> None:
        """Give a table more rows, or make free what dead clients have of those that it has.

        Raises
        ------
        OutOfSharedMemory
            There is no memory for them, or the table is as large as it gets.
        """
        if self.try_grow(shape) is None:
            return
        self.give_back_idle()
        if self.commons.section(self._take_back_rows, shape):
            return
        if (short := self.try_grow(shape)) is not None:
            now, table = self.commons.section(stats.snapshot, self.commons), self.commons.ledger.name_of(shape)
            raise OutOfSharedMemory(
                f"pool {self.commons.name!r} can't have more {table}: {short.bound} is full. {now.records} records of "
                f"tensors that were sent, {now.holds} holds, {now.tickets} messages in flight. What to do: drop "
                "tensors, open messages or end those that nobody will open (discard_tickets), unpublish names."
            )

    def _take_back_rows(self, shape: TableShape) -> bool:
        """Inside the critical section: whether the table has a free row after every effort."""
        self.take_back()
        return bool(self.commons.ledger.table_of(shape).find_free(1))

    # ---- refusing

    def take_back(self) -> None:
        """Inside the critical section: what dead clients had, what the ticket rule allows, what nobody refers to."""
        ledger, now = self.commons.ledger, monotonic_ns()
        reaper.reap(ledger, self.commons.lock, self.commons.heap, self.commons.owner, now)
        ledger.expire_tickets(now)
        ledger.sweep()

    def _oldest_site(self) -> str:
        """Where the oldest message in flight was pickled, if somebody wrote that down."""
        commons = self.commons
        oldest = commons.section(stats.oldest_ticket, commons)
        return "" if oldest is None else Sites(commons.host, commons.name).of_tickets([oldest])[0]

    def refuse(self, nbytes: int, short: Shortage, timeout: float) -> NoReturn:
        """Raise OutOfSharedMemory."""
        commons = self.commons
        host.load_psutil()
        now, holders = commons.section(self._refuse)
        oldest = self._oldest_site() if now.tickets else ""
        raise OutOfSharedMemory(explain(commons.name, nbytes, short, now, holders, oldest, timeout))

    def _refuse(self) -> tuple[stats.PoolStats, list[tuple[int, int, str]]]:
        self.commons.ledger.header[Header.REFUSED] += 1
        return stats.snapshot(self.commons), stats.top_holders(self.commons, 3)

    def delay(self) -> None:
        """Inside the critical section: `take_back`, for a request that wasn't met at once."""
        self.commons.ledger.header[Header.DELAYED] += 1
        self.take_back()


def _nothing() -> None:
    """Gives back nothing."""


class Pause:
    """Waiting by looking again, with back-off, until `timeout` seconds are over."""

    __slots__ = ("deadline", "seconds")

    def __init__(self, timeout: float) -> None:
        if timeout != timeout:  # NaN: no time would ever be past
            raise ValueError("timeout=nan is no number of seconds")
        self.deadline = monotonic() + timeout
        self.seconds = WAIT_FIRST_SECONDS

    def more(self) -> bool:
        """Wait a little; False, at once, when the time is over."""
        left = self.deadline - monotonic()
        if left <= 0:
            return False
        time.sleep(min(self.seconds, left))
        self.seconds = min(2 * self.seconds, WAIT_LONGEST_SECONDS)
        return True


class Efforts:
    """What one request tries, one after the other, before it is refused."""

    __slots__ = ("nbytes", "pause", "supply", "timeout", "tried")

    def __init__(self, supply: Supply, nbytes: int, timeout: float) -> None:
        self.supply = supply
        self.nbytes = nbytes
        self.timeout = timeout
        self.pause = Pause(timeout)
        self.tried = False

    def next(self, short: Shortage) -> None:
        """One effort more; raises OutOfSharedMemory when there is none left."""
        if not self.tried:
            self.tried = True
            gc.collect()  # cycles may hold tensors
            self.supply.give_back_idle()
            self.supply.commons.section(self.supply.delay)
            return
        if not self.pause.more():
            self.supply.refuse(self.nbytes, short, self.timeout)
        self.supply.commons.section(self.supply.take_back)


def explain(
    name: str,
    nbytes: int,
    short: Shortage,
    now: stats.PoolStats,
    holders: list[tuple[int, int, str]],
    oldest: str,
    timeout: float,
) -> str:
    """The message of OutOfSharedMemory: what was asked, what is there, who has it, what to do."""
    who = "; ".join(f"pid {pid} ({process}) {size} bytes" for size, pid, process in holders) or "nobody"
    wait = f"wait longer than timeout={timeout:g}" if timeout else "pass timeout= to wait"
    sent = f", the oldest pickled at {oldest}" if oldest else ""
    advice = f"free tensors, {wait} for others to, or create the pool with a larger limit="
    if nbytes > now.limit_bytes:
        advice = "it would never fit: create the pool with a larger limit="
    elif short.bound.startswith(host.SHM_FOLDER) and host.tmpfs_bytes() <= 64 * MIB:
        advice = "a container's /dev/shm is 64 MiB unless it is started with --shm-size, e.g. --shm-size=8g"
    elif not short.bound.startswith("the pool"):
        advice = f"free memory on this machine, or {wait} for it"
    return (
        f"pool {name!r} can't give {nbytes} bytes: {short.wanted} more would exceed {short.bound}. "
        f"Limit {now.limit_bytes}, used {now.used_bytes}, warm {now.warm_bytes}, free {now.free_bytes} bytes; "
        f"{now.tickets} messages in flight{sent}, {now.names} names. Held by {who}. What to do: {advice}."
    )
