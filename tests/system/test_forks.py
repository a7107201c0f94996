"""Forks that fail, in threads, within forks and before an exec; children that end in every way while their parents go
on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import RunScript

pytestmark = pytest.mark.slow

HEAD = """
import os, pickle, random, resource, signal, subprocess, sys, threading, warnings
import shmtensor as st
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn of forks with threads

def status_of(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def settled(pool, **expected):
    pool.reap()
    pool.check()
    stats = pool.stats()
    assert {name: getattr(stats, name) for name in expected} == expected, stats
"""


def test_a_fork_that_fails_changes_nothing_however_often_it_does(run_script: RunScript) -> None:
    run_script(
        HEAD
        + """
with st.Pool.create(limit=1 << 20) as first:  # what is imported late is imported now: others may not read the folders
    pickle.loads(pickle.dumps(st.ones((1,), pool=first)))
    st.full((1,), 1, pool=first).numpy().sum()
    first.stats()
if os.getuid() == 0:  # whom no limit binds; the pool must be the user's that forks
    os.setgid(65534)
    os.setuid(65534)
pool = st.Pool.create(limit=64 << 20)
kept = [st.full((size,), 3, pool=pool) for size in (10, 5000, 1 << 20)]
sent = st.full((100,), 4, pool=pool)
message = pickle.dumps(sent)
hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
before = len(os.listdir("/proc/self/fd"))
for i in range(50):
    resource.setrlimit(resource.RLIMIT_NPROC, (0, hard))
    try:
        os.fork()
    except BlockingIOError:
        pass
    else:
        raise AssertionError("forked")
    kept.append(st.full((1000,), i, pool=pool))
    del kept[3 : len(kept) - 5]
    assert all((t.numpy() == 3).all() for t in kept[:3])
resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
assert len(os.listdir("/proc/self/fd")) <= before + 1  # the last one's pipe is looked at when the pool is used
settled(pool, clients=1, tickets=1)
assert len(os.listdir("/proc/self/fd")) == before
child = os.fork()
if not child:
    os._exit(0 if all((t.numpy() == 3).all() for t in kept[:3]) and st.ones((9,), pool=pool).numpy().sum() == 9 else 1)
assert status_of(child) == 0
assert pickle.loads(message) is not None and sent.tolist() == [4] * 100
kept.clear()
del sent
settled(pool, clients=1, tickets=0, used_bytes=0)
""",
        timeout=60,
    )


def test_a_subprocess_with_preexec_fn_takes_nothing_along(run_script: RunScript) -> None:
    run_script(
        HEAD
        + """
pool = st.Pool.create(limit=64 << 20)
kept = st.full((1000,), 3, pool=pool)
message = pickle.dumps(kept)
def look():  # runs in the child, before the program
    mine = st.full((1000,), 4, pool=pool)
    assert kept.tolist() == [3] * 1000 and mine.tolist() == [4] * 1000
    assert pickle.loads(message).tolist() == [3] * 1000
for _ in range(5):
    subprocess.run([sys.executable, "-c", ""], preexec_fn=look, check=True)
    subprocess.run([sys.executable, "-c", ""], check=True)
for broken in (lambda: subprocess.run(["/nonexistent"], preexec_fn=look), lambda: subprocess.run(["/nonexistent"])):
    try:
        broken()
    except FileNotFoundError:
        continue
    raise AssertionError("it is there")
def fail():
    raise KeyError
try:
    subprocess.run([sys.executable, "-c", ""], preexec_fn=fail)
except subprocess.SubprocessError:
    pass
assert kept.tolist() == [3] * 1000
del kept
settled(pool, clients=1, tickets=0, used_bytes=0)
"""
    )


def test_children_of_children_and_of_threads_keep_what_they_inherit_however_they_end(run_script: RunScript) -> None:
    # While a child reads, its parent frees what both have and fills the memory again.
    run_script(
        HEAD
        + """
pool = st.Pool.create(limit=256 << 20)
ENDS = ["os._exit", "return", "sys.exit", "kill"]
SIZES = (10, 3000, 1 << 18)

def end(how):
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "os._exit":
        os._exit(0)
    elif how == "sys.exit":
        sys.exit(0)

def verify(tensors, key):
    assert all((t.numpy() == key).all() for t in tensors), key

def descend(depth, key, inherited, how):
    mine = [st.full((size,), key, pool=pool) for size in SIZES]
    message = pickle.dumps(mine[1])
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(go[1])
            os.write(ready[1], b"x")
            os.read(go[0], 1)  # until the parent has freed
            verify(mine, key)
            verify([pickle.loads(message)], key)
            for tensors, other in inherited:
                verify(tensors, other)
            if depth:
                descend(depth - 1, key + 1, [*inherited, (mine, key)], how)
            end(how)
        except SystemExit:
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(3)
        os._exit(0)
    os.read(ready[0], 1)
    del mine
    filler = [st.full((size,), 99, pool=pool) for size in SIZES for _ in range(5)]
    os.write(go[1], b"x")
    for end_of_pipe in (*ready, *go):
        os.close(end_of_pipe)
    assert status_of(child) == (-signal.SIGKILL if how == "kill" else 0), how
    verify(filler, 99)
    for tensors, other in inherited:
        verify(tensors, other)

def from_thread(seed):
    try:
        for how in ENDS:
            descend(2, 10 * seed, [], how)
    except BaseException:
        failures.append(seed)
        raise

failures = []
threads = [threading.Thread(target=from_thread, args=(seed,)) for seed in (1, 2)]
for thread in threads:
    thread.start()
for how in ENDS:
    descend(2, 50, [], how)
for thread in threads:
    thread.join()
assert not failures, failures
pool.discard_tickets(0)
settled(pool, clients=1, tickets=0, used_bytes=0)
""",
        timeout=100,
    )
