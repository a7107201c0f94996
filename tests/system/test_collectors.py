"""The collector at every allocation, finalizers, signal handlers and daemon threads, up to the interpreter's last
moment: no deadlock, and nothing on stderr.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import RunScript

HEAD = """
import atexit, gc, os, pickle, signal, sys, threading, time
import allocator, shmtensor as st

class Cycle:
    def __init__(self, tensor):
        self.me, self.tensor = self, tensor
        self.array = tensor.numpy()
    def __del__(self, use=lambda t: st.full((5,), 3, pool=pool)[0].item() + pickle.loads(pickle.dumps(t))[0].item(),
                refused=allocator.AllocatorError, is_ending=sys.is_finalizing):
        try:
            assert self.array[0] == 3 and use(self.tensor) == 6
        except refused:
            pass  # inside a critical section, or after the pool was left
        except Exception:
            if not is_ending():  # then modules are gone, the standard library's too
                raise

st.full, st.Tensor  # imported here: before 3.12 imports by several threads hang in such a collector (gh-106176)

def litter(size):
    Cycle(st.full((size,), 3, pool=pool))
"""


@pytest.mark.slow
@pytest.mark.report("R085")
def test_threads_and_signal_handlers_under_a_collector_that_never_rests_lose_nothing(run_script: RunScript) -> None:
    run_script(
        HEAD
        + """
pool = st.Pool.create(limit=256 << 20)
stop, failures, handled = time.monotonic() + 2, [], [0, 0]

def handle(*_):
    try:
        litter(50)
        pickle.loads(pickle.dumps(st.full((300_000,), 3, pool=pool)))
        handled[0] += 1
    except (allocator.PoolReentered, allocator.OutOfSharedMemory):
        handled[1] += 1

def work():
    try:
        while time.monotonic() < stop:
            try:
                for size in (10, 5000, 300_000):
                    litter(size)
                    kept = st.full((size,), 3, pool=pool)
                    assert (pickle.loads(pickle.dumps(kept)).numpy() == 3).all()
                pool.stats()
            except allocator.OutOfSharedMemory:
                gc.collect()  # another thread was collecting, so ours declined
    except BaseException as error:
        failures.append(repr(error))

signal.signal(signal.SIGALRM, handle)
gc.set_threshold(1, 1, 1)
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
work()
signal.setitimer(signal.ITIMER_REAL, 0)
for thread in threads:
    thread.join()
gc.set_threshold(700, 10, 10)
assert not failures, failures[:3]
assert handled[0] > 5, handled
gc.collect()
gc.collect()
pool.discard_tickets(0)
pool.reap()
pool.check()
stats = pool.stats()
assert stats.used_bytes == 0 and stats.tickets == 0, stats
"""
    )


@pytest.mark.report("R038")
@pytest.mark.parametrize("end", ["return", "sys.exit", "error in atexit", "closed", "collector off"])
def test_a_program_may_end_while_everything_still_uses_tensors(run_script: RunScript, end: str) -> None:
    text = run_script(
        HEAD
        + """
def late():  # registered before the library's own exit hook is, and so run after it
    tensors.append(use())
    print("late")

def use():
    try:
        tensor = st.full((50,), 3, pool=pool)
        return pickle.loads(pickle.dumps(tensor))
    except allocator.AllocatorError:
        return None

def daemon():
    while True:
        litter(10)
        pickle.loads(pickle.dumps(tensors[0]))
        tensors[1:] = [use()]

atexit.register(late)
end = sys.argv[1]
pool = st.Pool.create(limit=64 << 20)
kept = Cycle(st.full((20,), 3, pool=pool))
array = st.full((100,), 3, pool=pool).numpy()
view = memoryview(st.full((100,), 3, pool=pool).numpy())[10:]
large = st.full((1 << 20,), 3, pool=pool)
sys.keep = [pickle.loads(pickle.dumps(large)), large.numpy()]  # survives the modules
tensors = [st.full((100,), 3, pool=pool)]
gc.set_threshold(1 if end != "collector off" else 0)
for _ in range(2 if end != "closed" else 0):
    threading.Thread(target=daemon, daemon=True).start()
litter(100)
if end == "closed":
    pool.close()
if end == "error in atexit":
    sys.stderr = open(os.devnull, "w")
    atexit.register(lambda: 1 / 0)
print("end")
if end == "sys.exit":
    sys.exit(0)
""",
        end,
    )
    assert text == "end\nlate\n"
