"""What other code in the process does to a pool: closes its descriptors, forks with threads, sends from signal handlers
and finalizers, leaves no descriptor or address space.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import RunScript

HEAD = """
import gc, os, pickle, random, resource, signal, sys, threading, time
import allocator, shmtensor as st
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn of forks with threads
"""


@pytest.mark.report("R074")
def test_the_locals_of_other_threads_survive_a_fork(run_script: RunScript) -> None:
    # The child destroys them before any fork hook runs: those drops must not be taken for the parent's.
    run_script(
        HEAD
        + """
pool = allocator.Pool.create(limit=64 << 20)
mine, ready, go, seen = threading.local(), threading.Event(), threading.Event(), []
def work():
    mine.small, mine.large = st.full((1000,), 5, pool=pool), st.full((1 << 20,), 7, pool=pool)
    mine.sent = st.full((1000,), 6, pool=pool)
    pickle.loads(pickle.dumps(mine.sent))
    ready.set()
    go.wait()
    seen.extend(int(t.numpy().min()) for t in (mine.small, mine.sent, mine.large))
thread = threading.Thread(target=work)
thread.start()
ready.wait()
child = os.fork()
if not child:
    os._exit(0)
os.waitpid(child, 0)
pool.reap()
others = [st.full((1000,), 1, pool=pool) for _ in range(1000)] + [st.full((1 << 20,), 1, pool=pool) for _ in range(4)]
go.set()
thread.join()
assert seen == [5, 6, 7], seen
pool.check()
"""
    )


@pytest.mark.report("R085")
def test_finalizers_that_send_and_threads_over_forks_keep_every_byte(run_script: RunScript) -> None:
    run_script(
        HEAD
        + """
pool = allocator.Pool.create(limit=512 << 20)
wrong, stop = [], time.monotonic() + 4
class Ends:
    def __init__(self, tensor):
        self.tensor, self.me = tensor, self
    def __del__(self):
        try:
            if not (pickle.loads(pickle.dumps(self.tensor)).numpy() == 3).all():
                wrong.append("finalizer")
            st.zeros((150000,), pool=pool)
        except allocator.OutOfSharedMemory:
            pass  # the collector was late
def work(seed):
    sizes = random.Random(seed)
    while time.monotonic() < stop:
        try:
            tensor = st.full((sizes.choice([5, 5000, 200000]),), 3, pool=pool, dtype="int32")
            Ends(tensor)
            if not (pickle.loads(pickle.dumps(tensor)).numpy() == 3).all():
                wrong.append("thread")
        except allocator.OutOfSharedMemory:
            gc.collect()
def fork():
    while time.monotonic() < stop:
        kept = st.full((1000,), 9, pool=pool, dtype="int32")
        child = os.fork()
        if not child:
            fresh = st.full((1000,), 3, pool=pool, dtype="int32")
            fine = (fresh.numpy() == 3).all() and (kept.numpy() == 9).all()
            kept += 1
            os._exit(0 if fine else 3)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or not (kept.numpy() == 10).all():
            wrong.append("fork")
gc.set_threshold(50)
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)] + [threading.Thread(target=fork)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
gc.collect()
gc.collect()
assert not wrong, wrong
pool.reap()
pool.check()
assert pool.stats().holds == 0, pool.stats()
"""
    )


def test_a_signal_handler_may_send_the_tensor_that_is_being_sent(run_script: RunScript) -> None:
    run_script(
        HEAD
        + """
pool = allocator.Pool.create(limit=64 << 20)
current, sent = None, []
def handler(*_):
    if current is not None:
        try:
            sent.append((current, pickle.dumps(current)))
        except allocator.AllocatorError:
            pass  # inside the critical section, which says so
signal.signal(signal.SIGALRM, handler)
stop, n = time.monotonic() + 3, 0
while time.monotonic() < stop:
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.00013)
    while len(sent) < 50:
        current = st.full((16,), n & 255, pool=pool)
        pickle.loads(pickle.dumps(current))
        n += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    for tensor, message in sent:
        assert (pickle.loads(message).numpy() == tensor.numpy()).all()
    sent.clear()
pool.check()
"""
    )


def test_a_process_that_closes_every_descriptor_loses_the_pool_but_no_byte_and_leaves_no_file(
    run_script: RunScript,
) -> None:
    run_script(
        HEAD
        + """
pool = allocator.Pool.create(limit=64 << 20)
tensor = st.ones((100,), pool=pool)
tensor.header()
os.closerange(3, 20000)
def send():
    for _ in range(200):
        tensor.header()
for use in (lambda: st.ones((1 << 20,), pool=pool), pool.stats, send):
    try:
        use()
    except allocator.PoolClosed:
        continue
    raise AssertionError(use)
assert tensor.numpy().sum() == 100
"""
    )


def test_without_a_free_descriptor_memory_is_given_and_refused_as_ever(run_script: RunScript) -> None:
    run_script(
        HEAD
        + """
pool = allocator.Pool.create(limit=8 << 20)
pickle.loads(pickle.dumps(st.ones((10,), pool=pool)))  # what is imported late is imported now
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True:
        os.dup(0)
except OSError:
    pass
kept = []
try:
    while True:
        kept.append(pickle.loads(pickle.dumps(st.ones((1 << 18,), pool=pool))))
except allocator.OutOfSharedMemory:
    assert len(kept) >= 6, kept
"""
    )


@pytest.mark.report("R051")
def test_a_pool_that_may_not_be_made_is_refused_in_silence(run_script: RunScript) -> None:
    run_script(
        HEAD
        + """
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
try:
    allocator.Pool.create(limit=64 << 20)
except allocator.OutOfSharedMemory as error:
    assert "limit=67108864" in str(error) and "ulimit -v, -f" in str(error), error
    sys.exit()
raise AssertionError("made")
"""
    )


def test_closed_pools_in_reference_cycles_use_up_no_address_space(run_script: RunScript) -> None:
    run_script(
        HEAD
        + """
gc.disable()
for _ in range(200):
    pool = allocator.Pool.create(limit=1 << 20)
    st.ones((10,), pool=pool)
    pool.close()
"""
    )


def test_a_timeout_that_is_no_number_is_refused(run_script: RunScript) -> None:
    run_script(
        HEAD
        + """
pool = allocator.Pool.create(limit=1 << 20)
try:
    st.ones((1 << 20,), pool=pool, timeout=float("nan"))
except ValueError:
    sys.exit()
raise AssertionError("accepted")
""",
        timeout=20,
    )


def test_a_pool_closed_under_threads_that_send_is_left_when_its_last_block_dies(run_script: RunScript) -> None:
    run_script(
        HEAD
        + """
def close_under_load():
    pool = allocator.Pool.create(limit=4 << 20)
    tensor, busy = st.full((50,), 1, pool=pool), threading.Event()
    def work():
        try:
            while True:
                pickle.loads(pickle.dumps(tensor))
                st.ones((100,), pool=pool)
                busy.set()
        except allocator.PoolClosed:
            pass
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    busy.wait()
    pool.close()
    for thread in threads:
        thread.join()
    assert (tensor.numpy() == 1).all()
before = len(os.listdir("/proc/self/fd"))
for _ in range(20):
    close_under_load()
gc.collect()
after = len(os.listdir("/proc/self/fd"))
assert after < before + 5, (before, after)
"""
    )
