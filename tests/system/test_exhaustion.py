"""Whatever runs out (places, tables, address space, /dev/shm, the cgroup's memory): an error says which, nothing is
lost, and everything works as before once there is some again.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from allocator import Block, OutOfSharedMemory, Pool
from allocator.core.format import Record, Reference, Span, TableShape

if TYPE_CHECKING:
    from conftest import RunScript, RunSmall

pytestmark = pytest.mark.slow

# ---- places


def test_a_child_of_a_thousand_that_are_dead_has_a_place(run_script: RunScript) -> None:
    code = """
    import os
    import shmtensor as st
    from allocator.core.format import PLAN

    pool = st.Pool.create(limit=16 << 20)
    pool.commons.ledger.header[PLAN.clients.count_at] = 16  # places in all, so that it takes no thousand
    kept = st.full((100,), 3, pool=pool)
    for i in range(100):
        child = os.fork()
        if not child:
            mine = st.full((100,), 4, pool=pool)
            os._exit(0 if kept.tolist() == [3] * 100 and mine.tolist() == [4] * 100 else 1)
        assert os.waitpid(child, 0)[1] == 0, i
    pool.reap()
    pool.check()
    assert pool.stats().clients == 1
    print("ok")
    """
    assert run_script(code) == "ok\n"


def test_when_every_place_is_taken_the_next_process_is_told_so_and_comes_in_later(run_script: RunScript) -> None:
    code = """
    import fcntl, os, signal
    import shmtensor as st
    from allocator.core.format import PLAN, Client

    def come(header):
        try:
            header.open()
        except st.PoolClosed as error:
            os._exit(7 if "all of its 1023 places taken" in str(error) else 1)

    def coming(header):
        worker = mp.Process(target=come, args=(header,))
        worker.start()
        worker.join()
        return worker.exitcode

    def forked(pool):
        child = os.fork()
        if not child:
            try:
                assert st.ones((1,), pool=pool).tolist() == [1]
            except st.PoolClosed as error:
                os._exit(7 if "all of its 1023 places are taken" in str(error) else 1)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def crowd_in(pool):
        # One process stands for a thousand: it holds their liveness bytes.
        read, write = os.pipe()
        crowd = os.fork()
        if not crowd:
            descriptor = os.open(f"/dev/shm/shmt{pool.host}-{pool.name}.l", os.O_RDWR)
            fcntl.lockf(descriptor, fcntl.LOCK_EX, PLAN.clients.rows - 2, 64 + 2)
            os.write(write, b"x")
            signal.pause()
        os.read(read, 1)
        clients = pool.commons.ledger.clients
        pool.commons.section(lambda: [clients.claim(Client.LIVE, 1, 1, 1) for _ in range(PLAN.clients.rows - 2)])
        return crowd

    if __name__ == "__main__":
        pool = st.Pool.create(limit=16 << 20)
        kept = st.full((100,), 3, pool=pool)
        crowd = crowd_in(pool)
        try:
            assert pool.stats().clients == PLAN.clients.rows == 1023
            assert coming(kept.header()) == 7 and forked(pool) == 7
            pool.check()
            assert kept.tolist() == [3] * 100
        finally:
            os.kill(crowd, signal.SIGKILL)
            os.waitpid(crowd, 0)
        assert coming(kept.header()) == 0 and forked(pool) == 0
        assert pool.stats().clients < 5  # the thousand were reaped for them
        pool.check()
        print("ok")
    """
    assert run_script(code) == "ok\n"


# ---- tables


@pytest.fixture
def roomy() -> Iterator[Pool]:
    with Pool.create(limit=64 << 20) as made:
        yield made


def fill_up(pool: Pool, shape: TableShape, state: int) -> Any:
    """Take every row that the table can have, as clients would; what gives them back."""
    ledger = pool.commons.ledger
    while pool.supply.try_grow(shape) is None:
        pass
    assert ledger.header[shape.count_at] == shape.rows
    column = ledger.table_of(shape).column(0)
    free = np.flatnonzero(column == 0)
    column[free] = state | pool.commons.owner
    return lambda: column.__setitem__(free, 0)


@pytest.mark.parametrize(("table", "state"), [("records", Record.RESERVED), ("references", Reference.RESERVED)])
def test_when_a_table_is_full_sending_says_which_and_works_again_later(roomy: Pool, table: str, state: int) -> None:
    kept = roomy.allocate(100)
    kept.memoryview()[:] = b"k" * 100
    handle = kept.share()
    shape = getattr(roomy.commons.ledger.plan, table)
    empty = fill_up(roomy, shape, state)
    sent: list[Block] = []
    full = f"can't have more {table}: .*{shape.rows} {table} is full"

    def send_many() -> None:
        for _ in range(200):  # the spare rows of this process are used up first
            sent.append(roomy.allocate(100))
            sent[-1].share()

    with pytest.raises(OutOfSharedMemory, match=full):
        send_many()
    large = roomy.allocate(1 << 20)  # what isn't sent needs no row
    if table == "references":
        with pytest.raises(OutOfSharedMemory, match=full):
            handle.open()
        empty()
    assert bytes(handle.open().memoryview()) == b"k" * 100  # opening needs no record
    kept.share().discard()
    if table == "records":
        empty()
    sent += [roomy.allocate(100) for _ in range(100)]
    opened = [block.share().open() for block in (*sent, large)]
    assert len(opened) == len(sent) + 1
    roomy.check()


def test_a_full_table_is_taken_back_from_dead_processes_before_anything_is_refused(roomy: Pool) -> None:
    shape = roomy.commons.ledger.plan.references
    pid = os.fork()
    if pid == 0:
        try:
            fill_up(roomy, shape, Reference.RESERVED)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    blocks = [roomy.allocate(100) for _ in range(20)]
    handles = [block.share() for block in blocks]
    assert [handle.discard() for handle in handles] == [True] * 20
    roomy.check()


def test_when_the_table_of_spans_is_full_large_blocks_say_so_and_small_ones_go_on(roomy: Pool) -> None:
    ledger = roomy.commons.ledger
    small = roomy.allocate(100)
    first = roomy.allocate(1 << 20)
    while roomy.supply.try_grow(ledger.plan.spans) is None:
        pass
    used = ledger.spans.count()
    ledger.header[ledger.plan.spans.count_at] = used  # as if that were all of them
    was, ledger.plan = ledger.plan, ledger.plan._replace(spans=ledger.plan.spans._replace(rows=used))
    with pytest.raises(OutOfSharedMemory, match=f"exceed the pool's table of {used} spans"):
        roomy.allocate(1 << 20)
    more = [roomy.allocate(100) for _ in range(50)]
    first.release()
    again = roomy.allocate(1 << 20)
    ledger.plan = was
    ledger.header[was.spans.count_at] = was.spans.rows
    assert ledger.spans.state(again._span_row()) == Span.ALLOCATED
    assert roomy.allocate(1 << 20).nbytes == 1 << 20
    assert len({block.start for block in (*more, small)}) == 51
    roomy.check()


# ---- address space


def test_when_address_space_is_used_up_the_error_says_so_and_the_rest_works(roomy: Pool) -> None:
    space = roomy.stats().address_limit_bytes
    reserved = [roomy.allocate(100, capacity=space // 4) for _ in range(3)]
    with pytest.raises(OutOfSharedMemory, match="exceed the pool's address space"):
        reserved += [roomy.allocate(100, capacity=space // 4) for _ in range(2)]
    with pytest.raises(OutOfSharedMemory, match="exceed the pool's address space"):
        roomy.allocate(100, capacity=2 * space)
    whole = roomy.allocate(roomy.stats().free_bytes)
    whole.release()
    reserved.pop()
    reserved.append(roomy.allocate(100, capacity=space // 4))  # the order's span is used again
    reserved[-1].resize(1 << 20)
    roomy.check()


def test_a_process_that_may_not_map_the_pool_is_told_so_and_others_go_on(run_script: RunScript) -> None:
    code = """
    import resource
    import shmtensor as st

    def come(header):
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        try:
            header.open()
        except st.OutOfSharedMemory as error:
            assert "ulimit -v" in str(error) and "address space" in str(error), error
        else:
            raise AssertionError("mapped")
        with st.Pool.create(limit=16 << 20) as small:
            assert st.ones((3,), pool=small).tolist() == [1, 1, 1]

    if __name__ == "__main__":
        pool = st.Pool.create(limit=64 << 20)
        kept = st.full((100,), 3, pool=pool)
        worker = mp.Process(target=come, args=(kept.header(),))
        worker.start()
        worker.join()
        assert worker.exitcode == 0
        assert len(pool.tickets()) == 1  # opened by nobody
        pool.check()
        print("ok")
    """
    assert run_script(code) == "ok\n"


# ---- /dev/shm


@pytest.mark.report("R003")
def test_a_dev_shm_of_64_kib_has_no_pool_and_says_so_however_often_it_is_asked(run_small: RunSmall) -> None:
    code = """
    import os
    import shmtensor as st

    for make in (lambda: st.Pool.create(limit=1 << 20), lambda: st.ones((3,)), lambda: st.Pool.create("again")):
        try:
            make()
        except st.OutOfSharedMemory as error:
            assert "/dev/shm" in str(error), error
        else:
            raise AssertionError("made of nothing")
        assert os.listdir("/dev/shm") == []
    print("ok")
    """
    assert run_small(code, "size=64k") == "ok\n"


FILLER = """
import errno, os
import shmtensor as st
from allocator import supply
from allocator.system import host

def room():
    stat = os.statvfs("/dev/shm")
    return stat.f_bavail * stat.f_frsize

def fill(leave=0):
    with open("/dev/shm/filler", "wb", buffering=0) as file:
        try:
            while room() > leave:
                file.write(bytes(max(4096, min(room() - leave, 1 << 20) // 4096 * 4096)))
        except OSError as error:
            assert error.errno == errno.ENOSPC
"""


def test_a_commit_that_fails_half_way_gives_all_of_it_back(run_small: RunSmall) -> None:
    code = """
    # As if another program took the memory after we had looked: the kernel refuses in the middle of a commit.
    pool = st.Pool.create(limit=1 << 30)
    kept = st.full((100,), 3, pool=pool)
    large = pool.allocate(1 << 20, capacity=256 << 20)
    large.memoryview()[:] = b"l" * (1 << 20)
    sent = large.share()
    before, free = pool.stats(), room()
    real, supply.host.room = host.room, lambda: host.Room(1 << 40, "what was there a moment ago")

    def refused(act):
        try:
            act()
        except st.OutOfSharedMemory:
            pool.check()
            now = pool.stats()
            assert (now.used_bytes, now.committed_bytes) == (before.used_bytes, before.committed_bytes), (before, now)
            assert room() == free, (room(), free)
            return
        raise AssertionError("there was room")

    for _ in range(3):
        refused(lambda: pool.allocate(100 << 20))
        refused(lambda: large.resize(200 << 20))
    fill(leave=100 << 10)
    free = room()
    refused(lambda: pool.allocate(500 << 10))  # slots
    refused(lambda: pool.allocate(700 << 10))
    os.unlink("/dev/shm/filler")
    supply.host.room = real
    assert kept.tolist() == [3] * 100 and bytes(large.memoryview()) == b"l" * (1 << 20)
    again = pool.allocate(40 << 20)
    again.memoryview()[:] = bytes(40 << 20)
    pool.check()
    print("ok")
    """
    assert run_small(FILLER + textwrap.dedent(code), "size=64m") == "ok\n"


@pytest.mark.report("R004")
def test_while_another_program_fills_and_empties_dev_shm_requests_are_met_or_refused(run_small: RunSmall) -> None:
    code = """
    import random, time

    def disturb(go):
        with open("/dev/shm/filler", "ab", buffering=0) as file:
            while go.is_set():
                try:
                    while True:
                        file.write(bytes(1 << 18))
                except OSError:
                    time.sleep(0.003)
                    file.truncate(max(file.tell() - (12 << 20), 0))
                    time.sleep(0.003)
        os.unlink("/dev/shm/filler")

    if __name__ == "__main__":
        go = mp.Event()
        go.set()
        pool = st.Pool.create(limit=1 << 30)
        other = mp.Process(target=disturb, args=(go,))
        other.start()
        rng, kept, met, refused = random.Random(1), [], 0, 0
        while (met < 20 or refused < 20) and met + refused < 3000:
            key = rng.randrange(251)
            try:
                size = rng.choice([100, 5000, 200_000, 1 << 20, 6 << 20])
                kept.append((key, st.full((size,), key, dtype="uint8", pool=pool)))
                kept[-1][1].header().discard()
                met += 1
            except st.OutOfSharedMemory:
                refused += 1
            while len(kept) > 5:
                kept.pop(rng.randrange(len(kept)))
                pool.purge()
            assert all((t.numpy() == key).all() for key, t in kept)
            pool.check()
        go.clear()
        other.join()
        assert other.exitcode == 0 and met >= 20 and refused >= 20, (met, refused)
        kept.clear()
        most = st.ones((40 << 20,), dtype="uint8", pool=pool)
        pool.check()
        print("ok")
    """
    assert run_small(FILLER + textwrap.dedent(code), "size=64m") == "ok\n"


def test_tables_grow_with_the_memory_of_blocks_that_are_gone(run_small: RunSmall) -> None:
    code = """
    pool = st.Pool.create(limit=1 << 30)
    large = st.ones((40 << 20,), dtype="uint8", pool=pool)
    small = [st.ones((1,), pool=pool) for _ in range(8_000)]
    del large  # warm: still ours, and in no other program's reach
    assert pool.stats().warm_bytes >= 40 << 20
    fill()
    messages = [t.header() for t in small]  # needs more of the tables
    assert pool.stats().records == 8_000
    assert all(header.open().tolist() == [1] for header in messages)
    pool.check()
    print("ok")
    """
    assert run_small(FILLER + textwrap.dedent(code), "size=64m") == "ok\n"


def test_a_pool_that_was_never_finished_is_refused_also_where_no_page_is_left(run_small: RunSmall) -> None:
    # Reading a hole of a full tmpfs is a SIGBUS.
    code = """
    from allocator.core.format import PLAN

    prefix = f"/dev/shm/shmt{host.boot_id()}-unborn."
    for kind, size in (("l", 0), ("c", PLAN.nbytes), ("h", 1 << 30)):
        with open(prefix + kind, "wb") as file:
            os.truncate(file.fileno(), size)
    fill()
    try:
        st.Pool.attach("unborn")
    except st.OutOfSharedMemory as error:
        assert "unborn" in str(error), error
    else:
        raise AssertionError("attached")
    os.unlink("/dev/shm/filler")
    try:
        st.Pool.attach("unborn")
    except st.CorruptPool as error:
        assert "never finished" in str(error), error
    st.Pool.create("unborn", limit=1 << 20).close()
    print("ok")
    """
    assert run_small(FILLER + textwrap.dedent(code), "size=1m") == "ok\n"


# ---- the cgroup's memory


def own_memory_cgroup() -> tuple[Path, str] | None:
    """Where this process's memory cgroup is, and the file that bounds one."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return Path("/sys/fs/cgroup/memory") / path.strip("/"), "memory.limit_in_bytes"
        if controllers == "" and Path("/sys/fs/cgroup/cgroup.controllers").exists():
            return Path("/sys/fs/cgroup") / path.strip("/"), "memory.max"
    return None


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A memory cgroup of 128 MiB, empty: below the one that this process is in."""
    found = own_memory_cgroup()
    if found is None:
        pytest.skip("no memory cgroup here")
    parent, bound = found
    made = parent / f"shmtensor-test-{os.getpid()}"
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        (made / bound).write_text(str(128 << 20))
    except OSError as error:
        made.rmdir()
        pytest.skip(f"no memory cgroup can be bounded here: {error}")
    yield made
    made.rmdir()


def test_a_full_memory_cgroup_is_an_error_that_names_it_and_kills_nobody(
    run_script: RunScript, small_cgroup: Path
) -> None:
    code = """
    import os, sys
    if __name__ == "__main__":
        with open(sys.argv[1] + "/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
    import shmtensor as st

    MIB = 1 << 20

    def fill_up(pool, kept):
        try:
            while True:
                kept.append(st.full((4 * MIB,), len(kept), dtype="uint8", pool=pool))
        except st.OutOfSharedMemory as error:
            return str(error)

    def take(name, outbox):
        pool, kept = st.Pool.attach(name), []
        said = fill_up(pool, kept)
        outbox.put((len(kept), said))

    if __name__ == "__main__":
        assert st.Pool.create().limit <= 0.8 * 128 * MIB
        pool, kept = st.Pool.create(limit=1 << 30), []
        said = fill_up(pool, kept)
        assert "the memory cgroup (128 MiB in all)" in said and "free memory on this machine" in said, said
        assert 5 < len(kept) < 32, len(kept)
        assert all((t.numpy() == i).all() for i, t in enumerate(kept))
        del kept[5:]
        pool.purge()
        outbox = mp.SimpleQueue()
        worker = mp.Process(target=take, args=(pool.name, outbox))
        worker.start()
        count, said = outbox.get()
        worker.join()
        assert worker.exitcode == 0 and "the memory cgroup" in said, said
        assert all((t.numpy() == i).all() for i, t in enumerate(kept))
        pool.reap()
        pool.check()
        kept.append(st.full((4 * MIB,), 5, dtype="uint8", pool=pool))
        print("ok")
    """
    assert run_script(code, small_cgroup, start_method="fork") == "ok\n"
