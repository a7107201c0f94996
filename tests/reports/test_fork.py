"""Forks of processes that hold tensors, with threads in the middle of things."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import RunScript

HEAD = """
import os, pickle, sys, threading, warnings
import multiprocessing as mp
import shmtensor as st
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn of forks with threads
"""


@pytest.mark.report("R074")
def test_however_a_forked_child_ends_its_parent_keeps_what_it_has(run_script: RunScript) -> None:
    run_script(
        HEAD
        + """
pool = st.Pool.create(limit=64 << 20)
kept = [st.full((size,), 3, pool=pool) for size in (10, 5000, 1 << 20)]
pickle.dumps(kept[1])
inside, go = threading.Event(), threading.Event()

def sit_in_the_section():
    def body():
        inside.set()
        go.wait(0.3)  # the fork below waits for this
    pool.commons.section(body)

def end(how):
    assert all((t.numpy() == 3).all() for t in kept)
    mine = st.full((5000,), 4, pool=pool)
    if how == "drop":
        kept.clear()
    elif how == "sys.exit":
        sys.exit(0)
    elif how == "os._exit":
        os._exit(0)
    elif how == "raise":
        sys.stderr = open(os.devnull, "w")
        raise KeyError(how)

for how in ("return", "drop", "sys.exit", "os._exit", "raise"):
    thread = threading.Thread(target=sit_in_the_section)
    inside.clear()
    thread.start()
    inside.wait()
    child = mp.get_context("fork").Process(target=end, args=(how,))
    child.start()
    child.join()
    assert child.exitcode == (1 if how == "raise" else 0), (how, child.exitcode)
    thread.join()
    if how != "raise" and not (pid := os.fork()):
        try:
            end(how)
        except SystemExit:
            pass
        os._exit(0)
    elif how != "raise":
        assert os.waitpid(pid, 0)[1] == 0
    pool.reap()
    others = [st.full((5000,), 1, pool=pool) for _ in range(20)] + [st.full((1 << 20,), 1, pool=pool)]
    assert all((t.numpy() == 3).all() for t in kept), how
    del others
pool.discard_tickets(0)
kept.clear()
pool.reap()
pool.check()
assert pool.stats().used_bytes == 0, pool.stats()
"""
    )


@pytest.mark.report("R090")
def test_children_forked_under_threads_that_allocate_and_send_never_hang(run_script: RunScript) -> None:
    run_script(
        HEAD
        + """
pool = st.Pool.create(limit=256 << 20)
stop, failures = threading.Event(), []

def churn():
    try:
        while not stop.is_set():
            tensors = [st.full((size,), 2, pool=pool) for size in (10, 3000, 200_000)]
            assert all((pickle.loads(pickle.dumps(t)).numpy() == 2).all() for t in tensors)
            pool.stats()
    except BaseException as error:
        failures.append(repr(error))

threads = [threading.Thread(target=churn) for _ in range(2)]
for thread in threads:
    thread.start()
for i in range(40):
    kept = st.full((1000,), i, pool=pool)
    child = os.fork()
    if not child:
        fine = False
        try:
            mine = [st.full((size,), 7, pool=pool) for size in (10, 3000, 200_000)]
            arrived = [pickle.loads(pickle.dumps(t)) for t in (*mine, kept)]
            fine = all((t.numpy() == 7).all() for t in arrived[:3]) and (arrived[3].numpy() == i).all()
        finally:
            os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0, i
stop.set()
for thread in threads:
    thread.join()
assert not failures, failures
pool.reap()
pool.check()
assert pool.stats().clients == 1
"""
    )


@pytest.mark.report("R075")
def test_a_child_made_behind_pythons_back_is_told_so_when_it_takes_the_lock(run_script: RunScript) -> None:
    run_script(
        HEAD
        + """
import ctypes

pool = st.Pool.create(limit=64 << 20)
kept = [st.full((size,), 3, pool=pool) for size in (1000, 1 << 20)]
child = ctypes.PyDLL(None).fork()  # as a C library would: no hook of Python's runs
if not child:
    status = 1
    try:
        for use in (pool.stats, pool.check, pool.reap, pool.purge, lambda: st.ones((1 << 20,), pool=pool)):
            try:
                use()
            except st.PoolClosed as error:
                status = 0 if "forked without a place" in str(error) else 2
            else:
                status = 3
                break
    finally:
        os._exit(status)
assert os.waitpid(child, 0)[1] == 0
others = [st.full((size,), 1, pool=pool) for size in (1000, 1 << 20)]
assert all((t.numpy() == 3).all() for t in kept)
pool.check()
"""
    )
