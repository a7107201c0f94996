"""save and load: bytes in a file, aliasing kept, nothing executed."""

from __future__ import annotations

import io
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor.storage import Pool


def round_trip(value: Any, **options: Any) -> Any:
    file = io.BytesIO()
    st.save(value, file)
    file.seek(0)
    return st.load(file, **options)


def test_a_tensor_comes_back_from_a_file(tmp_path: Path) -> None:
    tensor = st.arange(24, dtype="float64").view(2, 3, 4).permute(2, 0, 1)
    st.save(tensor, tmp_path / "t.shm")
    loaded = st.load(str(tmp_path / "t.shm"))
    assert (loaded.shape, loaded.stride(), loaded.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
    assert np.array_equal(loaded, tensor)
    assert loaded.untyped_storage() is not tensor.untyped_storage()
    assert os.listdir(tmp_path) == ["t.shm"]


def test_structures_and_aliasing_are_kept() -> None:
    base = st.arange(10)
    value = {
        "all": base,
        "parts": [base[2:4], (base[::3], st.zeros(2), None)],
        "note": "x",
        "n": 3,
        "f": 1.5,
        "b": True,
    }
    loaded = round_trip(value)
    assert list(loaded) == list(value)
    assert loaded["parts"][0].untyped_storage() is loaded["all"].untyped_storage()
    assert loaded["parts"][1][1].untyped_storage() is not loaded["all"].untyped_storage()
    assert (loaded["note"], loaded["n"], loaded["f"], loaded["b"], loaded["parts"][1][2]) == ("x", 3, 1.5, True, None)
    loaded["parts"][0][0] = 99
    assert loaded["all"][2].item() == 99
    assert isinstance(loaded["parts"][1], tuple)


def test_a_small_view_of_a_large_storage_is_a_small_file() -> None:
    base = st.arange(1 << 20)
    file = io.BytesIO()
    st.save([base[1000:1004], base[1002:1010:2]], file)
    assert file.tell() < 1000
    file.seek(0)
    first, second = st.load(file)
    assert (first.tolist(), second.tolist()) == ([1000, 1001, 1002, 1003], [1002, 1004, 1006, 1008])
    first[2] = 0
    assert second[0].item() == 0


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (5, 7)])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "complex128", "int64"])
def test_every_shape_and_dtype_is_kept(shape: tuple[int, ...], dtype: str) -> None:
    tensor = st.ones(shape, dtype=dtype)
    loaded = round_trip(tensor)
    assert (loaded.shape, loaded.stride(), loaded.dtype) == (shape, tensor.stride(), tensor.dtype)
    assert np.array_equal(loaded, tensor)
    assert loaded.data_ptr() % 64 == 0


def test_views_with_odd_offsets_are_kept() -> None:
    base = st.arange(1000, dtype="uint8")
    views = [base[65:300:7], base[129:137].view("uint8"), base[500:500], base[999:]]
    for saved, loaded in zip(views, round_trip(views), strict=True):
        assert saved.tolist() == loaded.tolist()


def test_bfloat16_is_kept() -> None:
    pytest.importorskip("ml_dtypes", reason="bfloat16 comes with ml_dtypes")
    assert round_trip(st.ones(3, dtype="bfloat16")).dtype == st.bfloat16


def test_loading_goes_to_the_pool_named(pool: Pool) -> None:
    assert round_trip(st.zeros(3), pool=pool).untyped_storage().block.pool is pool
    large = st.zeros(1 << 20)
    with Pool.create(limit=1 << 20) as tiny, pytest.raises(st.OutOfSharedMemory):
        round_trip(large, pool=tiny)


def test_read_only_stays_read_only() -> None:
    assert round_trip(st.zeros(3).readonly()).is_readonly()


@pytest.mark.parametrize("value", [object(), {1: 2}, np.zeros(3), b"bytes", {st}])
def test_values_that_no_file_can_hold_are_refused_and_no_file_is_left(value: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.shm"
    with pytest.raises(TypeError, match="saved"):
        st.save([st.zeros(2), value], path)
    assert os.listdir(tmp_path) == []
    st.save(st.ones(1), path)
    with pytest.raises(TypeError):
        st.save(value, path)
    assert st.load(path).tolist() == [1.0]
    assert os.listdir(tmp_path) == ["t.shm"]


def test_a_file_that_is_none_of_ours_or_cut_short_is_refused() -> None:
    file = io.BytesIO()
    st.save([st.arange(100), st.ones(3)], file)
    content = file.getvalue()
    for damaged in (
        b"",
        b"hello",
        content[:5],
        content[:20],
        content[:100],
        content[:-1],
        b"X" + content[1:],
        content[:12] + b"\xff" * 8,
    ):
        with pytest.raises(st.InvalidHeader):
            st.load(io.BytesIO(damaged))


def test_a_damaged_file_gives_an_error_or_a_tensor_within_its_storage() -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    file = io.BytesIO()
    st.save([st.full((8,), 7, dtype="uint8").view(2, 4).t(), 3], file)
    content = file.getvalue()
    end = content.rindex(b"}")
    for _ in range(1500):
        damaged = bytearray(content)
        damaged[rng.randrange(12, end)] = rng.choice(b'0123456789-[]{}":,.eEtrue ')
        try:
            loaded = st.load(io.BytesIO(damaged))
        except (st.InvalidHeader, st.OutOfSharedMemory):
            continue
        for each in loaded if isinstance(loaded, list) else [loaded]:
            if isinstance(each, st.Tensor) and each.numel() < 100 and each.untyped_storage().nbytes() == 8:
                assert set(each.numpy().tobytes()) <= {7}, f"seed {seed}"
