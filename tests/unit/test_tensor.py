"""Tensor: metadata, views, copies, assignment, arithmetic. The layout rules have oracle tests of their own."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor.storage import Pool


def grid(*shape: int, dtype: str = "float32") -> st.Tensor:
    """A tensor of 0, 1, 2, ..."""
    return st.as_tensor(np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype))


# --- metadata


def test_metadata_of_a_view() -> None:
    tensor = grid(4, 6)[1:, ::2]
    assert (tensor.shape, tensor.stride(), tensor.storage_offset()) == ((3, 3), (6, 2), 6)
    assert isinstance(tensor.shape, st.Size)
    assert (tensor.size(0), tensor.size(-1), tensor.stride(1)) == (3, 3, 2)
    assert (tensor.dim(), tensor.ndim, len(tensor)) == (2, 2, 3)
    assert tensor.numel() == tensor.nelement() == tensor.shape.numel() == 9
    assert (tensor.itemsize, tensor.element_size(), tensor.nbytes) == (4, 4, 36)
    assert tensor.data_ptr() == tensor.untyped_storage().data_ptr() + 24
    assert tensor.is_view()
    assert not tensor.clone().is_view()
    assert tensor.layout == st.Layout((3, 3), (6, 2), 6)
    assert (tensor.is_shared(), tensor.is_cpu, tensor.is_cuda) == (True, True, False)
    assert (tensor.device, tensor.device.type, tensor.device.index) == ("cpu", "cpu", None)
    assert tensor.share_memory_() is tensor
    with pytest.raises(IndexError):
        tensor.size(2)


def test_dtype_questions() -> None:
    assert st.zeros(1, dtype="complex64").is_complex()
    assert st.zeros(1).is_floating_point()
    assert not st.zeros(1, dtype="uint8").is_signed()


def test_is_set_to_and_same_size() -> None:
    tensor = grid(3, 3)
    assert tensor.is_set_to(tensor[:])
    assert tensor.is_set_to(tensor.view("int32"))
    assert not tensor.is_set_to(tensor.t())
    assert tensor.is_same_size(st.zeros(3, 3))


def test_a_zero_d_tensor_is_a_number() -> None:
    number = st.tensor(3)
    assert (number.shape, number.numel(), number.item()) == ((), 1, 3)
    assert int(number) == 3
    assert float(number) == 3.0
    assert complex(number) == 3 + 0j
    assert [10, 11, 12, 13][number] == 13
    assert bool(number)
    assert not bool(st.tensor(0.0))
    assert f"{st.tensor(2.5):.3f}" == "2.500"
    assert number.tolist() == 3
    for act in (lambda: len(number), lambda: iter(number)):
        with pytest.raises(TypeError, match="0-d"):
            act()
    with pytest.raises(TypeError):
        [1, 2][st.tensor(1.0)]


@pytest.mark.parametrize("shape", [(2,), (0,), (2, 2)])
def test_several_elements_are_no_number(shape: tuple[int, ...]) -> None:
    tensor = st.zeros(shape)
    for act in (tensor.item, lambda: bool(tensor), lambda: int(tensor), lambda: float(tensor)):
        with pytest.raises(ValueError, match="not one number"):
            act()


def test_tensors_are_hashed_by_identity_and_compared_by_element() -> None:
    tensor = grid(3)
    assert len({tensor, tensor, grid(3)}) == 2
    assert (tensor == grid(3)).tolist() == [True, True, True]
    assert (tensor != 1).tolist() == [True, False, True]
    assert 2.0 in tensor
    assert 5.0 not in tensor


def test_iteration_gives_views() -> None:
    tensor = grid(2, 3)
    for row in tensor:
        row.zero_()
    assert tensor.tolist() == [[0.0] * 3] * 2


def test_repr_shortens_values_and_names_dtype_and_storage() -> None:
    tensor = grid(2, 2)
    assert repr(tensor).startswith("tensor([[0., 1.],\n        [2., 3.]]")
    assert "dtype=float32" in repr(tensor)
    assert f"storage={tensor.untyped_storage().id:#x}" in repr(tensor)
    assert len(repr(st.zeros(1000, 1000))) < 1000
    assert "readonly" in repr(tensor.readonly())
    assert "size=(0, 3)" in repr(st.zeros(0, 3))
    assert repr(st.tensor(1.5)).startswith("tensor(1.5")


# --- views

VIEWS: dict[str, Any] = {
    "view": lambda t: t.view(4, 3, 2),
    "view -1": lambda t: t.view((-1, 6)),
    "reshape": lambda t: t.reshape(6, 4),
    "transpose": lambda t: t.transpose(0, 2),
    "swapaxes": lambda t: t.swapaxes(0, 1),
    "permute": lambda t: t.permute(2, 0, 1),
    "T": lambda t: t.T,
    "mT": lambda t: t.mT,
    "adjoint": lambda t: t.adjoint(),
    "movedim": lambda t: t.movedim(0, -1),
    "narrow": lambda t: t.narrow(1, 1, 2),
    "select": lambda t: t.select(2, -1),
    "slice": lambda t: t.slice(1, 0, None, 2),
    "unsqueeze": lambda t: t.unsqueeze(1),
    "squeeze": lambda t: t[:1].squeeze(0),
    "expand": lambda t: t[:, :1].expand(-1, 5, -1),
    "expand more": lambda t: t.expand(2, 2, 3, 4),
    "broadcast_to": lambda t: t.broadcast_to((2, 2, 3, 4)),
    "flatten": lambda t: t.flatten(1),
    "ravel": lambda t: t.ravel(),
    "unflatten": lambda t: t.unflatten(2, (2, -1)),
    "diagonal": lambda t: t.diagonal(1, 1, 2),
    "unfold": lambda t: t.unfold(2, 2, 1),
    "unbind": lambda t: t.unbind(1)[2],
    "split": lambda t: t.split(2, dim=2)[1],
    "split sizes": lambda t: t.split_with_sizes([1, 2], dim=1)[1],
    "chunk": lambda t: t.chunk(2, dim=2)[0],
    "tensor_split": lambda t: t.tensor_split((1,), dim=1)[1],
    "hsplit": lambda t: t.hsplit(3)[1],
    "vsplit": lambda t: t.vsplit(2)[1],
    "dsplit": lambda t: t.dsplit([1])[1],
    "alias": lambda t: t.alias(),
    "detach": lambda t: t.detach(),
    "as_strided": lambda t: t.as_strided((2, 2), (1, 3), 5),
    "view_as": lambda t: t.view_as(st.empty(24)),
    "view dtype": lambda t: t.view("uint8"),
    "view np dtype": lambda t: t.view(np.int64),
    "index": lambda t: t[..., None, 1],
    "full index": lambda t: t[1, 2, 3],
    "readonly": lambda t: t.readonly(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_shares_its_storage_and_reads_what_numpy_reads(name: str) -> None:
    tensor = grid(2, 3, 4)
    view = VIEWS[name](tensor)
    assert view.untyped_storage() is tensor.untyped_storage()
    step = view.dtype.itemsize
    memory = tensor.numpy().ravel().view(view.dtype)[view.storage_offset() :]
    expected = np.lib.stride_tricks.as_strided(memory, view.shape, [each * step for each in view.stride()])
    assert np.array_equal(np.asarray(view), expected)
    tensor.fill_(1.5)
    assert np.array_equal(np.asarray(view), expected)


def test_an_impossible_view_says_which_dims_and_what_to_call() -> None:
    with pytest.raises(st.LayoutError, match=r"dims 0 and 1 can't be merged.*reshape"):
        grid(3, 4).t().view(12)
    with pytest.raises(st.LayoutError):
        grid(3, 4).t().reshape(12, copy=False)


def test_reshape_flatten_and_contiguous_copy_where_they_must() -> None:
    tensor = grid(3, 4).t()
    for made in (tensor.reshape(12), tensor.flatten(), tensor.ravel(), tensor.contiguous()):
        assert made.untyped_storage() is not tensor.untyped_storage()
        assert made.flatten().tolist() == np.arange(12).reshape(3, 4).T.ravel().tolist()
    assert grid(12).reshape(3, 4, copy=True).is_view() is False
    assert grid(3, 4).contiguous().stride() == (4, 1)


def test_ravel_is_contiguous_where_reshape_may_be_a_view_with_a_stride() -> None:
    tensor = grid(5, 5)[:, 1]
    assert (tensor.reshape(-1).stride(), tensor.reshape(-1).is_set_to(tensor)) == ((5,), True)
    assert (tensor.ravel().stride(), tensor.ravel().tolist()) == ((1,), [1.0, 6.0, 11.0, 16.0, 21.0])
    assert not tensor.ravel().is_view()
    assert grid(2, 3).ravel().is_view()
    assert st.zeros(0, 3).ravel().shape == (0,)


def test_transposes_of_one_dim_and_of_too_many() -> None:
    assert grid(3).t().shape == (3,)
    assert grid(2, 3).H.shape == (3, 2)
    for transpose in (lambda: grid(3).H, lambda: grid(3).mH, lambda: grid(3).adjoint()):
        with pytest.raises(st.LayoutError, match=r"shape \(3,\)"):
            transpose()
    with pytest.raises(st.LayoutError, match="permute"):
        grid(2, 2, 2).t()
    with pytest.raises(st.LayoutError):
        _ = grid(3).mT


def test_parts_of_complex_tensors_are_views() -> None:
    tensor = st.tensor([1 + 2j, 3 + 4j])
    assert tensor.dtype == np.complex64
    assert (tensor.real.tolist(), tensor.imag.tolist()) == ([1.0, 3.0], [2.0, 4.0])
    tensor.imag[0] = 9
    assert tensor[0].item() == 1 + 9j
    pairs = tensor.view_as_real()
    assert pairs.tolist() == [[1.0, 9.0], [3.0, 4.0]]
    assert pairs.view_as_complex().tolist() == tensor.tolist()
    assert grid(2).real.tolist() == [0.0, 1.0]
    with pytest.raises(st.LayoutError):
        _ = grid(2).imag
    with pytest.raises(st.LayoutError):
        _ = st.zeros(2, 2, dtype="complex64").H


def test_in_place_views_change_only_the_tensor_itself() -> None:
    tensor = grid(2, 3)
    other = tensor[:]
    assert tensor.t_() is tensor
    assert (tensor.shape, other.shape) == ((3, 2), (2, 3))
    assert tensor.unsqueeze_(0).transpose_(1, 2).squeeze_(0).shape == (2, 3)
    assert tensor.as_strided_((2,), (2,), 1).tolist() == [1.0, 3.0]


@pytest.mark.report("R102")
def test_as_strided_and_set_stay_within_the_storage() -> None:
    tensor = grid(6)
    before = tensor.layout
    with pytest.raises(st.StorageBoundsError):
        tensor[:2].as_strided((7,), (1,))
    assert tensor[:2].as_strided((6,), (1,)).tolist() == tensor.tolist()
    with pytest.raises(st.StorageBoundsError):
        tensor.as_strided_((3,), (3,))
    with pytest.raises(st.StorageBoundsError):
        tensor.set_(st.Storage(8), 0, (3,))
    with pytest.raises(st.LayoutError):
        tensor.as_strided((2,), (-1,), 3)
    assert tensor.layout is before
    other = grid(2, 2)
    assert tensor.set_(other).is_set_to(other)
    assert tensor.set_(other.untyped_storage(), 1, (2,), (2,)).tolist() == [1.0, 3.0]
    assert tensor.set_(other.untyped_storage()).shape == (4,)
    with pytest.raises(TypeError, match="view"):
        tensor.set_(st.zeros(2, dtype="int8"))


# --- copies


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ((lambda: grid(2, 3)), (3, 1)),
        ((lambda: grid(2, 3).t()), (1, 3)),
        ((lambda: grid(3).expand(4, 3)), (3, 1)),
        ((lambda: st.zeros(48).as_strided((2, 4, 3), (1, 12, 4))), (1, 6, 2)),
    ],
)
def test_a_clone_keeps_the_order_of_dims(layout: Any, expected: tuple[int, ...]) -> None:
    tensor = layout()
    copied = tensor.clone()
    assert copied.stride() == expected
    assert np.array_equal(np.asarray(copied), np.asarray(tensor))
    assert copied.storage_offset() == 0
    assert copied.untyped_storage().nbytes() == copied.nbytes


def test_clones_in_all_memory_formats() -> None:
    tensor = grid(2, 3, 4, 5)
    last = tensor.clone(memory_format=st.channels_last)
    assert last.stride() == (60, 1, 15, 3)
    assert last.clone().stride() == (60, 1, 15, 3)
    assert last.clone(memory_format=st.contiguous_format).stride() == tensor.stride()
    assert last.contiguous(memory_format=st.channels_last) is last
    assert np.array_equal(np.asarray(last), np.asarray(tensor))
    volume = grid(2, 3, 2, 2, 2).clone(memory_format=st.channels_last_3d)
    assert volume.is_contiguous(memory_format=st.channels_last_3d)
    with pytest.raises(ValueError, match="4 dims"):
        grid(3).clone(memory_format=st.channels_last)


def test_ambiguous_channels_last_gets_real_strides_from_to_but_not_from_contiguous() -> None:
    tensor = grid(2, 1, 4, 5)
    assert tensor.contiguous(memory_format=st.channels_last) is tensor
    assert tensor.to(memory_format=st.channels_last).stride() == (20, 1, 5, 1)
    assert tensor.clone(memory_format=st.channels_last).stride() == (20, 1, 5, 1)


def test_to_copies_only_where_it_must() -> None:
    tensor = grid(2, 2)
    assert tensor.to("float32") is tensor
    assert tensor.to("cpu") is tensor
    assert tensor.to(st.zeros(1)) is tensor
    assert tensor.to(np.float32, copy=True) is not tensor
    assert tensor.to(st.int64).dtype == np.int64
    assert tensor.to(device="cpu", dtype="int8").tolist() == [[0, 1], [2, 3]]
    casts = [tensor.double(), tensor.half(), tensor.int(), tensor.long(), tensor.short(), tensor.byte(), tensor.char()]
    assert [each.dtype.name for each in casts] == ["float64", "float16", "int32", "int64", "int16", "uint8", "int8"]
    assert tensor.bool().tolist() == [[False, True], [True, True]]
    assert tensor.type_as(casts[0]).dtype == np.float64
    with pytest.raises(ValueError, match="host memory"):
        tensor.to("cuda:0")
    with pytest.raises(TypeError, match="datetime64"):
        tensor.to("datetime64[s]")


def test_copy_aliases_and_deepcopy_copies() -> None:
    tensor = grid(4)
    assert copy.copy(tensor).untyped_storage() is tensor.untyped_storage()
    whole, view = copy.deepcopy([tensor, tensor[2:]])
    assert whole.untyped_storage() is view.untyped_storage()
    assert whole.untyped_storage() is not tensor.untyped_storage()
    view[0] = 9
    assert whole.tolist() == [0.0, 1.0, 9.0, 3.0]
    assert tensor.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert not copy.deepcopy(tensor.readonly()).is_readonly()


def test_copies_stay_in_the_pool_of_their_tensor(pool: Pool) -> None:
    tensor = st.zeros(2, 2, pool=pool)
    made = [
        tensor.clone(),
        tensor + 1,
        np.sum(tensor),
        tensor.t().contiguous(),
        tensor[[0]],
        tensor.new_zeros(3),
        tensor.double(),
        st.ones_like(tensor),
        copy.deepcopy(tensor),
        np.concatenate([tensor, tensor]),
        tensor.flip(0),
    ]
    assert {each.untyped_storage().block.pool.name for each in made} == {pool.name}


def test_new_tensors_take_dtype_and_pool_of_their_model() -> None:
    tensor = grid(2, dtype="int16")
    assert tensor.new_empty(2, 3).shape == (2, 3)
    assert tensor.new_zeros((2, 3)).tolist() == [[0] * 3] * 2
    assert tensor.new_ones(2).tolist() == [1, 1]
    assert tensor.new_full((2,), 7).tolist() == [7, 7]
    assert tensor.new_full(2, 7, dtype="float64").dtype == np.float64
    assert tensor.new_tensor([1, 2]).dtype == np.int16


# --- writing


def test_assignment_by_view_and_by_pick() -> None:
    tensor = grid(3, 4)
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    steps: list[tuple[Any, Any]] = [
        ((0, 1), 9),
        ((slice(None), 2), [7, 8, 9]),
        (1, st.tensor([5.0])),
        (Ellipsis, grid(3, 4).numpy() * 2),
        (([0, 2], [1, 1]), -1),
        (np.array([True, False, True]), 4),
        ((slice(1), None), np.zeros((1, 1, 4))),
        ((slice(2), slice(2)), np.ones((1, 1, 2, 2))),
    ]
    for key, value in steps:
        tensor[key] = value
        array[key] = value
        assert np.array_equal(np.asarray(tensor), array), key


def test_a_tensor_is_an_index() -> None:
    tensor = grid(4)
    assert tensor[st.tensor(2)].item() == 2.0
    assert tensor[st.tensor(2)].is_view()
    assert tensor[st.tensor([2, 0])].tolist() == [2.0, 0.0]
    assert tensor[tensor > 1].tolist() == [2.0, 3.0]
    tensor[tensor > 1] = 0
    assert tensor.tolist() == [0.0, 1.0, 0.0, 0.0]


def test_assignment_that_does_not_fit_changes_nothing() -> None:
    tensor = st.zeros(3, dtype="uint8")
    for value, error in (([1, 2], ValueError), (256, OverflowError), (-1, OverflowError)):
        with pytest.raises(error):
            tensor[:] = value
        assert tensor.tolist() == [0, 0, 0]


def test_writing_where_elements_repeat_is_refused_except_for_one_value() -> None:
    tensor = st.zeros(1, 3).expand(2, 3)
    for write in (
        lambda: tensor.copy_(st.ones(2, 3)),
        lambda: tensor.__setitem__(slice(None), st.ones(2, 3)),
        lambda: np.add(tensor, 1, out=tensor),
        lambda: tensor.__iadd__(1),
        lambda: tensor.masked_fill_(tensor == 0, 1),
    ):
        with pytest.raises(RuntimeError, match="clone"):
            write()
    assert tensor.tolist() == [[0.0] * 3] * 2
    tensor.fill_(2)
    assert tensor.tolist() == [[2.0] * 3] * 2
    tensor[:] = 3
    tensor[0, 0] = 4
    assert tensor.tolist() == [[4.0, 3.0, 3.0]] * 2
    assert tensor.zero_().tolist() == [[0.0] * 3] * 2


def test_source_and_destination_may_overlap() -> None:
    tensor = grid(6)
    tensor[1:] = tensor[:-1]
    assert tensor.tolist() == [0.0, 0.0, 1.0, 2.0, 3.0, 4.0]
    square = grid(3, 3)
    square.copy_(square.t())
    assert square.tolist() == np.arange(9).reshape(3, 3).T.tolist()


@pytest.mark.parametrize("write", ["copy_", "index", "list", "mask", "index_copy_"])
def test_rows_that_step_differently_overlap_as_if_the_source_had_been_copied(write: str) -> None:
    """NumPy's own assignment gets these wrong: it only turns the order around."""
    tensor = grid(20)
    source, place = tensor[5:17:2], tensor[8:14]
    if write == "copy_":
        place.copy_(source)
    elif write == "index":
        tensor[8:14] = source
    elif write == "list":
        tensor[list(range(8, 14))] = source
    elif write == "mask":
        tensor[np.isin(np.arange(20), range(8, 14))] = source
    else:
        tensor.index_copy_(0, range(8, 14), source)
    assert tensor[8:14].tolist() == [5.0, 7.0, 9.0, 11.0, 13.0, 15.0]


def test_a_mask_may_be_part_of_what_it_masks() -> None:
    """NumPy's own assignment reads the mask while it writes."""
    bools = st.tensor([True, False, False, False, True, False])
    for write in (lambda t: t[1:].masked_fill_(t[:-1], True), lambda t: t[1:].__setitem__(t[:-1], True)):
        written = bools.clone()
        write(written)
        assert written.tolist() == [True, True, False, False, True, True]
    places = st.tensor([1, 2, 3, 0])
    places[places] = 0
    assert places.tolist() == [0, 0, 0, 0]


def test_a_mask_takes_a_value_with_surplus_dims_of_size_one() -> None:
    tensor = grid(4)
    tensor[np.array([True, False, True, False])] = np.array([[7, 8]])
    assert tensor.tolist() == [7.0, 1.0, 8.0, 3.0]


def test_copy_casts_and_expands_but_drops_no_dims() -> None:
    tensor = st.zeros(2, 3, dtype="int32")
    assert tensor.copy_([1.9, 2.2, 3.0]) is tensor
    assert tensor.tolist() == [[1, 2, 3]] * 2
    with pytest.raises(st.LayoutError):
        tensor.copy_(st.ones(1, 2, 3))
    assert tensor.fill_(st.tensor(4)).tolist() == [[4, 4, 4]] * 2


def test_a_read_only_view_refuses_every_write() -> None:
    tensor = grid(3)
    view = tensor.readonly()
    for write in (
        lambda: view.fill_(1),
        lambda: view.zero_(),
        lambda: view.copy_(1),
        lambda: view.__setitem__(0, 1),
        lambda: view[1:].fill_(1),
        lambda: view.view(3, 1).zero_(),
        lambda: np.add(view, 1, out=view),
        lambda: view.__iadd__(1),
        lambda: np.asarray(view).__setitem__(0, 1),
        lambda: view.memoryview().__setitem__(0, 1.0),
    ):
        with pytest.raises((ValueError, TypeError)):
            write()
    assert view.is_readonly()
    tensor[0] = 5
    assert view.tolist() == [5.0, 1.0, 2.0]
    assert not view.clone().is_readonly()


def test_resizing_a_tensor_grows_its_storage_and_never_shrinks_it() -> None:
    tensor = grid(2, 2)
    assert tensor.resize_(2, 2).tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert tensor.resize_(3).tolist() == [0.0, 1.0, 2.0]
    assert tensor.untyped_storage().nbytes() == 16
    tensor.resize_((4, 100))
    assert tensor.stride() == (100, 1)
    assert tensor.untyped_storage().nbytes() == 1600
    assert tensor[0, :4].tolist() == [0.0, 1.0, 2.0, 3.0]
    held = tensor.numpy()
    with pytest.raises(BufferError):
        tensor.resize_(1 << 20)
    assert tensor.shape == (4, 100)
    assert held.shape == (4, 100)


# --- picking


def test_picking_does_what_numpy_does() -> None:
    tensor, array = grid(3, 4), np.arange(12, dtype=np.float32).reshape(3, 4)
    pairs = [
        (tensor.flip(0), array[::-1]),
        (tensor.flip((0, 1)), array[::-1, ::-1]),
        (tensor.fliplr(), np.fliplr(array)),
        (tensor.flipud(), np.flipud(array)),
        (tensor.roll(1, 0), np.roll(array, 1, 0)),
        (tensor.roll(2), np.roll(array, 2)),
        (tensor.repeat(2, 1), np.tile(array, (2, 1))),
        (tensor.repeat(2, 1, 1), np.tile(array, (2, 1, 1))),
        (tensor.tile(2), np.tile(array, 2)),
        (tensor.index_select(1, [0, 2]), array[:, [0, 2]]),
        (tensor.take([0, 5, -1]), array.ravel()[[0, 5, -1]]),
        (tensor.masked_select(tensor > 5), array[array > 5]),
        (tensor.masked_fill(tensor > 5, 0), np.where(array > 5, 0, array)),
    ]
    for made, expected in pairs:
        assert np.array_equal(np.asarray(made), expected)
        assert made.dtype == np.float32
        assert min(made.stride(), default=0) >= 0
    assert st.tensor(3).flip(0).item() == 3
    assert tensor.t().flip(0).stride() == (1, 4)  # in the order of dims that a clone has
    tensor.index_fill_(0, [1], -1).index_copy_(1, [0], st.zeros(3, 1))
    assert tensor.tolist() == [[0, 1, 2, 3], [0, -1, -1, -1], [0, 9, 10, 11]]


# --- arithmetic


def test_operators_give_tensors_with_numpys_dtypes() -> None:
    tensor, array = grid(2, 3), np.arange(6, dtype=np.float32).reshape(2, 3)
    pairs = [
        (tensor + 1, array + 1),
        (1 - tensor, 1 - array),
        (tensor * tensor, array * array),
        (tensor / 2, array / 2),
        (tensor**2, array**2),
        (-tensor, -array),
        (abs(-tensor), array),
        (tensor // 2, array // 2),
        (tensor % 2, array % 2),
        (tensor @ tensor.t(), array @ array.T),
        (tensor > 2, array > 2),
        (tensor + np.float64(1), array + np.float64(1)),
        (tensor + np.ones(3), array + np.ones(3)),
        (np.ones(3) + tensor, np.ones(3) + array),
        (tensor + True, array + True),
        (tensor + st.arange(3), array + np.arange(3)),
        (tensor.byte() & 3, array.astype("u1") & 3),
        (np.add(tensor, [1, 2, 3]), array + np.array([1, 2, 3])),
    ]
    for made, expected in pairs:
        assert isinstance(made, st.Tensor)
        assert made.dtype == expected.dtype
        assert np.array_equal(np.asarray(made), expected)


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_large_result_is_what_a_small_one_is(size: int) -> None:
    array = np.arange(size, dtype=np.float32).reshape(2, -1)
    tensor = st.from_numpy(array)
    pairs: list[tuple[Any, Any]] = [
        (tensor + 1, array + 1),
        (np.sqrt(tensor), np.sqrt(array)),
        (tensor > 5, array > 5),
        (tensor + 1j, array + 1j),
        (tensor.t() * 2, array.T * 2),
        (tensor + np.ones((3, 1, 1)), array + np.ones((3, 1, 1))),
        (2 ** tensor.byte(), 2 ** array.astype("u1")),
        (np.equal(tensor, None), np.equal(array, None)),
        (tensor + tensor[:1], array + array[:1]),
    ]
    for made, expected in pairs:
        assert made.dtype == expected.dtype
        assert np.array_equal(np.asarray(made), expected)
    assert (tensor.t() * 2).stride() == tensor.t().stride()
    with pytest.raises(OverflowError):
        tensor.byte() + 300
    with pytest.raises(ValueError):
        tensor + np.ones(3)
    with pytest.raises(TypeError):
        tensor + "a"


def test_in_place_operators_write_to_the_tensor() -> None:
    tensor = grid(3)
    same = tensor
    tensor += 1
    tensor *= st.tensor([1.0, 2.0, 3.0])
    assert tensor is same
    assert tensor.tolist() == [1.0, 4.0, 9.0]
    array = np.zeros(3, np.float32)
    array += tensor
    assert array.tolist() == [1.0, 4.0, 9.0]
    counts = st.arange(3)
    with pytest.raises(TypeError):
        counts += 0.5


def test_out_arguments_are_written_and_returned() -> None:
    tensor, out = grid(3), st.zeros(3)
    assert np.add(tensor, 1, out=out) is out
    assert out.tolist() == [1.0, 2.0, 3.0]
    total = st.zeros(())
    assert np.sum(tensor, out=total) is total
    assert total.item() == 3.0
    plain = np.zeros(3, np.float32)
    assert np.add(tensor, 1, out=plain) is plain
    fraction, whole = st.zeros(3), st.zeros(3)
    assert np.modf(tensor / 2, out=(fraction, whole))[1] is whole
    assert whole.tolist() == [0.0, 0.0, 1.0]
    np.add.at(tensor, [0, 0], 1)
    assert tensor.tolist() == [2.0, 1.0, 2.0]


def test_reductions_are_zero_d_tensors() -> None:
    tensor = grid(2, 3)
    for made in (np.sum(tensor), np.mean(tensor), np.max(tensor), np.add.reduce(tensor, axis=None), np.prod(tensor)):
        assert isinstance(made, st.Tensor)
        assert made.shape == ()
    assert np.sum(tensor, axis=0).tolist() == [3.0, 5.0, 7.0]
    assert tensor.flatten()[np.argmax(tensor)].item() == 5.0
    assert np.any(tensor > 4)
    assert not np.all(tensor > 4)
    assert np.add.accumulate(tensor, axis=1).tolist() == [[0.0, 1.0, 3.0], [3.0, 7.0, 12.0]]
    assert np.add.outer(grid(2), grid(2)).tolist() == [[0.0, 1.0], [1.0, 2.0]]
    assert np.sum(tensor, where=tensor > 2).item() == 12.0


def test_numpy_functions_that_view_give_views() -> None:
    tensor = grid(2, 3)
    views = [
        np.transpose(tensor),
        np.reshape(tensor, 6),
        np.squeeze(tensor[None]),
        np.swapaxes(tensor, 0, 1),
        np.split(tensor, 3, 1)[1],
        np.broadcast_to(tensor, (2, 2, 3)),
        np.atleast_3d(tensor),
        np.expand_dims(tensor, 0),
    ]
    for view in views:
        assert isinstance(view, st.Tensor)
        assert view.untyped_storage() is tensor.untyped_storage()
    assert views[4].tolist() == [[1.0], [4.0]]
    assert views[5].is_readonly()
    assert np.flip(tensor).tolist() == [[5.0, 4.0, 3.0], [2.0, 1.0, 0.0]]
    assert np.flip(tensor).untyped_storage() is not tensor.untyped_storage()


def test_numpy_functions_of_several_tensors_and_results() -> None:
    tensor = grid(2, 3)
    assert np.concatenate([tensor, tensor]).shape == (4, 3)
    assert np.stack((tensor, tensor)).shape == (2, 2, 3)
    assert np.where(tensor > 2, tensor, 0).tolist() == [[0.0, 0.0, 0.0], [3.0, 4.0, 5.0]]
    rows, columns = np.nonzero(tensor)
    assert (rows.tolist(), columns.tolist()) == ([0, 0, 1, 1, 1], [1, 2, 0, 1, 2])
    values, vectors = np.linalg.eigh(grid(2, 2))
    assert isinstance(vectors, st.Tensor)
    assert np.linalg.eigh(grid(2, 2)).eigenvalues.shape == values.shape
    assert np.allclose(tensor, tensor.numpy())
    assert np.array_equal(tensor, tensor.numpy())
    assert np.shape(tensor) == (2, 3)
    assert np.einsum("ij->j", tensor).tolist() == [3.0, 5.0, 7.0]
    assert np.zeros_like(tensor).untyped_storage() is not tensor.untyped_storage()
    assert isinstance(np.array2string(tensor), str)
    np.copyto(tensor, 7)
    assert tensor.tolist() == [[7.0] * 3] * 2


def test_results_keep_the_order_of_dims() -> None:
    last = grid(2, 3, 4, 5).clone(memory_format=st.channels_last)
    for made in (last + 1, np.sqrt(last), last * last):
        assert made.is_contiguous(memory_format=st.channels_last)


def test_bfloat16_works_like_the_others() -> None:
    pytest.importorskip("ml_dtypes", reason="bfloat16 comes with ml_dtypes")
    tensor = st.tensor([1.5, 2.5], dtype="bfloat16")
    assert (tensor + tensor).dtype == st.bfloat16
    assert tensor.tolist() == [1.5, 2.5]
    assert tensor[0].item() == 1.5
    assert np.asarray(tensor).dtype == st.bfloat16
    assert tensor.float().tolist() == [1.5, 2.5]
    assert st.zeros(2, dtype=st.bfloat16).is_floating_point()
    with pytest.raises(BufferError):
        tensor.memoryview()
