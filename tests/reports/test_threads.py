"""Threads, collectors and feeder threads at once; who reads while others write."""

from __future__ import annotations

import gc
import pickle
import platform
from typing import TYPE_CHECKING

import pytest

import shmtensor as st
from allocator import Pool

if TYPE_CHECKING:
    from conftest import RunScript


@pytest.mark.report("R083")
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="elsewhere a flag may overtake the data")
def test_a_flag_written_after_the_data_is_read_after_it_and_a_message_too(run_script: RunScript) -> None:
    code = """
    import shmtensor as st

    ROUNDS = 100

    def read(payload, flag, inbox, outbox):
        data, flags = payload.numpy(), flag.numpy()
        for i in range(1, ROUNDS):
            while flags[0] != i:
                pass
            if data[0] != i or data[-1] != i or not (data == i).all():
                outbox.put(f"round {i}")
                return
            flags[0] = -i
        for i in range(ROUNDS):
            t = inbox.recv()
            if not (t.numpy() == i).all():
                outbox.put(f"message {i}")
                return
        outbox.put("fine")

    if __name__ == "__main__":
        payload, flag = st.zeros((8192,), dtype="int64"), st.zeros((1,), dtype="int64")
        here, there = mp.Pipe()
        outbox = mp.SimpleQueue()
        worker = mp.Process(target=read, args=(payload, flag, there, outbox))
        worker.start()
        data, flags = payload.numpy(), flag.numpy()
        for i in range(1, ROUNDS):
            data[:] = i
            flags[0] = i
            while flags[0] != -i:
                if not worker.is_alive():
                    raise SystemExit(outbox.get())
        for i in range(ROUNDS):
            here.send(st.full((1000 + i,), i))
        assert outbox.get() == "fine"
        worker.join()
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R084")
def test_a_reader_of_what_two_writers_resize_sees_one_of_their_sizes_or_that_it_is_too_short(
    run_script: RunScript,
) -> None:
    code = """
    import random
    import shmtensor as st

    SIZES = [0, 1, 4096, 100_000, 1 << 20]

    def write(t, seed, stop):
        rng, storage = random.Random(seed), t.untyped_storage()
        while not stop.is_set():
            storage.resize_(rng.choice(SIZES))

    if __name__ == "__main__":
        pool, stop = st.default_pool(), mp.Event()
        t = st.full((1 << 20,), 7, dtype="uint8")
        seen, short, whole = set(), 0, 0
        workers = [mp.Process(target=write, args=(t, seed, stop)) for seed in range(2)]
        for worker in workers:
            worker.start()
        while len(seen) < len(SIZES) or short < 50 or whole < 50:
            seen.add(t.untyped_storage().nbytes())
            try:
                assert (t.numpy() == 7).all()
                whole += 1
            except st.StorageBoundsError:
                short += 1
            assert pool.stats().used_bytes <= 1 << 20
        stop.set()
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
        assert seen == set(SIZES), seen
        pool.check()
        print("ok")
    """
    assert run_script(code, start_method="fork") == "ok\n"


class Node:
    """A garbage cycle around a tensor that was sent."""

    def __init__(self, tensor: st.Tensor) -> None:
        self.me, self.tensor = self, pickle.loads(pickle.dumps(tensor))


@pytest.mark.report("R085", "R086")
def test_collections_inside_every_operation_free_tensors_and_block_nothing(pool: Pool) -> None:
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for number in range(200):
            Node(st.full((10,), number, pool=pool))
            large = st.empty(1 << 18, pool=pool)
            Node(large)
            assert pickle.loads(pickle.dumps(large)) is not large
            pool.stats()
            del large
    finally:
        gc.set_threshold(*before)
    gc.collect()
    gc.collect()
    pool.check()
    assert pool.stats().used_bytes == 0


@pytest.mark.report("R087")
def test_what_was_put_is_shared_from_the_start_and_moves_nowhere(run_script: RunScript) -> None:
    code = """
    import numpy as np
    import shmtensor as st

    def double(queue, sums):
        for _ in range(10):
            t = queue.get()
            sums.put(np.sum(t).item())
            t *= 2
            del t
            queue.task_done()

    if __name__ == "__main__":
        base = st.arange(10_000).view(1000, 10)
        address, expected = base.data_ptr(), [np.sum(part).item() for part in base.split(100)]
        queue, sums = mp.JoinableQueue(), mp.SimpleQueue()
        worker = mp.Process(target=double, args=(queue, sums))
        worker.start()
        for part in base.split(100):
            queue.put(part)
            assert np.sum(part).item() >= 0 and base.data_ptr() == address
        queue.join()
        assert [sums.get() for _ in range(10)] == expected
        assert base.data_ptr() == address
        assert (base.numpy().ravel() == 2 * np.arange(10_000)).all()  # shared, not a copy of the moment
        worker.join()
        queue.close()
        queue.join_thread()
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R088")
def test_the_feeder_threads_of_four_queues_send_one_tensor_at_once(run_script: RunScript) -> None:
    code = """
    import shmtensor as st

    def read(inbox, outbox):
        for i in range(300):
            t = inbox.get()
            if t.shape != (50,) or not (t.numpy() == i).all():
                outbox.put(f"{i}: {t}")
                return
        outbox.put("fine")

    if __name__ == "__main__":
        pool = st.default_pool()
        queues, outbox = [mp.Queue() for _ in range(4)], mp.SimpleQueue()
        workers = [mp.Process(target=read, args=(queue, outbox)) for queue in queues]
        for worker in workers:
            worker.start()
        for i in range(300):
            t = st.full((50,), i)  # never sent before: each feeder may be the first
            for queue in queues:
                queue.put(t)
            del t
        assert [outbox.get() for _ in workers] == ["fine"] * 4
        for worker in workers:
            worker.join()
        pool.reap()
        pool.check()
        assert pool.stats().used_bytes == 0, pool.stats()
        print("ok")
    """
    assert run_script(code, start_method="fork") == "ok\n"


@pytest.mark.report("R089")
def test_threads_that_receive_and_drop_at_once_never_meet_in_the_tables(run_script: RunScript) -> None:
    code = """
    import threading
    import shmtensor as st

    def send(ends, shared):
        for i in range(400):
            for end in ends:
                end.send((i, st.full((20,), i)))
                end.send((-1, shared))

    def receive(end, failures, barrier):
        try:
            barrier.wait()
            for _ in range(800):
                value, t = end.recv()
                assert (t.numpy() == value).all(), (value, t)
                del t
        except BaseException as error:
            failures.append(repr(error))

    if __name__ == "__main__":
        pool = st.default_pool()
        pipes = [mp.Pipe(duplex=False) for _ in range(8)]
        shared = st.full((20,), -1)
        worker = mp.Process(target=send, args=([there for _, there in pipes], shared))
        failures, barrier = [], threading.Barrier(8)
        threads = [threading.Thread(target=receive, args=(here, failures, barrier)) for here, _ in pipes]
        worker.start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures[0]
        worker.join()
        del shared
        pool.reap()
        pool.check()
        assert pool.stats().used_bytes == 0, pool.stats()
        print("ok")
    """
    assert run_script(code) == "ok\n"
