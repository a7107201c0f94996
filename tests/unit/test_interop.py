"""Other libraries' ways in: NumPy's protocols, buffers, DLPack, torch. Each export keeps the memory by itself."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor.storage import Pool


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


@pytest.mark.parametrize(
    "export", [lambda t: t.numpy(), np.asarray, lambda t: t.memoryview(), lambda t: t.numpy()[::2].T, np.from_dlpack]
)
def test_an_export_keeps_the_memory_whatever_becomes_of_the_tensor(export: Any, pool: Pool) -> None:
    tensor = st.full((1 << 18,), 7, pool=pool)
    held = export(tensor)
    del tensor
    gc.collect()
    assert pool.stats().used_bytes >= 1 << 20
    again = st.zeros(1 << 18, dtype="int64", pool=pool)
    assert held[5] == 7
    del held, again
    gc.collect()
    assert pool.stats().used_bytes == 0


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
