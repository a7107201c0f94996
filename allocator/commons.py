"""What all processes share about one pool, and the one way in: `section`.

Owns the two segments, the tables over them, the lock, and this process's place among the clients. Knows nothing of
blocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from os import getpid
from time import monotonic_ns
from typing import Final

from allocator import reaper
from allocator.core import recover
from allocator.core.format import OWNER_MASK, STATE_MASK, Client, Record, Reference, Span, slot_of
from allocator.core.ledger import Ledger
from allocator.core.tables import Words
from allocator.errors import AllocatorError, PoolClosed, PoolReentered
from allocator.system.locks import AWAKE, FORKING, Guarded, PoolLock, barrier, is_inside, try_under_mutex
from allocator.system.memory import Segment

_NO_PLACE: Final = "this process was forked without a place in it (fork through os.fork or multiprocessing)"


class Membership:
    """This process's place in one pool, from attaching (or being forked) until it forks away or ends."""

    __slots__ = (
        "dropped",
        "flight",
        "heirs",
        "held",
        "live",
        "ours",
        "owner",
        "pid",
        "reserved",
        "slot",
        "waiting",
        "words",
    )

    def __init__(self, word: int, words: Words) -> None:
        self.pid = getpid()
        self.slot = slot_of(word)
        self.owner = word & ~STATE_MASK
        self.live = Record.LIVE | self.owner  # the words of record and reference rows, ready to be stored
        self.held = Reference.HELD | self.owner
        self.ours = self.held  # what a hold's row must say to be dropped here; -1 where `heirs` sees to that
        self.dropped = Reference.DROPPED | self.owner
        self.flight = Reference.FLIGHT | self.owner
        self.reserved = Reference.RESERVED | self.owner
        self.words = words  # of the reference table
        self.heirs: Callable[[int], None] | None = None  # in a fork's child: drops the child's row for a parent's one
        self.waiting: list[int] = []  # rows dropped during a fork

    def drop(self, row: int, awake: memoryview = AWAKE) -> None:  # at exit globals go first
        """Give up the hold in this row: one store, without a lock. (`Block.__del__` has it inlined.)"""
        words, at = self.words, row * 4  # Reference.WIDTH
        # Compared first: if this process was reaped, the row may be another's by now.
        if words[at] == self.ours and awake[0]:
            words[at] = self.dropped
        elif self.heirs is not None:
            self.heirs(row)

    def bequeath(self, heirs: Callable[[int], None]) -> None:
        """Holds made under this membership are dropped by `heirs` from now on: a fork's child has other rows."""
        self.ours = -1  # no word has this value, so every drop takes the way through `heirs`
        self.heirs = heirs

    def suspend(self) -> None:
        """For the time of a fork, list what is dropped: in the child the parent's rows aren't ours, and there other
        threads' locals die before any hook runs.
        """
        self.waiting = []
        self.bequeath(self._wait)

    def _wait(self, row: int) -> None:
        self.waiting.append(row)
        if not FORKING and self.pid == getpid():
            self.resume()  # the hook after the fork was cut short

    def resume(self) -> None:
        """In the parent, after the fork: drop what was listed."""
        self.ours, self.heirs = self.held, None
        while self.waiting:
            self.drop(self.waiting.pop())


class Commons(Guarded):
    """The shared side of a pool, as one process sees it."""

    __slots__ = (
        "closed_because",
        "control",
        "heap",
        "host",
        "leaving",
        "ledger",
        "me",
        "name",
        "on_entry",
        "refusing",
        "returning",
    )

    def __init__(self, name: str, host: str, heap: Segment, control: Segment, lock: PoolLock) -> None:
        self.name = name
        self.host = host
        self.heap = heap
        self.control = control
        self.ledger = Ledger(memoryview(control.map), barrier=barrier)
        super().__init__(lock, self.ledger.header, self.ledger.clients.words)
        self.me: Membership | None = None
        self.returning: deque[int] = deque()  # spans of ours to free at the next entry
        self.on_entry: list[Callable[[], None]] = []  # watchers of forked children that aren't up yet
        self.closed_because: str | None = None
        self.leaving = False
        self.refusing = False

    # ---- this process's place

    def take_place(self, word: int) -> Membership:
        """From now on this process is the client that `word` names."""
        me = self.me = Membership(word, self.ledger.references.words)
        self.at, self.owner, self.pid = me.slot * Client.WIDTH, me.owner, me.pid
        return me

    def lose_place(self, because: str) -> None:
        """In a fork's child that got none: from now on this process is nobody in the pool."""
        self.me = None
        self.shut(f"this process was forked when there was no place in it: {because}")

    @property
    def membership(self) -> Membership:
        """This process's place; the fence has looked at it."""
        assert self.me is not None
        return self.me

    def check_open(self) -> None:
        """The fence: nobody who lost its place may touch the tables."""
        me = self.me
        if FORKING and self.pid != getpid():
            raise PoolReentered(f"pool {self.name!r} was used in the middle of a fork, by a hook or signal handler")
        if me is None or self.pid != getpid():
            self.shut(_NO_PLACE)
        elif self.client_words[self.at] & OWNER_MASK != me.owner:
            self.shut("its place was given away, because its liveness lock was lost (who closed its descriptor?)")
        elif not self.lock.is_ours():
            self.shut(f"descriptor {self.lock.descriptor}, its lock file, was closed by other code")
        if self.closed_because is not None:
            raise PoolClosed(f"pool {self.name!r} is closed in this process: {self.closed_because}")

    def shut(self, because: str) -> None:
        """Every entry from now on raises PoolClosed, which says why."""
        self.closed_because = self.closed_because or because
        self.pid = -1

    def check_accepts(self) -> None:
        """Before anything new: raises PoolClosed once `close` was called. What exists lives on."""
        if self.refusing:
            raise PoolClosed(
                f"pool {self.name!r} was closed in this process: use another, or attach once none of it is left here"
            )

    # ---- on the way into the critical section

    def pass_through(self) -> None:
        """Enter and leave: for what the way in does. Raises PoolClosed."""
        self.section(_nothing)

    def repair(self) -> None:
        """Derived state again from primary state; then what the dead had."""
        recover.rebuild(self.ledger)
        reaper.reap(self.ledger, self.lock, self.heap, self.owner, monotonic_ns())

    def catch_up(self) -> None:
        """What other threads left to do, and a look at children that are coming up."""
        self.due = False
        for watch in list(self.on_entry):
            watch()
        self._free_returning()
        if self.on_entry:
            self.due = True

    # ---- spans going back

    def give_back_span(self, row: int) -> None:
        """Free a span of ours: now if the lock can be had without waiting for another thread, else at the next entry.

        Called by `__del__`, so it never raises; a pool that is closed here takes nothing back, since leaving frees
        nothing.
        """
        self.returning.append(row)
        self.due = True
        if self.closed_because is None and not self.leaving:
            try_under_mutex(self._enter_once)

    def _enter_once(self) -> None:
        try:
            if not is_inside():
                self.pass_through()
        except (AllocatorError, OSError):
            pass  # the fence has closed the pool here: the row comes back with this process's place

    def _free_returning(self) -> None:
        spans, mine = self.ledger.spans, Span.ALLOCATED | self.owner
        while self.returning:
            # Free first, forget afterwards: cut short between the two, the row is met again, and is no longer ours.
            row = self.returning[0]
            if spans.field(row, Span.WORD) == mine:
                spans.free(row)
            self.returning.popleft()


def _nothing() -> None:
    """The body of a section whose entry does the work."""
