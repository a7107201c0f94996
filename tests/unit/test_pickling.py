"""What travels, within one process: pickles, headers, and what a damaged or hostile one may not do."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor.storage import Pool
from shmtensor.tensors import rebuild, received

SOURCE = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
VIEWS: dict[str, Any] = {
    "whole": lambda t: t,
    "offset": lambda t: t[1:],
    "step": lambda t: t[:, ::2, 1::2],
    "transpose": lambda t: t.transpose(1, 3),
    "permute": lambda t: t.permute(3, 0, 2, 1),
    "expand": lambda t: t[:1].expand(7, -1, -1, -1),
    "0-d": lambda t: t[1, 2, 3, 4],
    "empty": lambda t: t[3:3, 1:],
    "empty at the end": lambda t: t[2:],
    "channels_last": lambda t: t.contiguous(memory_format=st.channels_last),
    "diagonal": lambda t: t.diagonal(1, 2, 3),
    "unfold": lambda t: t.unfold(3, 2, 2),
    "bytes": lambda t: t.view("uint8"),
    "read-only": lambda t: t[0].readonly(),
}


def source() -> st.Tensor:
    return st.from_numpy(SOURCE)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_arrives_as_it_was(name: str, protocol: int) -> None:
    view = VIEWS[name](source())
    arrived = pickle.loads(pickle.dumps(view, protocol))
    assert (arrived.shape, arrived.stride(), arrived.storage_offset()) == (
        view.shape,
        view.stride(),
        view.storage_offset(),
    )
    assert arrived.dtype == view.dtype
    assert np.array_equal(np.asarray(arrived), np.asarray(view))
    assert arrived.untyped_storage() is view.untyped_storage()
    assert (arrived.is_readonly(), arrived.is_view()) == (view.is_readonly(), view.is_view())


@pytest.mark.report("R112")
@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "float16", "float64", "complex128"]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3)])
def test_every_dtype_and_shape_arrives(dtype: str, shape: tuple[int, ...]) -> None:
    tensor = st.ones(shape, dtype=dtype)
    arrived = pickle.loads(pickle.dumps(tensor))
    assert (arrived.dtype, arrived.shape) == (tensor.dtype, shape)
    assert np.array_equal(np.asarray(arrived), np.ones(shape, dtype))


@pytest.mark.report("R112")
def test_bfloat16_arrives() -> None:
    pytest.importorskip("ml_dtypes", reason="bfloat16 comes with ml_dtypes")
    arrived = pickle.loads(pickle.dumps(st.ones(2, dtype="bfloat16")))
    assert arrived.dtype == st.bfloat16
    assert arrived.tolist() == [1.0, 1.0]


@pytest.mark.report("R093")
def test_a_pickle_is_a_few_hundred_bytes_whatever_the_size(pool: Pool) -> None:
    tensor = st.empty(1 << 22, pool=pool).view(64, 64, 32, 32)
    for view in (tensor, tensor[:1], tensor[1].permute(2, 0, 1)):
        for dump in (pickle.dumps, ForkingPickler.dumps):
            assert len(dump(view)) < 300
    one, many = len(pickle.dumps([tensor])), len(pickle.dumps([tensor, *(tensor[i] for i in range(64))]))
    assert many - one < 64 * 60


@pytest.mark.report("R093")
def test_views_in_one_message_share_a_ticket_and_stay_aliased(pool: Pool) -> None:
    tensor = st.zeros(4, pool=pool)
    message = pickle.dumps((tensor, tensor[1:]))
    assert len(pool.tickets()) == 1
    del tensor
    gc.collect()
    whole, view = pickle.loads(message)
    assert len(pool.tickets()) == 0
    view[0] = 5
    assert whole.tolist() == [0.0, 5.0, 0.0, 0.0]
    assert whole.untyped_storage() is view.untyped_storage()


def test_views_sent_separately_meet_on_one_storage() -> None:
    tensor = st.zeros(4)
    messages = [pickle.dumps(tensor[place:]) for place in range(4)]
    del tensor
    gc.collect()
    arrived = [pickle.loads(message) for message in messages]
    assert len({id(each.untyped_storage()) for each in arrived}) == 1
    arrived[0].fill_(7)
    assert arrived[3].tolist() == [7.0]


def test_a_message_opens_more_than_once_until_all_are_gone(pool: Pool) -> None:
    message = pickle.dumps(st.ones(3, pool=pool))
    opened = [pickle.loads(message) for _ in range(3)]
    assert len({id(each.untyped_storage()) for each in opened}) == 1
    del opened
    gc.collect()
    pool.stats()
    with pytest.raises(st.StaleHandle):
        pickle.loads(message)


def test_threads_that_open_one_message_meet_on_one_storage() -> None:
    messages = [pickle.dumps(st.full((2,), number)) for number in range(50)]
    with ThreadPoolExecutor(4) as threads:
        for message in messages:
            opened = list(threads.map(pickle.loads, [message] * 4))
            assert len({id(each.untyped_storage()) for each in opened}) == 1


def test_a_storage_travels_too() -> None:
    storage = st.Storage.from_buffer(b"abc")
    assert pickle.loads(pickle.dumps(storage)) is storage


def test_a_message_keeps_the_storage_alive_without_its_sender(pool: Pool) -> None:
    message = pickle.dumps(st.full((1000,), 3, pool=pool))
    gc.collect()
    for _ in range(50):
        st.zeros(1000, pool=pool, dtype="int64")
    assert set(pickle.loads(message).tolist()) == {3}


# --- TensorHeader


def test_a_header_is_plain_values_and_opens_once_or_more() -> None:
    view = source()[:, 1].transpose(0, 1)
    header = view.header()
    fields = dataclasses.asdict(header)
    assert (fields["shape"], fields["stride"], fields["offset"], fields["dtype"]) == (
        (4, 2, 5),
        (5, 60, 1),
        20,
        "float32",
    )
    for carried in (
        header,
        st.TensorHeader(**fields),
        st.TensorHeader(**json.loads(json.dumps(fields))),
        pickle.loads(pickle.dumps(header)),
    ):
        opened = carried.open()
        assert opened.is_set_to(view)
        assert np.array_equal(np.asarray(opened), np.asarray(view))
    with pytest.raises(dataclasses.FrozenInstanceError):
        header.offset = 3  # type: ignore[misc]


def test_a_header_owes_one_open_or_discard(pool: Pool) -> None:
    tensor = st.zeros(3, pool=pool)
    header = tensor.header()
    assert len(pool.tickets()) == 1
    header.discard()
    assert len(pool.tickets()) == 0
    with tensor.header() as header:
        assert len(pool.tickets()) == 1
    assert len(pool.tickets()) == 0
    with tensor.header() as header:
        arrived = header.open()
    assert arrived.is_set_to(tensor)
    with pytest.raises(KeyError), tensor.header():
        raise KeyError
    assert len(pool.tickets()) == 0


@pytest.mark.report("R032")
def test_a_header_from_another_machine_says_so() -> None:
    header = dataclasses.replace(st.zeros(1).header(), host="00000000")
    with pytest.raises(st.ForeignHost):
        header.open()


# --- damaged and hostile values

BAD_LAYOUTS: dict[str, dict[str, Any]] = {
    "past the end": {"shape": (25,)},
    "stride past the end": {"stride": (2,)},
    "offset past the end": {"offset": 1},
    "negative stride": {"stride": (-1,), "offset": 23},
    "negative size": {"shape": (-1,)},
    "negative offset": {"offset": -1},
    "more sizes than strides": {"shape": (2, 2)},
    "huge size": {"shape": (2**62,)},
    "huge size, no stride": {"shape": (2**62,), "stride": (0,)},
    "product overflows": {"shape": (2**40, 2**40), "stride": (0, 0)},
    "hidden by an empty dim": {"shape": (0, 2**70), "stride": (1, 1)},
    "more than NumPy counts, hidden by an empty dim": {"shape": (2**64, 0), "stride": (1, 1)},
    "extent wraps around": {"shape": (2,), "stride": (2**64 - 1,)},
    "huge stride of a single element": {"shape": (1,), "stride": (2**70,)},
    "huge offset of nothing": {"shape": (0,), "offset": 2**70},
    "too many dims": {"shape": (1,) * 65, "stride": (1,) * 65},
    "float size": {"shape": (24.5,)},
    "text size": {"shape": ("24",)},
    "list": {"shape": [24]},
    "string": {"shape": "24"},
    "None": {"stride": None},
    "float offset": {"offset": 0.0},
    "unknown code": {"code": 255},
    "negative code": {"code": -1},
    "code of another type": {"code": "float32"},
    "larger dtype": {"code": 12},
    "unknown flags": {"flags": 64},
    "flags of another type": {"flags": None},
    "storage of another type": {"storage": b"0" * 96},
}


@pytest.mark.report("R102")
@pytest.mark.parametrize("name", BAD_LAYOUTS)
def test_values_that_describe_no_tensor_in_the_storage_are_refused(name: str) -> None:
    good: dict[str, Any] = {
        "storage": st.zeros(24).untyped_storage(),
        "code": 11,
        "shape": (24,),
        "stride": (1,),
        "offset": 0,
        "flags": 0,
    }
    assert rebuild(**good).shape == (24,)
    with pytest.raises(st.InvalidHeader):
        rebuild(**good | BAD_LAYOUTS[name])


@pytest.mark.parametrize(
    "claim",
    [
        (b"host", "pool", 0, 0, 0, 0),
        ("host", None, 0, 0, 0, 0),
        ("host", "pool", -1, 0, 0, 0),
        ("host", "pool", 0, 1.0, 0, 0),
        ("host", "pool", 0, 0, 2**64, 0),
        ("host", "pool", "0", 0, 0, 0),
    ],
)
def test_a_claim_of_the_wrong_types_is_refused(claim: tuple[Any, ...]) -> None:
    with pytest.raises(st.InvalidHeader):
        received(*claim)


def test_a_claim_with_other_numbers_is_stale_and_never_another_storage(pool: Pool) -> None:
    tensor = st.zeros(8, pool=pool)
    header = tensor.header()
    for change in (
        {"record": header.record + 1},
        {"record": 2**40},
        {"record": 2**63},
        {"generation": header.generation + 1},
        {"generation": 2**63},
        {"pool": "nothing"},
        {"pool": "../../etc/passwd"},
        {"pool": ""},
    ):
        with pytest.raises((st.StaleHandle, st.InvalidHeader)):
            dataclasses.replace(header, **change).open()
    for change in ({"ticket": 2**50}, {"serial": 2**60}, {"ticket": 2**64 - 1}):
        # As for a message that was opened before: the storage lives, so it may be opened, but as itself only.
        try:
            opened = dataclasses.replace(header, **change).open()
        except (st.StaleHandle, st.InvalidHeader):
            continue
        assert opened.is_set_to(tensor)
    pool.check()
    assert header.open().is_set_to(tensor)


@pytest.mark.report("R111")
def test_headers_with_other_dtypes_are_refused() -> None:
    header = st.zeros(4).header()
    for dtype in ("object", "float99", "datetime64[s]", "U3", "float64", 3, None, ["float32"]):
        with pytest.raises(st.InvalidHeader):
            dataclasses.replace(header, dtype=dtype).open()  # type: ignore[arg-type]
    header.discard()


@pytest.mark.report("R102")
def test_no_change_of_numbers_in_a_message_reads_outside_the_storage() -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    storage = st.from_numpy(np.full(64, 7, np.uint8)).untyped_storage()
    interesting = [0, 1, 2, 3, 7, 8, 15, 16, 63, 64, 65, 2**31, 2**32, 2**62, 2**63, 2**64, -1, -8, True, 1.0, None]
    opened = 0
    for _ in range(20_000):
        ndim = rng.randrange(4)
        shape, stride = (
            tuple(rng.choice(interesting) for _ in range(rng.choice([ndim, ndim, ndim, 2]))) for _ in range(2)
        )
        try:
            tensor = rebuild(
                storage, rng.choice([1, 2, 3, 5, 9, 13]), shape, stride, rng.choice(interesting), rng.randrange(5)
            )
        except st.InvalidHeader:
            continue
        opened += 1
        if tensor.numel() < 1000:
            assert set(tensor.numpy().tobytes()) <= {7}, f"seed {seed}"
    assert opened > 100, f"seed {seed}"


@pytest.mark.report("R102")
def test_a_pickle_with_flipped_bytes_never_gives_a_tensor_outside_its_storage() -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    tensor = st.full((16,), 7, dtype="uint8")
    message = pickle.dumps(tensor[4:].view(3, 4).t())
    seen: set[int] = set()
    for _ in range(2000):
        damaged = bytearray(message)
        value = rng.randrange(256)
        if value == ord("r"):  # LONG_BINPUT with a large number: pickle itself asks for gigabytes
            continue
        damaged[rng.randrange(len(damaged))] = value
        tensor.fill_(7)  # a damaged message can hold SETITEM, and write into the tensor it just opened
        with contextlib.suppress(Exception):  # any error will do: a signal or a wrong byte will not
            found = pickle.loads(damaged)  # one byte off, no name but ours can come out
            if isinstance(found, st.Tensor) and found.untyped_storage() is tensor.untyped_storage():
                seen |= set(found.numpy().tobytes())
    assert seen == {7}, f"seed {seed}"
