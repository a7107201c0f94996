"""Processes that are killed, stopped or never come up, and what the next one finds."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import allocator
from allocator import Pool
from allocator.system import host
from allocator.system.host import segment_name

if TYPE_CHECKING:
    from conftest import RunScript, RunSmall

SHARED_MEMORY = Path("/dev/shm")


def files_of(pool_name: str) -> list[Path]:
    """The pool's heap, control segment and lock file, there or not."""
    return [SHARED_MEMORY / segment_name(host.boot_id(), pool_name, kind) for kind in "hcsl"]


# ---- leftovers

DOOMED = """
import multiprocessing as mp
import os, signal, sys
import shmtensor as st

def work(pool_name):
    pool = st.Pool.attach(pool_name)
    held = [st.ones((1000,), pool=pool) for _ in range(10)]
    ready.set()
    signal.pause()

if __name__ == "__main__":
    mp.set_start_method("fork")
    ready = mp.Event()
    pool = st.Pool.create(sys.argv[1], limit=40 << 20)
    kept = st.ones((5 << 20,), pool=pool)
    assert pool.stats().clients == 1
    worker = mp.Process(target=work, args=(pool.name,))
    worker.start()
    ready.wait()
    os.killpg(0, signal.SIGKILL)  # trackers and all
"""


# Leftovers are looked at under a /dev/shm of one's own: any program that makes a pool sweeps them.


@pytest.mark.report("R058", "R059")
def test_programs_killed_with_all_of_their_processes_fill_nothing_whatever_the_next_pool_is_called(
    run_small: RunSmall, tmp_path: Path
) -> None:
    (tmp_path / "doomed.py").write_text(DOOMED)
    code = """
    import os, subprocess, sys
    import shmtensor as st

    def names():
        return sorted(name for name in os.listdir("/dev/shm") if not name.startswith("sem."))

    with open("/dev/shm/shmtensor-foreign", "w") as file:
        file.write("not ours")
    for name in ("fixed", "fixed", "fixed", "fresh1", "fresh2"):
        done = subprocess.run([sys.executable, "doomed.py", name], start_new_session=True)
        assert done.returncode == -9, done
        assert len(names()) == 4 and all(f"-{name}." in each for each in names()[:3]), names()
        used = os.statvfs("/dev/shm")
        assert (used.f_blocks - used.f_bfree) * used.f_frsize < 24 << 20  # of one of them, 20 MiB and tables
    with st.Pool.create("fixed", limit=40 << 20) as pool:
        assert len(names()) == 4 and pool.stats().used_bytes == 0
    assert names() == ["shmtensor-foreign"]
    print("ok")
    """
    assert run_small(code, "size=64m") == "ok\n"


@pytest.mark.report("R059")
def test_after_many_kills_a_run_gets_most_of_a_small_dev_shm(run_small: RunSmall) -> None:
    code = """
    import os, random, signal, time
    import shmtensor as st

    def run(ready):
        os.setsid()
        pool = st.Pool.create(limit=50 << 20)
        ready.set()
        while True:
            kept = [st.ones((1 << 17,), pool=pool) for _ in range(40)]

    if __name__ == "__main__":
        for seed in range(10):
            ready = mp.Event()
            worker = mp.Process(target=run, args=(ready,))
            worker.start()
            ready.wait()
            worker.join(random.Random(seed).random() / 50)
            os.killpg(worker.pid, signal.SIGKILL)
            worker.join()
        pool = st.Pool.create(limit=64 << 20)
        most = st.ones((51 << 20,), dtype="uint8", pool=pool)
        assert len([name for name in os.listdir("/dev/shm") if name.startswith("shmt")]) == 3
        print("ok")
    """
    assert run_small(code, "size=64m") == "ok\n"


@pytest.mark.report("R060")
@pytest.mark.parametrize("end", ["kill", "interrupt", "error"])
def test_a_program_that_ended_badly_starts_again_at_once(run_script: RunScript, end: str) -> None:
    code = """
    import os, signal, sys
    import shmtensor as st

    pool = st.Pool.create("again", limit=64 << 20)
    assert pool.stats().used_bytes == 0
    kept = st.ones((100,), pool=pool)
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "interrupt":
        sys.unraisablehook = lambda _: None  # Python can only print an interrupt that hits a destructor: try again
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.5)
        try:
            while True:
                held = [st.empty((1 << 18,), pool=pool) for _ in range(30)]
                held += [st.empty((100,), pool=pool) for _ in range(300)]
        except KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)
            sys.exit(3)
    if sys.argv[1] == "error":
        import atexit
        atexit.register(os._exit, 3)
    """
    for _ in range(2):
        run_script(code, end, start_method="fork", returncode=-9 if end == "kill" else 3)
    allocator.sweep_leftovers()


@pytest.mark.report("R060")
def test_a_second_instance_of_what_lives_is_refused_or_joins(run_script: RunScript) -> None:
    code = """
    import shmtensor as st

    def second(outbox):
        try:
            st.Pool.create("instance", limit=1 << 20)
        except st.PoolExists as error:
            outbox.put(str(error))
        outbox.put(st.Pool.attach("instance").stats().clients)

    if __name__ == "__main__":
        pool, outbox = st.Pool.create("instance", limit=1 << 20), mp.SimpleQueue()
        worker = mp.Process(target=second, args=(outbox,))
        worker.start()
        assert "attach to it" in outbox.get()
        assert outbox.get() == 2
        worker.join()
        print("ok")
    """
    assert run_script(code) == "ok\n"


LEAVE_SIX = """
import os, signal
import shmtensor as st

pools = [st.Pool.create(f"partial{i}", limit=1 << 20) for i in range(6)]
for pool in pools:
    st.ones((10,), pool=pool).untyped_storage().seal()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.report("R061", "R128")
def test_leftovers_of_which_parts_are_gone_are_swept_by_all_who_start_at_once_and_only_by_their_user(
    run_small: RunSmall, tmp_path: Path
) -> None:
    (tmp_path / "leave.py").write_text(LEAVE_SIX)
    code = """
    import os, subprocess, sys
    import allocator, shmtensor as st

    def names():
        return sorted(name for name in os.listdir("/dev/shm") if name.startswith("shmt"))

    def start(rank, barrier, outbox):
        barrier.wait()
        allocator.sweep_leftovers()
        pool = st.Pool.create(f"partial{rank}", limit=1 << 20)
        outbox.put(pool.stats().used_bytes)
        barrier.wait()

    if __name__ == "__main__":
        assert subprocess.run([sys.executable, "leave.py"]).returncode == -9
        assert len(names()) == 18
        mine, os.geteuid = os.geteuid, lambda: 12345
        assert allocator.sweep_leftovers() == [] and len(names()) == 18
        os.geteuid = mine
        for name in names():
            if name[-11:] in ("-partial1.h", "-partial2.c", "-partial3.h", "-partial3.c"):
                os.unlink(f"/dev/shm/{name}")
        barrier, outbox = mp.Barrier(4), mp.SimpleQueue()
        workers = [mp.Process(target=start, args=(rank, barrier, outbox)) for rank in range(4)]
        for worker in workers:
            worker.start()
        assert [outbox.get() for _ in workers] == [0] * 4
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
        assert names() == []
        print("ok")
    """
    assert run_small(code, "size=64m") == "ok\n"


@pytest.mark.report("R064")
@pytest.mark.parametrize("kinds", ["l", "cl", "hcl"])
@pytest.mark.parametrize("control_bytes", [4096, 1 << 30])
def test_a_pool_whose_maker_died_before_it_was_done_can_be_neither_attached_to_nor_in_the_way(
    kinds: str, control_bytes: int
) -> None:
    for path in files_of("unborn"):
        if path.suffix[1] in kinds:
            path.touch(0o600)
            if path.suffix != ".l":
                os.truncate(path, control_bytes)
    with pytest.raises((allocator.PoolNotFound, allocator.CorruptPool)):
        Pool.attach("unborn")
    with Pool.create("unborn", limit=1 << 20) as pool:
        pool.allocate(100)
        pool.check()


# ---- who lives


CLIENT = """
import os, pickle, signal, sys
import shmtensor as st

t = pickle.loads(bytes.fromhex(sys.argv[1]))
assert (t.numpy() == 4).all() and t.is_readonly()
own = st.ones((1000,), pool=st.Pool.attach(sys.argv[2]))
if sys.argv[3] == "die":
    os.killpg(0, signal.SIGKILL)
"""


@pytest.mark.report("R034")
def test_a_client_that_is_killed_and_replaced_takes_nothing_of_the_pool_along(
    run_script: RunScript, tmp_path: Path
) -> None:
    (tmp_path / "client.py").write_text(CLIENT)
    code = """
    import pickle, signal, subprocess, sys
    import shmtensor as st

    pool = st.Pool.create(limit=8 << 20)
    t = st.full((1000,), 4, pool=pool)
    message = pickle.dumps(t.readonly()).hex()
    for end in ("die", "leave", "die", "leave"):
        done = subprocess.run([sys.executable, "client.py", message, pool.name, end], start_new_session=True)
        assert done.returncode == (-signal.SIGKILL if end == "die" else 0), done
        pool.reap()
        pool.check()
        assert (t.numpy() == 4).all()
        assert pool.stats().clients == 1
        assert pool.stats().used_bytes == 8192, pool.stats()
    print("ok")
    """
    assert run_script(code) == "ok\n"


PID_NAMESPACE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]


def can_have_pids_of_its_own() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*PID_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


MEMBER = """
import os, sys
import shmtensor as st

assert os.getpid() < 10, os.getpid()  # as in a container
pool = st.Pool.attach(sys.argv[1])
t = st.full((1000,), 6, pool=pool)
print("holding", flush=True)
sys.stdin.readline()
others = [st.ones((1000,), pool=pool) for _ in range(10)]
pool.reap()
assert (t.numpy() == 6).all()
"""


@pytest.mark.report("R068")
@pytest.mark.skipif(not can_have_pids_of_its_own(), reason="needs `unshare --pid` for processes with pids of their own")
def test_a_client_whose_pid_means_nothing_here_lives_as_long_as_it_lives(run_script: RunScript, tmp_path: Path) -> None:
    (tmp_path / "member.py").write_text(MEMBER)
    code = f"""
    import subprocess, sys
    import shmtensor as st

    pool = st.Pool.create(limit=8 << 20)
    mine = st.ones((2000,), pool=pool)
    for end in ("leave", "kill"):
        member = subprocess.Popen(
            {PID_NAMESPACE!r} + [sys.executable, "member.py", pool.name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        assert member.stdout.readline() == "holding\\n"
        used = pool.stats().used_bytes
        pool.reap()
        assert (pool.stats().clients, pool.stats().used_bytes) == (2, used), pool.stats()
        if end == "leave":
            member.communicate("go on\\n")
            assert member.returncode == 0
        else:
            member.kill()  # and with it the first process of its namespace
            member.communicate()
        pool.reap()
        assert pool.stats().clients == 1
        assert pool.stats().used_bytes < used
        pool.check()
    print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R069")
def test_a_dead_client_is_dead_whoever_has_its_pid_now_and_a_living_one_lives(run_script: RunScript) -> None:
    code = """
    import os, signal
    import shmtensor as st
    from allocator.core.format import Client

    def hold(name, outbox):
        pool = st.Pool.attach(name)
        held = st.ones((1000,), pool=pool)
        outbox.put(pool.commons.me.slot)
        signal.pause()

    if __name__ == "__main__":
        pool, outbox = st.Pool.create(limit=1 << 20), mp.SimpleQueue()
        worker = mp.Process(target=hold, args=(pool.name, outbox))
        worker.start()
        slot, clients = outbox.get(), pool.commons.ledger.clients
        at = slot * Client.WIDTH
        for pid in (worker.pid, 1 << 22, os.getpid()):  # its own, nobody's, another process's
            clients.words[at + Client.PID] = pid
            pool.reap()
            assert pool.stats().clients == 2
        worker.kill()
        worker.join()
        pool.reap()  # its pid is that of a process which lives
        assert (pool.stats().clients, pool.stats().used_bytes) == (1, 0)
        print("ok")
    """
    assert run_script(code) == "ok\n"


# ---- the lock


@pytest.mark.report("R070", "R072")
def test_a_lock_whose_holder_is_stopped_stays_its_own_and_who_waits_can_be_interrupted(run_script: RunScript) -> None:
    code = """
    import os, signal
    import shmtensor as st

    def hold(name):
        pool = st.Pool.attach(name)
        def body():
            row = pool.commons.ledger.spans.allocate(20, 0, pool.commons.me.owner)  # half of a change
            os.kill(os.getpid(), signal.SIGSTOP)
            pool.commons.ledger.spans.free(row)
        pool.commons.section(body)

    def interrupt(*_):
        raise KeyboardInterrupt

    if __name__ == "__main__":
        pool = st.Pool.create(limit=8 << 20)
        t = st.full((1000,), 5, pool=pool)
        worker = mp.Process(target=hold, args=(pool.name,))
        worker.start()
        assert os.WIFSTOPPED(os.waitpid(worker.pid, os.WUNTRACED)[1])
        signal.signal(signal.SIGALRM, interrupt)
        for use in (pool.stats, pool.check, lambda: pool.allocate(1 << 20), lambda: pool.allocate(1 << 20, timeout=0)):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                use()
            except KeyboardInterrupt:
                continue
            raise AssertionError("the lock of a stopped process was broken")
        assert (t.numpy() == 5).all()  # what one has needs no lock
        others = [st.full((1000,), i, pool=pool) for i in range(5)]  # slots it had
        os.kill(worker.pid, signal.SIGCONT)
        pool.check()
        worker.join()
        assert worker.exitcode == 0
        pool.reap()
        pool.check()
        assert pool.stats().clients == 1
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R072")
def test_waiting_for_memory_ends_in_time_or_by_an_interrupt(run_script: RunScript) -> None:
    code = """
    import signal, time
    import shmtensor as st

    def interrupt(*_):
        raise KeyboardInterrupt

    pool = st.Pool.create(limit=2 << 20)
    all_of_it = pool.allocate(2 << 20)
    started = time.monotonic()
    try:
        pool.allocate(1 << 20, timeout=0.3)
    except st.OutOfSharedMemory:
        assert 0.3 <= time.monotonic() - started < 10
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        pool.allocate(1 << 20, timeout=3600)
    except KeyboardInterrupt:
        print("ok")
    del all_of_it
    pool.allocate(2 << 20)
    pool.check()
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R072")
def test_readers_killed_in_the_middle_of_reading_keep_no_writer_waiting(run_script: RunScript) -> None:
    code = """
    import random
    import shmtensor as st

    def read(t, ready):
        pool = st.default_pool()
        ready.set()
        while True:
            t.untyped_storage().holders()
            pool.stats()
            assert t[0].item() <= t[-1].item() + 1000

    if __name__ == "__main__":
        pool, rng = st.default_pool(), random.Random(5)
        t = st.zeros((1000,), dtype="int64")
        for i in range(30):
            ready = mp.Event()
            reader = mp.Process(target=read, args=(t, ready))
            reader.start()
            ready.wait()
            reader.join(rng.random() / 50)
            reader.kill()
            t.fill_(i)
            st.ones((1 << 20,), dtype="uint8").header().discard()
            reader.join()
            pool.check()
        pool.reap()
        assert pool.stats().clients == 1
        print("ok")
    """
    assert run_script(code, start_method="fork") == "ok\n"


# ---- failures travel


@pytest.mark.report("R078")
def test_a_worker_that_is_refused_memory_fails_where_its_result_is_awaited(run_script: RunScript) -> None:
    code = """
    from concurrent.futures import ProcessPoolExecutor
    import shmtensor as st

    def work(name, nbytes):
        return st.empty((nbytes,), dtype="uint8", pool=st.Pool.attach(name))

    if __name__ == "__main__":
        pool = st.Pool.create(limit=4 << 20)
        with mp.Pool(1) as workers, ProcessPoolExecutor(1, mp.get_context()) as executor:
            for call in (workers.apply, lambda f, args: executor.submit(f, *args).result()):
                try:
                    call(work, (pool.name, 8 << 20))
                except st.OutOfSharedMemory as error:
                    assert "can't give 8388608 bytes" in str(error), error
                else:
                    raise AssertionError("given")
                assert call(work, (pool.name, 1000)).nbytes == 1000  # both go on
            workers.close()
            workers.join()
        print("ok")
    """
    assert run_script(code, start_method="fork") == "ok\n"


@pytest.mark.report("R078")
def test_every_error_of_the_library_survives_a_pickle() -> None:
    import shmtensor as st

    errors: list[Any] = [getattr(module, name) for module in (allocator, st) for name in module.__all__]
    errors = [each for each in errors if isinstance(each, type) and issubclass(each, Exception)]
    assert len(errors) > 10
    for each in errors:
        again = pickle.loads(pickle.dumps(each("asked 5, there were 3")))
        assert type(again) is each
        assert str(again) == "asked 5, there were 3"
