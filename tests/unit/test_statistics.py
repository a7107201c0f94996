"""What a pool counts, and what a scope of it tells."""

from __future__ import annotations

import pytest

from allocator import OutOfSharedMemory, Pool

MIB = 1 << 20


def test_a_scope_tells_what_happened_within_it(pool: Pool) -> None:
    kept = pool.allocate(2 * MIB)
    with pool.statistics() as happened:
        more = pool.allocate(3 * MIB)
        more.share().discard()
        with pytest.raises(OutOfSharedMemory):
            pool.allocate(1 << 40)
    assert (happened.used_bytes, happened.records) == (3 * MIB, 1)
    assert (happened.delayed_allocations, happened.refused_allocations) == (1, 1)
    assert happened.peak_bytes == happened.after.committed_bytes == 5 * MIB
    assert "used_bytes 3145728" in repr(happened)
    del more
    with pool.statistics() as happened:
        assert pool.purge() == 3 * MIB
    assert (happened.purged_bytes, happened.used_bytes, happened.records) == (3 * MIB, 0, 0)
    assert happened.peak_bytes == happened.before.committed_bytes
    assert kept.nbytes == pool.stats().used_bytes


def test_what_is_met_after_an_effort_is_delayed_and_not_refused() -> None:
    with Pool.create(limit=8 * MIB, ticket_grace=0) as pool:
        handle = pool.allocate(6 * MIB).share()
        pool.allocate(100)
        pool.discard_tickets(older_than=0)
        assert not handle.discard()
        pool.allocate(6 * MIB).release()
        stats = pool.stats()
        assert (stats.delayed_allocations, stats.refused_allocations) == (0, 0), "a sweep is no delay"
        blocks = [pool.allocate(8000) for _ in range(100)]
        blocks.clear()
        pool.allocate(8 * MIB).release()  # idle spans had to be given back
        assert pool.stats().delayed_allocations == 1


def test_size_classes_add_up_to_what_is_used(pool: Pool) -> None:
    blocks = [pool.allocate(nbytes) for nbytes in (10, 20, 1000, 3 * MIB)]
    small, middle, whole = pool.size_classes()
    assert (small.slot_bytes, small.spans, small.used_bytes) == (64, 1, 128)
    assert (middle.slot_bytes, middle.used_bytes) == (1024, 1024)
    assert (whole.slot_bytes, whole.spans, whole.used_bytes, whole.committed_bytes) == (0, 1, 3 * MIB, 3 * MIB)
    stats = pool.stats()
    assert sum(c.used_bytes for c in pool.size_classes()) == stats.used_bytes
    assert sum(c.committed_bytes for c in pool.size_classes()) <= stats.committed_bytes
    del blocks
