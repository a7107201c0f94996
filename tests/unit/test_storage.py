"""Storage: sizes, bytes, resizing, sealing, identity."""

from __future__ import annotations

import gc
import io
import pickle
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor.storage import Pool


def test_a_new_storage_says_its_size_in_three_ways() -> None:
    storage = st.Storage(10)
    assert storage.nbytes() == storage.size() == len(storage) == 10
    assert storage.capacity() >= 10
    assert storage.element_size() == 1
    assert storage.is_shared()
    assert storage.share_memory_() is storage
    assert storage.device == "cpu"
    assert not storage.is_cuda


def test_an_empty_storage_has_no_address() -> None:
    storage = st.Storage()
    assert storage.nbytes() == 0
    assert storage.data_ptr() == 0
    assert storage.tolist() == []


def test_memory_is_aligned_to_64_bytes() -> None:
    storages = [st.Storage(size) for size in (1, 3, 64, 65, 1000, 1 << 20)]
    assert [storage.data_ptr() % 64 for storage in storages] == [0] * 6


def test_bytes_are_read_and_written_by_index() -> None:
    storage = st.Storage.from_buffer(b"abcdef")
    assert (storage[0], storage[-1]) == (ord("a"), ord("f"))
    storage[0] = 255
    assert storage.tolist() == [255, *b"bcdef"]
    assert list(storage) == storage.tolist()


def test_a_slice_is_a_tensor_that_shares() -> None:
    storage = st.Storage.from_buffer(b"abcdef")
    part = storage[1:4]
    assert isinstance(part, st.Tensor)
    assert part.dtype == np.uint8
    part[0] = 0
    assert storage[1] == 0
    assert part.untyped_storage() is storage
    storage[4:] = b"\x01\x02"
    assert storage.tolist()[4:] == [1, 2]


@pytest.mark.parametrize("value", [256, -1, 1.5, 2**70, "a"])
def test_a_value_that_is_no_byte_is_refused(value: Any) -> None:
    storage = st.Storage.from_buffer(b"abc")
    with pytest.raises(ValueError):
        storage[0] = value
    with pytest.raises(ValueError):
        storage.fill_(value)
    assert storage.tolist() == list(b"abc")


def test_an_index_out_of_range_or_of_two_dims_is_refused() -> None:
    storage = st.Storage(3)
    with pytest.raises(IndexError):
        storage[3]
    with pytest.raises(TypeError, match="one dim"):
        storage[0, 1]


def test_fill_copy_and_clone() -> None:
    storage = st.Storage(4).fill_(7)
    copy = storage.clone()
    assert copy.tolist() == [7, 7, 7, 7]
    copy.fill_(1)
    assert storage.copy_(copy) is storage
    assert storage.tolist() == [1, 1, 1, 1]
    storage.copy_(b"wxyz")
    assert bytes(storage) == b"wxyz"
    with pytest.raises(ValueError, match="resize"):
        storage.copy_(b"toolong")
    assert bytes(storage) == b"wxyz"


def test_slices_that_overlap_are_written_as_if_copied_first() -> None:
    storage = st.Storage.from_buffer(bytes(range(20)))
    storage[8:14] = storage[5:17:2]
    assert storage.tolist()[8:14] == [5, 7, 9, 11, 13, 15]


def test_from_buffer_takes_items_of_any_size() -> None:
    numbers = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert bytes(st.Storage.from_buffer(numbers)) == numbers.tobytes()
    assert bytes(st.Storage.from_buffer(numbers[:, ::2])) == numbers[:, ::2].tobytes()


def test_a_memoryview_shares_and_keeps_the_storage_alive() -> None:
    storage = st.Storage.from_buffer(b"abc")
    view = storage.memoryview()
    view[0] = ord("z")
    assert bytes(storage) == b"zbc"
    del storage
    gc.collect()
    others = [st.Storage(3).fill_(0) for _ in range(100)]
    assert bytes(view) == b"zbc"
    assert len(others) == 100


def test_the_repr_names_size_and_pool_and_shows_no_bytes() -> None:
    storage = st.Storage.from_buffer(b"secret")
    assert "6 bytes" in repr(storage)
    assert "secret" not in repr(storage)
    assert len(repr(storage)) < 120


# --- resizing


def test_resizing_within_the_capacity_keeps_address_and_arrays(pool: Pool) -> None:
    tensor = st.empty(4, dtype="uint8", pool=pool, capacity=1 << 20).fill_(3)
    storage = tensor.untyped_storage()
    array, address = tensor.numpy(), storage.data_ptr()
    assert storage.capacity() >= 1 << 20
    assert storage.resize_(1 << 20) is storage
    assert storage.nbytes() == 1 << 20
    assert storage.data_ptr() == address
    assert tensor.tolist() == [3, 3, 3, 3]
    array[0] = 9
    assert storage[0] == 9


def test_shrinking_keeps_the_capacity(pool: Pool) -> None:
    storage = st.Storage(1 << 20, pool=pool)
    before = storage.capacity()
    storage.resize_(1)
    assert storage.capacity() == before
    storage.resize_(1 << 20)


def test_every_access_of_a_tensor_past_the_end_raises_and_none_after_growing_back() -> None:
    tensor = st.arange(8)
    storage = tensor.untyped_storage()
    storage.resize_(63)
    accesses: list[Any] = [
        tensor.numpy,
        tensor.tolist,
        tensor.clone,
        tensor.zero_,
        tensor.data_ptr,
        tensor.memoryview,
        lambda: tensor + 1,
        lambda: np.sum(tensor),
        lambda: np.asarray(tensor),
        lambda: tensor[-1].item(),
        lambda: tensor.__setitem__(7, 1),
        lambda: tensor.__setitem__([7], 1),
        lambda: tensor[[7]],
        lambda: tensor.copy_(1),
        lambda: np.from_dlpack(tensor),
        lambda: tensor.__array_interface__,
        lambda: st.save(tensor, io.BytesIO()),
        lambda: pickle.dumps(tensor),
        tensor.header,
    ]
    for access in accesses:
        with pytest.raises(st.StorageBoundsError):
            access()
    with pytest.raises(IndexError):
        tensor.storage()[7]
    assert tensor[:7].tolist() == list(range(7))
    assert "past the end" in repr(tensor)
    assert (tensor.shape, tensor.nbytes) == ((8,), 64)
    storage.resize_(64)
    assert tensor.tolist() == list(range(8))


def test_a_storage_that_was_never_sent_moves_and_its_tensors_follow(pool: Pool) -> None:
    tensor = st.tensor([1, 2, 3], pool=pool)
    view = tensor[1:]
    storage = tensor.untyped_storage()
    beyond = storage.capacity() * 3
    storage.resize_(beyond)
    assert storage.nbytes() == beyond
    assert view.tolist() == [2, 3]
    view[0] = 9
    assert tensor.tolist() == [1, 9, 3]
    assert view.untyped_storage() is storage


@pytest.mark.report("R046")
def test_a_storage_with_an_exported_array_does_not_move(pool: Pool) -> None:
    tensor = st.tensor([1, 2, 3], pool=pool)
    storage = tensor.untyped_storage()
    beyond = storage.capacity() * 2
    for export in (tensor.numpy, lambda: np.asarray(tensor), tensor.memoryview, tensor.untyped_storage().memoryview):
        held = export()
        with pytest.raises(BufferError, match="capacity="):
            storage.resize_(beyond)
        assert storage.nbytes() == 24
        assert tensor.tolist() == [1, 2, 3]
        del held
    storage.resize_(beyond)
    assert tensor.tolist() == [1, 2, 3]


def test_a_slice_of_an_array_is_an_export_too(pool: Pool) -> None:
    tensor = st.arange(100, pool=pool)
    part = tensor.numpy().reshape(10, 10)[3:, ::2].T
    with pytest.raises(BufferError):
        tensor.untyped_storage().resize_(1 << 20)
    assert part.base is not None


@pytest.mark.report("R046")
def test_a_sent_storage_does_not_grow_beyond_its_capacity(pool: Pool) -> None:
    tensor = st.tensor([1, 2, 3], pool=pool)
    message = pickle.dumps(tensor)
    storage = tensor.untyped_storage()
    with pytest.raises(st.StorageCapacityError, match="capacity="):
        storage.resize_(storage.capacity() + 1)
    assert storage.nbytes() == 24
    assert tensor.tolist() == [1, 2, 3]
    assert pickle.loads(message).tolist() == [1, 2, 3]


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="-1 bytes"):
        st.Storage(4).resize_(-1)
    with pytest.raises(ValueError, match="-1 bytes"):
        st.Storage(-1)


def test_trim_refuses_what_was_sent_or_is_exported(pool: Pool) -> None:
    storage = st.Storage(1 << 20, pool=pool)
    storage.resize_(10)
    view = storage.memoryview()
    with pytest.raises(BufferError):
        storage.trim()
    del view
    assert storage.trim() is storage
    message = pickle.dumps(storage)
    with pytest.raises(st.StorageCapacityError):
        storage.trim()
    assert pickle.loads(message) is storage


def test_leaving_a_with_block_frees_bytes_that_nobody_else_uses(pool: Pool) -> None:
    with st.Storage(1 << 20, pool=pool) as storage:
        tensor = storage[:]
        assert pool.stats().used_bytes >= 1 << 20
    assert pool.stats().used_bytes < 1 << 20
    with pytest.raises(st.StorageBoundsError):
        tensor.tolist()
    with st.Storage(1 << 20, pool=pool) as storage:
        array = storage[:].numpy()
    assert array.size == storage.nbytes() == 1 << 20


# --- sealing


@pytest.mark.report("R107")
def test_a_sealed_storage_is_read_only_for_good() -> None:
    tensor = st.tensor([1.0, 2.0])
    storage = tensor.untyped_storage()
    assert storage.resizable()
    assert storage.seal() is storage
    assert storage.is_sealed()
    assert not storage.resizable()
    assert tensor.is_readonly()
    for write in (
        tensor.zero_,
        lambda: tensor.__setitem__(0, 5.0),
        lambda: storage.__setitem__(0, 1),
        lambda: storage.fill_(0),
        lambda: tensor.numpy().__setitem__(0, 1.0),
        lambda: np.add(tensor, 1, out=tensor),
        lambda: storage.resize_(1),
    ):
        with pytest.raises(ValueError):
            write()
    assert not np.asarray(tensor).flags.writeable
    with pytest.raises(ValueError):
        tensor.numpy().flags.writeable = True
    assert tensor.memoryview().readonly
    assert tensor.tolist() == [1.0, 2.0]
    assert (tensor + 1).tolist() == [2.0, 3.0]


def test_sealing_is_refused_while_a_writable_array_is_out() -> None:
    tensor = st.tensor([1.0, 2.0])
    array = tensor.numpy()
    with pytest.raises(BufferError, match="sealed"):
        tensor.untyped_storage().seal()
    assert not tensor.untyped_storage().is_sealed()
    del array
    reading = tensor.readonly().numpy()
    tensor.untyped_storage().seal()
    assert reading.tolist() == [1.0, 2.0]


# --- identity


def test_views_have_one_storage_object() -> None:
    tensor = st.zeros(4)
    assert tensor.untyped_storage() is tensor[1:].untyped_storage()
    assert tensor.untyped_storage() == tensor.view(2, 2).t().untyped_storage()
    assert len({tensor.untyped_storage(), tensor[1:].untyped_storage(), st.zeros(4).untyped_storage()}) == 2
    assert tensor.untyped_storage() != st.zeros(4).untyped_storage()
    assert tensor.untyped_storage() != 3


def test_a_hash_outlives_a_move() -> None:
    storage = st.Storage(4)
    known = {storage: "here"}
    storage.resize_(1 << 20)
    assert known[storage] == "here"


def test_storages_die_with_their_last_user(pool: Pool) -> None:
    tensor = st.zeros(1 << 18, pool=pool)
    array = tensor[5:].numpy()[::2]
    del tensor
    gc.collect()
    assert pool.stats().used_bytes >= 1 << 20
    assert array.sum() == 0
    del array
    assert pool.stats().used_bytes == 0


def test_holders_name_this_process_and_messages(pool: Pool) -> None:
    storage = st.Storage(8, pool=pool)
    message = pickle.dumps(storage)
    kinds = sorted(holder.kind for holder in storage.holders())
    assert kinds == ["hold", "ticket"]
    assert pickle.loads(message) is storage
    assert [holder.kind for holder in storage.holders()] == ["hold"]


# --- the typed storage


def test_a_typed_storage_reads_and_writes_elements() -> None:
    typed = st.tensor([1.0, 2.0, 3.0]).storage()
    typed[-1] = 5
    assert (typed[2], len(typed), typed.size(), typed.nbytes()) == (5.0, 3, 3, 12)
    assert list(typed) == typed.tolist() == [1.0, 2.0, 5.0]
    part = typed[1:]
    part[0] = 7.0
    assert typed.tolist() == [1.0, 7.0, 5.0]
    assert part.size() == 2
    assert typed.fill_(0).tolist() == [0.0, 0.0, 0.0]
    assert typed.copy_([1, 2, 3]).tolist() == [1.0, 2.0, 3.0]
    for wrong in ((0, 1), 1.0, "a", None):
        with pytest.raises(TypeError):
            typed[wrong]
    with pytest.raises(IndexError):
        typed[3]


def test_a_typed_storage_spans_the_whole_storage_of_a_view() -> None:
    tensor = st.arange(6)
    assert tensor[4:].storage().tolist() == [0, 1, 2, 3, 4, 5]
    assert tensor[4:].storage().untyped() is tensor.untyped_storage()


def test_the_typed_storage_of_a_read_only_tensor_is_read_only() -> None:
    typed = st.arange(3).readonly().storage()
    with pytest.raises(ValueError):
        typed[0] = 1


def test_elements_of_one_dtype_are_copied_over_those_of_another_as_if_from_elsewhere() -> None:
    for first in range(8):  # wherever they overlap
        tensor = st.arange(16, dtype="int16")
        wide = tensor.view("float32").storage()
        wide[1:5].copy_(tensor.storage()[first : first + 4])
        assert wide[1:5].tolist() == list(range(first, first + 4)), first
