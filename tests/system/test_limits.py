"""Few descriptors, little /dev/shm, small limits: clear errors, never a signal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import RunScript, RunSmall


@pytest.mark.report("R116")
def test_fifty_thousand_shared_tensors_live_under_64_descriptors(run_script: RunScript) -> None:
    code = """
    import os, resource
    import numpy as np
    import shmtensor as st

    def child(inbox, outbox):
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        tensors = []
        for _ in range(50):
            tensors += inbox.get()
        assert all(t.numpy()[0] == i for i, t in enumerate(tensors))
        outbox.put((len(tensors), len(os.listdir("/proc/self/fd"))))
        inbox.get()

    if __name__ == "__main__":
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        inbox, outbox = mp.Queue(), mp.Queue()
        worker = mp.Process(target=child, args=(inbox, outbox))
        worker.start()
        tensors = [st.full((16,), i, dtype="int64") for i in range(50_000)]
        for i in range(50):
            inbox.put(tensors[1000 * i : 1000 * (i + 1)])
        count, descriptors = outbox.get()
        assert count == 50_000 and descriptors < 20, (count, descriptors)
        assert len(os.listdir("/proc/self/fd")) < 20
        stats = st.default_pool().stats()
        assert stats.records == 50_000, stats
        st.default_pool().check()
        inbox.put("done")
        worker.join()
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R002", "R004")
def test_a_full_64_mib_dev_shm_is_an_error_that_names_shm_size(run_small: RunSmall) -> None:
    code = """
import os
import shmtensor as st

pool = st.Pool.create(limit=1 << 30)
kept = []
try:
    while True:
        kept.append(st.ones((1 << 20,), pool=pool))
except st.OutOfSharedMemory as error:
    assert "--shm-size" in str(error), error
assert 8 <= len(kept) <= 16, len(kept)
assert all((t.numpy() == 1).all() for t in kept)
pool.check()
del kept[:4]
again = st.ones((3 << 20,), pool=pool)
try:
    st.empty((128 << 20,), dtype="uint8", pool=pool)
except MemoryError:
    pass
small = [st.ones((100,), pool=pool) for _ in range(1000)]
pool.check()
with open("/dev/shm/filler", "wb", buffering=0) as file:  # somebody else takes all the rest
    try:
        while True:
            file.write(bytes(1 << 16))
    except OSError:
        pass
pool.check()
stats = pool.stats()
try:
    big = [st.ones((1 << 18,), pool=pool) for _ in range(100)]
except st.OutOfSharedMemory:
    pass
records = 0
try:
    while records < 100_000:  # the tables can't grow either
        small.append(st.ones((1,), pool=pool))
        small[-1].untyped_storage().seal()
        records += 1
except st.OutOfSharedMemory:
    pass
pool.check()
os.unlink("/dev/shm/filler")
print("ok")
"""
    assert run_small(code, "size=64m") == "ok\n"


def test_any_request_that_fits_into_limit_minus_used_succeeds(run_script: RunScript) -> None:
    code = """
    import random
    import numpy as np
    import shmtensor as st

    if __name__ == "__main__":
        seed = random.randrange(1 << 30)
        rng = random.Random(seed)
        pool = st.Pool.create(limit=64 << 20)
        kept = []
        for step in range(600):
            if kept and rng.random() < 0.5:
                kept.pop(rng.randrange(len(kept)))
            else:
                free = pool.stats().free_bytes
                most = free + 1 if free > 1 << 20 and rng.random() < 0.3 else 2 << 20
                nbytes = rng.randrange(600 << 10, most)
                if nbytes + 4096 < free:
                    kept.append(pool.allocate(nbytes))
            if step % 50 == 0:
                pool.check()
        kept.clear()
        whole = pool.allocate(pool.stats().free_bytes)
        pool.check()
        print("ok")
    """
    assert run_script(code) == "ok\n"


def test_an_address_space_limit_makes_smaller_pools_not_failures(run_script: RunScript) -> None:
    code = """
    import resource
    import numpy as np
    import shmtensor as st

    if __name__ == "__main__":
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        pool = st.Pool.create(limit=64 << 20)
        assert np.sum(st.ones((1 << 20,), pool=pool)).item() == 1 << 20
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R001")
def test_waiting_for_memory_ends_when_another_process_frees_some(run_script: RunScript) -> None:
    code = """
    import numpy as np
    import shmtensor as st

    def consume(inbox, outbox):
        while (t := inbox.get()) is not None:
            outbox.put(float(t.numpy()[0]))
            del t

    if __name__ == "__main__":
        pool = st.Pool.create(limit=8 << 20, timeout=30.0)
        inbox, outbox = mp.Queue(), mp.Queue()
        worker = mp.Process(target=consume, args=(inbox, outbox))
        worker.start()
        for i in range(40):  # ten times the limit goes through
            inbox.put(st.full((1 << 19,), i, pool=pool))
        assert [outbox.get() for _ in range(40)] == list(range(40))
        inbox.put(None)
        worker.join()
        print("ok")
    """
    assert run_script(code) == "ok\n"
