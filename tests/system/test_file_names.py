"""Names in /dev/shm may be anybody's and anything: other users, symlinks, pipes and folders where a pool's files should
be, files that were cut or written into.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from allocator import CorruptPool, Pool, PoolNotFound, sweep_leftovers
from allocator.core.format import HEADER_BYTES, PLAN
from allocator.system import host
from allocator.system.host import segment_name

if TYPE_CHECKING:
    from conftest import RunScript

pytestmark = pytest.mark.slow
NAME = f"n{os.getpid()}"
SHM = Path("/dev/shm")


def path_of(kind: str) -> Path:
    return SHM / segment_name(host.boot_id(), NAME, kind)


@pytest.fixture(autouse=True)
def nothing_has_the_name() -> Iterator[None]:
    yield
    for kind in "hcl":
        path = path_of(kind)
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)


def bind(path: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


STRAYS: dict[str, Callable[[Path, Path], Any]] = {
    "folder": lambda path, target: path.mkdir(),
    "symlink": lambda path, target: path.symlink_to(target),
    "dangling symlink": lambda path, target: path.symlink_to("/nonexistent/file"),
    "pipe": lambda path, target: os.mkfifo(path),
    "socket": bind,
}


@pytest.mark.parametrize("kinds", ["l", "h", "c", "hcl"])
@pytest.mark.parametrize("stray", STRAYS)
def test_what_stands_where_a_pools_file_should_be_is_named_and_in_nobody_elses_way(
    stray: str, kinds: str, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.write_text("kept")
    for kind in kinds:
        STRAYS[stray](path_of(kind), target)
    with pytest.raises((CorruptPool, PoolNotFound)):
        Pool.attach(NAME)
    with pytest.raises(CorruptPool, match=r"is no pool's file but has its name: remove it"):
        Pool.create(NAME, limit=1 << 20)
    assert NAME not in sweep_leftovers()
    with Pool.create(limit=1 << 20) as other:
        other.allocate(100)
    assert target.read_text() == "kept"
    assert {path.name for path in SHM.glob(f"*-{NAME}.?")} == {path_of(kind).name for kind in kinds}


@pytest.mark.parametrize("kinds", ["h", "c", "hc"])
def test_a_plain_file_of_ours_that_no_pool_has_gives_way(kinds: str) -> None:
    for kind in kinds:
        path_of(kind).write_bytes(bytes(100))
    with Pool.create(NAME, limit=1 << 20) as pool:
        pool.allocate(100)
        pool.check()


@contextlib.contextmanager
def somebody_has_it() -> Iterator[None]:
    """Meanwhile a child has the pool, with a message in it, and does nothing; then it is killed. While it lives nobody
    sweeps.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            pool = Pool.create(NAME, limit=1 << 20, ticket_grace=0)
            pool.allocate(100).share()
            os.write(write, b"x")
            signal.pause()
        finally:
            os._exit(1)
    try:
        os.close(write)
        assert os.read(read, 1) == b"x"
        yield
    finally:
        os.close(read)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("kind", "hc")
@pytest.mark.parametrize("size", [0, 100, 4096, HEADER_BYTES + 8, 1 << 20, PLAN.nbytes - 4096, PLAN.nbytes + 4096])
def test_segments_that_were_cut_are_refused_and_swept(kind: str, size: int) -> None:
    with somebody_has_it():
        os.truncate(path_of(kind), size)
        with pytest.raises(CorruptPool):
            Pool.attach(NAME)
    sweep_leftovers()
    assert not list(SHM.glob(f"*-{NAME}.?"))


def test_leftovers_that_were_written_into_are_swept_and_keep_nobody_from_making_pools() -> None:
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    for _ in range(20):
        with somebody_has_it(), open(path_of("c"), "r+b") as file:
            for _ in range(4):
                base = rng.choice([0, 0, PLAN.clients.base, PLAN.references.base])
                file.seek(base + 8 * rng.randrange(24))
                file.write(rng.choice([0, 1, 2**20, 2**63, 2**64 - 1, rng.getrandbits(64)]).to_bytes(8, "little"))
        sweep_leftovers()  # a message that seems to be young may be spared
        with Pool.create(limit=1 << 20) as other:
            other.allocate(100)
        for kind in "hcl":
            path_of(kind).unlink(missing_ok=True)


# ---- other users


AS_NOBODY = """
import os, pickle, sys, time
import psutil  # what is imported late is imported now: another user may not read the folders
import allocator, shmtensor as st

with st.Pool.create(limit=1 << 20) as first:
    st.ones((3,), pool=first).header().discard()
    first.stats()

def refused(act, *words):
    try:
        act()
    except allocator.ForeignUser as error:
        assert isinstance(error, PermissionError) and all(word in str(error) for word in words), error
        return
    raise AssertionError("opened")

def names():
    return {name for name in os.listdir("/dev/shm") if f"-{NAME}" in name}

def as_nobody(body):
    pid = os.fork()
    if pid:
        return pid
    os.setgid(65534)
    os.setuid(65534)
    status = 1
    try:
        body()
        status = 0
    finally:
        sys.stdout.flush()
        os._exit(status)

def wait(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

NAME = f"u{os.getpid()}"
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@needs_root
@pytest.mark.report("R128")
def test_pools_of_other_users_are_neither_opened_nor_swept_nor_in_the_way(run_script: RunScript) -> None:
    code = """
    read, write = os.pipe()

    def look():
        message = os.read(read, 10_000)  # the pool is not inherited: it was made after the fork
        os.environ["SHMTENSOR_POOL"] = NAME
        for act in (lambda: allocator.Pool.attach(NAME), lambda: allocator.Pool.create(NAME, limit=1 << 20)):
            refused(act, NAME, "-rw-------", "uid 0", "uid 65534")
        refused(lambda: pickle.loads(message), "uid 0")
        before = names()
        assert not any(NAME in name for name in allocator.sweep_leftovers()) and names() == before
        with st.default_pool() as mine:  # the parent's can't be had
            assert mine.name != NAME and st.ones((3,)).tolist() == [1, 1, 1]

    def leave():
        pool = allocator.Pool.create(NAME + "x", limit=1 << 20, ticket_grace=0)
        pool.allocate(100).share()

    child = as_nobody(look)
    pool = st.Pool.create(NAME, limit=1 << 20)
    kept = st.ones((10,), pool=pool)
    os.write(write, pickle.dumps(kept))
    assert wait(child) == 0
    assert kept.tolist() == [1] * 10
    pool.check()
    # Root could open everything, and doesn't.
    assert wait(as_nobody(leave)) == 0
    refused(lambda: allocator.Pool.attach(NAME + "x"), "uid 65534", "uid 0")
    refused(lambda: allocator.Pool.create(NAME + "x", limit=1 << 20), "uid 65534", "uid 0")
    assert NAME + "x" not in allocator.sweep_leftovers() and len(names()) == 6
    assert wait(as_nobody(allocator.sweep_leftovers)) == 0 and len(names()) == 3
    print("ok")
    """
    assert run_script(AS_NOBODY + "\n" + textwrap.dedent(code)) == "ok\n"


@needs_root
@pytest.mark.report("R128")
def test_files_that_another_user_puts_under_a_pools_names_harm_nobody(run_script: RunScript, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("kept")
    code = """
    prefix = f"/dev/shm/shmt{allocator.Pool.create(limit=1 << 20).host}-{NAME}"

    def squat():
        open(prefix + ".h", "w").close()
        os.symlink(sys.argv[1], prefix + "y.c")  # to a file of root's
        open(prefix + "z.l", "w").close()
        os.mkfifo(prefix + "w.l")

    assert wait(as_nobody(squat)) == 0
    for suffix in ("", "y", "z", "w"):
        refused(lambda: allocator.Pool.create(NAME + suffix, limit=1 << 20), "uid 65534")
    assert not any(NAME in name for name in allocator.sweep_leftovers())
    with st.Pool.create(limit=1 << 20) as pool:
        assert st.ones((3,), pool=pool).tolist() == [1, 1, 1]
    assert len(names()) == 4, names()
    for name in names():
        os.unlink(f"/dev/shm/{name}")
    print("ok")
    """
    assert run_script(AS_NOBODY + "\n" + textwrap.dedent(code), target) == "ok\n"
    assert target.read_text() == "kept"


@needs_root
def test_a_process_that_becomes_another_user_keeps_its_pool_and_its_children(run_script: RunScript) -> None:
    code = """
    pool = st.Pool.create(NAME, limit=16 << 20)
    kept = st.full((1000,), 3, pool=pool)

    def serve():
        more = st.full((1 << 20,), 4, pool=pool)
        child = os.fork()
        if not child:
            os._exit(0 if (kept.numpy() == 3).all() and (more.numpy() == 4).all() else 1)
        assert wait(child) == 0
        pickle.loads(pickle.dumps(more)).numpy()[:] = 5
        assert (more.numpy() == 5).all()

    assert wait(as_nobody(serve)) == 0
    pool.reap()
    pool.check()
    assert (kept.numpy() == 3).all() and pool.stats().clients == 1
    print("ok")
    """
    assert run_script(AS_NOBODY + "\n" + textwrap.dedent(code)) == "ok\n"
