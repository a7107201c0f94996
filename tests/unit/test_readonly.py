"""Read-only tensors and sealed storages refuse every kind of write, through every export that can carry the flag."""

from __future__ import annotations

import copy
import pickle
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmtensor as st

TABLE = runpy.run_path(str(Path(__file__).parents[1] / "writes.py"))
WRITES, STORAGE_WRITES, not_refused = TABLE["WRITES"], TABLE["STORAGE_WRITES"], TABLE["not_refused"]


def matrix() -> st.Tensor:
    """No element is what a write would make of it."""
    return st.arange(12, dtype="float32").view(3, 4) + 2


def test_each_write_of_the_table_writes_to_a_tensor_that_is_open_to_it() -> None:
    assert TABLE["not_effective"](matrix) == TABLE["HARMLESS"]
    assert len(WRITES) > 70


@pytest.mark.parametrize("name", WRITES)
def test_a_read_only_tensor_refuses(name: str) -> None:
    whole = matrix()
    for view in (whole.readonly(), pickle.loads(pickle.dumps(whole.readonly())), copy.copy(whole.readonly())):
        assert not_refused(view, {name: WRITES[name]}) == []
        assert view.shape == (3, 4)


@pytest.mark.parametrize("name", [*WRITES, *STORAGE_WRITES])
def test_a_tensor_of_a_sealed_storage_refuses(name: str) -> None:
    tensor = matrix()
    tensor.untyped_storage().seal()
    for view in (tensor, tensor.view(3, 4), pickle.loads(pickle.dumps(tensor))):
        assert not_refused(view, {name: (WRITES | STORAGE_WRITES)[name]}) == []


def read_only() -> st.Tensor:
    return matrix().readonly()


def sealed() -> st.Tensor:
    tensor = matrix()
    tensor.untyped_storage().seal()
    return tensor


@pytest.fixture(params=[read_only, sealed, lambda: read_only()[1:].t(), lambda: sealed()[:, ::2]])
def closed(request: pytest.FixtureRequest) -> st.Tensor:
    tensor: st.Tensor = request.param()
    return tensor


def test_every_export_that_can_carry_the_flag_does(closed: st.Tensor) -> None:
    class Foreign:
        __array_interface__ = closed.__array_interface__

    assert closed.is_readonly()
    assert closed.memoryview().readonly
    assert closed.__array_interface__["data"][1] is True
    for array in (closed.numpy(), np.asarray(closed), np.from_dlpack(closed), np.asarray(Foreign())):
        for each in (array, array[1:], array.T, array.view(), np.asarray(memoryview(array))):
            assert not each.flags.writeable
            with pytest.raises(ValueError, match="WRITEABLE"):
                each.flags.writeable = True
    with pytest.raises(BufferError, match="readonly"):
        closed.__dlpack__()  # a consumer of before DLPack 1.0 would take it for writable
    with pytest.raises(BufferError, match="readonly"):
        closed.__dlpack__(max_version=(0, 8))
    assert "dltensor_versioned" in repr(closed.__dlpack__(max_version=(1, 0)))


def test_torch_has_no_read_only_tensors_so_none_is_made(closed: st.Tensor) -> None:
    pytest.importorskip("torch", reason="torch is optional")
    with pytest.raises(ValueError, match="clone"):
        closed.torch()
    assert closed.clone().torch().shape == closed.shape


def test_reading_works_and_copies_can_be_written(closed: st.Tensor) -> None:
    expected = closed.tolist()
    copies: list[Any] = [closed.clone(), copy.deepcopy(closed), closed + 0, closed.to("float64"), st.tensor(closed)]
    copies += [np.array(closed), np.from_dlpack(closed, copy=True), closed[[0, 1]], closed.flip(0)]
    for each in copies:
        each[0] = 0
    assert closed.tolist() == expected


def test_a_read_only_view_says_so_and_others_may_still_write() -> None:
    whole = matrix()
    view = whole.readonly()
    assert "readonly" in repr(view)
    assert not whole.is_readonly()
    whole[0] = 100
    assert view[0].tolist() == [100] * 4
    assert view.untyped_storage() is whole.untyped_storage()


def test_a_read_only_tensor_without_elements_refuses_too() -> None:
    empty = st.zeros(0, 3).readonly()
    assert not empty.numpy().flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        empty.fill_(1)
    with pytest.raises(ValueError, match="read-only"):
        empty.resize_(3)


def test_a_read_only_tensor_cannot_be_resized_and_keeps_its_shape() -> None:
    for tensor in (read_only(), sealed()):
        with pytest.raises(ValueError, match=r"\(3, 4\) can't be resized to \(2, 2\): use clone"):
            tensor.resize_(2, 2)
        assert tensor.shape == (3, 4)
        assert tensor.resize_(3, 4) is tensor
