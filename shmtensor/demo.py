"""A tour: `shmtensor demo`, or `python -m shmtensor.demo`. Each step says what it did and what it took."""

from __future__ import annotations

import multiprocessing as mp
import os
import pickle
import signal
import time
from typing import Any

import numpy as np

import shmtensor as st

ROWS, COLUMNS = 4096, 8192


def _answer(link: Any) -> None:
    """A process that adds one to what it gets."""
    while (tensor := link.recv()) is not None:
        tensor += 1
        link.send("done")


def _publish_and_die(pool: st.Pool) -> None:
    st.publish("last words", st.full((3,), 7.0, pool=pool))
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """The tour."""
    with st.Pool.create(limit=1 << 30) as pool:
        st.set_default_pool(pool)
        _tour(pool)
        st.set_default_pool(None)


def _tour(pool: st.Pool) -> None:
    context = mp.get_context("spawn")
    print(f"A pool, {pool.name!r}, of at most {pool.limit >> 20} MiB. Nothing of it is committed before it is used.\n")

    tensor = st.ones((ROWS, COLUMNS))
    print(
        f"1. {tensor.nbytes >> 20} MiB of float32. Pickled, to be sent: {len(pickle.dumps(tensor.readonly()))} bytes."
    )
    view = tensor[::2].t()
    print(f"   A view, every other row of it transposed: {len(pickle.dumps(view))} bytes. Nothing is copied.\n")
    pool.discard_tickets(older_than=0)

    ours, theirs = context.Pipe()
    worker = context.Process(target=_answer, args=(theirs,))
    worker.start()
    ours.send(view)
    ours.recv()
    twos, ones = (int((tensor.numpy() == value).sum()) for value in (2, 1))
    print(f"2. Another process got the view and added one: {twos:,} elements here are 2 now, {ones:,} still 1.")
    small, times = st.zeros(1), []
    for _ in range(300):
        started = time.perf_counter()
        ours.send(small)
        ours.recv()
        times.append(time.perf_counter() - started)
    print(f"   There and back, of a tensor of any size: {np.median(times) * 1e6:.0f} us.\n")
    ours.send(None)
    worker.join()

    print("3. Who holds it:", tensor.untyped_storage().holders()[0])
    try:
        st.empty(2 << 30, dtype="uint8")
    except st.OutOfSharedMemory as error:
        print(f"   Too much is an exception, before a byte is written:\n   {error}\n")

    doomed = context.Process(target=_publish_and_die, args=(pool,))
    doomed.start()
    doomed.join()
    print(f"4. A process published a tensor and was killed. Its tensor is there: {st.lookup('last words').tolist()}")
    st.unpublish("last words")
    pool.reap()
    pool.check()
    del tensor, view, small
    stats = pool.stats()
    print(
        f"   The rest of it came back. In use now: {stats.used_bytes} bytes, {stats.records} records; check() passed."
    )


if __name__ == "__main__":
    main()
