"""Exports, read-only tensors and optional dtypes in processes that received the tensor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import RunScript

TABLES = Path(__file__).parents[1]


def test_every_export_keeps_the_memory_of_a_received_tensor_whose_sender_is_gone(
    run_script: RunScript, start_method: str
) -> None:
    code = """
    import os, runpy, sys
    import numpy as np
    import shmtensor as st

    def send(outbox, ends):
        for shape in ((4, 6), (300, 1000)):
            for _ in range(150):
                outbox.put(st.full(shape, 7, dtype="int32"))
        outbox.close()
        outbox.join_thread()
        ends.recv()
        os.kill(os.getpid(), 9)

    def refilled(shape, address):
        others = [st.full(shape, -1, dtype="int32") for _ in range(3)]
        return address in [each.data_ptr() for each in others]

    if __name__ == "__main__":
        table = runpy.run_path(sys.argv[1])
        st.default_pool()
        inbox, (here, there) = mp.Queue(), mp.Pipe()
        sender = mp.Process(target=send, args=(inbox, there))
        sender.start()
        got = [inbox.get() for _ in range(300)]
        here.send("end")
        sender.join()
        assert sender.exitcode == -9
        pool = st.default_pool()
        pool.reap()
        cases = [(way, each) for way, names in table["CASES"].items() for each in names]
        assert 30 < len(cases) < 150  # as many as there are without torch
        for received in (got[:150], got[150:]):
            shape = received[0].shape
            for way, derivation in cases:
                tensor = received.pop()
                held, address = table["export"](tensor, way, derivation), tensor.data_ptr()
                expected = table["as_array"](held).copy()
                del tensor
                pool.stats()  # sweeps
                assert not refilled(shape, address), (way, derivation)
                assert np.array_equal(table["as_array"](held), expected), (way, derivation)
                assert expected.size and set(expected.tobytes()) == {0, 7}
                del held
            received.clear()
        del got, received
        assert pool.stats().used_bytes == 0
        pool.check()
        print("ok")
    """
    assert run_script(code, TABLES / "exports.py", start_method=start_method) == "ok\n"


@pytest.mark.parametrize("closing", ["readonly", "seal"])
def test_a_receiver_can_write_neither_to_a_read_only_tensor_nor_to_a_sealed_storage(
    run_script: RunScript, start_method: str, closing: str
) -> None:
    code = """
    import runpy, sys
    import shmtensor as st

    def child(inbox, outbox, path):
        table = runpy.run_path(path)
        t, storage_too = inbox.get()
        writes = table["WRITES"] | (table["STORAGE_WRITES"] if storage_too else {})
        outbox.put((len(writes), table["not_refused"](t, writes), t.is_readonly(), t.tolist()))
        outbox.put(t[1:])  # and back

    if __name__ == "__main__":
        path, closing = sys.argv[1:]
        whole = st.arange(12, dtype="float32").view(3, 4) + 2
        before = whole.tolist()
        inbox, outbox = mp.Queue(), mp.Queue()
        worker = mp.Process(target=child, args=(inbox, outbox, path))
        worker.start()
        if closing == "readonly":
            inbox.put((whole.readonly(), False))
        else:
            whole.untyped_storage().seal()
            inbox.put((whole, True))
        tried, passed, is_readonly, seen = outbox.get()
        assert tried > 70 and passed == [] and is_readonly and seen == before, (tried, passed, is_readonly)
        assert runpy.run_path(path)["not_refused"](outbox.get(), {"[0]": lambda t: t.__setitem__(0, 9)}) == []
        worker.join()
        assert whole.tolist() == before
        print("ok")
    """
    assert run_script(code, TABLES / "writes.py", closing, start_method=start_method) == "ok\n"


def test_a_storage_sealed_after_it_was_received_is_read_only_there_from_then_on(run_script: RunScript) -> None:
    code = """
    import runpy, sys
    import shmtensor as st

    def child(inbox, outbox, path):
        table = runpy.run_path(path)
        t = inbox.get()
        t.fill_(3)
        outbox.put("written")
        assert inbox.get() == "sealed"
        outbox.put(table["not_refused"](t, table["WRITES"] | table["STORAGE_WRITES"]))

    if __name__ == "__main__":
        t = st.zeros((3, 4))
        inbox, outbox = mp.Queue(), mp.Queue()
        worker = mp.Process(target=child, args=(inbox, outbox, sys.argv[1]))
        worker.start()
        inbox.put(t)
        assert outbox.get() == "written"
        t.untyped_storage().seal()
        inbox.put("sealed")
        assert outbox.get() == []
        worker.join()
        assert t.tolist() == [[3.0] * 4] * 3
        print("ok")
    """
    assert run_script(code, TABLES / "writes.py") == "ok\n"


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_a_receiver_without_ml_dtypes_is_told_what_to_install(
    run_script: RunScript, tmp_path: Path, dtype: str
) -> None:
    pytest.importorskip("ml_dtypes", reason=f"{dtype} comes with ml_dtypes")
    code = """
    import subprocess, sys
    from pathlib import Path
    import shmtensor as st
    import pickle

    if __name__ == "__main__":
        pool = st.default_pool()
        t = st.ones(3, dtype=sys.argv[1])
        Path("message").write_bytes(pickle.dumps(t))
        subprocess.run([sys.executable, "receiver.py", sys.argv[1]], check=True)
        assert t.tolist() == [1.0] * 3
        del t
        assert pool.stats().tickets == 0, pool.tickets()
        print("ok")
    """
    (tmp_path / "receiver.py").write_text(
        "from __future__ import annotations\n"
        "import pickle, sys\n"
        "from pathlib import Path\n"
        "sys.modules['ml_dtypes'] = None  # as where it isn't installed\n"
        "import shmtensor as st\n"
        "try:\n"
        "    pickle.loads(Path('message').read_bytes())\n"
        "except ImportError as error:\n"
        "    assert f'dtype {sys.argv[1]} needs the package ml_dtypes: pip install' in str(error), error\n"
        "else:\n"
        "    raise AssertionError('opened')\n"
    )
    assert run_script(code, dtype) == "ok\n"
