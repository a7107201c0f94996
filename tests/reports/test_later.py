"""What the reports led to beyond themselves: failures that were found here while their scenarios were played."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import shmtensor as st
from allocator import CorruptPool, OutOfSharedMemory, Pool, making, sweep_leftovers
from allocator.system.host import boot_id

if TYPE_CHECKING:
    from conftest import RunScript


def files_of(name: str) -> dict[str, Path]:
    """Where a pool of that name has its files."""
    return {kind: Path("/dev/shm", f"shmt{boot_id()}-{name}.{kind}") for kind in "hcl"}


@pytest.mark.report("R048")
def test_a_handle_of_a_pool_that_is_gone_opens_nothing_in_a_later_pool_of_its_name(run_script: RunScript) -> None:
    code = """
    import gc, pickle
    import shmtensor as st

    def message(value):
        with st.Pool.create("again", limit=1 << 20) as pool:
            sent = [pickle.dumps(st.full((10,), value, pool=pool)) for _ in range(100)]
            pool.discard_tickets(0)
        gc.collect()
        return sent

    old = message(1)
    pool = st.Pool.create("again", limit=1 << 20)
    secret = [st.full((10,), 2, pool=pool) for _ in range(100)]
    messages = [pickle.dumps(each) for each in secret]
    for each in old:
        try:
            print("wrong bytes:", pickle.loads(each).tolist())
        except st.StaleHandle:
            pass
    print(len(messages))
    """
    assert run_script(code) == "100\n"


@pytest.mark.report("R125")
@pytest.mark.parametrize("timeout", [0.0, 0.02])
def test_the_advice_fits_what_was_asked(pool: Pool, timeout: float) -> None:
    with pytest.raises(OutOfSharedMemory) as never:
        pool.allocate(pool.limit + 1, timeout=timeout)
    assert "it would never fit" in str(never.value)
    assert "timeout" not in str(never.value)
    kept = pool.allocate(pool.limit // 2 + 1)
    with pytest.raises(OutOfSharedMemory) as full:
        pool.allocate(pool.limit // 2, timeout=timeout)
    assert ("wait longer than timeout=0.02" if timeout else "pass timeout= to wait") in str(full.value)
    del kept


@pytest.mark.report("R020")
@pytest.mark.parametrize("limit", [4096, 10_000, 65536, 200_000, 300_000])
def test_a_small_pool_gives_all_it_says_it_has(limit: int) -> None:
    with Pool.create(limit=limit) as pool:
        pool.allocate(1).release()
        pool.allocate(pool.stats().free_bytes).release()
        with pytest.raises(OutOfSharedMemory, match=f"can't give {limit + 1} bytes"):
            pool.allocate(limit + 1)
        pool.check()


@pytest.mark.report("R020")
def test_an_empty_name_is_no_name() -> None:
    with pytest.raises(ValueError, match="can't name a pool"):
        Pool.create("")


@pytest.mark.report("R040")
def test_an_interrupt_while_waiting_for_the_new_lock_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(making, "lock_file", interrupt)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyboardInterrupt):
        Pool.create("halfway", limit=1 << 20)
    assert not any(path.exists() for path in files_of("halfway").values())
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.report("R061")
def test_segments_without_a_lock_file_are_swept_but_not_those_of_a_pool_that_has_one() -> None:
    files = files_of("part")
    for kind in "ch":
        files[kind].touch()
    with Pool.create(limit=1 << 20) as living:
        assert not any(path.exists() for path in files.values())
        for kind in "ch":
            files[kind].touch()
        assert sweep_leftovers() == ["part"]
        assert not any(path.exists() for path in files.values())
        assert all(path.exists() for path in files_of(living.name).values())


@pytest.mark.report("R064")
def test_attaching_to_empty_segments_is_a_corrupt_pool() -> None:
    for path in files_of("unborn").values():
        path.touch()
    with pytest.raises(CorruptPool, match="is empty"):
        Pool.attach("unborn")
    assert sweep_leftovers() == ["unborn"]


@pytest.mark.report("R130")
def test_a_limit_that_no_address_space_holds_says_so() -> None:
    with pytest.raises(OutOfSharedMemory, match="limit=4611686018427387904"):
        st.Pool.create(limit=1 << 62)


@pytest.mark.report("R130")
def test_where_files_may_not_be_that_large_a_pool_says_so(run_script: RunScript) -> None:
    code = """
    import os, resource
    from allocator import OutOfSharedMemory, Pool

    before = set(os.listdir("/dev/shm"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    try:
        Pool.create(limit=1 << 19)
    except OutOfSharedMemory as error:
        print("ulimit" in str(error), [name for name in set(os.listdir("/dev/shm")) - before if "shmt" in name])
    """
    assert run_script(code) == "True []\n"


@pytest.mark.report("R039")
def test_blocks_in_cycles_end_in_silence_when_released_or_after_the_modules_were_emptied(run_script: RunScript) -> None:
    code = """
    import atexit, gc, sys
    import shmtensor as st

    def empty_modules(modules=sys.modules, collect=gc.collect, variables=vars):
        for name, module in list(modules.items()):
            if name.split(".")[0] in ("allocator", "shmtensor"):
                for key in [each for each in variables(module) if not each.startswith("__")]:
                    variables(module)[key] = None
        collect()

    atexit.register(empty_modules)
    pool = st.Pool.create(limit=64 << 20)
    for send in (False, True):
        block = pool.allocate(100)
        if send:
            block.share().discard()
        block.release()
        cycle = [block]
        cycle.append(cycle)
        del block, cycle
        gc.collect()
    gc.disable()
    cycle = [st.ones((5,), pool=pool), st.ones((1 << 20,), pool=pool)]
    cycle.append(cycle)
    del cycle
    """
    assert run_script(code) == ""
