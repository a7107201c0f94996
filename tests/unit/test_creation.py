"""Functions that make tensors from shapes, and those that take something in."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor.storage import Pool


def test_shapes_come_as_ints_or_as_one_tuple() -> None:
    for made in (
        st.zeros(2, 3),
        st.zeros((2, 3)),
        st.zeros([2, 3]),
        st.zeros(st.Size((2, 3))),
        st.zeros(np.int64(2), 3),
    ):
        assert (made.shape, made.stride()) == ((2, 3), (3, 1))
        assert type(made.shape[0]) is int
    assert st.zeros(()).shape == st.zeros().shape == ()
    assert st.zeros(2, 0, 3).stride() == (3, 3, 1)


@pytest.mark.parametrize("shape", [(2.0,), (-1,), ("a",), (None,), ((1, 2), 3), (1,) * 65, (2, -3)])
def test_a_shape_that_is_none_is_refused(shape: Any) -> None:
    st.empty(2)  # so that an equal shape is known already
    with pytest.raises((TypeError, ValueError)):
        st.empty(*shape)
    with pytest.raises((TypeError, ValueError)):
        st.empty(tuple(shape))


def test_defaults_are_torchs() -> None:
    assert [
        each.dtype.name for each in (st.empty(1), st.zeros(1), st.ones(1), st.eye(1), st.rand(1), st.linspace(0, 1, 2))
    ] == ["float32"] * 6
    assert [st.arange(3).dtype.name, st.arange(3.0).dtype.name, st.arange(0, 1, 0.5).dtype.name] == [
        "int64",
        "float32",
        "float32",
    ]
    assert [st.full(2, each).dtype.name for each in (1, 1.0, True, 1j)] == ["int64", "float32", "bool", "complex64"]
    assert [st.tensor(each).dtype.name for each in (1, 1.0, True, 1j, [1.5, 2], [], [[1], [2]])] == [
        "int64",
        "float32",
        "bool",
        "complex64",
        "float32",
        "float32",
        "int64",
    ]
    assert st.tensor(np.float64(1)).dtype == st.tensor([np.float64(1)]).dtype == np.float64


def test_values() -> None:
    assert st.zeros(2, 2).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert st.ones(2, dtype="int8").tolist() == [1, 1]
    assert st.full((2,), 7).tolist() == [7, 7]
    assert st.full((), 2.5).item() == 2.5
    assert st.arange(2, 8, 3).tolist() == [2, 5]
    assert st.arange(3, 0, -1).tolist() == [3, 2, 1]
    assert st.arange(st.tensor(3)).tolist() == [0, 1, 2]
    assert st.arange(5, 2).shape == (0,)
    assert st.linspace(0, 1, 5).tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert st.eye(2, 3).tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    with pytest.raises(ValueError):
        st.arange(0, 1, 0)


def test_random_numbers_have_a_seed_when_one_is_given() -> None:
    assert st.rand(4, generator=3).tolist() == st.rand(4, generator=3).tolist()
    assert st.rand(4).tolist() != st.rand(4).tolist()
    numbers = st.rand(1000, dtype="float64").numpy()
    assert 0 <= numbers.min() < numbers.max() < 1
    assert abs(float(np.mean(st.randn(10_000, generator=1)))) < 0.1
    assert st.rand(2, 2, dtype="float16").dtype == np.float16
    assert st.rand(0).shape == (0,)
    with pytest.raises(TypeError):
        st.rand(2, dtype="int8")


def test_likes_take_shape_dtype_strides_and_pool(pool: Pool) -> None:
    model = st.zeros(2, 3, dtype="int16", pool=pool).t()
    likes = [st.empty_like(model), st.zeros_like(model), st.ones_like(model), st.full_like(model, 3)]
    for made in likes:
        assert (made.shape, made.stride(), made.dtype.name) == ((3, 2), (1, 3), "int16")
        assert made.untyped_storage().block.pool is pool
    assert likes[3].tolist() == [[3, 3]] * 3
    assert st.zeros_like(model, dtype="float64", memory_format=st.contiguous_format).stride() == (2, 1)
    assert st.rand_like(st.zeros(3)).shape == st.randn_like(st.zeros(3)).shape == (3,)
    assert st.zeros_like(np.ones((2, 2))).dtype == np.float64


def test_memory_formats() -> None:
    assert st.empty(2, 3, 4, 5, memory_format=st.channels_last).stride() == (60, 1, 15, 3)
    assert st.zeros((2, 0, 4, 5), memory_format=st.channels_last).stride() == (0, 1, 0, 0)
    assert st.empty(2, 3, 4, 5, 6, memory_format=st.channels_last_3d).stride() == (360, 1, 90, 18, 3)
    with pytest.raises(ValueError, match="4 dims"):
        st.empty(2, 3, memory_format=st.channels_last)
    with pytest.raises(ValueError, match="preserve"):
        st.empty(2, 3, memory_format=st.preserve_format)


def test_capacity_is_reserved_in_bytes(pool: Pool) -> None:
    for made in (
        st.empty(3, pool=pool, capacity=4096),
        st.tensor([1], pool=pool, capacity=4096),
        st.arange(3, pool=pool, capacity=4096),
    ):
        assert made.untyped_storage().capacity() >= 4096
        assert made.untyped_storage().nbytes() == made.nbytes
    with pytest.raises(ValueError):
        st.empty(100, capacity=4)


def test_no_room_says_so_and_takes_nothing(pool: Pool) -> None:
    before = pool.stats().used_bytes
    with pytest.raises(st.OutOfSharedMemory):
        st.empty(1 << 30, pool=pool)
    with pytest.raises(st.OutOfSharedMemory):
        st.empty(1 << 30, pool=pool, timeout=0.01)
    with pytest.raises(MemoryError):
        st.zeros(1 << 60, 1 << 60, pool=pool)
    assert pool.stats().used_bytes == before


@pytest.mark.report("R111")
@pytest.mark.parametrize(
    "dtype", ["object", "U3", "S2", "datetime64[s]", [("a", "i4")], "f16", ">f4", "nonsense", None.__class__]
)
def test_dtypes_that_cannot_be_shared_are_refused_by_name(dtype: Any) -> None:
    with pytest.raises(TypeError):
        st.empty(2, dtype=dtype)
    with pytest.raises(TypeError):
        st.as_tensor([1, 2], dtype=dtype)


@pytest.mark.parametrize(
    "array", [np.array([None]), np.array(["a"]), np.zeros(2, ">f4"), np.zeros(2, "i4,f4"), np.zeros(1, "M8[s]")]
)
def test_arrays_that_cannot_be_shared_are_refused(array: np.ndarray[Any, Any]) -> None:
    for take in (st.tensor, st.as_tensor, st.from_numpy):
        with pytest.raises(TypeError, match="dtype"):
            take(array)


def test_lists_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError):
        st.tensor([[1, 2], [3]])


# --- taking something in


def test_tensor_always_copies() -> None:
    array = np.arange(6.0).reshape(2, 3)
    for source in (array, array.T, st.as_tensor(array), [[1, 2]], array[::-1]):
        made = st.tensor(source)
        assert made.is_contiguous()
        assert np.array_equal(np.asarray(made), np.asarray(source))
    tensor = st.zeros(2)
    assert st.tensor(tensor).untyped_storage() is not tensor.untyped_storage()
    assert st.tensor([1, 2], dtype="float16").dtype == np.float16


def test_foreign_memory_is_copied_in_with_its_strides() -> None:
    array = np.arange(6.0).reshape(2, 3)
    for take in (st.from_numpy, st.as_tensor):
        made = take(array.T)
        assert (made.stride(), made.dtype) == ((1, 3), np.float64)
        array[0, 0] = 9
        assert made[0, 0].item() == 0
        array[0, 0] = 0
    assert st.from_numpy(array[::-1]).tolist() == array[::-1].tolist()
    assert min(st.from_numpy(np.flip(array)).stride()) > 0
    frozen = array.copy()
    frozen.flags.writeable = False
    st.from_numpy(frozen).zero_()
    assert st.from_numpy(np.broadcast_to(np.ones(1), (3,))).stride() == (1,)
    with pytest.raises(TypeError, match="as_tensor"):
        st.from_numpy([1, 2])


def test_memory_in_a_pool_is_aliased() -> None:
    tensor = st.arange(24).view(4, 6)
    array = tensor.numpy()
    for source, expected in (
        (tensor, tensor),
        (array, tensor),
        (array[1:, ::2], tensor[1:, ::2]),
        (array.T, tensor.t()),
        (array.reshape(24)[5:], tensor.view(24)[5:]),
        (np.asarray(tensor), tensor),
        (array.view("int32"), tensor.view("int32")),
        (tensor.memoryview().cast("B"), tensor.view(24).view("uint8")),
    ):
        made = st.as_tensor(source if not isinstance(source, memoryview) else np.asarray(source))
        assert made.is_set_to(expected)
        assert made.dtype == expected.dtype
    assert st.from_numpy(array).is_set_to(tensor)
    assert st.as_tensor(array, dtype="float64").untyped_storage() is not tensor.untyped_storage()
    assert st.as_tensor(array[::-1]).untyped_storage() is not tensor.untyped_storage()
    assert st.as_tensor(tensor.readonly().numpy()).is_readonly()
    assert st.as_tensor(tensor) is tensor


def test_copy_insists() -> None:
    tensor = st.arange(3)
    assert st.as_tensor(tensor, copy=True).untyped_storage() is not tensor.untyped_storage()
    assert st.as_tensor(tensor.numpy(), copy=False).is_set_to(tensor)
    for source in ([1, 2], np.ones(3), tensor.numpy()[::-1]):
        with pytest.raises(ValueError, match="copy"):
            st.as_tensor(source, copy=False)
    with pytest.raises(ValueError, match="copy"):
        st.as_tensor(tensor, dtype="float32", copy=False)


def test_another_pool_needs_a_copy(pool: Pool) -> None:
    tensor = st.arange(3)
    assert st.as_tensor(tensor, pool=pool).untyped_storage().block.pool is pool
    with pytest.raises(ValueError, match="copy"):
        st.as_tensor(tensor, pool=pool, copy=False)


def test_frombuffer_reads_elements_of_bytes() -> None:
    data = np.arange(4, dtype=np.int16).tobytes()
    assert st.frombuffer(data, dtype="int16").tolist() == [0, 1, 2, 3]
    assert st.frombuffer(data, dtype="int16", offset=2, count=2).tolist() == [1, 2]
    assert st.frombuffer(bytes(3), dtype="uint8").dtype == np.uint8
    tensor = st.arange(4)
    assert st.frombuffer(tensor.memoryview(), dtype="int64").is_set_to(tensor)
    with pytest.raises(ValueError, match="whole number"):
        st.frombuffer(bytes(3), dtype="int16")
    with pytest.raises(ValueError, match="don't fit"):
        st.frombuffer(bytes(4), dtype="int16", count=3)


def test_functions_of_several_tensors_share() -> None:
    rows, columns = st.arange(2), st.arange(3)
    grid_rows, grid_columns = st.meshgrid(rows, columns)
    expected = np.meshgrid(np.arange(2), np.arange(3), indexing="ij")
    assert [grid_rows.tolist(), grid_columns.tolist()] == [each.tolist() for each in expected]
    assert grid_rows.untyped_storage() is rows.untyped_storage()
    expected = np.meshgrid(np.arange(2), np.arange(3), indexing="xy")
    assert [each.tolist() for each in st.meshgrid(rows, columns, indexing="xy")] == [each.tolist() for each in expected]
    wide = st.broadcast_tensors(rows.unsqueeze(1), columns)
    assert [each.shape for each in wide] == [(2, 3), (2, 3)]
    assert wide[0].untyped_storage() is rows.untyped_storage()
    assert (st.atleast_1d(st.tensor(1)).shape, st.atleast_2d(rows).shape, st.atleast_3d(rows).shape) == (
        (1,),
        (1, 2),
        (1, 2, 1),
    )
    assert [each.shape for each in st.atleast_2d(rows, columns)] == [(1, 2), (1, 3)]


def test_the_package_has_all_its_names() -> None:
    for name in st.__all__:
        assert getattr(st, name) is not None
        assert name in dir(st)
    assert st.bool == st.bool_ == np.bool_
    assert not hasattr(st, "nonsense")
    assert st.UntypedStorage is st.Storage
    assert callable(st.tensor)


def test_the_default_pool_can_be_chosen(pool: Pool) -> None:
    before, name = st.default_pool(), os.environ.get("SHMTENSOR_POOL")
    assert st.default_pool() is before
    st.set_default_pool(pool)
    try:
        assert st.zeros(1).untyped_storage().block.pool is pool
    finally:
        st.set_default_pool(before)
        if name is not None:
            os.environ["SHMTENSOR_POOL"] = name
