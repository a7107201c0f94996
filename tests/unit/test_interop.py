"""Other libraries' ways in: NumPy's protocols, buffers, DLPack, torch. Each export keeps the memory by itself."""

from __future__ import annotations

import gc
import pickle
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor.storage import Pool

TABLE = runpy.run_path(str(Path(__file__).parents[1] / "exports.py"))
export, as_array = TABLE["export"], TABLE["as_array"]


def test_numpy_shares_with_shape_and_strides() -> None:
    tensor = st.arange(24, dtype="int32").view(2, 3, 4).permute(2, 0, 1)[1:]
    array = tensor.numpy()
    assert (array.shape, array.dtype, array.strides) == (
        (3, 2, 3),
        np.int32,
        tuple(4 * each for each in tensor.stride()),
    )
    array[0, 1, 2] = -1
    assert tensor[0, 1, 2].item() == -1
    assert np.shares_memory(array, tensor.numpy())


def test_asarray_shares_and_array_copies() -> None:
    tensor = st.arange(3)
    np.asarray(tensor)[0] = 5
    assert tensor[0].item() == 5
    np.array(tensor)[0] = 6
    assert tensor[0].item() == 5
    assert np.asarray(tensor, dtype="float32").dtype == np.float32
    assert tensor.__array__(copy=True).base is None
    assert tensor.__array__(dtype="int8").dtype == np.int8
    with pytest.raises(ValueError, match="copy"):
        tensor.__array__(dtype="int8", copy=False)
    assert np.shares_memory(tensor.__array__(copy=False), tensor.numpy())
    assert np.asarray(st.tensor(3)).shape == ()
    assert np.asarray(st.zeros(0, 3)).shape == (0, 3)


class _Foreign:
    """Something that only speaks the array interface."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def test_the_array_interface_describes_and_keeps_the_memory() -> None:
    tensor = st.arange(12).view(3, 4)[1:, ::2]
    interface = tensor.__array_interface__
    assert (interface["shape"], interface["strides"], interface["typestr"], interface["version"]) == (
        (2, 2),
        (32, 16),
        "<i8",
        3,
    )
    assert interface["data"][0] == tensor.data_ptr()
    address, read_only = interface["data"]
    assert (address, read_only) == (tensor.data_ptr(), False)
    assert tensor.readonly().__array_interface__["data"][1] is True
    foreign = np.asarray(_Foreign(interface))
    del tensor, interface
    gc.collect()
    others = [st.zeros(12, dtype="int64") for _ in range(50)]
    assert foreign.tolist() == [[4, 6], [8, 10]]
    assert len(others) == 50


# Derivations in a loop rather than as parameters: a pool for each would take most of the time.
EACH_WAY = pytest.mark.parametrize(("way", "derivations"), TABLE["CASES"].items(), ids=TABLE["CASES"])


@EACH_WAY
def test_an_export_and_what_is_derived_from_it_shares_memory_both_ways(way: str, derivations: tuple[str, ...]) -> None:
    for derivation in derivations:
        tensor = st.full((4, 6), 7, dtype="int32")
        seen = as_array(export(tensor, way, derivation))
        assert np.shares_memory(seen, tensor.numpy()), derivation
        tensor.fill_(-1)
        assert set(seen.tobytes()) == {255}, derivation
        if seen.flags.writeable:
            seen[...] = 0
            assert (tensor.numpy() == 0).sum() == seen.nbytes // 4, derivation
        else:
            assert derivation in ("diagonal", "read-only")


@pytest.mark.report("R042")
@EACH_WAY
@pytest.mark.parametrize("shape", [(4, 6), (300, 1000)])
def test_an_export_and_what_is_derived_from_it_keeps_the_memory_when_tensor_and_storage_are_gone(
    pool: Pool, way: str, derivations: tuple[str, ...], shape: tuple[int, int]
) -> None:
    def refilled(address: int) -> bool:
        """Fill the heap with other bytes; whether that reached the address."""
        others = [st.full(shape, -1, dtype="int32", pool=pool) for _ in range(3)]
        return address in [each.data_ptr() for each in others]

    for derivation in derivations:
        tensor = st.full(shape, 7, dtype="int32", pool=pool)
        size, address = tensor.nbytes, tensor.data_ptr()
        held = export(tensor, way, derivation)
        expected = as_array(held).copy()
        del tensor
        assert pool.stats().used_bytes >= size, derivation
        assert not refilled(address), derivation
        assert np.array_equal(as_array(held), expected), derivation
        del held
        assert pool.stats().used_bytes == 0, derivation
        assert refilled(address), derivation  # and without the export it does


@EACH_WAY
def test_under_an_export_a_storage_neither_shrinks_nor_moves_but_grows_in_place(
    pool: Pool, way: str, derivations: tuple[str, ...]
) -> None:
    for derivation in derivations:
        tensor = st.full((4, 6), 7, dtype="int32", pool=pool)
        storage = tensor.untyped_storage()
        held = export(tensor, way, derivation)
        room = storage.capacity()
        acts: list[Any] = [
            lambda s=storage: s.resize_(95),
            lambda s=storage: s.resize_(0),
            lambda t=tensor: t.storage().resize_(20),
            lambda s=storage, room=room: s.resize_(room + 1),
            lambda t=tensor: t.resize_(1000, 1000),
        ]
        for act in acts:
            with pytest.raises(BufferError, match=r"export of it alive .*drop it first"):
                act()
            assert (storage.nbytes(), tensor.shape, tensor.tolist()) == (96, (4, 6), [[7] * 6] * 4)
        storage.resize_(room)
        storage.resize_(room)  # the same size again takes nothing away
        assert set(as_array(held).tobytes()) == {0, 7}
        del held
        for act in acts:
            act()
        assert tensor.shape == (1000, 1000)


def test_a_read_only_export_pins_too(pool: Pool) -> None:
    tensor = st.zeros(4, pool=pool)
    held = tensor.readonly().numpy()[1:]
    with pytest.raises(BufferError):
        tensor.untyped_storage().resize_(8)
    del held
    tensor.untyped_storage().resize_(8)


def test_a_sent_storage_shrinks_when_its_export_is_gone(pool: Pool) -> None:
    tensor = st.zeros(4, pool=pool)
    message = pickle.dumps(tensor)
    held = memoryview(tensor.numpy())  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        tensor.untyped_storage().resize_(8)
    del held
    tensor.untyped_storage().resize_(8)
    assert tensor.untyped_storage().nbytes() == 8
    with pytest.raises(st.InvalidHeader, match="resized since"):
        pickle.loads(message)


def test_memoryviews_have_shape_and_strides() -> None:
    view = st.arange(6, dtype="int16").view(2, 3).t().memoryview()
    assert (view.shape, view.strides, view.format, view.itemsize) == ((3, 2), (2, 6), "h", 2)
    assert view.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert not view.readonly
    assert st.zeros(3).readonly().memoryview().readonly


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes can offer buffers from Python 3.12 on")
def test_the_buffer_protocol_shares() -> None:
    tensor = st.arange(3, dtype="uint8")
    memoryview(tensor)[0] = 9  # type: ignore[arg-type]
    assert tensor[0].item() == 9


def test_dlpack_goes_both_ways_within_numpy() -> None:
    tensor = st.arange(6).view(2, 3).t()
    assert tensor.__dlpack_device__() == (1, 0)
    array = np.from_dlpack(tensor)
    array[0, 0] = 7
    assert tensor[0, 0].item() == 7
    assert st.from_dlpack(np.arange(3)).tolist() == [0, 1, 2]
    assert st.from_dlpack(tensor) is tensor
    with pytest.raises(ValueError, match="copy"):
        st.from_dlpack(np.arange(3), copy=False)


def test_python_numbers_come_out_of_every_dtype() -> None:
    for dtype in ("bool", "uint8", "int64", "float16", "float64", "complex64"):
        assert type(st.ones(2, dtype=dtype).tolist()[0]) in (bool, int, float, complex)
        assert st.ones(1, dtype=dtype).item() == 1


# --- torch


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is optional")


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64"]
)
def test_torch_shares(torch: Any, dtype: str) -> None:
    tensor = st.zeros(3, 4, dtype=dtype).t()[1:]
    shared = tensor.torch()
    assert (tuple(shared.shape), shared.stride(), str(shared.dtype)) == (
        tensor.shape,
        tensor.stride(),
        f"torch.{dtype}",
    )
    shared[0, 0] = 1
    assert tensor[0, 0].item() == 1
    assert st.as_tensor(shared).is_set_to(tensor)
    assert st.from_dlpack(shared[:, 1:]).is_set_to(tensor[:, 1:])
    assert as_name(st.zeros(1, dtype=shared.dtype)) == dtype


def as_name(tensor: st.Tensor) -> str:
    return tensor.dtype.name


def test_torch_shares_bfloat16(torch: Any) -> None:
    pytest.importorskip("ml_dtypes", reason="bfloat16 comes with ml_dtypes")
    tensor = st.ones(3, dtype="bfloat16")
    shared = tensor.torch()
    assert shared.dtype is torch.bfloat16
    shared[0] = 2.5
    assert tensor.tolist() == [2.5, 1.0, 1.0]
    assert st.as_tensor(shared).is_set_to(tensor)
    assert st.from_dlpack(torch.ones(2, dtype=torch.bfloat16)).tolist() == [1.0, 1.0]


def test_torch_tensors_of_their_own_memory_are_copied_in(torch: Any) -> None:
    own = torch.arange(6).reshape(2, 3).t()
    made = st.as_tensor(own)
    assert (made.tolist(), made.stride()) == (own.tolist(), tuple(own.stride()))
    assert st.tensor(own.float().requires_grad_()).dtype == np.float32
    assert st.tensor(torch.tensor(1 + 2j).conj()).item() == 1 - 2j


def test_torch_keeps_the_memory_and_refuses_read_only_tensors(torch: Any, pool: Pool) -> None:
    shared = st.full((1 << 18,), 7, pool=pool).torch()
    gc.collect()
    st.zeros(1 << 18, dtype="int64", pool=pool)
    assert int(shared[5]) == 7
    with pytest.raises(ValueError, match="read-only"):
        st.zeros(3).readonly().torch()


def test_torch_reads_through_dlpack(torch: Any) -> None:
    tensor = st.arange(4)
    shared = torch.from_dlpack(tensor)
    shared[0] = 9
    assert tensor[0].item() == 9
