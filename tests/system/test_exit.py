"""Ends of processes, of the one that made the pool too: who is left goes on, the last one takes the names away, and the
resource tracker destroys nothing and says nothing.

What isn't asserted here is so for every test of this folder: stderr stays empty, no process outlives its parent, and
nothing is left in /dev/shm.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import RunScript

HEAD = """
import atexit, os, pickle, signal, subprocess, sys, threading, time
import allocator, shmtensor as st

def names(pool):
    return sorted(name[-1] for name in os.listdir("/dev/shm") if f"-{pool}." in name)
"""


@pytest.mark.report("R139")
@pytest.mark.parametrize(
    ("start_method", "end"),
    [("fork", "first"), ("fork", "last"), ("fork", "killed last"), ("spawn", "killed")],
)
def test_the_creator_may_end_first_last_or_by_a_kill(run_script: RunScript, start_method: str, end: str) -> None:
    code = """
    def create(link, end):
        pool = st.Pool.create(limit=64 << 20, ticket_grace=0)
        kept = st.full((1000,), 1, pool=pool)
        link.send((pool.name, [kept.header() for _ in range(2)]))
        link.recv()
        if "killed" in end:
            os.kill(os.getpid(), signal.SIGKILL)

    def use(key, header, inbox, outbox, ups):
        received = header.open()
        ups.release()
        pool = st.Pool.attach(header.pool)
        own = [st.full((size,), key, pool=pool) for size in (10, 1 << 20)]
        for _ in range(4):
            outbox.put(own)
            others = inbox.get()
            assert all((t.numpy() == 5 - key).all() for t in others)
            assert (received.numpy() == 1).all() and all((t.numpy() == key).all() for t in own)
            own = [st.full((size,), key, pool=pool) for size in (20, 3000, 1 << 20)]
        pool.check()

    if __name__ == "__main__":
        end = sys.argv[1]
        link, theirs = mp.Pipe()
        creator = mp.Process(target=create, args=(theirs, end))
        creator.start()
        name, headers = link.recv()
        queues, ups = [mp.SimpleQueue(), mp.SimpleQueue()], mp.Semaphore(0)
        users = [
            mp.Process(target=use, args=(2 + i, headers[i], queues[i], queues[1 - i], ups)) for i in range(2)
        ]

        def end_creator():
            link.send("end")
            creator.join()
            assert creator.exitcode == (-signal.SIGKILL if "killed" in end else 0)

        for user in users:
            user.start()
            ups.acquire()  # it has attached
        if "last" not in end:
            end_creator()
        for user in users:
            user.join()
            assert user.exitcode == 0
        if "last" in end:
            assert names(name) == ["c", "h", "l"]
            end_creator()
        if end == "killed last":
            allocator.sweep_leftovers()
        assert names(name) == []
        print("ok")
    """
    assert run_script(HEAD + textwrap.dedent(code), end, start_method=start_method) == "ok\n"


@pytest.mark.report("R051")
def test_of_two_that_leave_at_once_one_takes_the_names_away(run_script: RunScript) -> None:
    code = """
    def leave(name, barrier, how):
        pool = st.Pool.attach(name)
        t = st.ones((100,), pool=pool)
        barrier.wait()
        barrier.wait()
        if how:
            del t
            pool.close()

    def create(link, barrier):
        for how in (True, False) * 4:
            pool = st.Pool.create(limit=1 << 20)
            workers = [mp.Process(target=leave, args=(pool.name, barrier, how)) for _ in range(2)]
            for worker in workers:
                worker.start()
            barrier.wait()
            pool.close()  # two are left
            assert names(pool.name) == ["c", "h", "l"]
            barrier.wait()
            for worker in workers:
                worker.join()
                assert worker.exitcode == 0
            assert names(pool.name) == [], (how, names(pool.name))

    if __name__ == "__main__":
        create(None, mp.Barrier(3))
        print("ok")
    """
    assert run_script(HEAD + textwrap.dedent(code), start_method="fork") == "ok\n"


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_what_queues_buffer_and_atexit_handlers_send_at_the_end_arrives(
    run_script: RunScript, start_method: str
) -> None:
    code = """
    def produce(queue, link, pool):
        held = st.full((500,), 3, pool=st.Pool.attach(pool))

        def late():  # in a multiprocessing child: what this stands for is registered with util.Finalize
            link.send(pickle.dumps(st.full((10,), 8, pool=held.untyped_storage().block.pool)))
            assert (held.numpy() == 3).all()

        mp.util.Finalize(None, late, exitpriority=-500)
        for i in range(50):
            queue.put(st.full((1000,), i, pool=st.Pool.attach(pool)))  # its thread pickles them while this one ends

    if __name__ == "__main__":
        import multiprocessing.util
        pool = st.Pool.create(limit=64 << 20)
        queue, (here, there) = mp.Queue(), mp.Pipe()
        worker = mp.Process(target=produce, args=(queue, there, pool.name), daemon=len(sys.argv) > 1)
        worker.start()
        for i in range(50):
            assert (queue.get().numpy() == i).all(), i
        assert pickle.loads(here.recv()).tolist() == [8] * 10
        worker.join()
        assert worker.exitcode == 0
        pool.reap()
        assert pool.stats().used_bytes == 0, pool.stats()
        queue.put(st.ones((10,), pool=pool))  # starts the thread that pickles
        atexit.register(lambda: queue.put(st.ones((10,), pool=pool)))
        print("ok")
    """
    assert (
        run_script(HEAD + "import multiprocessing.util\n" + textwrap.dedent(code), start_method=start_method) == "ok\n"
    )


@pytest.mark.report("R058", "R059")
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_a_killed_group_leaves_what_a_function_sweeps(run_script: RunScript, start_method: str) -> None:
    # With the whole group the resource tracker dies, so that nothing but we could clean up.
    code = """
    def work(name, ready):
        t = st.ones((1 << 18,), pool=st.Pool.attach(name))
        ready.release()
        signal.pause()

    if __name__ == "__main__":
        if len(sys.argv) > 1:
            pool, ready = st.Pool.create(sys.argv[1], limit=64 << 20), mp.Semaphore(0)
            workers = [mp.Process(target=work, args=(pool.name, ready)) for _ in range(2)]
            for worker in workers:
                worker.start()
                ready.acquire()
            print("up", flush=True)
            signal.pause()
        name = f"g{os.getpid()}"
        group = subprocess.Popen(
            [sys.executable, __file__, name], stdout=subprocess.PIPE, start_new_session=True, text=True
        )
        assert group.stdout.readline() == "up\\n"
        assert name not in allocator.sweep_leftovers()  # it lives
        os.killpg(group.pid, signal.SIGKILL)
        group.wait()
        while names(name):  # the kernel takes a moment to end them all
            allocator.sweep_leftovers()
        print("ok")
    """
    assert run_script(HEAD + textwrap.dedent(code), start_method=start_method) == "ok\n"


def test_programs_that_are_not_related_share_a_pool_whoever_ends_first(run_script: RunScript, tmp_path: Path) -> None:
    # The standard library's tracker removes shared memory that another program still uses.
    code = """
    if sys.argv[1:2] == ["make"]:
        pool = st.Pool.create(limit=16 << 20)
        kept = st.full((1000,), 7, pool=pool)
        sys.stdout.write(pickle.dumps(kept).hex() + "\\n")
        sys.stdout.flush()
        sys.stdin.readline()
    elif sys.argv[1:2] == ["use"]:
        kept = pickle.loads(bytes.fromhex(sys.argv[2]))
        print(kept.untyped_storage().block.pool.name, flush=True)
        sys.stdin.readline()
        assert (kept.numpy() == 7).all()
        more = st.ones((1 << 18,), pool=kept.untyped_storage().block.pool)
        print(int(more.numpy().sum()), flush=True)
    else:
        def run(*args):
            return subprocess.Popen(
                [sys.executable, __file__, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        def end(program):
            program.stdin.write("end\\n")
            program.stdin.flush()
            text = program.stdout.read()
            assert program.wait() == 0
            return text
        for first in ("maker", "user"):
            maker = run("make")
            user = run("use", maker.stdout.readline().strip())
            name = user.stdout.readline().strip()
            if first == "maker":
                end(maker)
            assert names(name) == ["c", "h", "l"]
            assert end(user) == "262144\\n"
            if first == "user":
                assert names(name) == ["c", "h", "l"]
                end(maker)
            assert names(name) == []
        print("ok")
    """
    assert run_script(HEAD + textwrap.dedent(code)) == "ok\n"


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_daemonic_children_are_ended_with_their_tensors(run_script: RunScript, start_method: str) -> None:
    code = """
    def work(pool, outbox):
        kept = [st.full((1 << 18,), i, pool=st.Pool.attach(pool)) for i in range(5)]
        outbox.put(kept[0])
        while True:
            kept.append(kept.pop(0).clone())

    if __name__ == "__main__":
        pool, outbox = st.Pool.create(limit=64 << 20), mp.SimpleQueue()
        workers = [mp.Process(target=work, args=(pool.name, outbox), daemon=True) for _ in range(2)]
        for worker in workers:
            worker.start()
        received = [outbox.get() for _ in workers]
        workers[0].terminate()
        workers[0].join()
        pool.reap()
        pool.check()
        assert all((t.numpy() == 0).all() for t in received)
        print("ok")  # and the other one is terminated by multiprocessing at the end
    """
    assert run_script(HEAD + textwrap.dedent(code), start_method=start_method) == "ok\n"
