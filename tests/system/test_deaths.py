"""Processes that exit, are killed, or never come up: no message is lost, no memory stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import RunScript


@pytest.mark.report("R025", "R139")
@pytest.mark.parametrize("end", ["exit", "kill"])
def test_a_producer_that_ends_right_after_sending_loses_no_message(
    run_script: RunScript, start_method: str, end: str
) -> None:
    code = """
    import os, signal, sys
    import numpy as np
    import shmtensor as st

    def produce(connection, end):
        for i in range(20):
            connection.send(st.full((1000 + i, 10), i, dtype="int32")[5:])
        connection.close()
        if end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)

    if __name__ == "__main__":
        pool = st.default_pool()
        here, there = mp.Pipe(duplex=False)
        worker = mp.Process(target=produce, args=(there, sys.argv[1]))
        worker.start()
        worker.join()
        assert worker.exitcode == (0 if sys.argv[1] == "exit" else -signal.SIGKILL), worker.exitcode
        pool.reap()
        pool.check()
        for i in range(20):
            t = here.recv()
            assert t.shape == (995 + i, 10) and (t.numpy() == i).all()
            del t
        pool.reap()
        pool.check()
        assert pool.stats().used_bytes == 0, pool.stats()
        print("ok")
    """
    assert run_script(code, end, start_method=start_method) == "ok\n"


@pytest.mark.report("R146")
def test_what_a_killed_consumer_held_comes_back(run_script: RunScript, start_method: str) -> None:
    code = """
    import os, signal
    import numpy as np
    import shmtensor as st

    def consume(inbox, outbox):
        held = [inbox.get() for _ in range(10)]
        own = [st.ones((1000, 1000)) for _ in range(3)]
        outbox.put("holding")
        signal.pause()

    if __name__ == "__main__":
        pool = st.default_pool()
        inbox, outbox = mp.Queue(), mp.Queue()
        worker = mp.Process(target=consume, args=(inbox, outbox))
        worker.start()
        for i in range(10):
            inbox.put(st.ones((100, 100 * i + 1)))
        assert outbox.get() == "holding"
        assert pool.stats().used_bytes > 12_000_000
        worker.kill()
        worker.join()
        pool.reap()
        pool.check()
        stats = pool.stats()
        assert (stats.used_bytes, stats.records, stats.clients) == (0, 0, 1), stats
        print("ok")
    """
    assert run_script(code, start_method=start_method) == "ok\n"


@pytest.mark.report("R055")
def test_a_full_pool_takes_back_what_a_killed_process_had_by_itself(run_script: RunScript) -> None:
    code = """
    import os, signal
    import numpy as np
    import shmtensor as st

    def hoard(name, outbox):
        pool = st.Pool.attach(name)
        hoarded = [pool.allocate(1 << 20) for _ in range(50)]
        outbox.put("full")
        signal.pause()

    if __name__ == "__main__":
        pool = st.Pool.create(limit=64 << 20)
        outbox = mp.Queue()
        worker = mp.Process(target=hoard, args=(pool.name, outbox))
        worker.start()
        assert outbox.get() == "full"
        try:
            pool.allocate(32 << 20)
        except st.OutOfSharedMemory as error:
            assert f"pid {worker.pid}" in str(error), error
        else:
            raise AssertionError("the pool is full")
        worker.kill()
        worker.join()
        block = pool.allocate(60 << 20)
        pool.check()
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R071")
def test_a_worker_killed_inside_the_critical_section_leaves_the_lock_and_true_tables(run_script: RunScript) -> None:
    code = """
    import os, signal
    import numpy as np
    import shmtensor as st

    def die_inside(name):
        pool = st.Pool.attach(name)
        block = pool.allocate(1 << 20)
        def body():
            pool.commons.ledger.spans.allocate(20, 0, pool.commons.me.owner)
            os.kill(os.getpid(), signal.SIGKILL)
        pool.commons.section(body)

    if __name__ == "__main__":
        pool = st.Pool.create(limit=64 << 20)
        kept = pool.allocate(100)
        kept.memoryview()[:] = b"k" * 100
        for _ in range(3):
            worker = mp.Process(target=die_inside, args=(pool.name,))
            worker.start()
            worker.join()
            assert worker.exitcode == -signal.SIGKILL
            pool.check()
            assert pool.stats().used_bytes == 128
        assert bytes(kept.memoryview()) == b"k" * 100
        print("ok")
    """
    assert run_script(code) == "ok\n"


def test_a_message_of_a_killed_sender_ends_only_after_its_grace_and_when_memory_is_needed(
    run_script: RunScript,
) -> None:
    code = """
    import os, signal, time
    import numpy as np
    import shmtensor as st

    def send(name, connection):
        pool = st.Pool.attach(name)
        connection.send(st.ones((2 << 20,), dtype="uint8", pool=pool).header())
        os.kill(os.getpid(), signal.SIGKILL)

    if __name__ == "__main__":
        for grace, survives in ((60, True), (0, False)):
            pool = st.Pool.create(limit=8 << 20, ticket_grace=grace)
            here, there = mp.Pipe(duplex=False)
            worker = mp.Process(target=send, args=(pool.name, there))
            worker.start()
            header = here.recv()
            worker.join()
            pool.reap()
            try:
                block = pool.allocate(7 << 20)
            except st.OutOfSharedMemory as error:
                assert survives and "1 messages in flight" in str(error), error
                assert np.sum(header.open()).item() == 2 << 20
            else:
                assert not survives
                try:
                    header.open()
                except st.StaleHandle:
                    pass
                else:
                    raise AssertionError("its memory was given away")
                del block
            pool.check()
            pool.close()
        print("ok")
    """
    assert run_script(code) == "ok\n"


def test_the_parent_opens_what_a_child_sent_after_every_other_process_left(run_script: RunScript) -> None:
    code = """
    import os
    import numpy as np
    import shmtensor as st

    def send(connection):
        connection.send(st.full((50,), 3.0, pool=st.Pool.create(limit=1 << 20)))

    if __name__ == "__main__":
        here, there = mp.Pipe(duplex=False)
        worker = mp.Process(target=send, args=(there,))
        worker.start()
        worker.join()
        t = here.recv()
        assert np.sum(t).item() == 150
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R058")
def test_pools_of_killed_programs_are_swept_by_the_next_one(run_script: RunScript) -> None:
    doomed = """
    import os, signal
    import numpy as np
    import shmtensor as st
    if __name__ == "__main__":
        pool = st.Pool.create("doomed", limit=1 << 20)
        block = pool.allocate(100)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    run_script(doomed, returncode=-9)
    survivor = """
    import os
    import numpy as np
    import shmtensor as st
    if __name__ == "__main__":
        pool = st.Pool.create("doomed", limit=1 << 20)
        assert pool.stats().used_bytes == 0
        print("ok")
    """
    assert run_script(survivor) == "ok\n"
