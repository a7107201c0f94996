"""Names in one process: what publishing keeps, replaces and refuses."""

from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from allocator import Holder, NameNotFound, Pool, PoolClosed
from allocator.core.format import PLAN, Name
from allocator.core.ledger import Ledger

LONGEST = "n" * Name.MAX_TEXT_BYTES


def test_what_is_published_lives_without_its_publishers_block(pool: Pool) -> None:
    block = pool.allocate(100)
    block.memoryview()[:] = b"x" * 100
    pool.publish("block", block)
    del block
    gc.collect()
    assert pool.stats().records == 1
    assert bytes(pool.lookup("block").memoryview()) == b"x" * 100
    pool.unpublish("block")
    assert (pool.stats().records, pool.stats().names) == (0, 0)
    pool.check()


def test_replacing_a_name_lets_go_of_the_old_block_unless_somebody_has_it(pool: Pool) -> None:
    for nbytes in (100, 200, 300):
        pool.publish("block", pool.allocate(nbytes))
    assert (pool.stats().records, pool.stats().names) == (1, 1)
    old = pool.lookup("block")
    pool.publish("block", pool.allocate(400))
    assert (old.nbytes, pool.lookup("block").nbytes, pool.stats().records) == (300, 400, 2)
    pool.check()


def test_a_block_may_have_two_names_and_be_published_again_under_one(pool: Pool) -> None:
    block = pool.allocate(100)
    for name in ("a", "b", "a"):
        pool.publish(name, block)
    assert block.holders()[1:] == [Holder("name", 0, 0, "b"), Holder("name", 0, 0, "a")]
    del block
    pool.unpublish("a")
    assert list(pool.names()) == ["b"]
    assert pool.lookup("b").nbytes == 100


def test_names_lists_what_is_published(pool: Pool) -> None:
    tensor = st.zeros((3, 4), pool=pool)
    st.publish("größe/µ", tensor.t())
    (name, published), *others = st.names(pool=pool).items()
    assert (name, others, published.nbytes, published.note) == ("größe/µ", [], 48, "float32 4,3 1,4 0 2")
    assert 0 <= published.age_seconds < 60


@pytest.mark.parametrize("name", ["", "a\nb", "\0", "\ud800", LONGEST + "n", "é" * 128])
def test_a_name_is_printable_text_of_bounded_length(pool: Pool, name: str) -> None:
    for act in (lambda: pool.publish(name, pool.allocate(1)), lambda: pool.lookup(name), lambda: pool.unpublish(name)):
        with pytest.raises(ValueError, match="1 to 255 bytes of printable text"):
            act()
    assert not pool.names()


def test_the_longest_name_works(pool: Pool) -> None:
    pool.publish(LONGEST, pool.allocate(5))
    assert pool.lookup(LONGEST).nbytes == 5


def test_a_missing_name_says_what_to_do(pool: Pool) -> None:
    started = time.monotonic()
    with pytest.raises(NameNotFound, match=r"'none' in pool .*, nor was within 0\.05 s: publish it first"):
        pool.lookup("none", timeout=0.05)
    assert time.monotonic() - started >= 0.05
    with pytest.raises(LookupError, match="nothing is published as 'none'"):
        pool.unpublish("none")
    with pytest.raises(TypeError, match="not int"):
        pool.lookup(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nan"):
        pool.lookup("none", timeout=float("nan"))


def test_only_a_pools_own_blocks_are_published_in_it(pool: Pool) -> None:
    with Pool.create(limit=1 << 20) as other, pytest.raises(ValueError, match="copy it there first"):
        pool.publish("block", other.allocate(10))
    block = pool.allocate(10)
    block.release()
    with pytest.raises(ValueError, match="released"):
        pool.publish("block", block)
    with pytest.raises(TypeError, match="not ndarray"):
        st.publish("array", np.zeros(3))  # type: ignore[arg-type]
    assert not pool.names()


def test_a_closed_pool_takes_no_names(pool: Pool) -> None:
    kept = pool.allocate(10)
    pool.publish("kept", kept)
    pool.close()
    with pytest.raises(PoolClosed):
        pool.publish("late", kept)
    with pytest.raises(PoolClosed):
        pool.lookup("kept")


def test_the_table_of_names_grows_and_ends_with_an_error(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    block = pool.allocate(1)
    for i in range(200):  # six times what has memory at first
        pool.publish(f"name {i}", block)
    assert len(pool.names()) == 200
    pool.check()
    monkeypatch.setattr(Ledger, "next_step", lambda self, shape: None)
    free = pool.commons.ledger.names.table.rows - 200
    for i in range(free):
        pool.publish(f"more {i}", block)
    with pytest.raises(st.OutOfSharedMemory, match=f"table of {PLAN.names.rows} names is full"):
        pool.publish("one more", block)
    assert len(pool.names()) == 200 + free
    pool.check()


VIEWS: dict[str, Any] = {
    "all": lambda t: t,
    "transposed": lambda t: t.permute(2, 0, 1),
    "sliced": lambda t: t[1:, ::2, 1],
    "expanded": lambda t: t[:1].expand(5, 3, 4),
    "empty": lambda t: t[2:],
    "a number": lambda t: t[1, 2, 3],
    "read-only": lambda t: t.readonly(),
    "as bytes": lambda t: t.view(st.uint8),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_keep_their_layout(pool: Pool, name: str) -> None:
    view = VIEWS[name](st.arange(24, dtype="int16", pool=pool).reshape(2, 3, 4))
    st.publish(name, view)
    found = st.lookup(name, pool=pool)
    assert found.untyped_storage() is view.untyped_storage(), "one storage in one process"
    assert (found.dtype, found.layout, found._flags) == (view.dtype, view.layout, view._flags)
    array = view.numpy().copy()
    del view, found
    gc.collect()
    again = st.lookup(name, pool=pool)
    assert np.array_equal(again.numpy(), array)
    assert again.numpy().flags.writeable == (name != "read-only")


def test_the_largest_layout_fits_into_a_note(pool: Pool) -> None:
    base = st.zeros((1,), dtype="uint8", pool=pool)
    widest = base.as_strided((1,) * 64, (2**62,) * 64)
    st.publish("widest", widest)
    assert st.lookup("widest", pool=pool).stride() == (2**62,) * 64


def test_a_block_is_looked_up_as_a_tensor_of_its_bytes(pool: Pool) -> None:
    block = pool.allocate(5)
    block.memoryview()[:] = b"bytes"
    pool.publish("block", block)
    assert st.lookup("block", pool=pool).numpy().tobytes() == b"bytes"


def test_what_shrank_since_is_refused_when_looked_up(pool: Pool) -> None:
    tensor = st.zeros(100, pool=pool)
    st.publish("shrunk", tensor)
    tensor.untyped_storage().resize_(8)
    with pytest.raises(st.InvalidHeader, match="fewer"):
        st.lookup("shrunk", pool=pool)
    with pytest.raises(st.StorageBoundsError):
        st.publish("too long", tensor)
