"""Rules 1, 2, 6, 7, 8, 9 and 15 by example. Random programs: test_view_programs, test_view_elements."""

from __future__ import annotations

from typing import Any

import pytest

from shmtensor import views
from shmtensor.errors import LayoutError, StorageBoundsError
from shmtensor.layout import Layout, check_within, contiguous

# Rule 1: view.

ODD = Layout((3, 2, 4), (4, 12, 1), 7)
REPEATED = Layout((4, 3), (0, 1), 2)


def test_view_splits_dims_and_keeps_the_offset() -> None:
    assert views.try_view(ODD, (3, 2, 2, 2)) == Layout((3, 2, 2, 2), (4, 12, 2, 1), 7)


@pytest.mark.parametrize("shape", [(24,), (3, 8), (6, 4)])
def test_view_declines_to_merge_dims_that_do_not_follow_one_another(shape: Any) -> None:
    assert views.try_view(ODD, shape) is None


def test_view_treats_a_repeated_dim_like_any_other() -> None:
    assert views.try_view(REPEATED, (2, 2, 3)) == Layout((2, 2, 3), (0, 0, 1), 2)
    assert views.try_view(REPEATED, (12,)) is None


def test_view_merges_across_a_dim_of_size_one_whatever_its_stride() -> None:
    assert views.try_view(Layout((3, 1, 4), (4, 99, 1)), (12,)) == Layout((12,), (1,))
    assert views.try_view(Layout((3, 4, 1), (4, 1, 99)), (12,)) == Layout((12,), (1,))


def test_the_error_of_view_names_the_dims_that_cannot_be_merged_and_suggests_reshape() -> None:
    with pytest.raises(LayoutError, match=r"dims 0 and 1 can't be merged.*stride 4 of dim 0.*24.*reshape\(\(6, 4\)\)"):
        views.view(ODD, (6, 4))
    with pytest.raises(LayoutError, match=r"dims 1 and 2 can't be merged.*stride 12 of dim 1.* 4 .*reshape"):
        views.view(ODD, (3, 8))


def test_a_transpose_cannot_be_viewed_flat_and_the_book_says_so_too() -> None:
    points = Layout((3, 2), (2, 1))
    transposed = views.transpose(points, 0, 1)
    assert transposed == Layout((2, 3), (1, 2))
    assert views.try_view(transposed, (6,)) is None
    assert views.try_view(points, (6,)) == Layout((6,), (1,))


def test_the_bike_data_is_viewed_by_days_without_a_copy() -> None:
    days = views.try_view(contiguous((17520, 17)), (-1, 24, 17))
    assert days == Layout((730, 24, 17), (408, 17, 1))
    assert views.transpose(days, 1, 2) == Layout((730, 17, 24), (408, 1, 17))


def test_a_0d_layout_is_viewed_with_strides_of_one() -> None:
    assert views.try_view(Layout((), (), 4), (1, 1)) == Layout((1, 1), (1, 1), 4)


# Rule 2: -1 and empties.


@pytest.mark.parametrize(
    ("shape", "numel", "resolved"),
    [
        ((-1,), 6, (6,)),
        ((2, -1), 6, (2, 3)),
        ((-1,), 0, (0,)),
        ((3, -1), 0, (3, 0)),
        ((), 1, ()),
        ((0, 5), 0, (0, 5)),
    ],
)
def test_minus_one_is_the_size_that_fits(shape: Any, numel: int, resolved: Any) -> None:
    assert views.resolve_shape(shape, numel) == resolved


@pytest.mark.parametrize(
    ("shape", "numel", "says"),
    [
        ((-1, -1), 6, "more than one -1"),
        ((-2, 3), 6, "negative"),
        ((-1, -2), 6, "negative"),
        ((4, -1), 6, "can't be divided"),
        ((0, -1), 0, "could be any size"),
        ((5,), 6, "5 elements, the tensor has 6"),
        ((), 6, "1 elements, the tensor has 6"),
    ],
)
def test_a_shape_that_does_not_fit_is_a_layout_error_that_says_why(shape: Any, numel: int, says: str) -> None:
    with pytest.raises(LayoutError, match=says):
        views.resolve_shape(shape, numel)


def test_a_view_without_elements_keeps_its_strides_in_the_same_shape_and_else_has_default_ones() -> None:
    empty = Layout((2, 0, 3), (9, 5, 7), 4)
    assert views.try_view(empty, (2, 0, 3)) == empty
    assert views.try_view(empty, (0, 6)) == Layout((0, 6), (6, 1), 4)
    assert views.try_view(empty, (-1,)) == Layout((0,), (1,), 4)


# Flatten and unflatten.


def test_flatten_is_a_view_where_it_can_be_and_makes_one_dim_of_none() -> None:
    assert views.try_flatten(contiguous((2, 3, 4)), 1) == Layout((2, 12), (12, 1))
    assert views.try_flatten(ODD) is None
    assert views.try_flatten(Layout((), (), 3)) == Layout((1,), (1,), 3)
    with pytest.raises(LayoutError, match="comes after"):
        views.try_flatten(ODD, 2, 1)


def test_unflatten_splits_one_dim_of_any_stride() -> None:
    assert views.unflatten(Layout((6, 2), (5, 1)), 0, (2, -1)) == Layout((2, 3, 2), (15, 5, 1))
    with pytest.raises(LayoutError):
        views.unflatten(ODD, 0, (2, 2))


# Rule 6: pieces.


def test_slicing_clamps_and_moves_the_offset_even_when_nothing_is_left() -> None:
    row = Layout((10,), (3,), 2)
    assert views.slice_dim(row, 0, slice(8, 100)) == Layout((2,), (3,), 26)
    assert views.slice_dim(row, 0, slice(7, 3)) == Layout((0,), (3,), 23)
    assert views.slice_dim(row, -1, slice(None, None, 3)) == Layout((4,), (9,), 2)


@pytest.mark.parametrize("step", [0, -1, -2])
def test_a_step_below_one_is_a_value_error_so_that_strides_are_never_negative(step: int) -> None:
    with pytest.raises(ValueError, match="flip"):
        views.slice_dim(contiguous((4,)), 0, slice(None, None, step))


def test_select_out_of_range_is_an_index_error() -> None:
    assert views.select(contiguous((2, 3)), 1, -1) == Layout((2,), (3,), 2)
    for place in (3, -4):
        with pytest.raises(IndexError, match="dim 1 with size 3"):
            views.select(contiguous((2, 3)), 1, place)


@pytest.mark.parametrize(("start", "length", "offset"), [(-5, 2, 0), (5, 0, 5), (-1, 1, 4), (2, 3, 2)])
def test_narrow_starts_anywhere_from_minus_n_to_n(start: int, length: int, offset: int) -> None:
    assert views.narrow(contiguous((5,)), 0, start, length) == Layout((length,), (1,), offset)


def test_narrow_refuses_a_start_or_an_end_outside() -> None:
    for start in (-6, 6):
        with pytest.raises(IndexError, match="start"):
            views.narrow(contiguous((5,)), 0, start, 0)
    for start, length in ((3, 3), (-1, 2), (0, -1)):
        with pytest.raises(LayoutError, match="don't fit"):
            views.narrow(contiguous((5,)), 0, start, length)


def test_a_diagonal_adds_the_strides_and_moves_along_the_side_it_is_on() -> None:
    square = Layout((3, 4), (10, 2), 1)
    assert views.diagonal(square) == Layout((3,), (12,), 1)
    assert views.diagonal(square, 1) == Layout((3,), (12,), 1 + 2)
    assert views.diagonal(square, -1) == Layout((2,), (12,), 1 + 10)
    assert views.diagonal(square, 4) == Layout((0,), (12,), 1)
    with pytest.raises(LayoutError, match="two dims"):
        views.diagonal(square, 0, 1, -1)


def test_unfold_gives_windows_as_a_new_last_dim() -> None:
    assert views.unfold(Layout((7,), (2,), 3), 0, 3, 2) == Layout((3, 3), (4, 2), 3)
    for size, step in ((8, 1), (-1, 1), (2, 0)):
        with pytest.raises(LayoutError, match="don't fit"):
            views.unfold(contiguous((7,)), 0, size, step)


def sizes_of(pieces: tuple[Layout, ...]) -> list[tuple[int, int]]:
    return [(piece.shape[0], piece.offset) for piece in pieces]


def test_chunk_gives_pieces_of_the_rounded_up_size_and_maybe_fewer_of_them() -> None:
    assert sizes_of(views.chunk(contiguous((10,)), 4)) == [(3, 0), (3, 3), (3, 6), (1, 9)]
    assert sizes_of(views.chunk(contiguous((5,)), 4)) == [(2, 0), (2, 2), (1, 4)]
    assert sizes_of(views.chunk(contiguous((0, 2)), 3)) == [(0, 0)] * 3


def test_tensor_split_makes_the_first_pieces_one_longer_or_cuts_at_indices() -> None:
    assert sizes_of(views.tensor_split(contiguous((7,)), 3)) == [(3, 0), (2, 3), (2, 5)]
    assert sizes_of(views.tensor_split(contiguous((2,)), 3)) == [(1, 0), (1, 1), (0, 2)]
    assert sizes_of(views.tensor_split(contiguous((7,)), (2, 1, -1))) == [(2, 0), (0, 2), (5, 1), (1, 6)]


def test_split_takes_one_size_or_sizes_that_add_up() -> None:
    assert sizes_of(views.split(contiguous((5,)), 2)) == [(2, 0), (2, 2), (1, 4)]
    assert sizes_of(views.split(contiguous((5,)), [1, 4])) == [(1, 0), (4, 1)]
    assert sizes_of(views.split(contiguous((0,)), 0)) == [(0, 0)]
    for wrong in (0, -1, [2, 2], [6, -1]):
        with pytest.raises(LayoutError, match="split"):
            views.split(contiguous((5,)), wrong)


def test_unbind_selects_every_index() -> None:
    assert views.unbind(contiguous((2, 3)), 1) == tuple(Layout((2,), (3,), at) for at in range(3))


# Rule 7: expand and unsqueeze.


def test_expand_keeps_equal_dims_repeats_those_of_size_one_and_adds_dims_in_front() -> None:
    column = Layout((3, 1), (7, 9), 2)
    assert views.expand(column, (3, 4)) == Layout((3, 4), (7, 0), 2)
    assert views.expand(column, (-1, 1)) == column
    assert views.expand(column, (5, 3, 1)) == Layout((5, 3, 1), (0, 7, 9), 2)
    assert views.expand(column, (1, 3, 1)) == Layout((1, 3, 1), (21, 7, 9), 2)
    assert views.broadcast_to(column, (3, 4)) == views.expand(column, (3, 4))


def test_expand_names_the_size_that_cannot_be_repeated() -> None:
    with pytest.raises(LayoutError, match=r"size 3 of dim 0 .*can't become 4.*repeat"):
        views.expand(Layout((3, 1), (7, 9)), (4, 4))
    with pytest.raises(LayoutError, match="more dims"):
        views.expand(Layout((3, 1), (7, 9)), (3,))
    with pytest.raises(LayoutError, match="a new dim needs a size"):
        views.expand(Layout((3, 1), (7, 9)), (-1, 3, 1))


@pytest.mark.parametrize(("layout", "shape"), [(Layout((1, 0), (1, 1)), (-2, 0)), (Layout((), ()), (-1, 0))])
def test_expand_never_makes_a_negative_size_as_torch_does_without_elements(layout: Layout, shape: Any) -> None:
    with pytest.raises(LayoutError):
        views.expand(layout, shape)


def test_unsqueeze_spans_what_follows_it() -> None:
    layout = Layout((2, 3), (5, 4), 1)
    assert views.unsqueeze(layout, 0) == Layout((1, 2, 3), (10, 5, 4), 1)
    assert views.unsqueeze(layout, 1) == Layout((2, 1, 3), (5, 12, 4), 1)
    assert views.unsqueeze(layout, -1) == Layout((2, 3, 1), (5, 4, 1), 1)


def test_broadcast_shapes_is_the_common_shape_or_says_which_dim_differs() -> None:
    assert views.broadcast_shapes((3, 1), (4,), ()) == (3, 4)
    assert views.broadcast_shapes((0,), (1,)) == (0,)
    assert views.broadcast_shapes() == ()
    with pytest.raises(LayoutError, match=r"dim -1 is both 3 and 4"):
        views.broadcast_shapes((2, 3), (4,))


# Dims moved and dropped.


def test_a_dim_that_does_not_exist_is_an_index_error_that_names_the_range() -> None:
    for act in (
        lambda x: views.transpose(x, 0, 3),
        lambda x: views.squeeze(x, -4),
        lambda x: views.unbind(x, 3),
    ):
        with pytest.raises(IndexError, match=r"from -3 to 2"):
            act(ODD)
    with pytest.raises(IndexError, match="from -4 to 3"):
        views.unsqueeze(ODD, 4)


def test_a_0d_layout_accepts_the_dims_zero_and_minus_one_where_torch_does() -> None:
    scalar = Layout((), (), 3)
    assert views.transpose(scalar, 0, -1) == scalar
    assert views.squeeze(scalar, 0) == scalar
    assert views.movedim(scalar, 0, -1) == scalar
    assert views.unfold(scalar, 0, 1, 1) == Layout((1,), (1,), 3)
    for act in (
        lambda x: views.select(x, 0, 0),
        lambda x: views.split(x, 1),
        lambda x: views.permute(x, (0,)),
    ):
        with pytest.raises((IndexError, LayoutError)):
            act(scalar)


def test_permute_and_movedim_name_each_dim_once() -> None:
    assert views.permute(ODD, (2, 0, -2)) == Layout((4, 3, 2), (1, 4, 12), 7)
    assert views.movedim(ODD, 0, -1) == Layout((2, 4, 3), (12, 1, 4), 7)
    assert views.movedim(ODD, (0, 2), (2, 0)) == Layout((4, 2, 3), (1, 12, 4), 7)
    for wrong in ((0, 1), (0, 0, 1)):
        with pytest.raises(LayoutError, match="once"):
            views.permute(ODD, wrong)
    with pytest.raises(LayoutError, match="none twice"):
        views.movedim(ODD, (0, 0), (1, 2))


def test_squeeze_drops_dims_of_size_one_only() -> None:
    layout = Layout((1, 3, 1), (9, 2, 5), 1)
    assert views.squeeze(layout) == Layout((3,), (2,), 1)
    assert views.squeeze(layout, (0, 1)) == Layout((3, 1), (2, 5), 1)
    assert views.squeeze(layout, 1) == layout
    with pytest.raises(LayoutError, match="twice"):
        views.squeeze(layout, (0, -3))


@pytest.mark.parametrize(("shape", "ndim", "wanted"), [((), 3, (1, 1, 1)), ((5,), 2, (1, 5)), ((5,), 3, (1, 5, 1))])
def test_atleast_adds_dims_where_torch_does(shape: Any, ndim: int, wanted: Any) -> None:
    assert views.atleast(contiguous(shape), ndim).shape == wanted
    assert views.atleast(contiguous((2, 3)), 3).shape == (2, 3, 1)
    assert views.atleast(contiguous((2, 3)), 1) == contiguous((2, 3))


# Rule 8: view as another dtype.


def test_a_dtype_of_the_same_size_is_always_a_view() -> None:
    assert views.view_dtype(ODD, 4, 4) is ODD
    assert views.view_dtype(Layout((), (), 3), 8, 8) == Layout((), (), 3)


def test_smaller_elements_multiply_and_larger_ones_divide() -> None:
    assert views.view_dtype(Layout((3, 4), (8, 1), 2), 4, 1) == Layout((3, 16), (32, 1), 8)
    assert views.view_dtype(Layout((3, 4), (8, 1), 2), 4, 8) == Layout((3, 2), (4, 1), 1)


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        (Layout((), (), 0), "last dim with stride 1"),
        (Layout((2, 2), (4, 2), 0), "last dim with stride 1"),
        (Layout((2, 3), (4, 1), 0), "divisible by 2"),
        (Layout((2, 2), (3, 1), 0), "divisible by 2"),
        (Layout((2, 2), (4, 1), 1), "divisible by 2"),
    ],
)
def test_larger_elements_need_a_last_stride_of_one_and_everything_else_divisible(layout: Layout, says: str) -> None:
    with pytest.raises(LayoutError, match=says):
        views.view_dtype(layout, 4, 8)


def test_complex_elements_are_pairs_of_real_ones() -> None:
    pairs = Layout((3, 2), (4, 1), 2)
    assert views.view_as_complex(pairs) == Layout((3,), (2,), 1)
    assert views.view_as_real(Layout((3,), (2,), 1)) == pairs
    for wrong in (
        Layout((3, 3), (4, 1)),
        Layout((3, 2), (3, 1)),
        Layout((3, 2), (4, 1), 1),
        Layout((2,), (2,)),
    ):
        with pytest.raises(LayoutError, match="view_as_complex"):
            views.view_as_complex(wrong)


# Rule 9: as_strided.


def test_as_strided_reaches_anywhere_in_the_storage_from_the_offset_of_the_view_unless_given() -> None:
    assert views.as_strided(ODD, (2, 2), (1, 5)) == Layout((2, 2), (1, 5), 7)
    wide = views.as_strided(ODD, (100,), (1,), 0)
    check_within(wide, 4, 400)
    with pytest.raises(StorageBoundsError):
        check_within(wide, 4, 399)


@pytest.mark.parametrize(
    ("shape", "stride", "offset"), [((2,), (-1,), 0), ((2,), (1,), -1), ((-2,), (1,), 0), ((2,), (), 0)]
)
def test_as_strided_refuses_negative_numbers_and_unequal_lengths(shape: Any, stride: Any, offset: int) -> None:
    with pytest.raises(LayoutError):
        views.as_strided(ODD, shape, stride, offset)
