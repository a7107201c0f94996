"""Names between processes: they outlive their publishers, and readers never see half of a replacement."""

from __future__ import annotations

from collections.abc import Callable


def test_a_published_view_outlives_its_killed_publisher(run_script: Callable[..., str], start_method: str) -> None:
    run_script(
        """
        import os, signal
        import shmtensor as st

        def publisher(pool):
            frames = st.arange(24, dtype="float32", pool=pool).reshape(2, 3, 4)
            st.publish("frames", frames.permute(2, 0, 1)[1:])
            os.kill(os.getpid(), signal.SIGKILL)

        if __name__ == "__main__":
            pool = st.Pool.create(limit=64 << 20, ticket_grace=0)
            process = mp.Process(target=publisher, args=(pool,))
            process.start()
            process.join()
            assert process.exitcode == -signal.SIGKILL
            pool.reap()
            for _ in range(40):  # of the killed one's memory everything but this comes back
                pool.allocate(1 << 20)
            frames = st.lookup("frames", pool=pool)
            assert (frames.shape, frames.stride(), frames.storage_offset()) == ((3, 2, 3), (1, 12, 4), 1)
            assert (frames.numpy() == st.arange(24).reshape(2, 3, 4).permute(2, 0, 1)[1:].numpy()).all()
            st.unpublish("frames", pool=pool)
            del frames
            pool.reap()
            pool.check()
            stats = pool.stats()
            assert (stats.used_bytes, stats.records, stats.names) == (0, 0, 0), stats
        """,
        start_method=start_method,
    )


def test_readers_get_the_old_or_the_new_whatever_becomes_of_the_publishers(run_script: Callable[..., str]) -> None:
    out = run_script(
        """
        import itertools, os, random, signal, time
        import numpy as np
        import shmtensor as st

        def publish(name, seed):
            pool = st.Pool.attach(name)
            for value in itertools.count(seed):
                st.publish("weights", st.full((value % 7 + 1, 500), value, dtype="int64", pool=pool))

        def read(name, seconds, results):
            pool = st.Pool.attach(name)
            kept, seen, until = [], 0, time.monotonic() + seconds
            while time.monotonic() < until:
                weights = st.lookup("weights", timeout=5, pool=pool)
                value = int(weights[0, 0])
                assert weights.shape == (value % 7 + 1, 500), (weights.shape, value)
                kept = [*kept[-20:], (weights, value)]  # the old ones stay as they were
                for tensor, number in kept:
                    assert (tensor.numpy() == number).all(), number
                seen += 1
            results.put(seen)

        if __name__ == "__main__":
            pool = st.Pool.create(limit=64 << 20)
            results = mp.SimpleQueue()
            readers = [mp.Process(target=read, args=(pool.name, 1.5, results)) for _ in range(2)]
            for reader in readers:
                reader.start()
            kills = 0
            while any(reader.is_alive() for reader in readers):
                writer = mp.Process(target=publish, args=(pool.name, 1000 * kills))
                writer.start()
                time.sleep(random.uniform(0, 0.15))
                writer.kill()
                writer.join()
                kills += 1
            for reader in readers:
                reader.join()
                assert reader.exitcode == 0
            pool.reap()
            pool.check()
            assert pool.stats().records == 1
            st.unpublish("weights", pool=pool)
            pool.discard_tickets(older_than=0)
            assert pool.stats().used_bytes == 0, pool.stats()
            print(kills, results.get() + results.get())
        """,
        start_method="fork",
    )
    kills, seen = map(int, out.split())
    assert kills > 3
    assert seen > 50


def test_who_looks_a_name_up_may_come_first(run_script: Callable[..., str]) -> None:
    run_script(
        """
        import shmtensor as st

        def wait(name, answers):
            pool = st.Pool.attach(name)
            try:
                st.lookup("late", pool=pool)
            except st.NameNotFound:
                answers.put("waiting")
            answers.put(int(st.lookup("late", timeout=30, pool=pool).numpy().sum()))

        if __name__ == "__main__":
            pool, answers = st.Pool.create(limit=1 << 20), mp.SimpleQueue()
            waiter = mp.Process(target=wait, args=(pool.name, answers))
            waiter.start()
            assert answers.get() == "waiting"
            st.publish("late", st.ones(5, pool=pool))
            assert answers.get() == 5
            waiter.join()
        """
    )


def test_a_pool_goes_with_its_last_process_and_its_names_with_it(run_script: Callable[..., str]) -> None:
    run_script(
        """
        import shmtensor as st

        def publish(name):
            st.publish("x", st.ones(5, pool=st.Pool.attach(name)))

        if __name__ == "__main__":
            pool = st.Pool.create("goes", limit=1 << 20)
            process = mp.Process(target=publish, args=("goes",))
            process.start()
            process.join()
            assert list(pool.names()) == ["x"]
            pool.close()
            try:
                st.Pool.attach("goes")
            except st.PoolNotFound:
                pass
            else:
                raise AssertionError("still there")
        """
    )
