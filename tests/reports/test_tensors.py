"""What a tensor is when it arrives: shape, strides, values, dtype, who may write."""

from __future__ import annotations

import gc
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import shmtensor as st
from allocator import Pool

if TYPE_CHECKING:
    from conftest import RunScript


@pytest.mark.report("R095")
def test_slices_of_any_axis_and_random_ones_arrive_with_their_values(run_script: RunScript) -> None:
    code = """
    import random
    import numpy as np
    import shmtensor as st

    def answer(end):
        while (t := end.recv()) is not None:
            end.send((t.shape, t.stride(), np.array(t)))

    def basic(rng, shape):
        def part(size):
            kind = rng.randrange(4)
            if kind == 0:
                return rng.randrange(-size, size)
            return slice(rng.randrange(-size, size), rng.randrange(-size, size + 1), rng.choice([None, 1, 2, 3]))
        index = [part(size) for size in shape[: rng.randint(1, len(shape))]]
        if rng.random() < 0.3:
            index.insert(rng.randrange(len(index) + 1), None)
        if rng.random() < 0.3:
            index.append(Ellipsis)
        return tuple(index)

    if __name__ == "__main__":
        here, there = mp.Pipe()
        worker = mp.Process(target=answer, args=(there,))
        worker.start()
        seed = random.randrange(1 << 30)
        rng = random.Random(seed)
        indices = [np.s_[..., 0], np.s_[:, 3], np.s_[::2, ::3], np.s_[1:, :, 2:3]]
        shape = (6, 7, 5, 4)
        values = np.random.default_rng(seed).random(shape)
        tensor = st.from_numpy(values)
        for index in indices + [basic(rng, shape) for _ in range(400)]:
            here.send(tensor[index])
            got_shape, stride, got = here.recv()
            wanted = values[index]
            assert got_shape == wanted.shape and np.array_equal(got, wanted), (seed, index)
            for size, got_step, step in zip(wanted.shape, stride, wanted.strides):
                assert size < 2 or wanted.size == 0 or 8 * got_step == step, (seed, index)
        here.send(None)
        worker.join()
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R098", "R099")
def test_empty_tensors_travel_alone_in_batches_and_back(run_script: RunScript, start_method: str) -> None:
    code = """
    import shmtensor as st

    SHAPES = [(0,), (0, 100), (5, 0), (), (0, 4), (1, 0), (3, 0, 2)]

    def echo(batch):
        return [(t, t.shape, str(t.dtype)) for t in batch]

    if __name__ == "__main__":
        pool = st.default_pool()
        with mp.Pool(2) as workers:
            live = st.arange(10)
            batches = []
            for dtype in ("float32", "int64", "bool"):
                batch = [st.zeros(shape, dtype=dtype) for shape in SHAPES]
                batches.append(batch + [live[3:3], st.ones((7, 4), dtype=dtype)])
            for batch, answers in zip(batches, workers.map(echo, batches)):
                for t, (back, shape, dtype) in zip(batch, answers, strict=True):
                    assert t.shape == back.shape == shape and str(t.dtype) == dtype == str(back.dtype)
                    assert back.untyped_storage() is t.untyped_storage()  # an empty slice keeps its storage, too
                    assert back.tolist() == t.tolist()
            workers.close()
            workers.join()
        print("ok")
    """
    assert run_script(code, start_method=start_method) == "ok\n"


@pytest.mark.report("R099")
def test_a_message_that_can_not_be_opened_is_an_error_where_it_is_received_and_the_next_one_arrives(
    run_script: RunScript,
) -> None:
    code = """
    import shmtensor as st

    def receive(inbox, outbox):
        for _ in range(3):
            try:
                outbox.put(inbox.get().tolist())
            except st.StaleHandle as error:
                outbox.put("stale")

    if __name__ == "__main__":
        pool = st.default_pool()
        inbox, outbox = mp.Queue(), mp.SimpleQueue()
        t = st.ones((3,))
        inbox.put(t)
        while not pool.stats().tickets:
            pass  # the feeder thread pickles
        del t
        assert pool.discard_tickets(older_than=0) == 1
        pool.stats()
        inbox.put(st.zeros((2, 0)))
        inbox.put(st.zeros((2,)))
        worker = mp.Process(target=receive, args=(inbox, outbox))
        worker.start()
        assert [outbox.get() for _ in range(3)] == ["stale", [[], []], [0.0, 0.0]]
        worker.join()
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R101")
def test_a_sample_of_another_shape_is_refused_naming_both_shapes_and_the_batch_is_as_before() -> None:
    batch = st.zeros(4, 3, 24, 24)
    sample = st.ones(3, 25, 24)
    for put in (lambda: batch.__setitem__(1, sample), lambda: batch[1].copy_(sample)):
        with pytest.raises(ValueError, match=r"\(3, ?25, ?24\)") as refusal:
            put()
        assert "3,24,24" in str(refusal.value).replace(" ", "")
    assert not batch.numpy().any()


@pytest.mark.report("R101", "R126")
def test_ragged_samples_and_python_objects_fit_into_a_flat_tensor_and_its_offsets(run_script: RunScript) -> None:
    # No helper is needed: this is all of it, and readers make no copy and change no reference count.
    code = """
    import pickle
    import numpy as np
    import shmtensor as st

    def read(flat, offsets, outbox):
        parts = [flat[start:end] for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist())]
        outbox.put([pickle.loads(part.memoryview()) for part in parts])

    if __name__ == "__main__":
        objects = [{"id": i, "text": "x" * i} for i in range(200)]
        data = [pickle.dumps(each) for each in objects]
        offsets = st.from_numpy(np.cumsum([0, *map(len, data)]))
        flat = st.frombuffer(b"".join(data), dtype="uint8")
        outbox = mp.SimpleQueue()
        worker = mp.Process(target=read, args=(flat, offsets, outbox))
        worker.start()
        assert outbox.get() == objects
        worker.join()
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R103")
def test_a_transpose_keeps_its_order_shared_copied_and_taken_in() -> None:
    values = np.arange(10.0).reshape(2, 5)
    tensor = st.from_numpy(values)
    for sent in (tensor.t(), tensor.t().clone(), tensor.t().contiguous(), st.from_numpy(values.T), st.tensor(values.T)):
        arrived = pickle.loads(pickle.dumps(sent))
        assert arrived.shape == (5, 2)
        assert np.array_equal(arrived.numpy(), values.T)


@pytest.mark.report("R104")
@pytest.mark.parametrize(
    "flipped",
    [
        np.arange(12.0).reshape(3, 4)[::-1],
        np.arange(12.0).reshape(3, 4)[:, ::-1],
        np.zeros((1, 10, 20))[::-1],
        np.arange(6)[::-1].reshape(1, 6)[::-1],
    ],
)
def test_arrays_with_negative_strides_come_in_by_value_and_go_out_to_every_framework(flipped: Any) -> None:
    tensor = st.from_numpy(flipped)
    arrived = pickle.loads(pickle.dumps(tensor))
    assert all(step >= 0 for step in arrived.stride())
    assert np.array_equal(arrived.numpy(), flipped)
    assert np.array_equal(np.from_dlpack(arrived), flipped)
    assert np.array_equal(np.asarray(arrived.memoryview()), flipped)
    assert np.array_equal(st.from_dlpack(np.from_dlpack(arrived[..., 1:])).numpy(), flipped[..., 1:])
    with pytest.raises(ValueError, match="copy"):
        st.from_numpy(flipped, copy=False)


@pytest.mark.report("R104")
def test_torch_takes_what_came_with_negative_strides() -> None:
    torch = pytest.importorskip("torch", reason="torch is optional")
    flipped = np.zeros((1, 10, 20))[::-1]
    tensor = st.from_numpy(flipped)
    for shared in (tensor.torch(), torch.from_dlpack(tensor), torch.as_tensor(tensor.numpy())):
        assert shared.shape == (1, 10, 20)
        assert shared.data_ptr() == tensor.data_ptr()


WRITES = {
    "item": lambda t: t.__setitem__(0, 1),
    "fill": lambda t: t.fill_(1),
    "copy": lambda t: t.copy_(st.ones(3)),
    "add": lambda t: t.__iadd__(1),
    "out": lambda t: np.add(t, 1, out=t),
    "storage": lambda t: t.storage().__setitem__(0, 1),
    "storage fill": lambda t: t.storage().fill_(1),
}


@pytest.mark.report("R106")
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("kind", ["readonly", "sealed"])
def test_writing_to_what_is_read_only_says_how_to_get_a_copy_that_can_be_written(kind: str, write: str) -> None:
    tensor = st.zeros(3)
    if kind == "sealed":
        tensor.untyped_storage().seal()
    else:
        tensor = tensor.readonly()
    with pytest.raises(ValueError, match=r"read-only.*clone\(\)"):
        WRITES[write](tensor)
    WRITES[write](tensor.clone())
    if kind == "sealed":
        with pytest.raises(ValueError, match=r"read-only.*clone\(\)"):
            tensor.untyped_storage().fill_(1)


@pytest.mark.report("R106", "R107")
def test_who_may_write_stays_the_same_hop_after_hop(run_script: RunScript) -> None:
    code = """
    import numpy as np
    import shmtensor as st

    def writes(t):
        def through_flag():
            array = t.numpy()
            array.flags.writeable = True
            array[0] = 9
        def through_memoryview():
            t.memoryview()[0] = 9.0
        def through_base():
            base = t.numpy()
            while isinstance(base.base, np.ndarray):
                base = base.base
            base.view("uint8")[:0] = 9
        done = []
        for write in (lambda: t.fill_(9), through_flag, through_memoryview, through_base):
            try:
                write()
                done.append(True)
            except (ValueError, TypeError):
                done.append(False)
        return done

    def hop(inbox, outbox, answers):
        for _ in range(4):
            t = inbox.recv()
            answers.put((t.is_readonly(), writes(t)))
            outbox.send(t)

    if __name__ == "__main__":
        pipes, answers = [mp.Pipe(duplex=False) for _ in range(3)], mp.SimpleQueue()
        workers = [
            mp.Process(target=hop, args=(inbox, outbox, answers))
            for (inbox, _), (_, outbox) in zip(pipes, pipes[1:])
        ]
        for worker in workers:
            worker.start()
        sealed = st.ones((3,))
        sealed.untyped_storage().seal()
        plain = st.ones((3,))
        for t, may_write in ((plain, True), (plain.readonly(), False), (sealed, False), (sealed.clone(), True)):
            pipes[0][1].send(t)
            for _ in workers:
                assert answers.get() == (not may_write, [may_write] * 4)
            back = pipes[-1][0].recv()
            assert back.is_readonly() == (not may_write)
            if may_write:
                assert t.tolist() == [9.0] * 3  # and this process sees it
        assert sealed.tolist() == [1.0] * 3
        for worker in workers:
            worker.join()
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.report("R108")
def test_arrays_of_other_kinds_are_copied_in_aliased_or_refused_and_nothing_is_lost() -> None:
    matrix = np.matrix([[1.0, 2.0]])
    assert st.from_numpy(matrix).tolist() == [[1.0, 2.0]]
    assert not np.shares_memory(st.from_numpy(matrix).numpy(), matrix)
    shared = st.zeros(2, 2)
    again = st.from_numpy(shared.numpy().view(np.matrix), copy=False)
    assert again.is_set_to(shared)
    records = np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")])
    masked = np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False])
    for take in (st.from_numpy, st.as_tensor, st.tensor, st.zeros(3).copy_, shared.new_tensor):
        with pytest.raises(TypeError, match=r"structured|mask"):
            take(masked)
        if take in (st.from_numpy, st.as_tensor, st.tensor):
            with pytest.raises(TypeError, match="structured"):
                take(records)
    with pytest.raises(TypeError, match="mask"):
        shared[0] = masked[:2]
    assert st.from_numpy(masked.filled(0)).tolist() == [1.0, 0.0, 3.0]


@pytest.mark.report("R109")
def test_what_a_function_may_do_with_a_tensor_does_not_depend_on_its_size(run_script: RunScript) -> None:
    code = """
    import pickle
    import shmtensor as st

    SIZES = [1, 64, 65_536, (512 << 10) - 1, 512 << 10, (512 << 10) + 1, 900_000, 1_100_000, 9_000_000]

    def work(t):
        facts = [t.is_readonly(), t.numpy().flags.writeable, t.is_shared(), t.is_contiguous()]
        t += 1
        t[-1] = 9
        return facts, t

    if __name__ == "__main__":
        pool = st.default_pool()
        with mp.Pool(1) as workers:
            for size in SIZES:
                t = st.zeros((size,), dtype="uint8")
                assert len(pickle.dumps(t)) < 200
                facts, back = workers.apply(work, (t,))
                assert facts == [False, True, True, True], (size, facts)
                assert back.untyped_storage() is t.untyped_storage()
                assert t[-1].item() == 9 and (t[:-1].numpy() == 1).all(), size
            workers.close()
            workers.join()
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R114")
def test_zeros_at_the_end_and_long_names_are_kept_or_refused_and_never_cut(pool: Pool) -> None:
    for content in (b"\x00", b"a\x00\x00", "\N{GRINNING FACE}x".encode(), b""):
        storage = st.Storage.from_buffer(content, pool=pool)
        assert bytes(pickle.loads(pickle.dumps(storage)).tolist()) == content
        tensor = st.frombuffer(content, dtype="uint8", pool=pool)
        assert bytes(pickle.loads(pickle.dumps(tensor)).tolist()) == content
    for name in ("a" * 15, "\N{GRINNING FACE}", "\N{LATIN SMALL LETTER E WITH ACUTE}", "a\x00", "a/b", " a"):
        with pytest.raises(ValueError, match="can't name a pool"):
            Pool.create(name, limit=1 << 20)
    longest = "x" * 14
    with Pool.create(longest, limit=1 << 20) as named:
        tensor = st.ones(3, pool=named)
        assert tensor.header().pool == named.name == longest
        del tensor
        gc.collect()
    for text in (np.array(["a"]), np.array([b"a\x00"])):
        with pytest.raises(TypeError, match="strings"):
            st.from_numpy(text)


@pytest.mark.report("R115")
def test_an_array_in_sixty_four_slices_costs_as_many_headers_and_no_second_array(run_script: RunScript) -> None:
    code = """
    import pickle
    import numpy as np
    import shmtensor as st

    def total(part):
        part += 1
        return np.sum(part).item()

    if __name__ == "__main__":
        pool = st.default_pool()
        whole = st.zeros((64, 1 << 15), dtype="int64")  # 16 MiB
        parts = [whole[i] for i in range(64)]
        assert len(pickle.dumps(parts)) < 64 * 100
        with mp.Pool(2) as workers:
            assert workers.map(total, parts, chunksize=4) == [1 << 15] * 64
            workers.close()
            workers.join()
        assert (whole.numpy() == 1).all()
        assert pool.stats().peak_bytes < (16 << 20) + (1 << 20), pool.stats()
        print("ok")
    """
    assert run_script(code) == "ok\n"


@pytest.mark.report("R134")
def test_neighbours_in_memory_have_headers_of_their_own_and_arrive_as_themselves(run_script: RunScript) -> None:
    code = """
    import shmtensor as st

    def read(inbox, outbox):
        a, b = inbox.get().open(), inbox.get().open()
        outbox.put((a.tolist(), b.tolist(), a.untyped_storage().id, b.untyped_storage().id))
        a.fill_(7)
        outbox.put("written")

    if __name__ == "__main__":
        a, b = st.full((4, 5), 1.5, dtype="float64"), st.full((3, 3), 2.5, dtype="float64")
        inbox, outbox = mp.SimpleQueue(), mp.SimpleQueue()
        worker = mp.Process(target=read, args=(inbox, outbox))
        worker.start()
        headers = a.header(), b.header()
        assert headers[0].record != headers[1].record
        for header in headers:
            inbox.put(header)
        expected = a.tolist(), b.tolist(), a.untyped_storage().id, b.untyped_storage().id
        assert outbox.get() == expected and expected[2] != expected[3]
        assert outbox.get() == "written"
        assert (a.numpy() == 7).all() and (b.numpy() == 2.5).all()
        worker.join()
        print("ok")
    """
    assert run_script(code) == "ok\n"
