"""This process's spans and free slots: the hot path. No lock, no system call while a class has a free slot.

A span's `free` list is the truth about its slots: taking is `pop`, giving back is `append`, each atomic under the
interpreter lock, so threads, signal handlers and the collector may interleave anywhere. Everything else here is a
hint about where to look.
"""

from __future__ import annotations

from typing import Any, Protocol

from allocator.commons import Commons
from allocator.config import COMMIT_STEP_BYTES
from allocator.core.format import Record, Span
from allocator.core.sizes import CLASSES, SizeClass, order_of
from allocator.core.tables import Words
from allocator.errors import PoolReentered
from allocator.supply import Efforts, Shortage, Supply
from allocator.system.locks import AWAKE, FORKING, MUTEX, try_under_mutex


class Estate(Protocol):
    """What became of blocks whose epoch ended, by a fork or by `close`, while they had no record."""

    has_records: bool  # whether they have one now

    def give_back(self, home: Home, start: int) -> None:
        """The block at heap byte `start` died in this process."""

    def adopt(self, block: Any) -> None:
        """Tell the block of the record that it has now."""


class Home(Protocol):
    """Where the bytes of a block that was never sent go back to."""

    row: int
    room: int
    estate: Estate | None

    def give_back(self, start: int) -> None:
        """The block at heap byte `start` died."""

    def put_back(self, start: int) -> None:
        """Its bytes are free again."""


class SlotSpan:
    """A span of ours, cut into slots. `carved` of them exist so far: only the committed front is cut."""

    __slots__ = ("carved", "committed", "estate", "free", "heap", "kind", "room", "row", "start", "used_at", "words")

    def __init__(self, heap: LocalHeap, kind: SizeClass, row: int, start: int, committed: int) -> None:
        self.heap = heap
        self.kind = kind
        self.row = row
        self.room = kind.slot
        self.start = start
        self.committed = 0
        self.carved = 0
        self.estate: Estate | None = None
        self.free: list[int] = []
        self.words: Words = heap.commons.ledger.spans.words
        self.used_at = row * Span.WIDTH + Span.USED
        self.carve(committed)

    def carve(self, committed: int) -> None:
        """Cut what is committed by now; the lowest slot on top of the list."""
        first, last = self.carved, min(committed // self.room, self.kind.slots)
        self.committed, self.carved = committed, last
        self.free += range(self.start + (last - 1) * self.room, self.start + (first - 1) * self.room, -self.room)

    def successor(self) -> SlotSpan:
        """The same span for a new epoch, with the slots that are free now. This one has none afterwards.

        Slots move one by one, so that a thread that takes one meanwhile takes it from one side only.
        """
        new = object.__new__(SlotSpan)
        new.heap, new.kind, new.row, new.room, new.start = self.heap, self.kind, self.row, self.room, self.start
        new.committed, new.carved, new.words, new.used_at = self.committed, self.carved, self.words, self.used_at
        new.estate, new.free = None, []
        try:
            while True:
                new.free.append(self.free.pop())
        except IndexError:
            new.free.reverse()
        return new

    def give_back(self, start: int) -> None:
        """The block in the slot at `start` died."""
        if self.estate is not None:
            self.estate.give_back(self, start)
            return
        self.put_back(start)

    def put_back(self, start: int, awake: memoryview = AWAKE) -> None:  # at exit globals go first
        """The slot is free again."""
        if not awake[0]:
            return
        free = self.free
        # Said before it is done: once the slot is on the list, another thread may give the span back, and its row be
        # another's, whose bytes in use this store would change.
        self.words[self.used_at] = self.room * (self.carved - len(free) - 1)
        free.append(start)
        if self.heap.current[self.kind.number] is not self:
            self.heap.welcome(self)

    def claim_all(self) -> bool:
        """Take every slot, if all are free: then the span is nobody's but the caller's."""
        taken = []
        try:
            while True:
                taken.append(self.free.pop())
        except IndexError:
            pass
        if len(taken) == self.carved:
            return True
        self.free.extend(taken)
        return False


class WholeSpan:
    """A span of ours that is one block."""

    __slots__ = ("estate", "heap", "room", "row", "start")

    def __init__(self, heap: LocalHeap, row: int, start: int, room: int) -> None:
        self.estate: Estate | None = None
        self.start = start
        self.heap = heap
        self.row = row
        self.room = room

    def give_back(self, start: int) -> None:
        """The block died: the span goes back to the pool at once, for every process."""
        if self.estate is not None:
            self.estate.give_back(self, start)
            return
        self.put_back(start)

    def put_back(self, start: int) -> None:
        """The span is free again."""
        # Whoever takes it from there decides: a fork does too, and then it has a record.
        if self.heap.wholes.pop(self.row, None) is not None:
            self.heap.commons.give_back_span(self.row)
        else:
            self.heap.late.append(self)
            if self.estate is not None:
                self.heap.settle_late()


class _NoSpan:
    """Stands where a class has no span yet: its list is empty."""

    __slots__ = ("carved", "free", "room", "used_at")

    def __init__(self) -> None:
        self.free: list[int] = []
        self.carved = self.room = self.used_at = 0


def _no_spans() -> list[SlotSpan]:
    nothing: SlotSpan = _NoSpan()  # type: ignore[assignment]  # it has what taking a slot looks at
    return [nothing] * len(CLASSES)


class LocalHeap:
    """The spans that one process cuts, by size class, and those it uses whole."""

    __slots__ = ("carving", "commons", "current", "late", "partial", "spans", "supply", "wholes")

    def __init__(self, commons: Commons, supply: Supply) -> None:
        self.commons = commons
        self.supply = supply
        supply.give_back_idle = self.give_back_idle
        self.current = _no_spans()  # where a class takes its next slot
        self.partial: list[list[SlotSpan]] = [[] for _ in CLASSES]  # others with free slots; may name a span twice
        # By class: the span that isn't wholly cut. Taken out while a thread cuts it.
        self.carving: dict[int, SlotSpan] = {}
        self.spans: dict[int, SlotSpan] = {}  # by row
        self.wholes: dict[int, WholeSpan] = {}  # by row: whole blocks that were never sent
        self.late: list[WholeSpan] = []  # blocks that died while a fork was giving them a record

    # ---- slots

    def take_slot(self, number: int, nbytes: int, capacity: int, timeout: float) -> tuple[Home, int]:
        """A span and the start of a free slot in it, when the current span has none. Where there is no memory for
        slots, a span for this block alone may still fit.

        Raises
        ------
        OutOfSharedMemory
            as `Supply.take_span`.
        """
        self.commons.check_accepts()
        efforts = None
        while True:
            found = self._take_partial(number)
            if found is None:
                self.commons.section(self._collect)
                found = self._take_partial(number)
            if found is not None:
                return found
            with MUTEX:  # a fork by another thread must find every slot on a list or in a block
                short = self._cut_more(number)
            if short is not None:
                taken = self.supply.try_span(order_of(capacity), 0, nbytes)
                if not isinstance(taken, Shortage):
                    return self._whole(*taken[:2])
                efforts = efforts or Efforts(self.supply, nbytes, timeout)
                efforts.next(taken)

    def _take_partial(self, number: int) -> tuple[SlotSpan, int] | None:
        span, partial = self.current[number], self.partial[number]
        while True:
            try:
                start = span.free.pop()
                self.current[number] = span
                span.words[span.used_at] = span.room * (span.carved - len(span.free))
                return span, start
            except IndexError:
                pass
            try:
                span = partial.pop()
            except IndexError:
                return None

    def _cut_more(self, number: int) -> Shortage | None:
        """More slots, of the span that is being cut or a new one; or why there are none now."""
        if FORKING:  # the successors would cut the same slots again
            raise PoolReentered("the pool was used in the middle of a fork, by a hook or signal handler")
        span, kind = self.carving.pop(number, None), CLASSES[number]
        assert kind is not None
        if span is None:
            taken = self.supply.try_span(kind.order, number, _step(kind, 0))
            if isinstance(taken, Shortage):
                return taken
            span = self.spans[taken[0]] = SlotSpan(self, kind, *taken)
        else:
            try:
                committed = self.supply.try_commit_more(span.row, _step(kind, span.committed))
            finally:
                self.carving[number] = span
            if isinstance(committed, Shortage):
                return committed
            span.carve(committed)
        if span.carved < kind.slots:
            self.carving[number] = span
        else:
            self.carving.pop(number, None)
        self.partial[number].append(span)
        return None

    def _collect(self) -> None:
        """Inside the critical section: take back the slots of ours that other processes let go of."""
        ledger = self.commons.ledger
        ledger.sweep()
        records = ledger.records
        rows = records.owned(Record.RETURNED, self.commons.membership.owner)
        grid = records.table.grid
        spans, starts = grid[rows, Record.SPAN].tolist(), grid[rows, Record.START].tolist()
        # The records first: cut short in between, slots are lost until exit, never given twice.
        records.free_many(rows)
        for span, start in zip(spans, starts, strict=True):
            self.spans[span].put_back(start)

    def welcome(self, span: SlotSpan) -> None:
        """A span that isn't current got a slot back: where will it be found again? An empty one goes back to the
        pool.
        """
        number = span.kind.number
        if span.estate is not None:
            return  # a fork came between: the slot is lost until exit, never given twice
        if not self.current[number].free:
            self.current[number] = span
        elif len(span.free) == span.carved:
            self._retire(span)
        elif len(span.free) == 1:
            self.partial[number].append(span)

    def _retire(self, span: SlotSpan) -> None:
        """Under MUTEX, so that no fork comes between; called by `__del__`, so without waiting for it."""
        number = span.kind.number
        if FORKING or not try_under_mutex(self._retire_under_mutex, span, number):
            self.partial[number].append(span)

    def _retire_under_mutex(self, span: SlotSpan, number: int) -> None:
        if self.carving.get(number) is span and self.carving.pop(number, None) is not span:
            return  # another thread is cutting it
        if span.estate is None and span.claim_all():
            self.spans.pop(span.row, None)
            self.commons.give_back_span(span.row)

    def give_back_idle(self) -> None:
        """Memory is short: give back the empty slot spans too that were kept for the next request of their class."""
        for span in list(self.spans.values()):
            if len(span.free) == span.carved and span.estate is None:
                self._retire(span)

    # ---- whole spans

    def take_whole(self, nbytes: int, capacity: int, timeout: float) -> tuple[WholeSpan, int]:
        """A span for one block of `nbytes` that may grow to `capacity`, and its start. Raises as `take_slot` does."""
        self.commons.check_accepts()
        return self._whole(*self.supply.take_span(order_of(capacity), 0, nbytes, timeout)[:2])

    def _whole(self, row: int, start: int) -> tuple[WholeSpan, int]:
        span = WholeSpan(self, row, start, 1 << self.commons.ledger.spans.order(row))
        self.wholes[row] = span
        return span, start

    # ---- ends of epochs

    def start_epoch(self, spans: dict[int, SlotSpan], wholes: dict[int, WholeSpan]) -> None:
        """Go on with these spans only, successors of those before; the blocks in the old ones have an estate."""
        self.carving = {number: spans[span.row] for number, span in self.carving.items() if span.row in spans}
        self.spans, self.wholes = spans, wholes
        self.current = _no_spans()
        self.partial = [[] for _ in CLASSES]
        for span in spans.values():
            self.partial[span.kind.number].append(span)

    def settle_late(self) -> None:
        """Give back the blocks that died during a fork, now that they have a record or none."""
        for _ in range(len(self.late)):
            try:
                whole = self.late.pop()
            except IndexError:
                return  # another thread did
            if whole.estate is None:
                whole.put_back(whole.start)
            elif whole.estate.has_records:
                whole.estate.give_back(whole, whole.start)

    def stop(self) -> None:
        """Take nothing more from the lists; every request looks whether the pool accepts any."""
        self.current = _no_spans()
        self.partial = [[] for _ in CLASSES]

    def homes(self) -> list[SlotSpan | WholeSpan]:
        """Everything that blocks of ours may go back to."""
        return [*self.spans.values(), *self.wholes.values()]


def _step(kind: SizeClass, committed: int) -> int:
    """How far to commit a slot span next: a step, but some slots more, since each round of them costs a sweep."""
    want = committed + max(COMMIT_STEP_BYTES, 4 * kind.slot)
    return min(-(-want // COMMIT_STEP_BYTES) * COMMIT_STEP_BYTES, 1 << kind.order)
