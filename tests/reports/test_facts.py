"""What the library says about itself: how much there is, who holds it, and what to do when it runs out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import shmtensor as st
from allocator import OutOfSharedMemory, Pool

if TYPE_CHECKING:
    from conftest import RunScript, RunSmall


@pytest.mark.report("R121")
def test_bytes_are_counted_once_however_many_processes_map_them(run_script: RunScript) -> None:
    code = """
    import os
    import numpy as np
    import psutil
    import shmtensor as st

    SIZE = 32 << 20

    def hold(inbox, outbox, done):
        t = inbox.get()
        assert np.sum(t).item() == SIZE
        outbox.put(os.getpid())
        done.wait()

    if __name__ == "__main__":
        pool, done = st.default_pool(), mp.Event()
        inbox, outbox = mp.Queue(), mp.SimpleQueue()
        t = st.ones((SIZE,), dtype="uint8")
        workers = [mp.Process(target=hold, args=(inbox, outbox, done)) for _ in range(3)]
        for worker in workers:
            worker.start()
            inbox.put(t)
        pids = {outbox.get() for _ in workers} | {os.getpid()}
        stats = pool.stats()
        assert stats.used_bytes == SIZE <= stats.committed_bytes < SIZE + (1 << 20), stats
        holders = t.untyped_storage().holders()
        assert {(holder.kind, holder.pid) for holder in holders} == {("hold", pid) for pid in pids}, holders
        maps = [psutil.Process(pid).memory_maps() for pid in pids]
        heaps = [each for each in sum(maps, []) if each.path.endswith(f"-{pool.name}.h")]
        # As docs/reports.md says: resident counts shared pages in each process, proportional shares them out.
        assert sum(each.rss for each in heaps) >= 4 * SIZE
        assert SIZE <= sum(each.pss for each in heaps) < 1.1 * SIZE + (1 << 20)
        done.set()
        for worker in workers:
            worker.join()
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R122")
def test_every_state_of_a_tensor_can_be_seen_with_who_keeps_it(run_script: RunScript) -> None:
    code = """
    import os, signal, time
    import shmtensor as st

    def hold(name, inbox, outbox):
        pool, held = st.Pool.attach(name), []
        for _ in range(10):
            held.append(inbox.recv())
        own = [st.ones((1000,), pool=pool) for _ in range(5)]
        sent = [st.full((1000,), 2, pool=pool) for _ in range(7)]
        outbox.send(sent)
        outbox.send("holding")
        signal.pause()

    if __name__ == "__main__":
        pool = st.Pool.create(limit=64 << 20)
        here, there = mp.Pipe(), mp.Pipe(duplex=False)
        worker = mp.Process(target=hold, args=(pool.name, here[1], there[1]))
        worker.start()
        local = [st.ones((5000,), pool=pool) for _ in range(20)]
        both = [st.ones((5000,), pool=pool) for _ in range(10)]
        for t in both:
            here[0].send(t)
        messages = [st.full((9000,), i, pool=pool).header() for i in range(6)]
        sealed = st.ones((10,), pool=pool)
        sealed.untyped_storage().seal()
        data = there[0].recv_bytes()  # not opened
        assert there[0].recv() == "holding"

        started = time.monotonic()
        stats, tickets = pool.stats(), pool.tickets()
        assert stats.records == 10 + 6 + 7 + 1, stats
        assert stats.holds == 10 * 2 + 7 + 1, stats
        assert stats.tickets == len(tickets) == 6 + 7, tickets
        by_sender = {pid: [t for t in tickets if t.sender_pid == pid] for pid in (os.getpid(), worker.pid)}
        assert {t.nbytes for t in by_sender[os.getpid()]} == {72_000} and len(by_sender[os.getpid()]) == 6
        assert {t.nbytes for t in by_sender[worker.pid]} == {8_000} and len(by_sender[worker.pid]) == 7
        assert all(t.age_seconds >= 0 and t.sender_name for t in tickets)
        me = [holder.pid for holder in local[0].untyped_storage().holders()]
        two = sorted(holder.pid for holder in both[0].untyped_storage().holders())
        assert me == [os.getpid()] and two == sorted([os.getpid(), worker.pid])
        assert sealed.untyped_storage().is_sealed()
        assert time.monotonic() - started < 1

        worker.kill()
        worker.join()
        pool.reap()
        stats, tickets = pool.stats(), pool.tickets()
        assert stats.tickets_without_sender == 7 and stats.holds == 10 + 1, stats
        assert sum(t.sender_pid == 0 for t in tickets) == 7, tickets
        assert stats.orphan_spans == 1, stats  # the dead worker's, which those messages keep
        assert pool.discard_tickets(older_than=0) == 13
        assert pool.stats().orphan_spans == 0
        pool.check()
        print("ok")
    """
    assert run_script(code, start_method="fork") == "ok\n"


@pytest.mark.report("R123")
def test_reports_under_load_add_up_and_are_never_negative(run_script: RunScript) -> None:
    code = """
    import dataclasses, random, time
    import shmtensor as st

    def churn(name, seed, stop):
        rng, pool, held = random.Random(seed), st.Pool.attach(name), []
        while not stop.is_set():
            try:
                held.append(pool.allocate(rng.choice([10, 1000, 50_000, 700_000])))
                held[-1].share().discard() if rng.random() < 0.3 else None
            except st.OutOfSharedMemory:
                held.clear()
            if len(held) > 20:
                del held[::2]

    if __name__ == "__main__":
        pool, stop = st.Pool.create(limit=32 << 20), mp.Event()
        workers = [mp.Process(target=churn, args=(pool.name, seed, stop)) for seed in range(3)]
        for worker in workers:
            worker.start()
        end, seen = time.monotonic() + 1.5, set()
        while time.monotonic() < end or len(seen) < 10:
            stats = pool.stats()
            assert all(value >= 0 for value in stats), stats
            assert stats.used_bytes <= stats.committed_bytes <= stats.peak_bytes <= stats.limit_bytes, stats
            assert stats.used_bytes + stats.free_bytes <= stats.limit_bytes, stats
            assert stats.used_bytes + stats.warm_bytes <= stats.committed_bytes, stats
            seen.add(stats.used_bytes)
        stop.set()
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
        pool.reap()
        stats = pool.stats()
        assert stats.used_bytes == 0 and stats.warm_bytes == stats.committed_bytes, stats
        print("ok")
    """
    assert run_script(code, start_method="fork") == "ok\n"


@pytest.mark.report("R125")
def test_advice_on_the_limit_is_given_where_the_limit_is_in_the_way() -> None:
    with Pool.create(limit=1 << 20) as pool:
        with pytest.raises(OutOfSharedMemory, match="larger limit=") as refusal:
            pool.allocate(2 << 20)
        assert "--shm-size" not in str(refusal.value)
        assert f"pid {os.getpid()}" not in str(refusal.value)  # nobody holds anything
        with pytest.raises(OutOfSharedMemory, match=f"pid {os.getpid()}"):
            st.empty(1 << 17, pool=pool), st.empty(1 << 18, pool=pool)


@pytest.mark.report("R125")
@pytest.mark.parametrize(("size", "advised"), [("size=64m", True), ("size=96m", False)])
def test_a_larger_dev_shm_is_advised_only_where_it_is_as_small_as_containers_have_it(
    run_small: RunSmall, size: str, advised: bool
) -> None:
    code = """
    import sys
    import shmtensor as st

    pool = st.Pool.create(limit=1 << 30)
    try:
        st.empty((200 << 20,), dtype="uint8", pool=pool)
    except st.OutOfSharedMemory as error:
        assert ("--shm-size" in str(error)) == (sys.argv[1] == "True"), error
        assert "limit=" not in str(error).partition("What to do")[2], error
        print("ok")
    """
    assert run_small(code, size, advised) == "ok\n"


@pytest.mark.report("R122")
def test_a_full_dev_shm_costs_a_traced_message_its_text_and_nothing_else(run_small: RunSmall) -> None:
    run_small(
        """
import os, pickle
os.environ["SHMTENSOR_TRACE"] = "1"
import allocator
import shmtensor as st

pool = allocator.Pool.create(limit=1 << 20)
tensors = [st.full((100,), i, pool=pool) for i in range(500)]
with open("/dev/shm/filler", "wb", buffering=0) as file:
    try:
        while file.write(bytes(4096)):
            pass
    except OSError:
        pass
messages = [pickle.dumps(tensor) for tensor in tensors]
assert len(pool.tickets()) == 500
assert "" in [ticket.site for ticket in pool.tickets()]
del tensors
assert all((pickle.loads(message).numpy() == i).all() for i, message in enumerate(messages))
pool.check()
""",
        "size=2m",
    )
