"""Rules 3, 4, 5, 9 and 10 by example, and what a header may hold. Random layouts: test_view_programs."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from shmtensor.errors import InvalidHeader, LayoutError, StorageBoundsError
from shmtensor.layout import (
    Layout,
    Size,
    channels_last,
    channels_last_3d,
    check_within,
    contiguous,
    contiguous_format,
    default_stride,
    dim_order,
    preserve_format,
    preserved,
    stride_for,
    validated,
)

# Rule 3: default strides, contiguous.


def test_default_strides_multiply_the_larger_of_size_and_one_from_the_right() -> None:
    assert default_stride((2, 0, 3)) == (3, 3, 1)
    assert default_stride((2, 3, 4)) == (12, 4, 1)
    assert default_stride((1, 1)) == (1, 1)
    assert default_stride(()) == ()


@pytest.mark.parametrize(("shape", "stride"), [((1, 3), (100, 1)), ((1,), (0,)), ((2, 1, 3), (3, 77, 1)), ((), ())])
def test_a_dim_of_size_one_may_have_any_stride_in_a_contiguous_layout(shape: Any, stride: Any) -> None:
    assert Layout(shape, stride).is_contiguous()


def test_a_layout_without_elements_is_contiguous_whatever_its_strides() -> None:
    assert Layout((2, 0, 3), (7, 5, 9)).is_contiguous()


def test_the_offset_does_not_matter_to_contiguity() -> None:
    assert Layout((2, 3), (3, 1), 5).is_contiguous()
    assert not Layout((2, 3), (1, 2), 0).is_contiguous()


def test_contiguous_gives_plain_ints_at_offset_zero_from_numpy_ints_too() -> None:
    layout = contiguous((np.int64(2), np.int64(77)))
    assert layout == Layout((2, 77), (77, 1), 0)
    assert [type(size) for size in layout.shape] == [int, int]


def test_a_negative_size_is_a_layout_error_and_a_fraction_a_type_error() -> None:
    with pytest.raises(LayoutError, match="negative"):
        contiguous((2, -3))
    with pytest.raises(TypeError):
        contiguous((2.5,))
    with pytest.raises(LayoutError, match="at most 64"):
        contiguous((1,) * 65)


def test_a_layout_error_is_what_users_of_torch_and_what_users_of_numpy_catch() -> None:
    assert issubclass(LayoutError, RuntimeError)
    assert issubclass(LayoutError, ValueError)


# Rule 4: channels_last.


def test_channels_last_is_a_running_product_without_the_larger_of_size_and_one() -> None:
    assert stride_for((2, 3, 4, 5), channels_last) == (60, 1, 15, 3)
    assert stride_for((2, 0, 4, 5), channels_last) == (0, 1, 0, 0)
    assert stride_for((2, 3, 4, 5, 6), channels_last_3d) == (360, 1, 90, 18, 3)


def test_the_channels_last_test_has_no_shortcut_for_layouts_without_elements() -> None:
    assert not Layout((2, 0, 4, 5), default_stride((2, 0, 4, 5))).is_contiguous(channels_last)
    assert Layout((2, 0, 4, 5), (0, 1, 0, 0)).is_contiguous(channels_last)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (1, 2, 3, 4, 5, 6)])
def test_channels_last_of_another_rank_is_never_matched_and_never_made(shape: Any) -> None:
    assert not contiguous(shape).is_contiguous(channels_last)
    assert not contiguous(shape).is_contiguous(channels_last_3d)
    for memory_format in (channels_last, channels_last_3d):
        with pytest.raises(LayoutError, match=r"needs \d dims"):
            stride_for(shape, memory_format)


@pytest.mark.parametrize("shape", [(2, 1, 4, 5), (2, 3, 1, 1)])
def test_ambiguous_shapes_pass_both_tests(shape: Any) -> None:
    for memory_format in (contiguous_format, channels_last):
        layout = Layout(shape, stride_for(shape, memory_format))
        assert layout.is_contiguous(contiguous_format)
        assert layout.is_contiguous(channels_last)


def test_a_new_ambiguous_tensor_gets_real_channels_last_strides() -> None:
    assert stride_for((2, 1, 4, 5), channels_last) == (20, 1, 5, 1)


# Rule 5: preserve_format.


def test_preserve_keeps_the_strides_of_a_dense_layout() -> None:
    assert preserved(Layout((2, 3, 4, 5), (60, 1, 15, 3), 9)) == (60, 1, 15, 3)
    assert preserved(Layout((1, 3), (100, 1))) == (100, 1)


def test_preserve_lays_out_densely_in_the_order_of_the_strides() -> None:
    assert preserved(Layout((4, 3), (0, 1))) == (3, 1)
    assert preserved(Layout((2, 4, 3), (1, 12, 4))) == (1, 6, 2)
    assert preserved(Layout((3, 2), (5, 7))) == (1, 3)


def test_preserve_needs_something_to_follow() -> None:
    with pytest.raises(LayoutError, match="preserve_format"):
        stride_for((2, 3), preserve_format)


def test_dim_order_goes_from_the_outermost_to_the_innermost() -> None:
    assert dim_order(contiguous((2, 3, 4))) == (0, 1, 2)
    assert dim_order(Layout((4, 3), (1, 4))) == (1, 0)
    assert dim_order(Layout((2, 3, 4, 5), stride_for((2, 3, 4, 5), channels_last))) == (0, 2, 3, 1)


# Rule 9: bounds. Rule 10: overlap.


def test_the_extent_reaches_from_the_start_of_the_storage_to_the_last_element() -> None:
    assert Layout((2, 3), (3, 1), 5).extent() == 11
    assert Layout((4, 3), (0, 2), 1).extent() == 6
    assert Layout((), (), 7).extent() == 8


def test_a_layout_without_elements_needs_no_bytes_even_far_outside() -> None:
    assert Layout((0, 3), (3, 1), 1000).extent() == 0
    check_within(Layout((0, 3), (3, 1), 1000), 8, 0)


def test_a_layout_past_the_end_is_a_storage_bounds_error_that_says_what_is_needed_and_there() -> None:
    layout = Layout((2, 3), (3, 1), 5)
    check_within(layout, 4, 44)
    with pytest.raises(StorageBoundsError, match=r"shape \(2, 3\).*needs 44 bytes.*has 43.*resize_"):
        check_within(layout, 4, 43)


def test_extents_past_64_bits_do_not_wrap_around() -> None:
    with pytest.raises(StorageBoundsError):
        check_within(Layout((2,), (2**63 - 1,), 2**63 - 1), 8, 2**62)


def test_a_repeated_dim_overlaps_itself_and_a_dim_of_size_one_does_not() -> None:
    assert Layout((4, 3), (0, 1)).overlaps_itself()
    assert not Layout((1, 3), (0, 1)).overlaps_itself()
    assert not Layout((4, 0), (0, 1)).overlaps_itself()
    assert not Layout((), ()).overlaps_itself()


# Size, Layout as values.


def test_a_size_is_a_tuple_that_knows_its_elements() -> None:
    size = Size((2, 3))
    assert size == (2, 3)
    assert (size.numel(), Size().numel()) == (6, 1)
    assert repr(size) == "Size([2, 3])"
    assert isinstance(size[1:], Size)
    assert size[-1] == 3
    assert pickle.loads(pickle.dumps(size)) == size
    assert isinstance(copy.deepcopy(size), Size)


def test_layouts_are_equal_by_value_and_survive_a_pickle() -> None:
    layout = Layout((2, 3), (3, 1), 4)
    assert layout == Layout((2, 3), (3, 1), 4)
    assert hash(layout) == hash(Layout((2, 3), (3, 1), 4))
    assert layout != Layout((2, 3), (3, 1), 5)
    assert layout != ((2, 3), (3, 1), 4)
    assert pickle.loads(pickle.dumps(layout)) == layout
    assert eval(repr(layout)) == layout


# Headers are data.


def test_a_good_header_is_the_layout_it_describes() -> None:
    assert validated((2, 3), (3, 1), 4, 8) == Layout((2, 3), (3, 1), 4)
    assert validated((0, 2**40), (5, 5), 99, 8) == Layout((0, 2**40), (5, 5), 99)
    assert validated((), (), 0, 1) == Layout((), (), 0)


@pytest.mark.parametrize(
    ("shape", "stride", "offset"),
    [
        ((2, 3), (3,), 0),
        ([2, 3], (3, 1), 0),
        ((2, 3), "31", 0),
        ((2, -3), (3, 1), 0),
        ((2, 3), (-3, 1), 0),
        ((2, 3), (3, 1), -1),
        ((2, 3.0), (3, 1), 0),
        ((2, True), (3, 1), 0),
        ((2, np.int64(3)), (3, 1), 0),
        ((2, 3), (3, 1), None),
        ((2, 3), (3, None), 0),
        ((1,) * 65, (1,) * 65, 0),
        ((2**63,), (1,), 0),
        ((1,), (2**63,), 0),
        ((1,), (2**60,), 0),  # a size-1 dim is never stepped along, but its stride in bytes overflows
        ((1,), (1,), 2**60),
        ((2**32, 2**32), (1, 1), 0),
        ((2**32, 2**32), (0, 0), 0),
        ((0, 2**32, 2**32), (0, 0, 0), 0),  # no elements, yet NumPy multiplies the other sizes
        ((3, 3), (2**59, 2**59), 0),
        ((10**400,), (1,), 0),
        ((10**5000,), (1,), 0),  # too long for str()
        ((2,), (1,), {}),
    ],
)
def test_a_damaged_header_is_an_invalid_header(shape: Any, stride: Any, offset: Any) -> None:
    with pytest.raises(InvalidHeader) as refused:
        validated(shape, stride, offset, 8)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("shape", "stride", "offset"),
    [
        ((0, 2**40), (2**50, 1), 5),
        ((1, 1), (2**59, 3), 0),
        ((2,) * 40, (1,) * 40, 1),
        ((1,) * 64, (0,) * 64, 0),
    ],
)
def test_numpy_can_hold_what_is_validated_when_the_bytes_are_there(shape: Any, stride: Any, offset: int) -> None:
    layout = validated(shape, stride, offset, 8)
    if layout.numel > 2**20:  # more elements than bytes: the array is made, and nobody reads it
        assert layout.extent() < 100
    array = np.ndarray(
        shape, np.float64, np.zeros(800, np.uint8), min(offset, 99) * 8, tuple(step * 8 for step in stride)
    )
    assert array.shape == shape
