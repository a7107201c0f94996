"""How long memory lives: as long as a process or a message holds it, and no longer."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import sys
from collections.abc import Iterator
from multiprocessing import shared_memory
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import allocator
import shmtensor as st
from allocator import Pool, making

if TYPE_CHECKING:
    from conftest import RunCommand, RunScript


# ---- messages


@pytest.mark.report("R025", "R029")
def test_a_queue_is_drained_after_its_senders_closed_it_and_ended(run_script: RunScript, start_method: str) -> None:
    code = """
    import shmtensor as st

    def put(queue, rank):
        for i in range(2):
            queue.put(st.full((5, 5), 10 * rank + i, dtype="float32"))
        queue.close()
        queue.join_thread()

    if __name__ == "__main__":
        pool = st.default_pool()
        queue = mp.Queue()
        workers = [mp.Process(target=put, args=(queue, rank)) for rank in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
        pool.reap()
        values = set()
        for _ in range(8):
            t = queue.get()
            assert t.shape == (5, 5) and (t.numpy() == t[0, 0].item()).all()
            values.add(int(t[0, 0].item()))
        assert values == {10 * rank + i for rank in range(4) for i in range(2)}
        del t
        assert pool.stats().used_bytes == 0, pool.stats()
        pool.check()
        print("ok")
    """
    assert run_script(code, start_method=start_method) == "ok\n"


@pytest.mark.report("R027")
@pytest.mark.parametrize("end", ["exit", "kill"])
def test_a_message_keeps_its_memory_while_no_process_has_it(run_script: RunScript, end: str) -> None:
    code = """
    import os, pickle, signal, sys
    import shmtensor as st

    def make(connection, end):
        t = st.full((1000,), 7)
        connection.send_bytes(pickle.dumps(t))
        del t
        if end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)

    def take(connection):
        t = pickle.loads(connection.recv_bytes())
        assert (t.numpy() == 7).all()

    if __name__ == "__main__":
        here, there = mp.Pipe(duplex=False)
        maker = mp.Process(target=make, args=(there, sys.argv[1]))
        maker.start()
        maker.join()
        taker = mp.Process(target=take, args=(here,))  # this process never opens it, nor any pool
        taker.start()
        taker.join()
        assert taker.exitcode == 0
        assert not [name for name in sys.modules if name == "allocator.core.ledger"] or not st.storage.attached
        print("ok")
    """
    assert run_script(code, end) == "ok\n"


@pytest.mark.report("R028")
def test_one_thread_receives_what_short_lived_workers_sent_round_after_round(run_script: RunScript) -> None:
    code = """
    import threading
    import shmtensor as st

    def send(queue, rank):
        for i in range(5):
            queue.put((100 * rank + i, st.full((300,), 100 * rank + i, dtype="int32")))

    def receive(queue, outcome, count):
        try:
            for _ in range(count):
                value, t = queue.get()
                assert (t.numpy() == value).all(), value
            outcome.append("fine")
        except BaseException as error:
            outcome.append(repr(error))

    if __name__ == "__main__":
        pool = st.default_pool()
        for _ in range(6):
            queue, outcome = mp.Queue(), []
            workers = [mp.Process(target=send, args=(queue, rank)) for rank in range(4)]
            for worker in workers:
                worker.start()
            for worker in workers[:2]:
                worker.join()  # half of them end before anything was opened
            thread = threading.Thread(target=receive, args=(queue, outcome, 20))
            thread.start()
            thread.join()
            for worker in workers:
                worker.join()
            assert outcome == ["fine"], outcome
        pool.reap()
        assert pool.stats().used_bytes == 0, pool.stats()
        print("ok")
    """
    assert run_script(code, start_method="fork") == "ok\n"


@pytest.mark.report("R030")
def test_messages_that_are_lost_opened_once_and_opened_twice_each_have_their_rule(run_script: RunScript) -> None:
    code = """
    import pickle
    import numpy as np
    import shmtensor as st

    def open_twice(messages, outbox):
        for _ in range(2):
            opened = [pickle.loads(message) for message in messages]
            assert all((t.numpy() == 3).all() for t in opened)
        outbox.put("opened")

    if __name__ == "__main__":
        pool = st.default_pool()
        t = st.full((1000,), 3)
        messages = [pickle.dumps(t) for _ in range(100)]
        outbox = mp.Queue()
        for _ in range(2):
            worker = mp.Process(target=open_twice, args=(messages[75:], outbox))
            worker.start()
            assert outbox.get() == "opened"
            worker.join()
        once = [pickle.loads(message) for message in messages[50:75]]
        pool.reap()
        assert pool.stats().tickets == 50, pool.stats()  # those thrown away, and only those
        assert all(ticket.nbytes == t.nbytes for ticket in pool.tickets())
        del once, t
        assert np.sum(pickle.loads(messages[0])).item() == 3000  # a thrown away message still keeps the memory
        assert pool.discard_tickets(older_than=0) == 49
        pool.stats()  # collects what nobody has any more
        for message in messages:
            try:
                pickle.loads(message)
            except st.StaleHandle:
                continue
            raise AssertionError("it is gone")
        stats = pool.stats()
        assert (stats.used_bytes, stats.tickets, stats.records) == (0, 0, 0), stats
        pool.check()
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R031")
def test_a_hundred_thousand_pickles_for_logs_are_listed_and_end_at_once(pool: Pool) -> None:
    tensor = st.full((1000,), 3, pool=pool)
    before = pool.stats()
    for _ in range(1000):
        copy.copy(tensor)
        hash(tensor)
        repr(tensor)
    copy.deepcopy(tensor)
    assert pool.stats().tickets == 0
    for _ in range(100_000):
        pickle.dumps(tensor)
    assert pool.stats().tickets == 100_000
    assert pool.stats().committed_bytes == before.committed_bytes
    assert pool.discard_tickets(older_than=0) == 100_000
    assert pool.stats().tickets == 0
    again = pickle.loads(pickle.dumps(tensor))
    assert again.is_set_to(tensor)
    del tensor, again
    assert pool.stats().used_bytes == 0


@pytest.mark.report("R051")
def test_ending_things_twice_and_from_two_processes_ends_them_once(run_script: RunScript) -> None:
    code = """
    import shmtensor as st

    def end(handle, outbox):
        outbox.put(handle.discard())
        outbox.put(handle.discard())

    if __name__ == "__main__":
        pool, outbox = st.Pool.create(limit=1 << 20), mp.SimpleQueue()
        block = pool.allocate(100)
        handle, other = block.share(), block.share()
        worker = mp.Process(target=end, args=(handle, outbox))
        worker.start()
        assert (outbox.get(), outbox.get()) == (True, False)
        worker.join()
        assert not handle.discard()
        pool.reap()
        assert pool.stats().tickets == 1
        block.release()
        block.release()
        del block
        assert other.discard() and not other.discard()
        assert pool.stats().used_bytes == 0
        pool.check()
        pool.close()
        pool.close()
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R032")
def test_a_pickle_travels_by_file_and_socket_between_processes_that_are_not_related(
    run_command: RunCommand, tmp_path: Any
) -> None:
    # The launcher knows nothing of tensors; both sides pickle with plain `pickle`.
    (tmp_path / "sender.py").write_text(
        """
import pickle, socket, sys
import shmtensor as st

t = st.full((1000,), 5)
with open("message", "wb") as file:
    file.write(pickle.dumps(t[10:]))
print("written", flush=True)
here = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
here.sendall(pickle.dumps(t[:10]))
here.shutdown(socket.SHUT_WR)
assert here.recv(10) == b"received"
assert (t.numpy() == 6).all()
"""
    )
    (tmp_path / "receiver.py").write_text(
        """
import pickle, socket, sys

server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
other, _ = server.accept()
data = b"".join(iter(lambda: other.recv(4096), b""))
for t in (pickle.loads(data), pickle.loads(open("message", "rb").read())):
    assert (t.numpy() == 5).all()
    t += 1
other.sendall(b"received")
"""
    )
    (tmp_path / "launcher.py").write_text(
        """
import subprocess, sys

receiver = subprocess.Popen([sys.executable, "receiver.py"], stdout=subprocess.PIPE, text=True)
port = receiver.stdout.readline().strip()
sender = subprocess.Popen([sys.executable, "sender.py", port], stdout=subprocess.PIPE, text=True)
assert sender.stdout.readline() == "written\\n"
assert (receiver.wait(), sender.wait()) == (0, 0)
receiver.stdout.close(), sender.stdout.close()
print("ok")
"""
    )
    assert run_command([sys.executable, "launcher.py"], cwd=tmp_path, timeout=60) == "ok\n"


# ---- arrays and with blocks


@pytest.mark.report("R042", "R043")
def test_an_array_is_all_one_needs_to_keep(pool: Pool) -> None:
    def attach(message: bytes) -> np.ndarray[Any, Any]:
        tensor = pickle.loads(message)
        return tensor.numpy()[2:]  # type: ignore[no-any-return]

    array = attach(pickle.dumps(st.full((1000,), 7, pool=pool)))
    gc.collect()
    x: Any = pool.allocate(8000)
    x = np.frombuffer(x.memoryview(), np.int64)
    x[:] = 5
    y: Any = st.full((1000,), 6, pool=pool)
    y = y.numpy()
    gc.collect()
    others = [st.full((1000,), 1, pool=pool) for _ in range(50)]
    assert (array == 7).all()
    assert (x == 5).all()
    assert (y == 6).all()
    del others, array, x, y


@pytest.mark.report("R042", "R044")
def test_an_array_outlives_the_pool_that_was_closed_around_it(run_script: RunScript) -> None:
    code = """
    import numpy as np
    import shmtensor as st

    with st.Pool.create(limit=1 << 20) as pool:
        t = st.arange(100, pool=pool)
        keep, view = t.numpy()[2:5], t.memoryview()
        del t
    assert keep.tolist() == [2, 3, 4]
    keep[0] = 9
    assert view[2] == 9
    try:
        st.ones((1,), pool=pool)
    except st.PoolClosed:
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R044")
def test_a_with_block_over_a_storage_that_is_looked_at_leaves_it_as_it_is(pool: Pool) -> None:
    with st.Storage(100, pool=pool) as storage:
        storage.fill_(3)
        keep = storage[:].numpy()[2:5]
    assert keep.tolist() == [3, 3, 3]
    keep[0] = 4
    assert storage[2] == 4
    del keep
    with storage:
        pass
    assert storage.nbytes() == 0


@pytest.mark.report("R041")
def test_the_error_inside_a_with_block_is_the_one_that_comes_out() -> None:
    views, pools = [], []

    def fail() -> None:
        with Pool.create(limit=1 << 20) as pool:
            tensor = st.ones(100, pool=pool)
            views.append(tensor.numpy())
            pools.append(pool)
            with tensor.untyped_storage(), tensor.header():
                raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as raised:
        fail()
    assert raised.value.__context__ is None
    assert views[0].sum() == 100
    assert pools[0].closed


@pytest.mark.report("R045")
def test_every_kind_of_view_is_over_when_it_is_dropped_without_the_collector() -> None:
    def address(tensor: st.Tensor) -> Any:
        interface = tensor.__array_interface__
        return interface, interface["data"]

    looks: list[Any] = [
        lambda t: t.numpy()[3:],
        lambda t: t.memoryview()[5:],
        address,
        lambda t: np.from_dlpack(t),
        lambda t: t.untyped_storage()[:8],
        lambda t: t.untyped_storage().memoryview(),
    ]
    gc.collect()
    gc.disable()
    try:
        for look in looks:
            pool = Pool.create(limit=1 << 20)
            tensor = st.ones(1000, dtype="int64", pool=pool)
            view = look(tensor)
            del tensor
            assert pool.stats().used_bytes > 0, look
            del view
            assert pool.stats().used_bytes == 0, look
            pool.close()
            assert pool.is_lost, look
    finally:
        gc.enable()


@pytest.mark.report("R049")
def test_two_objects_for_one_storage_in_its_own_process_are_one_hold(pool: Pool) -> None:
    first = st.full((1000,), 4, pool=pool)
    second = pickle.loads(pickle.dumps(first))
    del first
    st.full((1000,), 1, pool=pool)
    assert (second.numpy() == 4).all()
    assert pool.stats().holds == 1
    del second
    assert pool.stats().used_bytes == 0


# ---- loops and long-lived workers


@pytest.mark.report("R050")
def test_a_worker_pool_that_lives_on_keeps_nothing_of_a_call_that_is_over(run_script: RunScript) -> None:
    code = """
    import time
    import shmtensor as st

    def cut(t, rank):
        return t[rank::4]

    if __name__ == "__main__":
        pool = st.default_pool()
        with mp.Pool(2) as workers:
            for value in range(10):
                t = st.full((1 << 18,), value, dtype="int32")
                results = workers.starmap(cut, [(t, rank) for rank in range(4)])
                assert all(r.untyped_storage() is t.untyped_storage() for r in results)
                del t
                assert all((r.numpy() == value).all() for r in results)
                part = results.pop()
                del results
                assert pool.stats().used_bytes == 1 << 20, pool.stats()  # its own storage, and no other
                del part
                deadline = time.monotonic() + 20  # a worker lets go of its task after the result is on its way
                while pool.stats().used_bytes and time.monotonic() < deadline:
                    time.sleep(0.001)
                assert pool.stats().used_bytes == 0, pool.stats()
            workers.close()
            workers.join()
        pool.check()
        print("ok")
    """
    assert run_script(code, start_method="fork") == "ok\n"


@pytest.mark.report("R052")
def test_a_loop_that_rebinds_its_names_never_needs_more_than_two_rounds(run_script: RunScript) -> None:
    code = """
    import shmtensor as st

    def answer(inbox, outbox):
        while (a := inbox.get()) is not None:
            b = a + 1
            del a
            outbox.put(b)
            del b

    if __name__ == "__main__":
        size = 1 << 20
        pool = st.Pool.create(limit=4 * size)  # two rounds of two tensors; not a page more
        inbox, outbox = mp.SimpleQueue(), mp.SimpleQueue()
        worker = mp.Process(target=answer, args=(inbox, outbox))
        worker.start()
        for i in range(200):
            a = st.full((size,), i % 100, dtype="uint8", pool=pool, timeout=10)
            inbox.put(a)
            b = outbox.get()
            assert b[0].item() == i % 100 + 1
        assert pool.stats().peak_bytes <= 4 * size
        inbox.put(None)
        worker.join()
        print("ok")
    """
    assert run_script(code, start_method="fork") == "ok\n"


@pytest.mark.report("R053")
def test_what_idle_workers_once_used_is_seen_and_goes_back_to_the_machine(run_script: RunScript) -> None:
    code = """
    import os
    import shmtensor as st

    def work(name, orders, answers):
        pool = st.Pool.attach(name)
        for _ in range(2):
            orders.get()
            tensors = [st.ones((1 << 20,), dtype="uint8", pool=pool) for _ in range(32)]
            tensors += [st.ones((1000,), pool=pool) for _ in range(100)]
            del tensors
            answers.put("idle")
        orders.get()

    if __name__ == "__main__":
        pool = st.Pool.create(limit=64 << 20)
        heap = next(f"/dev/shm/{name}" for name in os.listdir("/dev/shm") if f"-{pool.name}.h" in name)
        orders, answers = mp.SimpleQueue(), mp.SimpleQueue()
        worker = mp.Process(target=work, args=(pool.name, orders, answers))
        worker.start()
        for _ in range(2):
            orders.put("work")
            assert answers.get() == "idle"
            stats = pool.stats()
            assert stats.used_bytes == 0 and stats.warm_bytes >= 32 << 20, stats
            assert os.stat(heap).st_blocks * 512 >= 32 << 20
            assert pool.purge() >= 32 << 20
            assert pool.stats().warm_bytes < 1 << 20
            assert os.stat(heap).st_blocks * 512 < 1 << 20  # of one empty span per size that the worker keeps
        orders.put("end")
        worker.join()
        print("ok")
    """
    assert run_script(code, start_method="fork") == "ok\n"


@pytest.mark.report("R057", "R146")
def test_a_chain_of_processes_hands_a_tensor_on_and_nothing_stays(run_script: RunScript, start_method: str) -> None:
    code = """
    import os, signal
    import shmtensor as st

    def hand_on(inbox, outbox):
        outbox.send(inbox.recv())  # and drops it, and ends

    def hold(inbox, answers):
        t = inbox.recv()
        answers.put(t[0].item())
        signal.pause()

    if __name__ == "__main__":
        pool = st.default_pool()
        first, second = mp.Pipe(duplex=False), mp.Pipe(duplex=False)
        answers = mp.SimpleQueue()
        b = mp.Process(target=hand_on, args=(first[0], second[1]))
        b.start()
        c = mp.Process(target=hold, args=(second[0], answers))
        c.start()
        t = st.full((1000,), 8, dtype="int32")
        first[1].send(t)
        b.join()
        assert answers.get() == 8
        own, c_pid = t.untyped_storage().holders(), c.pid
        assert sorted(holder.pid for holder in own if holder.kind == "hold") == sorted([os.getpid(), c_pid]), own
        del t
        assert pool.stats().used_bytes > 0  # c has it
        c.kill()
        c.join()
        pool.reap()
        assert pool.stats().used_bytes == 0, pool.stats()
        pool.check()
        print("ok")
    """
    assert run_script(code, start_method=start_method) == "ok\n"


@pytest.mark.report("R140")
def test_what_a_consumer_holds_is_not_used_again_though_the_producer_dropped_it(run_script: RunScript) -> None:
    code = """
    import shmtensor as st

    def produce(name, outbox, credit):
        pool = st.Pool.attach(name)
        for i in range(300):
            credit.acquire()
            outbox.put((i, st.full((1 + 997 * (i % 5),), i, dtype="int32", pool=pool)))

    if __name__ == "__main__":
        pool = st.Pool.create(limit=2 << 20)
        inbox, credit = mp.SimpleQueue(), mp.Semaphore(4)
        worker = mp.Process(target=produce, args=(pool.name, inbox, credit))
        worker.start()
        held = []
        for _ in range(300):
            held.append(inbox.get())
            credit.release()
            for value, t in held:
                assert t.shape == (1 + 997 * (value % 5),) and (t.numpy() == value).all(), value
            del held[:-2], t
        worker.join()
        print("ok")
    """
    assert run_script(code, start_method="fork") == "ok\n"


# ---- exit


EXIT = """
import gc, pickle
import shmtensor as st

class Keeper:
    held = [st.ones((100,)), st.ones((1 << 20,))]

class Cycle:
    def __init__(self, tensor):
        self.me, self.tensor = self, tensor
        self.array = tensor.numpy()

module_level = st.ones((100,)), st.ones((1 << 20,))
pickle.dumps(module_level[0])
received = pickle.loads(pickle.dumps(st.ones((10,))))
cycles = [Cycle(st.ones((size,))) for size in (100, 1 << 20)]
pickle.dumps(cycles[0].tensor)
lost = [Cycle(st.ones((size,))) for size in (100, 1 << 20)]
gc.disable()
del lost
"""


@pytest.mark.report("R038")
def test_a_program_may_end_with_tensors_everywhere(run_script: RunScript) -> None:
    # `run_script` asserts an empty stderr, this folder's watch that nothing is left.
    assert run_script(EXIT + "print('ok')") == "ok\n"


@pytest.mark.report("R038")
def test_what_a_process_had_at_its_end_comes_back(run_script: RunScript, start_method: str) -> None:
    code = """
    import os
    import shmtensor as st

    def end():
        import gc, pickle, sys
        sys.modules["__main__"].module_level = st.ones((100,)), st.ones((1 << 20,))
        gc.disable()
        cycle = [st.ones((10,))]
        cycle.append(cycle)
        st.Tensor.__doc__, sys.modules[__name__].more = "", pickle.loads(pickle.dumps(st.ones((10,))))

    if __name__ == "__main__":
        pool = st.default_pool()
        worker = mp.Process(target=end)
        worker.start()
        worker.join()
        assert worker.exitcode == 0
        pool.reap()
        assert pool.stats().used_bytes == 0, pool.stats()
        pool.check()
        print("ok")
    """
    assert run_script(code, start_method=start_method) == "ok\n"


@pytest.mark.report("R079")
def test_files_that_somebody_deleted_are_missed_by_nobody(run_script: RunScript) -> None:
    code = """
    import os, pickle
    import shmtensor as st

    pool = st.Pool.create(limit=64 << 20)
    kept = [st.full((size,), 2, pool=pool) for size in (10, 1 << 20)]
    received = pickle.loads(pickle.dumps(kept[0]))
    for name in os.listdir("/dev/shm"):
        if f"-{pool.name}." in name:
            os.unlink(f"/dev/shm/{name}")
    kept.append(st.full((1 << 20,), 2, pool=pool))
    assert all((t.numpy() == 2).all() for t in kept)
    del kept, received
    assert pool.stats().used_bytes == 0
    pool.purge()
    pool.check()
    pool.close()
    last = st.Pool.create(limit=1 << 20)
    for name in os.listdir("/dev/shm"):
        if f"-{last.name}." in name:
            os.unlink(f"/dev/shm/{name}")
    at_exit = st.ones((10,), pool=last)
    print("ok")
    """
    assert run_script(code) == "ok\n"


# ---- failures half-way

STEPS = [
    (making, "open_lock_file"),
    (making.memory, "largest_mappable"),
    (making.memory, "create_segment"),
    (shared_memory, "SharedMemory"),
    (making.memory, "Segment"),
    (making, "Commons"),
    (making, "_commit_tables"),
    (making, "_join"),
    (making, "_claim"),
    (allocator.pool, "Supply"),
    (allocator.pool, "LocalHeap"),
    (allocator.pool, "Exchange"),
]


class Injected(OSError):
    """What went wrong first."""


@pytest.fixture
def no_new_names() -> Iterator[None]:
    before = {name for name in os.listdir("/dev/shm") if "-halfway." in name}
    yield
    assert {name for name in os.listdir("/dev/shm") if "-halfway." in name} == before


@pytest.mark.report("R040")
@pytest.mark.parametrize(("place", "name"), STEPS, ids=[name for _, name in STEPS])
@pytest.mark.parametrize("call", [1, 2])
def test_making_a_pool_that_fails_at_any_step_raises_that_failure_and_leaves_nothing(
    place: Any, name: str, call: int, monkeypatch: pytest.MonkeyPatch, no_new_names: None
) -> None:
    real, calls = getattr(place, name), 0

    def fail(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise Injected(5, "injected")
        return real(*args, **kwargs)

    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(place, name, fail)
    try:
        Pool.create("halfway", limit=1 << 20).close()
    except Injected:
        assert calls == call
    else:
        assert calls < call, "the failure was swallowed"
    monkeypatch.undo()
    gc.collect()  # pytest makes what the collector finds in __del__ an error
    assert len(os.listdir("/proc/self/fd")) == descriptors
    with Pool.create("halfway", limit=1 << 20) as pool:
        pool.check()


@pytest.mark.report("R040")
def test_a_tensor_that_could_not_be_made_says_why_and_its_destructor_says_nothing(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (allocator.Block, st.Storage, st.Tensor):
        del [kind.__new__(kind)][0]

    def fail(*args: Any) -> Any:
        raise Injected(5, "injected")

    for place, name in ((type(pool.supply), "try_span"), (type(pool.supply), "_take"), (type(pool.commons), "section")):
        monkeypatch.setattr(place, name, fail)
        with pytest.raises(Injected):
            st.ones(1 << 20, pool=pool)
        monkeypatch.undo()
        gc.collect()
        pool.check()
        assert pool.stats().used_bytes == 0, name


@pytest.mark.report("R048")
def test_a_name_means_the_pool_that_lives_and_nothing_once_it_is_gone(run_script: RunScript) -> None:
    code = """
    import pickle
    import shmtensor as st

    def hold(inbox, outbox):
        pool = st.Pool.attach("mine")
        t = pickle.loads(inbox.get())
        outbox.put("holding")
        inbox.get()
        outbox.put(t.tolist())

    if __name__ == "__main__":
        inbox, outbox = mp.SimpleQueue(), mp.SimpleQueue()
        pool = st.Pool.create("mine", limit=1 << 20)
        t = st.ones((3,), pool=pool)
        late = pickle.dumps(t)
        worker = mp.Process(target=hold, args=(inbox, outbox))
        worker.start()
        inbox.put(pickle.dumps(t))
        assert outbox.get() == "holding"
        del t
        pool.close()
        try:
            st.Pool.create("mine", limit=1 << 20)
        except st.PoolExists:
            pass
        else:
            raise AssertionError("two pools of one name")
        assert pickle.loads(late).tolist() == [1.0] * 3  # attaches to the pool that lives on
        inbox.put("end")
        assert outbox.get() == [1.0] * 3
        worker.join()
        st.Pool.attach("mine").close()
        for use in (lambda: st.Pool.attach("mine"), lambda: pickle.loads(late)):
            try:
                use()
            except (st.PoolNotFound, st.StaleHandle):
                continue
            raise AssertionError("it is gone")
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R039")
def test_tensors_dropped_after_the_modules_were_emptied_say_nothing(run_command: RunCommand, tmp_path: Any) -> None:
    # What registers first runs last: after the exit hook, as what the interpreter itself drops.
    (tmp_path / "late.py").write_text(
        """
import atexit, sys

def empty_modules():
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("allocator", "shmtensor"):
            for key in list(vars(module)):
                if not key.startswith("__"):
                    vars(module)[key] = None
    held.clear()
    print("dropped")

atexit.register(empty_modules)
import gc, pickle
import shmtensor as st

pool = st.Pool.create(limit=64 << 20)
held = [st.ones((10,), pool=pool), st.ones((1 << 20,), pool=pool), st.ones((10,), pool=pool)]
pickle.dumps(held[2])
held.append(pickle.loads(pickle.dumps(st.ones((10,), pool=pool))))
held.append(held[0].numpy())
gc.disable()
"""
    )
    assert run_command([sys.executable, "late.py"], cwd=tmp_path, timeout=60) == "dropped\n"
