"""What concerns this project alone, or one other library beside it: each function gives one number for a goal."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tracemalloc
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from statistics import median
from time import perf_counter
from timeit import Timer
from typing import Any

import shmtensor as st
from benchmarks.link import CONTEXT

MANY = 100_000
Names = dict[str, Any]

# The same for a torch tensor and one of ours, `t`, of shape (8, 16, 32); `a` is an array that is kept.
VIEWS = (
    "t[2:5]",
    "t[3]",
    "t[3, 4]",
    "t[:, 2]",
    "t.transpose(0, 1)",
    "t.permute(2, 0, 1)",
    "t.view(128, 32)",
    "t.numpy()",
)


def views_to_torch(rounds: int, times: int) -> dict[str, float]:
    """Time of view operations relative to torch's, where torch is installed: the median of each round's ratio."""
    try:
        import torch
    except ImportError:
        return {}
    ours, theirs = st.zeros((8, 16, 32)), torch.zeros(8, 16, 32)
    kept = ours.numpy(), theirs.numpy()
    ratios = {}
    for view in VIEWS:
        pair = [Timer(view, globals={"t": t}) for t in (ours, theirs)]
        found = [[timer.timeit(times) for timer in pair] for _ in range(rounds + 1)][1:]  # the first warms up
        ratios[view] = median(mine / other for mine, other in found)
    del kept
    return ratios


def fresh(code: str) -> float:
    """What a fresh interpreter prints. It may keep what it compiled, as those that users start do."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return float(done.stdout)


def import_to_numpy(rounds: int) -> float:
    """CPU time of importing all of this relative to that of NumPy: the best of each, since others only ever add."""
    timer = "import time; start = time.process_time(); {}; print(time.process_time() - start)"
    # Importing the package alone imports hardly anything; its first name imports the rest.
    imports = "from shmtensor import Tensor", "import numpy"
    found = [[fresh(timer.format(each)) for each in imports] for _ in range(rounds)]
    ours, numpy = (min(times) for times in zip(*found, strict=True))
    return float(ours / numpy)


def first_open_ms(rounds: int) -> float:
    """Milliseconds that a process needs to open and see its first tensor, once it has imported this."""
    found = []
    for _ in range(rounds):
        message = bytes(ForkingPickler.dumps(st.ones((256,)))).hex()
        code = (
            "import multiprocessing.connection, pickle, time; from shmtensor import Tensor;"
            "start = time.perf_counter();"
            f"t = pickle.loads(bytes.fromhex('{message}')); assert t.numpy()[0] == 1;"
            "print((time.perf_counter() - start) * 1e3)"
        )
        found.append(fresh(code))
    return median(found)


def bytes_per_tensor(count: int) -> dict[str, float]:
    """Bytes that one more living tensor takes, beside its elements: shared, when it was sent and opened elsewhere,
    and in Python.
    """
    with st.Pool.create() as pool:
        st.empty((1,), pool=pool)
        st.empty((1,), pool=pool).header().discard()
        gc.collect()
        tracemalloc.start()
        kept = [st.empty((16,), pool=pool) for _ in range(count)]
        own = tracemalloc.get_traced_memory()[0]
        before, path = _shared_bytes(pool), pool
        for tensor in kept:
            tensor.header()
        sent = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        shared = _shared_bytes(path) - before
        pool.discard_tickets(older_than=0)
        list_bytes = sys.getsizeof(kept)
        kept.clear()
    # The receiver's hold is a row more.
    return {"shared": shared / count + 32, "own": (own - list_bytes) / count, "sent": (sent - list_bytes) / count}


def _shared_bytes(pool: st.Pool) -> int:
    """Memory that the tables of a pool take."""
    return os.stat(pool.commons.control.path).st_blocks * 512


def hold(pipe: Connection, count: int, name: str) -> None:
    """The main of a process that holds so many tensors until it is killed. No message is under way."""
    pool = st.Pool.attach(name)
    tensors = [st.empty((16,), pool=pool) for _ in range(count)]
    assert len([tensor.header() for tensor in tensors]) == pool.discard_tickets(older_than=0)
    pipe.send(None)
    pipe.recv()


def after_deaths_ms(count: int) -> dict[str, float]:
    """Milliseconds to repair the tables after a death inside the lock, and to take back what a dead process had."""
    from allocator.core import recover

    with st.Pool.create() as pool:
        kept = [st.empty((16,), pool=pool) for _ in range(count)]
        headers = [tensor.header() for tensor in kept]
        repairs = []
        for _ in range(5):
            start = perf_counter()
            pool.commons.section(recover.rebuild, pool.commons.ledger)
            repairs.append((perf_counter() - start) * 1e3)
        assert len(headers) == pool.discard_tickets(older_than=0)
        kept.clear()
        reaps = []
        for _ in range(3):
            ours, theirs = CONTEXT.Pipe()
            process = CONTEXT.Process(target=hold, args=(theirs, count, pool.name))
            process.start()
            ours.recv()
            process.kill()
            process.join()
            start = perf_counter()
            pool.reap()
            reaps.append((perf_counter() - start) * 1e3)
            assert pool.stats().used_bytes == 0
    return {"rebuild": median(repairs), "reap": median(reaps)}
