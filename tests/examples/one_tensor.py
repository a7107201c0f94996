"""docs/one-tensor.md, walked: after each step the shared tables are as it says. Numbers are those of its steps."""

from __future__ import annotations

import multiprocessing as mp
import pickle
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import shmtensor as st
from allocator.commons import Commons
from allocator.core.format import STATE_MASK, Record, Reference
from allocator.system.locks import Guarded

entered: list[Any] = []


def count_section(self: Guarded, body: Callable[..., Any], *args: Any) -> Any:
    """The critical section, noted."""
    entered.append(body)
    return Guarded.section(self, body, *args)


Commons.section = count_section  # type: ignore[method-assign]


def lockless(act: Callable[..., Any], *args: Any) -> Any:
    """What it gives; it must not enter the critical section."""
    entered.clear()
    result = act(*args)
    assert not entered, entered
    return result


def reference(row: int) -> int:
    return st.default_pool().commons.ledger.references.field(row, Reference.WORD) & STATE_MASK


def record(row: int) -> int:
    return st.default_pool().commons.ledger.records.field(row, Record.WORD) & STATE_MASK


def here(link: Connection) -> None:
    pool = st.default_pool()
    references = pool.commons.ledger.references
    link.send_bytes(pickle.dumps(st.zeros((256, 4))))  # the size has a span from now on, and both sides spare rows
    link.recv()

    t = lockless(st.zeros, (256, 4))  # 1, 2
    block = t.untyped_storage().block
    assert (block.was_sent, block.size) == (False, 4096)  # 7
    row = lockless(t.__getitem__, 7)  # 8
    assert (row.shape, row.stride(), row.storage_offset()) == ((4,), (1,), 28)
    assert row.untyped_storage() is t.untyped_storage()

    message = lockless(pickle.dumps, (row, t[8]))  # 9, 10
    assert (record(block.record), reference(block.row)) == (Record.LIVE, Reference.HELD)  # 11
    (ticket,) = references.naming(block.record, Reference.FLIGHT)  # 9: one for both views; 12
    assert [each.record for each in pool.tickets()] == [block.record]
    again = lockless(pickle.dumps, t)
    link.send_bytes(message)
    hold = link.recv()  # 15
    assert references.field(hold, Reference.REDEEMED) == ticket + 1
    assert (reference(hold), reference(ticket)) == (Reference.HELD, Reference.FLIGHT)  # 17, 18
    assert len(pool.tickets()) == 1  # the other message: this one is spent

    link.send_bytes(again)
    link.recv()
    assert not pool.tickets()
    assert [index for index, total in enumerate(t.numpy().sum(1).tolist()) if total] == [7]  # 21
    assert reference(hold) == Reference.HELD  # 22: an array alone
    link.send("let go")
    link.recv()
    assert reference(hold) == Reference.DROPPED  # 23
    pool.stats()
    assert (reference(hold), reference(ticket)) == (Reference.FREE, Reference.FREE)  # 25: with the ticket it spent
    assert (record(block.record), reference(block.row)) == (Record.LIVE, Reference.HELD)
    link.send("open late")  # 19
    link.recv()

    index, mine, start = block.record, block.row, block.start
    del row, block
    entered.clear()
    del t  # 24
    assert not entered
    assert (record(index), reference(mine)) == (Record.LIVE, Reference.DROPPED)
    before = pool.stats()
    assert (record(index), reference(mine), before.used_bytes) == (Record.RETURNED, Reference.FREE, 0)  # 25, 26
    taken = []
    while not taken or taken[-1].start != start:  # 3
        assert len(taken) < 1000
        taken.append(pool.allocate(4096))
    assert record(index) in (Record.FREE, Record.RESERVED)
    del taken
    link.send("too late")
    link.recv()
    unsent = pool.allocate(4096)
    start = unsent.start
    entered.clear()
    del unsent
    assert not entered
    assert pool.allocate(4096).start == start  # 24: straight back, and warm (27)
    whole = pool.allocate(1 << 20)
    del whole
    assert pool.stats().used_bytes == 0
    assert pool.stats().warm_bytes >= 1 << 20
    assert pool.purge() >= 1 << 20  # 27
    pool.check()


def there(link: Connection) -> None:
    pickle.loads(link.recv_bytes())  # 14
    link.send("attached")
    message = link.recv_bytes()
    row, other = lockless(pickle.loads, message)  # 15 to 18, 20
    assert row.untyped_storage() is other.untyped_storage()
    hold = row.untyped_storage().block.row
    link.send(hold)
    whole = lockless(pickle.loads, link.recv_bytes())
    assert whole.untyped_storage() is row.untyped_storage()  # 16
    row += 1  # 21
    array = row.numpy()
    del row, other, whole
    link.send("wrote")
    link.recv()
    assert array.tolist() == [1.0] * 4  # 22
    entered.clear()
    del array  # 23
    assert not entered
    link.send("dropped")
    link.recv()
    entered.clear()
    row, other = pickle.loads(message)  # 19
    assert entered
    assert row.tolist() == [1.0] * 4
    del row, other
    link.send("opened late")
    link.recv()
    try:
        pickle.loads(message)
    except st.StaleHandle:
        link.send("gone")


def main() -> None:
    context = mp.get_context("spawn")
    st.default_pool()
    ours, theirs = context.Pipe()
    other = context.Process(target=there, args=(theirs,))
    other.start()
    here(ours)
    other.join()
    assert other.exitcode == 0
    print("as written")


if __name__ == "__main__":
    main()
