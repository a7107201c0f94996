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


# What a library does to us that forks in C: no hook of ours runs. The interpreter's lists of them are ordinary lists.
FORK_BEHIND_PYTHONS_BACK = """
import gc, os
from allocator.lifecycle import REGISTRY
from allocator.system.locks import FORKING, MUTEX

def fork_behind_pythons_back():
    ours = [id(REGISTRY), id(FORKING), id(MUTEX)]
    hooks = [each for each in gc.get_objects() if type(each) is list and any(is_of(hook, ours) for hook in each)]
    assert hooks or not REGISTRY.hooked or forgotten
    forgotten.extend(hooks)
    for each in hooks:
        each[:] = [hook for hook in each if not is_of(hook, ours)]
    return os.fork()

def is_of(hook, ours):
    return callable(hook) and id(getattr(hook, "__self__", None)) in ours

forgotten = []
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
        + FORK_BEHIND_PYTHONS_BACK
        + """
pool = st.Pool.create(limit=64 << 20)
kept = [st.full((size,), 3, pool=pool) for size in (1000, 1 << 20)]
child = fork_behind_pythons_back()
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


@pytest.mark.report("R075")
def test_a_child_made_behind_pythons_back_takes_and_gives_nothing_of_its_parents(run_script: RunScript) -> None:
    text = run_script(
        HEAD
        + FORK_BEHIND_PYTHONS_BACK
        + """
from allocator import PoolClosed

def child(body):
    pid = fork_behind_pythons_back()
    if pid == 0:
        os._exit(body() or 0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def refused(act):
    try:
        act()
    except PoolClosed:
        return 0
    return 1

def drop():
    sent.clear()
    kept.clear()

def work():
    wrong = refused(lambda: st.full((10,), 9, dtype="int32", pool=pool))
    wrong |= refused(lambda: st.full((1 << 20,), 9, dtype="int32", pool=pool)) << 1
    wrong |= refused(lambda: pickle.dumps(sent[0])) << 2
    wrong |= refused(lambda: pickle.loads(message)) << 3
    with st.Pool.create(limit=1 << 20) as other:  # a pool of its own it may have
        return wrong | (st.ones((10,), pool=other).numpy().sum() != 10) << 4

pool = st.Pool.create(limit=64 << 20)
sent = [st.full((1000,), 5, pool=pool) for _ in range(3)]
message = pickle.dumps(sent[0])
pickle.dumps(sent[1])
kept = [st.full((10,), 6, dtype="int32", pool=pool) for _ in range(4)]
kept.pop()
print(child(drop), child(work))
pool.discard_tickets(0)
pool.stats()
others = [st.full((1000,), 1, pool=pool) for _ in range(300)] + [st.full((10,), 1, pool=pool) for _ in range(300)]
print(all((each.numpy() == 5).all() for each in sent), all((each.numpy() == 6).all() for each in kept))
pool.check()
"""
    )
    assert text == "0 0\nTrue True\n"
