"""Pools and blocks in one process: options, what a released block answers, and life after a pool was closed here."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

import pytest

import allocator
from allocator import Pool, PoolClosed, default
from allocator.config import POOL_VARIABLE


@pytest.fixture
def no_default(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No default pool, and afterwards the one that was there before."""
    monkeypatch.delenv(POOL_VARIABLE, raising=False)
    before = default._Default.pool
    default._Default.pool = None
    yield
    default._Default.pool = before


@pytest.mark.parametrize("option", ["timeout", "ticket_grace", "ticket_ttl"])
def test_negative_seconds_are_refused_before_anything_is_made(option: str) -> None:
    with pytest.raises(ValueError, match=option):
        Pool.create(limit=1 << 20, **{option: -1.0})


def test_seconds_may_be_without_end() -> None:
    with Pool.create(limit=1 << 20, timeout=math.inf, ticket_grace=math.inf, ticket_ttl=math.inf) as pool:
        pool.reap()
        pool.check()


def test_a_released_block_says_so(pool: Pool) -> None:
    block = pool.allocate(100)
    block.release()
    block.release()
    assert repr(block) == "Block(released)"
    for use in (lambda: block.nbytes, lambda: block.capacity, block.memoryview, block.share, lambda: block.resize(1)):
        with pytest.raises(ValueError, match="released"):
            use()


def test_a_block_is_not_released_under_any_of_its_memoryviews(pool: Pool) -> None:
    block = pool.allocate(100)
    first, second = block.memoryview(), block.memoryview()
    del second
    with pytest.raises(BufferError):
        block.release()
    first.release()


def test_a_memoryview_of_a_sealed_block_is_read_only(pool: Pool) -> None:
    block = pool.allocate(100)
    before = block.memoryview()
    block.seal()
    assert block.memoryview().readonly
    assert not before.readonly


def test_a_default_pool_that_was_closed_is_replaced_while_blocks_of_it_live(no_default: None) -> None:
    first = allocator.default_pool()
    block = first.allocate(100)
    first.close()
    with allocator.default_pool() as second:
        assert second is not first
        second.allocate(100)
    assert bytes(block.memoryview()[:0]) == b""
    allocator.set_default_pool(None)


def test_a_process_that_lost_its_place_can_attach_again() -> None:
    with Pool.create(limit=16 << 20) as witness:
        name = witness.name
        os.close(witness.commons.lock.descriptor)
        with pytest.raises(PoolClosed):
            witness.stats()
        again = Pool.attach(name)
        assert again is not witness
        assert Pool.attach(name) is again
        again.allocate(100)
        again.check()
        again.close()


def test_a_request_of_all_that_is_free_succeeds_after_small_blocks(pool: Pool) -> None:
    small = [pool.allocate(size) for size in (100, 5000, 70_000, 400_000) for _ in range(50)]
    kept = small[::37]
    small.clear()
    free = pool.stats().free_bytes
    assert free <= pool.limit - pool.stats().used_bytes
    pool.allocate(free)
    kept.clear()
    assert pool.stats().free_bytes == pool.limit
    pool.allocate(pool.limit)
    pool.check()


@pytest.mark.parametrize("nbytes", [5.5, 1e6, "5", None])
def test_a_size_that_is_no_int_is_a_type_error(pool: Pool, nbytes: Any) -> None:
    for act in (pool.allocate, lambda size: pool.allocate(5, capacity=size or 0.5), pool.allocate(2000).resize):
        with pytest.raises(TypeError):
            act(nbytes)
    block = pool.allocate(2000)
    block.share().discard()
    with pytest.raises(TypeError):
        block.resize(nbytes)
    pool.check()


@pytest.mark.parametrize("field", ["record", "generation", "ticket", "serial"])
@pytest.mark.parametrize("value", [-1, 2**64, 1.0, "1", None])
def test_values_of_no_handle_are_refused_and_take_nothing(pool: Pool, field: str, value: Any) -> None:
    handle = pool.allocate(100).share()
    spare = len(pool.exchange.spare_references)
    for act in ("open", "discard"):
        with pytest.raises(ValueError, match="no handle"):
            getattr(handle._replace(**{field: value}), act)()
    assert len(pool.exchange.spare_references) == spare
    assert handle.open().nbytes == 100
