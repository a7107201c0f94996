"""Memory that runs out, is filled by others, or is left in pieces: what other systems died of.

Sizes are the reports' scaled down. `@pytest.mark.report` names the rows of docs/reports.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import shmtensor as st
from allocator import OutOfSharedMemory, Pool
from allocator.core.sizes import CLASSES

if TYPE_CHECKING:
    from conftest import RunScript, RunSmall

MIB = 1 << 20


@pytest.mark.report("R001")
def test_producers_of_a_slow_consumer_are_refused_without_a_signal_and_go_on_when_it_does(run_small: RunSmall) -> None:
    code = """
    import shmtensor as st

    def produce(name, rank, outbox, answers, go):
        pool, sent = st.Pool.attach(name), 0
        try:
            while True:
                outbox.put(st.full((2 << 20,), rank, dtype="uint8", pool=pool))
                sent += 1
        except st.OutOfSharedMemory as error:
            text = str(error)
        answers.put((sent, text))
        go.wait()
        outbox.put(st.full((2 << 20,), rank, dtype="uint8", pool=pool, timeout=30))
        answers.put((1, ""))

    if __name__ == "__main__":
        pool = st.Pool.create(limit=1 << 30)  # more than the 32 MiB that /dev/shm has
        inbox, answers, go = mp.Queue(), mp.Queue(), mp.Event()
        workers = [mp.Process(target=produce, args=(pool.name, rank, inbox, answers, go)) for rank in range(3)]
        for worker in workers:
            worker.start()
        refused = [answers.get() for _ in workers]
        sent = sum(count for count, _ in refused)
        assert 10 <= sent <= 16, sent
        for _, text in refused:
            for part in ("can't give 2097152 bytes", "/dev/shm (32 MiB in all)", "used", "free", "--shm-size"):
                assert part in text, text
        go.set()
        for _ in range(sent + len(workers)):
            t = inbox.get()
            assert t[0].item() == t[-1].item() and (t.numpy() == t[0].item()).all()
            del t
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0, worker.exitcode
        pool.reap()
        pool.check()
        assert pool.stats().used_bytes == 0, pool.stats()
        print("ok")
    """
    assert run_small(code, "size=32m") == "ok\n"


@pytest.mark.report("R002")
def test_what_does_not_fit_is_refused_when_allocated_and_what_was_given_can_be_written_in_full(
    run_small: RunSmall,
) -> None:
    code = """
    import os
    import shmtensor as st

    pool = st.Pool.create(limit=4 << 30)
    names, before = sorted(os.listdir("/dev/shm")), pool.stats()
    try:
        st.empty((1 << 28,), pool=pool)  # 1 GiB of 64 MiB; not a byte of it was written
    except st.OutOfSharedMemory:
        pass
    else:
        raise AssertionError("given, though it can't be there")
    assert sorted(os.listdir("/dev/shm")) == names
    assert pool.stats().committed_bytes == before.committed_bytes == 0
    kept = []
    try:
        while True:
            kept.append(st.empty((1 << 18,), pool=pool))
            kept[-1][-1] = len(kept)
    except st.OutOfSharedMemory:
        pass
    assert 50 <= len(kept) <= 64, len(kept)
    for value, tensor in enumerate(kept):
        tensor.fill_(value)
    assert all((tensor.numpy() == value).all() for value, tensor in enumerate(kept))
    pool.check()
    print("ok")
    """
    assert run_small(code, "size=64m") == "ok\n"


@pytest.mark.report("R003")
def test_small_blocks_in_an_almost_full_dev_shm_are_refused_by_the_page_before_the_first_write(
    run_small: RunSmall,
) -> None:
    code = """
    import shmtensor as st

    pool = st.Pool.create(limit=1 << 20)
    blocks = []
    try:
        while True:
            blocks.append(pool.allocate(1024))
            blocks[-1].memoryview()[:] = bytes([len(blocks) & 255]) * 1024
    except st.OutOfSharedMemory:
        pass
    assert 64 <= len(blocks) < 1024, len(blocks)
    assert pool.stats().committed_bytes % 4096 == 0
    assert all(set(block.memoryview()) == {i + 1 & 255} for i, block in enumerate(blocks))
    pool.check()
    print("ok")
    """
    assert run_small(code, "size=768k") == "ok\n"


@pytest.mark.report("R003")
def test_a_dev_shm_of_a_few_pages_has_no_room_for_a_pool_and_keeps_nothing_of_it(run_small: RunSmall) -> None:
    code = """
    import os
    import shmtensor as st

    try:
        st.Pool.create(limit=1 << 20)
    except st.OutOfSharedMemory as error:
        assert "/dev/shm" in str(error), error
    else:
        raise AssertionError("made of nothing")
    assert os.listdir("/dev/shm") == []
    print("ok")
    """
    assert run_small(code, "size=16k") == "ok\n"


@pytest.mark.report("R004")
def test_a_program_that_fills_dev_shm_takes_nothing_of_what_was_given(run_small: RunSmall) -> None:
    code = """
    import os
    import shmtensor as st

    def fill():
        try:
            with open("/dev/shm/filler", "wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 16))
        except OSError:
            pass

    def ask(shape):
        try:
            kept.append(st.full(shape, len(kept), dtype="float32", pool=pool))
        except st.OutOfSharedMemory as error:
            return "/dev/shm" in str(error)
        return False

    pool, kept = st.Pool.create(limit=51 << 20), []
    for _ in range(10):
        kept.append(st.empty((1 << 18,), pool=pool))  # given, not yet written
        kept.append(st.empty((25,), pool=pool))
    other = mp.Process(target=fill)
    other.start()
    other.join()
    for value, tensor in enumerate(kept):
        tensor.fill_(value)
    assert ask((1 << 18,)) and ask((1 << 20,))
    kept[0].fill_(0)
    del kept[10:]
    for _ in range(5):
        assert not ask((1 << 18,))  # what was freed is still ours
    os.unlink("/dev/shm/filler")
    while len(kept) < 40:
        assert not ask((1 << 18,))
    assert all((tensor.numpy() == value).all() for value, tensor in enumerate(kept))
    pool.check()
    print("ok")
    """
    assert run_small(code, "size=64m") == "ok\n"


@pytest.mark.report("R006")
def test_attaching_costs_no_memory_and_a_reader_pays_for_what_it_reads(run_script: RunScript) -> None:
    code = """
    import pathlib, resource
    import numpy as np
    import shmtensor as st

    def resident():
        text = pathlib.Path("/proc/self/status").read_text()
        return int(text.partition("RssShmem:")[2].split()[0]) << 10

    def read(inbox, outbox, index):
        tensors = inbox.get()
        attached = resident()
        assert np.sum(tensors[index]).item() == index << 20
        outbox.put((attached, resident() - attached))

    if __name__ == "__main__":
        tensors = [st.full((1 << 20,), i) for i in range(10)]
        inbox, outbox = mp.Queue(), mp.Queue()
        workers = [mp.Process(target=read, args=(inbox, outbox, index)) for index in (2, 7)]
        for worker in workers:
            worker.start()
            inbox.put(tensors)
        for _ in workers:
            attached, grown = outbox.get()
            # The kernel maps neighbouring pages along, no more than 2 MiB each way.
            assert attached < 6 << 20 and grown < 9 << 20, (attached, grown)
        for worker in workers:
            worker.join()
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R010")
def test_of_processes_that_start_together_one_makes_the_pool_and_the_others_join_though_it_took_all_memory(
    run_small: RunSmall,
) -> None:
    code = """
    import shmtensor as st

    def start(outbox, all_up, done):
        try:
            pool = st.Pool.create("together", limit=60 << 20)
        except st.PoolExists:
            all_up.wait()
            pool = st.Pool.attach("together")
            outbox.put("joined")
        else:
            taken = []
            try:
                while True:
                    taken.append(pool.allocate(1 << 20))
            except st.OutOfSharedMemory:
                pass
            all_up.wait()
            outbox.put("made")
        pool.stats()
        done.wait()  # for the others: a pool ends with its last process

    if __name__ == "__main__":
        outbox, all_up, done = mp.Queue(), mp.Barrier(6), mp.Barrier(6)
        workers = [mp.Process(target=start, args=(outbox, all_up, done)) for _ in range(6)]
        for worker in workers:
            worker.start()
        assert sorted(outbox.get() for _ in workers) == ["joined"] * 5 + ["made"]
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
        print("ok")
    """
    assert run_small(code, "size=32m") == "ok\n"


# ---- in one process: sequences of sizes that left other allocators in pieces


def of(pool: Pool, mib: float) -> st.Tensor:
    """A tensor of so many MiB, undefined content."""
    return st.empty((int(mib * MIB),), dtype="uint8", pool=pool)


@pytest.fixture
def pool_of(request: pytest.FixtureRequest) -> Iterator[Pool]:
    """A pool of so many MiB, given as the parameter."""
    with Pool.create(limit=int(request.param * MIB)) as made:
        yield made


@pytest.mark.report("R011")
@pytest.mark.parametrize("pool_of", [15], indirect=True)
def test_large_blocks_between_small_living_ones_always_find_room_again(pool_of: Pool) -> None:
    living, large = [], []
    for _ in range(50):
        large.append(of(pool_of, 6))
        living.append(st.empty((1000,), dtype="uint8", pool=pool_of))
        if len(large) == 2:
            large.pop(0)
    large.clear()
    assert pool_of.stats().free_bytes >= 12 * MIB
    large += [of(pool_of, 6), of(pool_of, 6)]
    pool_of.check()


@pytest.mark.report("R012")
@pytest.mark.parametrize("size", [512 * 1024 + 4096, MIB, 3 * MIB, 5 * MIB + 4096])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_pool_for_exactly_so_many_blocks_holds_that_many_whichever_was_freed(size: int, count: int) -> None:
    with Pool.create(limit=count * size) as pool:
        blocks = [pool.allocate(size) for _ in range(count)]
        for place in (count - 1, 0, count // 2):
            with pytest.raises(OutOfSharedMemory):
                pool.allocate(size)
            del blocks[place]
            blocks.insert(place, pool.allocate(size))
        pool.check()
        del blocks


@pytest.mark.report("R014")
@pytest.mark.parametrize("pool_of", [10], indirect=True)
def test_a_refusal_and_its_traceback_hold_nothing(pool_of: Pool) -> None:
    kept = [of(pool_of, 3), of(pool_of, 3)]
    with pytest.raises(OutOfSharedMemory) as refusal:
        of(pool_of, 6)
    del kept[0]
    kept.append(of(pool_of, 6))
    kept.clear()
    assert refusal.value.__traceback__ is not None
    assert pool_of.stats().used_bytes == 0


@pytest.mark.report("R015")
@pytest.mark.parametrize("pool_of", [8], indirect=True)
def test_a_small_block_spoils_no_large_one(pool_of: Pool) -> None:
    kept = [of(pool_of, 1)]
    of(pool_of, 4)
    kept.append(of(pool_of, 1))
    kept += [of(pool_of, 1), of(pool_of, 4)]
    assert pool_of.stats().used_bytes == 7 * MIB


@pytest.mark.report("R018")
@pytest.mark.parametrize("pool_of", [256], indirect=True)
def test_what_is_committed_stays_near_the_peak_of_what_lives(pool_of: Pool) -> None:
    kept, peak = [], 0
    for _ in range(100):
        working = [of(pool_of, 9.1), of(pool_of, 4.55)]
        kept.append(of(pool_of, 0.2))
        now = pool_of.stats()
        peak = max(peak, now.used_bytes)
        assert now.committed_bytes <= 1.25 * peak, (now, peak)
        del working
    assert pool_of.stats().peak_bytes <= 1.25 * peak


@pytest.mark.report("R018")
@pytest.mark.parametrize("pool_of", [80], indirect=True)
def test_a_block_placed_where_a_larger_one_was_leaves_room_for_the_larger_one(pool_of: Pool) -> None:
    del [of(pool_of, 53)][0]
    kept = [of(pool_of, 26.9)]
    kept.append(of(pool_of, 53))
    assert pool_of.stats().used_bytes <= 80 * MIB


@pytest.mark.report("R022")
def test_frees_after_every_mix_of_sizes_and_a_purge_give_every_byte_back(pool: Pool) -> None:
    sizes = [size_class.slot for size_class in CLASSES if size_class is not None] + [MIB, 3 * MIB, 10 * MIB]

    def sound() -> None:
        pool.check()
        now = pool.stats()
        assert now.used_bytes + now.warm_bytes == now.committed_bytes <= now.limit_bytes, now

    for kept_every in (2, 3, 5):
        blocks = [pool.allocate(size) for size in sizes for _ in range(3)]
        sound()
        rest = blocks[::kept_every]
        blocks.clear()
        sound()
        pool.purge()  # compacts what the free spans hold
        whole = pool.allocate(64 * MIB)
        sound()
        del rest
        sound()
        del whole
        sound()
        assert pool.stats().used_bytes == 0
    assert pool.allocate(pool.limit).nbytes == pool.limit


@pytest.mark.report("R019")
@pytest.mark.parametrize("size", [100_000, 3 << 20])
def test_what_an_idle_process_freed_is_there_for_another(run_script: RunScript, size: int) -> None:
    code = """
    import sys
    import shmtensor as st

    def serve(name, orders, answers):
        pool, held = st.Pool.attach(name), []
        while (order := orders.get()) is not None:
            nbytes, count = order
            held = []
            held = [pool.allocate(nbytes) for _ in range(count)]
            answers.put(pool.stats().used_bytes)

    if __name__ == "__main__":
        size = int(sys.argv[1])
        pool = st.Pool.create(limit=50 << 20)
        sides = []
        for _ in range(2):
            orders, answers = mp.SimpleQueue(), mp.SimpleQueue()
            worker = mp.Process(target=serve, args=(pool.name, orders, answers))
            worker.start()
            sides.append((orders, answers, worker))
        for turn in range(6):
            orders, answers, _ = sides[turn % 2]
            orders.put((size, (30 << 20) // size))
            assert answers.get() > 28 << 20
            orders.put((0, 0))
            assert answers.get() == 0
            other_orders, other_answers, _ = sides[(turn + 1) % 2]
            other_orders.put((35 << 20, 1))
            assert other_answers.get() == 35 << 20
            other_orders.put((0, 0))
            other_answers.get()
        for orders, _, worker in sides:
            orders.put(None)
            worker.join()
            assert worker.exitcode == 0
        print("ok")
    """
    assert run_script(code, size, start_method="fork") == "ok\n"


@pytest.mark.report("R020")
@pytest.mark.parametrize("limit", [0, 1, 4095, 4096, 4097, 65536, MIB])
def test_every_limit_and_every_size_gives_a_block_or_says_why_not(limit: int) -> None:
    if limit < 4096:
        with pytest.raises(ValueError, match="less than a page"):
            Pool.create(limit=limit)
        return
    with Pool.create(limit=limit) as pool:
        for nbytes in (0, 1, limit - 1, limit, limit + 1, 1 << 63, (1 << 64) + 1):
            for make in (pool.allocate, lambda size: st.empty((size,), dtype="uint8", pool=pool)):
                try:
                    assert make(nbytes).nbytes == nbytes <= limit
                except OutOfSharedMemory:
                    assert nbytes > limit or limit < MIB, "it fits"
                pool.check()
                assert pool.stats().used_bytes == 0


@pytest.mark.report("R021")
def test_a_full_pool_says_who_holds_what_and_evicts_nothing(run_script: RunScript) -> None:
    code = """
    import os
    import shmtensor as st

    def task(value, name):
        return st.full((100_000,), value, pool=st.Pool.attach(name))

    if __name__ == "__main__":
        pool, results = st.Pool.create(limit=40 << 20), []
        with mp.Pool(2) as workers:
            try:
                while True:
                    results += workers.starmap(task, [(len(results) + i, pool.name) for i in range(10)])
            except st.OutOfSharedMemory as error:
                text = str(error)
            workers.close()
            workers.join()
        assert len(results) >= 40, len(results)
        assert "Held by pid " in text and " bytes" in text.partition("Held by")[2], text
        assert f"pid {os.getpid()} (" in text, text
        for value, tensor in enumerate(results):
            assert (tensor.numpy() == value).all(), value
        pool.check()
        print("ok")
    """
    assert run_script(code, start_method="fork") == "ok\n"


# ---- descriptors, mappings, names


@pytest.mark.slow
@pytest.mark.report("R118", "R143")
def test_two_hundred_thousand_tensors_and_more_received_than_a_process_may_map_take_no_mappings(
    run_script: RunScript,
) -> None:
    code = """
    import gc, pathlib, pickle
    import numpy as np
    import shmtensor as st

    def mappings():
        return len(pathlib.Path("/proc/self/maps").read_text().splitlines())

    def receive(inbox, outbox):
        gc.disable()
        first, received = inbox.get(), []
        before = mappings()
        for _ in range(66):
            received += inbox.get()
        outbox.put((len(received), mappings() - before))
        assert all(t.numpy()[0] == i for i, t in enumerate(received))
        outbox.put("right")

    if __name__ == "__main__":
        gc.disable()
        pool = st.Pool.create(limit=256 << 20)
        inbox, outbox = mp.SimpleQueue(), mp.SimpleQueue()
        worker = mp.Process(target=receive, args=(inbox, outbox))
        worker.start()
        first = st.zeros((9,), dtype="int64", pool=pool)
        inbox.put(first)
        before = mappings()
        tensors = [st.full((9,), i, dtype="int64", pool=pool) for i in range(66_000)]
        more = [st.empty((9,), dtype="int64", pool=pool) for _ in range(134_000)]
        for i in range(66):
            inbox.put(tensors[1000 * i : 1000 * (i + 1)])
        count, grown = outbox.get()
        assert count == 66_000 and grown < 100, (count, grown)
        assert outbox.get() == "right"
        assert mappings() - before < 1000, mappings() - before  # Python's own heap grows too
        worker.join()
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R082")
def test_blocks_have_no_names_that_could_collide(pool: Pool) -> None:
    def names() -> list[str]:
        return [name for name in os.listdir("/dev/shm") if f"-{pool.name}." in name]

    before = sorted(names())
    living: list[object] = []
    for number in range(200_000):
        block = pool.allocate(64)
        if number % 100 == 0:
            living.append(block)
            block.share()
    assert sorted(names()) == before
    assert len(before) == 3
    tickets = pool.tickets()
    assert len({ticket.serial for ticket in tickets}) == len(tickets) == len(living)


@pytest.mark.report("R130")
@pytest.mark.parametrize("limit", [1 << 30, 1 << 40])
def test_more_than_the_machine_has_is_refused_before_it_is_touched(limit: int) -> None:
    with Pool.create(limit=limit) as pool:
        for nbytes in (limit + 1, 1 << 41, 1 << 50):
            with pytest.raises(OutOfSharedMemory):
                pool.allocate(nbytes)
        # More than any machine has room for at this moment, however large the limit.
        if limit == 1 << 40:
            with pytest.raises(OutOfSharedMemory, match=r"/dev/shm|RAM|cgroup"):
                pool.allocate(limit)
        assert pool.stats().committed_bytes == 0
        growing = pool.allocate(MIB, capacity=64 * MIB)
        growing.share().discard()
        growing.resize(16 * MIB)  # an area grows in place, in the mapping that every process has
        growing.memoryview()[-1] = 1
        del growing
