"""Views of every kind cross process boundaries by every transport, without a copy, and writes go both ways."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import RunScript

# In a module of its own, so that a spawned child finds what it is sent.
VIEWS = """
import numpy as np
import shmtensor as st

def views():
    base = st.arange(2 * 3 * 4 * 5, dtype="float32").view(2, 3, 4, 5)
    wide = st.arange(60, dtype="int64").view(4, 15)
    return {
        "whole": base,
        "offset": base[1],
        "step": wide[1:4:2, 2::3],
        "transpose": wide.t(),
        "permute": base.permute(0, 2, 3, 1),
        "expand": wide[:1].expand(7, 15),
        "number": wide[2, 3],
        "empty": base[:, 1:1],
        "zero elements": st.empty((0,)),
        "channels_last": base.contiguous(memory_format=st.channels_last),
        "bool": wide > 20,
        "complex": st.full((2, 2), 1 + 2j, dtype="complex128").T,
        "readonly": wide[1].readonly(),
        "half": st.ones((3,), dtype="float16"),
    }

def facts(t):
    return t.shape, t.stride(), t.storage_offset(), str(t.dtype), t.untyped_storage().id, t.tolist()

def answer(t):
    '''What the other process saw, before it wrote.'''
    seen = facts(t)
    try:
        t.fill_(True if t.dtype == bool else 7)
        wrote = True
    except (ValueError, RuntimeError):
        wrote = False
    return seen, wrote
"""

PRELUDE = """
import sys
import numpy as np
import shmtensor as st
from concurrent.futures import ProcessPoolExecutor
from views import views, facts, answer

def serve_queue(inbox, outbox):
    for _ in range(len(views())):
        name, t = inbox.get()
        outbox.put((name, answer(t)))

def serve_pipe(end):
    for _ in range(len(views())):
        name, t = end.recv()
        end.send((name, answer(t)))

def compare(name, t, expected, seen, wrote):
    assert seen == expected, (name, seen, expected)
    assert wrote == (name != "readonly"), name
    if wrote:
        assert (t.numpy() == (True if t.dtype == bool else 7)).all(), name

def through_queue():
    inbox, outbox = mp.Queue(), mp.Queue()
    worker = mp.Process(target=serve_queue, args=(inbox, outbox))
    worker.start()
    for name, t in views().items():
        expected = facts(t)
        inbox.put((name, t))
        back, (seen, wrote) = outbox.get()
        assert back == name
        compare(name, t, expected, seen, wrote)
    worker.join()
    assert worker.exitcode == 0

def through_pipe():
    here, there = mp.Pipe()
    worker = mp.Process(target=serve_pipe, args=(there,))
    worker.start()
    for name, t in views().items():
        expected = facts(t)
        here.send((name, t))
        back, (seen, wrote) = here.recv()
        compare(name, t, expected, seen, wrote)
    worker.join()
    assert worker.exitcode == 0

def through_pool():
    with mp.Pool(2) as workers:
        for name, t in views().items():
            compare(name, t, facts(t), *workers.apply(answer, (t,)))
        workers.close()
        workers.join()

def through_executor():
    with ProcessPoolExecutor(2, mp_context=mp.get_context()) as executor:
        for name, t in views().items():
            compare(name, t, facts(t), *executor.submit(answer, t).result())

if __name__ == "__main__":
    pool = st.default_pool()
    globals()["through_" + sys.argv[1]]()
    import gc
    gc.collect()
    pool.reap()  # a block alive at a fork stays until that child is gone
    pool.check()
    left = pool.stats()
    assert (left.used_bytes, left.records, left.tickets) == (0, 0, 0), left
    print("ok")
"""


@pytest.mark.report("R095", "R098", "R103")
@pytest.mark.parametrize("transport", ["queue", "pipe", "pool", "executor"])
def test_every_kind_of_view_arrives_as_it_was_and_writes_go_both_ways(
    run_script: RunScript, tmp_path: Path, start_method: str, transport: str
) -> None:
    (tmp_path / "views.py").write_text(VIEWS)
    assert run_script(PRELUDE, transport, start_method=start_method) == "ok\n"


@pytest.mark.report("R136")
def test_two_views_sent_separately_meet_on_one_storage(run_script: RunScript, start_method: str) -> None:
    code = """
    import numpy as np
    import shmtensor as st

    def child(inbox, outbox):
        first, second = inbox.get(), inbox.get()
        a, b = inbox.get()
        same = [first.untyped_storage() is other.untyped_storage() for other in (second, a, b)]
        outbox.put((same, first.untyped_storage().id))

    if __name__ == "__main__":
        t = st.arange(12).view(3, 4)
        inbox, outbox = mp.Queue(), mp.Queue()
        worker = mp.Process(target=child, args=(inbox, outbox))
        worker.start()
        inbox.put(t[1:])
        inbox.put(t.T)
        inbox.put((t, t[0]))
        same, identity = outbox.get()
        worker.join()
        assert same == [True, True, True], same
        assert identity == t.untyped_storage().id
        print("ok")
    """
    assert run_script(code, start_method=start_method) == "ok\n"


@pytest.mark.report("R030", "R136")
def test_what_was_pickled_once_opens_three_times_and_is_stale_when_all_are_gone(run_script: RunScript) -> None:
    code = """
    import gc, pickle
    import numpy as np
    import shmtensor as st

    def child(data, outbox):
        outbox.put(np.sum(pickle.loads(data)).item())

    if __name__ == "__main__":
        t = st.ones((100, 100))
        data = pickle.dumps(t[5:].T)
        assert len(data) < 300, len(data)
        opened = [pickle.loads(data) for _ in range(3)]
        assert all(o.untyped_storage() is t.untyped_storage() for o in opened)
        outbox = mp.Queue()
        for _ in range(3):
            worker = mp.Process(target=child, args=(data, outbox))
            worker.start()
            assert outbox.get() == 9500
            worker.join()
        del t, opened
        try:
            pickle.loads(data)
        except st.StaleHandle as error:
            assert "st.save" in str(error)
        else:
            raise AssertionError("the storage is gone")
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R046")
def test_a_resize_is_seen_by_the_other_process_at_once(run_script: RunScript, start_method: str) -> None:
    code = """
    import numpy as np
    import shmtensor as st

    def child(inbox, outbox):
        t = inbox.get()
        outbox.put("ready")
        assert inbox.get() == "shrunk"
        try:
            np.sum(t)
        except st.StorageBoundsError as error:
            outbox.put("bounds")
        assert inbox.get() == "grown"
        assert np.sum(t).item() == 1024 * 1024
        t.untyped_storage().resize_(8 << 20)
        outbox.put(t.untyped_storage().nbytes())

    if __name__ == "__main__":
        t = st.ones((1024, 1024), capacity=16 << 20)
        inbox, outbox = mp.Queue(), mp.Queue()
        worker = mp.Process(target=child, args=(inbox, outbox))
        worker.start()
        inbox.put(t)
        assert outbox.get() == "ready"
        storage = t.untyped_storage()
        storage.resize_(1024)
        inbox.put("shrunk")
        assert outbox.get() == "bounds"
        storage.resize_(4 << 20)
        t.fill_(1)
        inbox.put("grown")
        assert outbox.get() == storage.nbytes() == 8 << 20
        worker.join()
        try:
            storage.resize_(17 << 20)
        except st.StorageCapacityError as error:
            assert "capacity" in str(error)
        else:
            raise AssertionError("beyond the capacity")
        print("ok")
    """
    assert run_script(code, start_method=start_method) == "ok\n"
