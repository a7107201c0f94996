"""This process's spans and free slots, over a real pool."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from allocator.config import COMMIT_STEP_BYTES, MAX_SLOT_BYTES
from allocator.core.format import Span
from allocator.core.sizes import CLASS_BY_UNITS, CLASSES, SizeClass

if TYPE_CHECKING:
    from allocator import Block, Pool

SLOT_CLASSES = [size_class for size_class in CLASSES if size_class is not None]


def class_of(nbytes: int) -> SizeClass:
    size_class = CLASSES[CLASS_BY_UNITS[(nbytes + 63) >> 6]]
    assert size_class is not None
    return size_class


def assert_apart(blocks: list[Block]) -> None:
    """No two blocks share a byte."""
    ranges = sorted((block.start, block.start + block.capacity) for block in blocks)
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))


def span_states(pool: Pool) -> list[int]:
    spans = pool.commons.ledger.spans
    return [spans.state(row) for row in range(spans.count())]


@pytest.mark.parametrize("size_class", SLOT_CLASSES[::4], ids=lambda size_class: f"slot{size_class.slot}")
def test_blocks_of_a_class_are_aligned_apart_and_within_what_is_committed(pool: Pool, size_class: SizeClass) -> None:
    blocks = [pool.allocate(size_class.slot) for _ in range(min(size_class.slots + 3, 100))]
    assert_apart(blocks)
    assert all(block.start % 64 == 0 for block in blocks)
    assert all(block.capacity == size_class.slot for block in blocks)
    spans = pool.commons.ledger.spans
    for block in blocks:
        row = block.home.row
        end = spans.field(row, Span.START) + spans.field(row, Span.COMMITTED)
        assert block.start + block.capacity <= end
    pool.check()


def test_a_freed_slot_is_the_next_one_taken(pool: Pool) -> None:
    block = pool.allocate(100)
    other = pool.allocate(100)
    start = block.start
    del block
    assert pool.allocate(100).start == start
    del other


def test_slots_are_cut_from_the_committed_front_only_as_far_as_needed(pool: Pool) -> None:
    blocks = [pool.allocate(1024)]
    assert pool.stats().committed_bytes == COMMIT_STEP_BYTES
    blocks += [pool.allocate(1024) for _ in range(63)]
    assert pool.stats().committed_bytes == COMMIT_STEP_BYTES
    blocks.append(pool.allocate(1024))
    now = pool.stats()
    assert (now.committed_bytes, now.spans) == (2 * COMMIT_STEP_BYTES, 1)
    assert_apart(blocks)


def test_used_bytes_count_the_slots_that_are_taken(pool: Pool) -> None:
    blocks = [pool.allocate(1000) for _ in range(10)]
    assert pool.stats().used_bytes == 10 * 1024
    del blocks[3:]
    assert pool.stats().used_bytes == 3 * 1024
    blocks.clear()
    assert pool.stats().used_bytes == 0


def test_empty_slot_spans_go_back_but_for_one_per_class(pool: Pool) -> None:
    size_class = class_of(64 << 10)
    blocks = [pool.allocate(64 << 10) for _ in range(3 * size_class.slots)]
    assert span_states(pool) == [Span.ALLOCATED] * 3
    random.Random(1).shuffle(blocks)
    while blocks:
        blocks.pop()
    pool.check()
    assert sorted(span_states(pool)) == [Span.FREE, Span.FREE, Span.ALLOCATED]
    assert pool.stats().used_bytes == 0


def test_a_whole_block_goes_back_at_once(pool: Pool) -> None:
    block = pool.allocate(MAX_SLOT_BYTES + 1)
    assert span_states(pool) == [Span.ALLOCATED]
    start = block.start
    del block
    assert span_states(pool) == [Span.FREE]
    assert pool.allocate(MAX_SLOT_BYTES + 1).start == start


@pytest.mark.parametrize("size_class", SLOT_CLASSES[::6], ids=lambda size_class: f"slot{size_class.slot}")
def test_after_any_order_of_frees_all_slots_are_found_again(pool: Pool, size_class: SizeClass) -> None:
    count = 2 * min(size_class.slots, 40)
    blocks = [pool.allocate(size_class.slot) for _ in range(count)]
    spans = pool.stats().spans
    for seed in range(3):
        random.Random(seed).shuffle(blocks)
        kept = blocks[: count // 3]
        blocks.clear()
        blocks += kept + [pool.allocate(size_class.slot) for _ in range(count - len(kept))]
        assert_apart(blocks)
        del kept
    assert pool.stats().spans == spans
    pool.check()


def test_a_slot_that_another_holder_let_go_of_comes_back_before_new_memory_is_committed(pool: Pool) -> None:
    size_class = class_of(64 << 10)
    blocks = [pool.allocate(64 << 10) for _ in range(size_class.slots)]
    committed = pool.stats().committed_bytes
    starts = set()
    for block in blocks[:5]:
        starts.add(block.start)
        block.share().open().release()  # sent: its record decides
    del block
    del blocks[:5]
    again = [pool.allocate(64 << 10) for _ in range(5)]
    assert {block.start for block in again} == starts
    assert pool.stats().committed_bytes == committed


def test_a_span_with_a_slot_on_its_way_back_is_not_given_to_others(pool: Pool) -> None:
    size_class = class_of(64 << 10)
    blocks = [pool.allocate(64 << 10) for _ in range(2 * size_class.slots)]
    shared = blocks.pop()
    shared.share().discard()
    row = pool.commons.ledger.records.field(shared.record, 2)
    del shared
    pool.stats()  # RETURNED now
    blocks.clear()
    assert pool.commons.ledger.spans.state(row) == Span.ALLOCATED
    pool.check()


@pytest.mark.parametrize(
    ("nbytes", "capacity"), [(0, None), (0, 0), (0, 64), (1, 1 << 20), (0, 1 << 30), (65536, 65536)]
)
def test_capacity_costs_address_space_and_no_memory(pool: Pool, nbytes: int, capacity: int | None) -> None:
    block = pool.allocate(nbytes, capacity=capacity)
    assert block.nbytes == nbytes
    assert block.capacity >= max(nbytes, capacity or 0)
    assert pool.stats().used_bytes <= 1 << 17


@pytest.mark.parametrize(("nbytes", "capacity"), [(-1, None), (10, 9), (-1, 5)])
def test_sizes_that_make_no_sense_are_refused(pool: Pool, nbytes: int, capacity: int | None) -> None:
    with pytest.raises(ValueError, match="can't allocate"):
        pool.allocate(nbytes, capacity=capacity)


def test_a_finalizer_may_allocate_and_free_while_another_block_dies(pool: Pool) -> None:
    class Chain:
        def __init__(self, block: Any) -> None:
            self.block = block

        def __del__(self) -> None:
            del self.block
            kept.append(pool.allocate(700_000))
            kept.append(pool.allocate(500))

    kept: list[Any] = []
    chains = [Chain(pool.allocate(nbytes)) for nbytes in (500, 700_000, 64 << 10)]
    chains.clear()
    assert_apart(kept)
    assert len(kept) == 6
    kept.clear()
    pool.check()
    assert pool.stats().used_bytes == 0


def test_a_mixed_run_of_sizes_keeps_its_bytes(pool: Pool) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    living: dict[int, tuple[Block, bytes]] = {}
    for step in range(1500):
        if living and rng.random() < 0.45:
            block, content = living.pop(rng.choice(list(living)))
            assert bytes(block.memoryview()) == content
            del block
        else:
            nbytes = rng.choice([0, 1, 64, 100, 3000, 70_000, 600_000])
            block = pool.allocate(nbytes)
            content = rng.randbytes(min(nbytes, 16)) * (nbytes // 16 + 1)
            content = content[:nbytes].ljust(nbytes, b"!")
            block.memoryview()[:] = content
            living[step] = block, content
            del block
    assert_apart([block for block, _ in living.values()])
    pool.check()
    living.clear()
    assert pool.stats().used_bytes == 0


class Commanded:
    """The heap segment, whose populating is cut short."""

    def __init__(self, heap: Any) -> None:
        self.heap = heap
        self.map = heap.map
        self.purge = heap.purge

    def populate(self, start: int, nbytes: int) -> bool:
        assert self.heap.populate(start, nbytes // 2 // 4096 * 4096)
        raise KeyboardInterrupt


@pytest.mark.parametrize("nbytes", [5000, 16 << 20])
def test_an_interrupt_while_memory_is_committed_loses_none_of_it(pool: Pool, nbytes: int) -> None:
    plain = pool.commons.heap
    pool.commons.heap = Commanded(plain)  # type: ignore[assignment]
    try:
        with pytest.raises(KeyboardInterrupt):
            pool.allocate(nbytes)
    finally:
        pool.commons.heap = plain
    pool.check()
    assert pool.stats().used_bytes == 0
    pool.purge()
    assert pool.stats().committed_bytes == 0
    block = pool.allocate(nbytes)
    block.memoryview()[:] = bytes(nbytes)


def test_shrinking_lets_nobody_purge_what_an_array_may_still_show(pool: Pool) -> None:
    block = pool.allocate(4 << 20)
    block.share().discard()
    view = block.memoryview()
    view[-1] = 7
    block.resize(1 << 20)
    assert block.nbytes == 1 << 20
    pool.purge()
    block.resize(4 << 20)
    assert view[-1] == 7
    del view


def test_what_is_in_use_is_said_before_a_slot_is_free_again(pool: Pool) -> None:
    """After it another thread may give the span back, and another process use it whole."""
    blocks = [pool.allocate(64 << 10) for _ in range(3)]
    home = blocks[0].home
    seen: list[int] = []

    class Free(list[int]):
        def append(self, start: int) -> None:
            seen.append(home.words[home.used_at])
            super().append(start)

    home.free = Free(home.free)
    blocks.pop()
    assert seen == [2 * home.room]
    blocks.clear()
    home.free = list(home.free)
    assert pool.stats().used_bytes == 0
