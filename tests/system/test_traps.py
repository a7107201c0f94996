"""A test for each trap that other libraries of shared tensors have fallen into, named after it.

Those tested elsewhere: a message that opens only once, a second view that arrives as a second copy
(test_transport.py), and a resize that is not seen by others (there too).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import RunScript

# Sends each of `make()`, in the order of its names, to a worker, which answers with what `facts` says of it.
EXCHANGE = """
import numpy as np
import shmtensor as st
import sys
{definitions}
def serve(inbox, outbox):
    for _ in make():
        outbox.put(facts(inbox.get()))

def exchange():
    made = make()
    inbox, outbox = mp.Queue(), mp.Queue()
    worker = mp.Process(target=serve, args=(inbox, outbox), daemon=True)
    worker.start()
    seen = {{}}
    for name, tensor in made.items():
        inbox.put(tensor)
        seen[name] = outbox.get(timeout=30)
    worker.join()
    return seen

if __name__ == "__main__":
    for name, found in exchange().items():
        assert found == EXPECTED[name], (name, found)
    print(*EXPECTED, sep=",")
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_transposes_slices_and_reversed_arrays_arrive_with_values_strides_and_offset(
    run_script: RunScript, method: str
) -> None:
    """Trap: ``m.T``, ``m[1:4].T``, ``m[::-1]`` with wrong values; strides recomputed; the offset lost."""
    definitions = """
def make():
    m = st.arange(20).view(5, 4)
    backwards = np.arange(20).reshape(5, 4)[::-1]
    return {
        "m.T": m.T,
        "m[1:4].T": m[1:4].T,
        "m[1:4, ::2]": m[1:4, ::2],
        "m[::-1]": st.from_numpy(backwards),
        "m[::-1].T": st.from_numpy(backwards.T),
        "flip": m.flip(0),
        "np.flip": np.flip(m, 1),
    }

def facts(t):
    return t.tolist(), t.stride(), t.storage_offset()

rows = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15], [16, 17, 18, 19]]
columns = [[0, 4, 8, 12, 16], [1, 5, 9, 13, 17], [2, 6, 10, 14, 18], [3, 7, 11, 15, 19]]
EXPECTED = {
    "m.T": (columns, (1, 4), 0),
    "m[1:4].T": ([[4, 8, 12], [5, 9, 13], [6, 10, 14], [7, 11, 15]], (1, 4), 4),
    "m[1:4, ::2]": ([[4, 6], [8, 10], [12, 14]], (4, 2), 4),
    "m[::-1]": (rows[::-1], (4, 1), 0),
    "m[::-1].T": ([column[::-1] for column in columns], (5, 1), 0),
    "flip": (rows[::-1], (4, 1), 0),
    "np.flip": ([row[::-1] for row in rows], (4, 1), 0),
}
"""
    code = EXCHANGE.format(definitions=definitions)
    expected = "m.T,m[1:4].T,m[1:4, ::2],m[::-1],m[::-1].T,flip,np.flip\n"
    assert run_script(code, start_method=method) == expected


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_sizes_dims_dtypes_and_alignment_arrive_as_they_are(run_script: RunScript, method: str) -> None:
    """Trap: nbytes rounded up to a page; zero-size refused; 0-d as 1-d; bool, complex lost; alignment below 64."""
    definitions = """
def make():
    return {
        "three bytes": st.tensor([1, 2, 3], dtype="uint8"),
        "no element": st.zeros(0),
        "no element of three dims": st.zeros(2, 0, 3, dtype="int16"),
        "a number": st.tensor(7),
        "a number in a row": st.arange(5)[3],
        "bool": st.tensor([True, False, True]),
        "complex": st.tensor([1 + 2j, 3 - 4j], dtype="complex128"),
        "a page and a byte": st.ones(4097, dtype="uint8"),
    }

def facts(t):
    storage = t.untyped_storage()
    values = t[:3].tolist() if t.ndim else t.item()
    return tuple(t.shape), str(t.dtype), t.nbytes, storage.nbytes(), storage.data_ptr() % 64, values

EXPECTED = {
    "three bytes": ((3,), "uint8", 3, 3, 0, [1, 2, 3]),
    "no element": ((0,), "float32", 0, 0, 0, []),
    "no element of three dims": ((2, 0, 3), "int16", 0, 0, 0, [[], []]),
    "a number": ((), "int64", 8, 8, 0, 7),
    "a number in a row": ((), "int64", 8, 40, 0, 3),
    "bool": ((3,), "bool", 3, 3, 0, [True, False, True]),
    "complex": ((2,), "complex128", 32, 32, 0, [1 + 2j, 3 - 4j]),
    "a page and a byte": ((4097,), "uint8", 4097, 4097, 0, [1, 1, 1]),
}
"""
    code = EXCHANGE.format(definitions=definitions)
    expected = (
        "three bytes,no element,no element of three dims,a number,a number in a row,bool,complex,a page and a byte\n"
    )
    assert run_script(code, start_method=method) == expected


def test_a_slice_is_sent_as_a_slice_and_saved_as_one(run_script: RunScript) -> None:
    """Trap: a slice sent as its whole storage; a plain pickle of a 4-element view of 4 MiB being 4 MiB long."""
    code = """
    import io, pickle
    import shmtensor as st

    def child(inbox, outbox):
        view = inbox.get()
        outbox.put((tuple(view.shape), view.storage_offset(), view.untyped_storage().id, view.tolist()))

    if __name__ == "__main__":
        whole = st.arange(1 << 19)  # 4 MiB
        pool = st.default_pool()
        used = pool.stats().used_bytes
        view = whole[1000:1004]
        assert len(pickle.dumps(view)) < 300
        assert len(pickle.dumps(view, 2)) < 400
        pool.discard_tickets(older_than=0)
        inbox, outbox = mp.Queue(), mp.Queue()
        worker = mp.Process(target=child, args=(inbox, outbox), daemon=True)
        worker.start()
        inbox.put(view)
        arrived = outbox.get(timeout=30)
        assert arrived == ((4,), 1000, whole.untyped_storage().id, [1000, 1001, 1002, 1003]), arrived
        worker.join()
        assert pool.stats().used_bytes == used, "nothing was copied"
        file = io.BytesIO()
        st.save(view, file)
        assert len(file.getvalue()) < 1000, len(file.getvalue())
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_resize_that_fails_changes_nothing_in_any_process_and_one_that_works_stays_shared(
    run_script: RunScript, method: str
) -> None:
    """Trap: resize_ on a shared storage crashing, or un-sharing it; a failed one that still changed the shape."""
    code = """
    import shmtensor as st

    def child(inbox, outbox):
        t = inbox.get()
        try:
            t.resize_(1 << 20)
        except st.StorageCapacityError:
            outbox.put((tuple(t.shape), t.stride(), t.untyped_storage().nbytes(), t.tolist()))
        t.resize_(8)[7] = 9
        outbox.put((tuple(t.shape), t.untyped_storage().nbytes()))
        assert inbox.get() == "write"
        outbox.put(t.tolist())

    if __name__ == "__main__":
        t = st.empty(2, 3, dtype="int64", capacity=64).fill_(4)
        inbox, outbox = mp.Queue(), mp.Queue()
        worker = mp.Process(target=child, args=(inbox, outbox), daemon=True)
        worker.start()
        inbox.put(t)
        assert outbox.get(timeout=30) == ((2, 3), (3, 1), 48, [[4, 4, 4], [4, 4, 4]])
        assert outbox.get(timeout=30) == ((8,), 64)
        assert (tuple(t.shape), t.untyped_storage().nbytes()) == ((2, 3), 64)
        for size in (1 << 20, (1 << 40, 3)):
            try:
                t.resize_(size)
            except st.StorageCapacityError:
                pass
            assert (tuple(t.shape), t.stride(), t.untyped_storage().nbytes()) == ((2, 3), (3, 1), 64)
        t.resize_(8)
        assert t[7].item() == 9, "the same memory as the worker's"
        t[6] = 5
        inbox.put("write")
        assert outbox.get(timeout=30) == [4, 4, 4, 4, 4, 4, 5, 9]
        worker.join()
        print("ok")
    """
    assert run_script(code, start_method=method) == "ok\n"


def test_no_tensor_hands_out_an_array_of_negative_strides(run_script: RunScript) -> None:
    """Trap: torch.from_dlpack of an array of negative strides aborts the process."""
    pytest.importorskip("torch", reason="what must not abort is torch, which comes with the extra 'torch'")
    code = """
    import numpy as np
    import torch
    import shmtensor as st

    if __name__ == "__main__":
        rows = np.arange(12).reshape(3, 4)
        t = st.from_numpy(rows)
        made = [
            (st.from_numpy(rows[::-1]), rows[::-1]),
            (st.as_tensor(rows[:, ::-1]), rows[:, ::-1]),
            (st.from_dlpack(rows[::-1, ::-1]), rows[::-1, ::-1]),
            (st.tensor(rows.T[::-1]), rows.T[::-1]),
            (st.as_tensor(t.numpy()[::-1]), rows[::-1]),
            (t.flip((0, 1)), rows[::-1, ::-1]),
            (np.flip(t), np.flip(rows)),
            (np.rot90(t), np.rot90(rows)),
            (np.fliplr(t), np.fliplr(rows)),
            (t.roll(-1, 0), np.roll(rows, -1, 0)),
        ]
        for place, (tensor, expected) in enumerate(made):
            assert min(tensor.stride()) > 0, place
            for shared in (torch.from_dlpack(tensor), tensor.torch(), torch.from_numpy(tensor.numpy())):
                assert np.array_equal(shared.numpy(), expected), place
        for key in (slice(None, None, -1), (..., slice(None, None, -2))):
            try:
                t[key]
            except ValueError as error:
                assert "flip" in str(error)
            else:
                raise AssertionError("a slice ran backwards")
        print("ok")
    """
    assert run_script(code) == "ok\n"
