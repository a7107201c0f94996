"""Garbage cycles: the collector finalizes all of one before it destroys any of it.

So a finalizer may meet a tensor whose block was finalized before, use it, send it, and bring it back to life.
"""

from __future__ import annotations

import gc
import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import shmtensor as st

SMALL, WHOLE = 1000, 1 << 20
Make = Callable[[st.Pool, int], st.Tensor]


def unsent(pool: st.Pool, numel: int) -> st.Tensor:
    return st.full((numel,), 3, dtype="int32", pool=pool)


def sent(pool: st.Pool, numel: int) -> st.Tensor:
    tensor = unsent(pool, numel)
    pickle.dumps(tensor)
    pool.discard_tickets(0)
    return tensor


def received(pool: st.Pool, numel: int) -> st.Tensor:
    found: st.Tensor = pickle.loads(pickle.dumps(unsent(pool, numel)))
    return found


def forked(pool: st.Pool, numel: int) -> st.Tensor:
    tensor = unsent(pool, numel)
    fork()
    return tensor


def fork() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


KINDS: list[Make] = [unsent, sent, received, forked]


@pytest.fixture
def collected(pool: st.Pool) -> Iterator[st.Pool]:
    """A pool, with the collector off; at the end nothing of the pool may be in use."""
    gc.collect()
    gc.disable()
    try:
        yield pool
    finally:
        gc.enable()
    gc.collect()
    gc.collect()
    pool.reap()
    pool.purge()
    pool.check()
    assert pool.stats().used_bytes == 0
    assert pool.stats().holds == 0


def overwrite(pool: st.Pool, numel: int) -> None:
    """Take all bytes that are wrongly free, and write on them."""
    for _ in range(4):
        st.full((numel,), 4, dtype="int32", pool=pool)
    kept = [st.full((numel,), 4, dtype="int32", pool=pool) for _ in range(4)]
    del kept


class Ends:
    """A garbage cycle with tensors in it, whose finalizer does something with them."""

    def __init__(self, tensor: st.Tensor, finalize: Callable[[st.Tensor], None]) -> None:
        self.me = self
        self.tensor, self.finalize = tensor, finalize

    def __del__(self) -> None:
        self.finalize(self.tensor)


def throw_away(tensors: list[st.Tensor], finalize: Callable[[st.Tensor], None]) -> None:
    """Make each garbage in a cycle of its own. The collector goes by age: some blocks are older than the cycle, some
    younger.
    """
    while tensors:
        Ends(tensors.pop(), finalize)
    gc.collect()


@pytest.mark.parametrize("numel", [SMALL, WHOLE])
@pytest.mark.parametrize("kind", KINDS)
def test_a_finalizer_reads_bytes_that_nobody_else_was_given(collected: st.Pool, kind: Make, numel: int) -> None:
    wrong, seen = [], []

    def finalize(tensor: st.Tensor) -> None:
        overwrite(collected, numel)
        seen.append(1)
        if not (tensor.numpy() == 3).all():
            wrong.append(tensor)

    throw_away([kind(collected, numel) for _ in range(3)], finalize)
    assert (len(seen), wrong) == (3, [])


@pytest.mark.parametrize("numel", [SMALL, WHOLE])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_finalizer_sends_outlives_the_garbage(collected: st.Pool, kind: Make, numel: int) -> None:
    messages: list[bytes] = []
    throw_away([kind(collected, numel) for _ in range(3)], lambda tensor: messages.append(pickle.dumps(tensor)))
    overwrite(collected, numel)
    assert len(messages) == 3
    for message in messages:
        assert (pickle.loads(message).numpy() == 3).all()


@pytest.mark.parametrize("again", [1, 3])
@pytest.mark.parametrize("numel", [SMALL, WHOLE])
@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_brought_back_to_life_is_whole(collected: st.Pool, kind: Make, numel: int, again: int) -> None:
    alive = [kind(collected, numel) for _ in range(3)]
    for _ in range(again):
        throw_away(alive, alive.append)
        overwrite(collected, numel)
        assert len(alive) == 3
    copies = [pickle.loads(pickle.dumps(tensor)) for tensor in alive]  # a record, where there was none
    fork()
    for tensor, copy in zip(alive, copies, strict=True):
        assert (tensor.numpy() == 3).all()
        tensor.fill_(5)
        assert (copy.numpy() == 5).all()
    del tensor, copy
    copies.clear()
    overwrite(collected, numel)
    assert all((tensor.numpy() == 5).all() for tensor in alive)


@pytest.mark.parametrize("forks", [False, True])
def test_a_tensor_resized_after_it_came_back_to_life_is_sent_with_its_size(collected: st.Pool, forks: bool) -> None:
    alive = [unsent(collected, WHOLE)]
    throw_away(alive, alive.append)
    storage = alive[0].untyped_storage()
    storage.resize_(3000)
    if forks:
        fork()
    assert storage.nbytes() == 3000
    received = pickle.loads(pickle.dumps(storage))
    assert (received.nbytes(), bytes(received.memoryview())) == (3000, bytes(storage.memoryview()))
    assert collected.stats().records == 1


@pytest.mark.parametrize("send", [False, True])
def test_a_block_brought_back_to_life_can_be_released(collected: st.Pool, send: bool) -> None:
    alive: list[Any] = []

    class Garbage:
        def __init__(self) -> None:
            self.me, self.block = self, collected.allocate(5000)

        def __del__(self) -> None:
            alive.append(self.block)

    Garbage()
    gc.collect()
    (block,) = alive
    if send:
        block.share().discard()
    block.release()
    with pytest.raises(ValueError, match="released"):
        block.memoryview()
    other = collected.allocate(5000)
    other.memoryview()[:] = b"\1" * 5000
    alive.clear()
    del block
    gc.collect()
    another = collected.allocate(5000)  # given back once, so it's another place
    another.memoryview()[:] = b"\2" * 5000
    assert bytes(other.memoryview()) == b"\1" * 5000


def test_an_array_in_garbage_keeps_its_bytes_where_they_are(collected: st.Pool) -> None:
    arrays: list[np.ndarray[Any, Any]] = []

    class Garbage:
        def __init__(self) -> None:
            self.me, self.tensor = self, unsent(collected, SMALL)
            self.array = self.tensor.numpy()

        def __del__(self) -> None:
            with pytest.raises(BufferError, match="export of it alive"):
                self.tensor.untyped_storage().resize_(WHOLE)
            arrays.append(self.array)

    Garbage()
    gc.collect()
    overwrite(collected, SMALL)
    assert (arrays[0] == 3).all()
