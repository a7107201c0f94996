"""The fragments of the storage chapter of "Deep Learning with PyTorch", with this library's name for torch."""

from __future__ import annotations

import numpy as np
import pytest

import shmtensor as st


@pytest.fixture
def points() -> st.Tensor:
    return st.tensor([[4.0, 1.0], [5.0, 3.0], [2.0, 1.0]])


def test_storage_is_one_row_whatever_the_shape(points: st.Tensor) -> None:
    assert points.storage().tolist() == [4.0, 1.0, 5.0, 3.0, 2.0, 1.0]
    assert len(points.storage()) == points.storage().size() == 6
    assert points.storage()[0] == 4.0
    assert points.storage()[1] == 1.0


def test_a_storage_has_one_index_even_under_a_matrix(points: st.Tensor) -> None:
    with pytest.raises(TypeError, match="one dim"):
        points.storage()[0, 1]


def test_writing_to_the_storage_changes_the_tensor(points: st.Tensor) -> None:
    points_storage = points.storage()
    points_storage[0] = 2.0
    assert points.tolist() == [[2.0, 1.0], [5.0, 3.0], [2.0, 1.0]]
    points.storage()[0] = 7.0
    assert points[0, 0].item() == 7.0


def test_a_row_is_a_view_with_an_offset(points: st.Tensor) -> None:
    second_point = points[1]
    assert second_point.storage_offset() == 2
    assert second_point.size() == (2,)
    assert second_point.shape == st.Size([2])
    assert points.stride() == (2, 1)
    second_point[0] = 10.0
    assert points.tolist() == [[4.0, 1.0], [10.0, 3.0], [2.0, 1.0]]


def test_a_clone_leaves_the_original_alone(points: st.Tensor) -> None:
    second_point = points[1].clone()
    second_point[0] = 10.0
    assert points.tolist() == [[4.0, 1.0], [5.0, 3.0], [2.0, 1.0]]


def test_transposing_swaps_strides_and_copies_nothing(points: st.Tensor) -> None:
    points_t = points.t()
    assert points_t.tolist() == [[4.0, 5.0, 2.0], [1.0, 3.0, 1.0]]
    assert points.untyped_storage() is points_t.untyped_storage()
    assert points.storage() == points_t.storage()
    assert (points.stride(), points_t.stride()) == ((2, 1), (1, 2))


def test_transposing_dims_of_a_larger_tensor() -> None:
    some_t = st.ones(3, 4, 5)
    transpose_t = some_t.transpose(0, 2)
    assert (some_t.shape, transpose_t.shape) == ((3, 4, 5), (5, 4, 3))
    assert (some_t.stride(), transpose_t.stride()) == ((20, 5, 1), (1, 5, 20))


def test_contiguous_lays_the_elements_out_anew(points: st.Tensor) -> None:
    assert points.is_contiguous()
    points_t = points.t()
    assert not points_t.is_contiguous()
    with pytest.raises(RuntimeError, match="reshape"):
        points_t.view(6)
    points_t_cont = points_t.contiguous()
    assert points_t_cont.stride() == (3, 1)
    assert points_t_cont.storage().tolist() == [4.0, 5.0, 2.0, 1.0, 3.0, 1.0]
    assert points.contiguous() is points


def test_tensors_and_arrays_share(points: st.Tensor) -> None:
    points_np = points.numpy()
    assert points_np.dtype == np.float32
    points_np[0, 0] = 9.0
    assert points[0, 0].item() == 9.0
    assert st.from_numpy(points_np).untyped_storage() is points.untyped_storage()


def test_the_hours_of_the_bike_data_become_days() -> None:
    bikes = st.from_numpy(np.arange(17520 * 17, dtype=np.float32).reshape(17520, 17))
    assert (bikes.shape, bikes.stride()) == ((17520, 17), (17, 1))
    daily_bikes = bikes.view(-1, 24, bikes.shape[1])
    assert (daily_bikes.shape, daily_bikes.stride()) == ((730, 24, 17), (408, 17, 1))
    daily_bikes = daily_bikes.transpose(1, 2)
    assert (daily_bikes.shape, daily_bikes.stride()) == ((730, 17, 24), (408, 1, 17))
    assert daily_bikes.untyped_storage() is bikes.untyped_storage()


def test_images_as_channels_last() -> None:
    images = st.zeros(10, 3, 32, 32)
    assert images.stride() == (3072, 1024, 32, 1)
    last = images.contiguous(memory_format=st.channels_last)
    assert (last.shape, last.stride()) == ((10, 3, 32, 32), (3072, 1, 96, 3))
    assert last.is_contiguous(memory_format=st.channels_last)
    assert not last.is_contiguous()


def test_a_storage_that_shrinks_leaves_its_tensors_waiting(points: st.Tensor) -> None:
    points.untyped_storage().resize_(16)
    with pytest.raises(st.StorageBoundsError, match="needs 24 bytes"):
        points.tolist()
    assert points[:2].tolist() == [[4.0, 1.0], [5.0, 3.0]]
    points.untyped_storage().resize_(24)
    assert points.tolist() == [[4.0, 1.0], [5.0, 3.0], [2.0, 1.0]]


def test_numeric_types() -> None:
    double_points = st.ones(10, 2, dtype=st.float64)
    short_points = st.tensor([[1, 2], [3, 4]], dtype=st.int16)
    assert short_points.dtype == st.int16
    assert st.zeros(10, 2).double().dtype == double_points.to(st.float64).dtype == np.float64
    assert st.ones(10, 2).to(dtype=st.int16).dtype == np.int16
    product = st.rand(5, dtype=st.float64) * st.rand(5).to(st.int16)
    assert product.dtype == np.float64


def test_saving_and_loading(points: st.Tensor, tmp_path: object) -> None:
    st.save(points, f"{tmp_path}/ourpoints.t")
    assert st.load(f"{tmp_path}/ourpoints.t").tolist() == points.tolist()
