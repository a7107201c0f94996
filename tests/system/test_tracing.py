"""SHMTENSOR_TRACE=1 writes down where blocks were made and messages pickled; it costs nothing otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from allocator.sites import TEXT_BYTES, _fit

if TYPE_CHECKING:
    from conftest import RunScript

TRACED = {"SHMTENSOR_TRACE": "1"}
SENDING = """
import multiprocessing as mp
import os, pickle, time
import allocator
import shmtensor as st
from allocator.sites import Sites

def make(pool):
    return st.ones((1000,), pool=pool)

def send(tensor):
    return pickle.dumps(tensor)

def site(function, extra):
    return f"{__file__}:{function.__code__.co_firstlineno + extra} ({function.__name__})"
"""


@pytest.mark.report("R122")
def test_a_traced_ticket_says_where_it_was_pickled_and_its_block_where_it_was_made(run_script: RunScript) -> None:
    run_script(
        SENDING
        + """
pool = allocator.Pool.create(limit=8 << 20)
tensor = make(pool)
first = send(tensor)
second = send(tensor)
here = pickle.dumps(tensor)
places = [ticket.site for ticket in pool.tickets()]
assert places[:2] == [site(send, 1)] * 2, places
assert places[2].startswith(__file__) and "<module>" in places[2], places
record = pool.tickets()[0].record
generation = pool.commons.ledger.records.field(record, 1)
assert Sites(pool.host, pool.name).of_records([(record, generation)]) == [site(make, 1)]
assert Sites(pool.host, pool.name).of_records([(record, generation + 1)]) == [""]  # another block's, in the same row
try:
    pool.allocate(16 << 20)
except allocator.OutOfSharedMemory as error:
    assert f"3 messages in flight, the oldest pickled at {site(send, 1)}, " in str(error), error
else:
    raise AssertionError
del tensor
pickle.loads(first), pickle.loads(second), pickle.loads(here)
assert pool.tickets() == []
""",
        env=TRACED,
    )


def test_a_traced_ticket_is_told_in_other_processes_and_after_its_sender_died(run_script: RunScript) -> None:
    run_script(
        SENDING
        + """
def work(name):
    kept = send(make(allocator.Pool.attach(name)))
    os._exit(0)

if __name__ == "__main__":
    pool = allocator.Pool.create(limit=8 << 20)
    kept = send(make(pool))
    os.environ["SHMTENSOR_TRACE"] = "1"
    worker = mp.get_context("spawn").Process(target=work, args=(pool.name,))
    worker.start()
    worker.join()
    pool.reap()
    assert [(ticket.site, ticket.sender_name) for ticket in pool.tickets()] == [
        ("", pool.tickets()[0].sender_name), (site(send, 1), "(dead)")
    ], pool.tickets()
"""
    )


def test_a_queue_names_who_put_or_else_its_feeder(run_script: RunScript) -> None:
    run_script(
        SENDING
        + """
if __name__ == "__main__":
    pool = allocator.Pool.create(limit=8 << 20)
    tensor = make(pool)
    simple, feeding = mp.SimpleQueue(), mp.Queue()
    simple.put(tensor)
    assert pool.tickets()[0].site.endswith("(<module>)"), pool.tickets()
    feeding.put(tensor)  # pickled by a thread that runs nothing of ours
    while len(pool.tickets()) < 2:
        time.sleep(0.01)
    assert "multiprocessing" in pool.tickets()[1].site, pool.tickets()
    feeding.get(), simple.get()
""",
        env=TRACED,
    )


def test_without_the_variable_nothing_is_written(run_script: RunScript) -> None:
    run_script(
        SENDING
        + """
pool = allocator.Pool.create(limit=8 << 20)
kept = send(make(pool))
assert [ticket.site for ticket in pool.tickets()] == [""]
assert type(pool) is allocator.Pool
assert not os.path.exists(Sites(pool.host, pool.name).path)
"""
    )


def test_long_paths_keep_their_end() -> None:
    text = "/a/" + "long/" * 40 + "grün.py:12 (step)"
    assert len(_fit(text)) <= TEXT_BYTES
    assert _fit(text).decode().endswith("long/grün.py:12 (step)")
