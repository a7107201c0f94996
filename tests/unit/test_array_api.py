"""The Python array API standard on tensors: every name, against NumPy's results on arrays.

NumPy is the oracle: a call is made twice, with arrays and with tensors of the same elements.
"""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmtensor as st
from shmtensor.array_api import Namespace, namespace
from shmtensor.storage import Pool

# The names of the standard, version 2024.12, by the chapters of its specification.
CONSTANTS = "e inf nan newaxis pi"
DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128"
STANDARD = {
    "inspection": "__array_namespace_info__",
    "creation": (
        "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril triu "
        "zeros zeros_like"
    ),
    "data types": "astype can_cast finfo iinfo isdtype result_type",
    "elementwise": (
        "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert bitwise_or "
        "bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1 floor floor_divide "
        "greater greater_equal hypot imag isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp "
        "logical_and logical_not logical_or logical_xor maximum minimum multiply negative nextafter not_equal "
        "positive pow real reciprocal remainder round sign signbit sin sinh square sqrt subtract tan tanh trunc"
    ),
    "indexing": "take take_along_axis",
    "linear algebra": "matmul matrix_transpose tensordot vecdot",
    "manipulation": (
        "broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze "
        "stack tile unstack"
    ),
    "searching": "argmax argmin count_nonzero nonzero searchsorted where",
    "sets": "unique_all unique_counts unique_inverse unique_values",
    "sorting": "argsort sort",
    "statistics": "cumulative_prod cumulative_sum max mean min prod std sum var",
    "utilities": "all any diff",
    "linalg": (
        "linalg.cholesky linalg.cross linalg.det linalg.diagonal linalg.eigh linalg.eigvalsh linalg.inv linalg.matmul "
        "linalg.matrix_norm linalg.matrix_power linalg.matrix_rank linalg.matrix_transpose linalg.outer linalg.pinv "
        "linalg.qr linalg.slogdet linalg.solve linalg.svd linalg.svdvals linalg.tensordot linalg.trace linalg.vecdot "
        "linalg.vector_norm"
    ),
    "fft": (
        "fft.fft fft.ifft fft.fftn fft.ifftn fft.rfft fft.irfft fft.rfftn fft.irfftn fft.hfft fft.ihfft fft.fftfreq "
        "fft.rfftfreq fft.fftshift fft.ifftshift"
    ),
}
# Added by version 2025.12, and in NumPy for long.
LATER = "broadcast_shapes isin linalg.eig linalg.eigvals"
FUNCTIONS = f"{' '.join(STANDARD.values())} {LATER}".split()
ARRAY_ATTRIBUTES = (
    "T device dtype mT ndim shape size to_device __array_namespace__ __dlpack__ __dlpack_device__ "
    "__getitem__ __setitem__ __bool__ __complex__ __float__ __index__ __int__ __abs__ __invert__ __neg__ __pos__ "
    "__eq__ __ge__ __gt__ __le__ __lt__ __ne__"
)
OPERATORS = "add and floordiv lshift matmul mod mul or pow rshift sub truediv xor"

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

xp: Any = namespace()


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """One pool for all the calls: they are many, and a pool takes longer to make than most of them."""
    made = Pool.create(limit=64 << 20)
    yield made
    made.close()


def call(*args: Any, **kwargs: Any) -> Arguments:
    return args, kwargs


# --- every function, with arguments

SMALL = np.array([[0.25, -0.5, 0.75], [-0.125, 0.0, 0.5]])
LARGE = np.array([[1.0, 2.5, 3.0], [7.25, 4.0, 1.5]])
SINGLE = SMALL.astype("float32")
WHOLE = np.array([[3, -1, 2], [5, 2, 3]])
BITS = np.array([[3, 1, 2], [5, 0, 7]], dtype="uint8")
MASK = np.array([[True, False, True], [False, True, True]])
COMPLEX = np.array([[1 + 2j, 0.5j, -3], [2, 1 - 1j, 0]])
ROW = np.array([2.0, 0.5, -1.0])
PLACES = np.array([2, 0, 1])
SQUARE = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]])  # symmetric and positive definite
STACK = np.stack([SQUARE, 2 * SQUARE])
HOLES = np.array([[1.0, np.nan, np.inf], [-np.inf, 0.0, -0.0]])


# names -> arguments that they are tried with, as arrays.
CALLS: list[tuple[str, list[Arguments]]] = [
    ("arange", [call(5), call(2, 8, 3), call(0.0, 1.0, 0.25, dtype=xp.float32), call(3, device="cpu")]),
    ("asarray", [call(SMALL), call([1.5, 2]), call(3), call([[1j]], dtype=xp.complex64), call(WHOLE, copy=True)]),
    (
        "astype",
        [
            call(SMALL, xp.float32),
            call(WHOLE, xp.bool, copy=True),
            call(SMALL, xp.float64, copy=False),
            call(ROW, xp.int8, device="cpu"),
        ],
    ),
    ("broadcast_arrays", [call(SMALL, ROW), call(ROW, SMALL[0])]),
    ("broadcast_shapes", [call((2, 1), (3,))]),
    ("broadcast_to", [call(ROW, (4, 3))]),
    ("can_cast", [call(SMALL, xp.float32), call(xp.int8, xp.int64)]),
    ("clip", [call(SMALL, -0.1, 0.3), call(WHOLE, min=0), call(SMALL, max=ROW)]),
    ("concat", [call([SMALL, LARGE], axis=1), call((SMALL, WHOLE)), call([SMALL, ROW], axis=None)]),
    ("count_nonzero", [call(SMALL), call(MASK, axis=1), call(WHOLE, axis=0, keepdims=True)]),
    ("cumulative_prod", [call(ROW), call(WHOLE, axis=1, include_initial=True)]),
    ("cumulative_sum", [call(ROW), call(BITS, axis=0, dtype=xp.int64)]),
    ("diff", [call(LARGE), call(WHOLE, axis=0), call(ROW, n=2), call(ROW, prepend=ROW, append=ROW)]),
    ("expand_dims", [call(SMALL, axis=1), call(ROW, -1)]),
    ("eye", [call(3), call(2, 4, k=1, dtype=xp.int8)]),
    ("flip", [call(SMALL), call(WHOLE, axis=1)]),
    ("from_dlpack", [call(SMALL)]),
    ("full", [call((2, 3), 7), call(2, 1.5), call((), True), call((1,), 3, dtype=xp.float32)]),
    ("full_like", [call(SMALL, 3), call(WHOLE, 2.0, dtype=xp.float32)]),
    ("isin", [call(WHOLE, PLACES), call(WHOLE, PLACES, invert=True)]),
    ("isdtype", [call(xp.float32, "real floating"), call(xp.int8, ("bool", "numeric")), call(xp.int8, xp.int16)]),
    ("linspace", [call(0, 1, 5), call(0.0, 2.0, 4, endpoint=False, dtype=xp.float32)]),
    ("matmul linalg.matmul", [call(SMALL, SQUARE), call(SQUARE, ROW), call(STACK, STACK)]),
    ("matrix_transpose linalg.matrix_transpose", [call(SMALL), call(STACK)]),
    ("meshgrid", [call(ROW, PLACES), call(ROW, ROW, indexing="ij")]),
    ("moveaxis", [call(STACK, 0, 2), call(STACK, (0, 1), (1, 2))]),
    ("nonzero", [call(WHOLE), call(MASK)]),
    ("permute_dims", [call(STACK, (2, 0, 1))]),
    ("repeat", [call(SMALL, 2), call(SMALL, PLACES, axis=1)]),
    ("reshape", [call(SMALL, (3, 2)), call(SMALL, (-1,), copy=True), call(STACK, (2, 9), copy=None)]),
    ("result_type", [call(SMALL, SINGLE), call(SINGLE, 1.5), call(xp.int8, xp.uint8), call(BITS, xp.int16)]),
    ("roll", [call(SMALL, 1), call(SMALL, (1, 2), axis=(0, 1))]),
    ("round", [call(LARGE), call(COMPLEX), call(WHOLE)]),
    ("searchsorted", [call(np.array([0.0, 1.0, 2.0]), ROW), call(ROW, LARGE, side="right", sorter=PLACES)]),
    ("sort", [call(SMALL), call(WHOLE, axis=0), call(SMALL, stable=True)]),
    ("argsort", [call(SMALL, stable=True), call(WHOLE, axis=0, stable=True)]),
    ("squeeze", [call(SMALL[None], axis=0), call(ROW[:, None, None], (1, 2))]),
    ("stack", [call([SMALL, LARGE]), call((ROW, ROW), axis=-1)]),
    ("take", [call(SMALL, PLACES, axis=1), call(ROW, PLACES)]),
    ("take_along_axis", [call(SMALL, np.array([[2], [0]]), axis=1)]),
    (
        "tensordot linalg.tensordot",
        [call(SMALL, LARGE), call(SMALL, SQUARE, axes=1), call(STACK, SMALL, axes=((2,), (1,)))],
    ),
    ("tile", [call(SMALL, (2, 1))]),
    ("tril", [call(SQUARE), call(STACK, k=-1)]),
    ("triu", [call(SQUARE), call(SMALL, k=1)]),
    ("unique_all", [call(WHOLE), call(HOLES)]),
    ("unique_counts", [call(WHOLE), call(SMALL)]),
    ("unique_inverse", [call(WHOLE), call(MASK)]),
    ("unstack", [call(STACK), call(SMALL, axis=1)]),
    ("vecdot linalg.vecdot", [call(SMALL, ROW), call(COMPLEX, COMPLEX, axis=0)]),
    ("where", [call(MASK, SMALL, LARGE), call(MASK, WHOLE, 0), call(MASK, 1.5, SINGLE)]),
    ("linalg.cross", [call(SMALL, LARGE), call(SQUARE, SQUARE.T, axis=0)]),
    ("linalg.diagonal", [call(SQUARE), call(STACK, offset=1)]),
    ("linalg.matrix_norm", [call(SMALL), call(STACK, ord=1, keepdims=True)]),
    ("linalg.matrix_power", [call(SQUARE, 3), call(STACK, -1)]),
    ("linalg.matrix_rank", [call(SQUARE), call(STACK, rtol=0.1)]),
    ("linalg.outer", [call(ROW, ROW)]),
    ("linalg.pinv", [call(SMALL), call(SMALL, rtol=0.1)]),
    ("linalg.qr", [call(LARGE), call(LARGE.T, mode="complete")]),
    ("linalg.solve", [call(SQUARE, ROW), call(STACK, SQUARE)]),
    ("linalg.svd", [call(LARGE), call(LARGE, full_matrices=False)]),
    ("linalg.trace", [call(SQUARE), call(STACK, offset=1, dtype=xp.float32)]),
    ("linalg.vector_norm", [call(SMALL), call(SMALL, axis=1, ord=1, keepdims=True)]),
    ("fft.fftfreq", [call(5), call(4, d=0.5)]),
    ("fft.rfftfreq", [call(5), call(4, d=0.5, device="cpu")]),
    ("ones zeros empty", [call(3), call((2, 3), dtype=xp.int16), call((), device="cpu"), call((2, 0), dtype=None)]),
    ("ones_like zeros_like empty_like", [call(SMALL), call(WHOLE, dtype=xp.complex64, device="cpu")]),
    ("ceil floor trunc sign negative positive square", [call(SMALL), call(WHOLE)]),
    (
        "abs imag real conj exp sin cos sqrt tanh sinh cosh tan log1p expm1 asinh atan reciprocal",
        [call(LARGE), call(LARGE.astype("float32")), call(COMPLEX + 4)],
    ),
    ("acos asin atanh signbit", [call(SMALL), call(SINGLE)]),
    ("acosh log log2 log10", [call(LARGE), call(LARGE.astype("float32"))]),
    ("isfinite isinf isnan", [call(HOLES), call(WHOLE)]),
    (
        "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift",
        [call(BITS, BITS), call(BITS, 1), call(WHOLE, BITS)],
    ),
    ("logical_and logical_or logical_xor", [call(MASK, MASK[::-1].copy()), call(MASK, True)]),
    ("bitwise_invert logical_not", [call(MASK)]),
    ("bitwise_invert", [call(WHOLE), call(BITS)]),
    (
        "add subtract multiply divide pow",
        [call(LARGE, LARGE), call(LARGE, ROW), call(SMALL, 2), call(2.0, LARGE), call(COMPLEX, COMPLEX + 4)],
    ),
    ("equal not_equal less less_equal greater greater_equal", [call(SMALL, LARGE), call(WHOLE, 2), call(SMALL, ROW)]),
    ("maximum minimum floor_divide remainder", [call(SMALL, LARGE), call(WHOLE, 2), call(BITS, BITS + 1)]),
    ("atan2 copysign hypot logaddexp nextafter", [call(SMALL, LARGE), call(SINGLE, ROW.astype("float32"))]),
    (
        "max min sum prod mean std var",
        [call(SMALL), call(LARGE, axis=0), call(SINGLE, axis=(0, 1), keepdims=True), call(WHOLE, axis=-1)],
    ),
    ("std var", [call(SMALL, axis=0, correction=1.0)]),
    ("argmax argmin", [call(SMALL), call(WHOLE, axis=1, keepdims=True)]),
    ("all any", [call(MASK), call(WHOLE, axis=0), call(MASK, axis=(0, 1), keepdims=True)]),
    (
        "linalg.cholesky linalg.det linalg.eig linalg.eigh linalg.eigvals linalg.eigvalsh linalg.inv linalg.svdvals",
        [call(SQUARE), call(STACK.astype("float32"))],
    ),
    ("linalg.slogdet", [call(SQUARE), call(STACK.astype("float32"))]),
    ("fft.fft fft.ifft fft.hfft fft.irfft", [call(COMPLEX), call(LARGE, n=4, axis=0, norm="ortho"), call(SINGLE)]),
    ("fft.rfft fft.ihfft", [call(LARGE), call(LARGE, n=4, axis=0, norm="ortho"), call(SINGLE)]),
    ("fft.fftn fft.ifftn fft.irfftn", [call(COMPLEX), call(LARGE, s=(4, 4), axes=(0, 1), norm="forward")]),
    ("fft.rfftn", [call(LARGE), call(LARGE, s=(4, 4), axes=(0, 1), norm="forward")]),
    ("fft.fftshift fft.ifftshift", [call(LARGE), call(ROW), call(LARGE, axes=(1,))]),
]
ARGUMENTS: dict[str, list[Arguments]] = {}
for names, calls in CALLS:
    for each in names.split():
        ARGUMENTS.setdefault(each, []).extend(calls)
# What NumPy calls the same with other arguments, or has in another way, is below, each with a test of its own.
APART = {"__array_namespace_info__", "finfo", "iinfo", "unique_values"}
# NumPy gives negative strides, which a tensor can't have (rule 15), and so a copy.
COPIES = {"flip"}
UNDEFINED = {"empty", "empty_like"}


def looked_up(source: Any, name: str) -> Any:
    for part in name.split("."):
        source = getattr(source, part)
    return source


def existing(name: str) -> bool:
    """Whether the NumPy installed has ``name``."""
    module, _, function = name.rpartition(".")
    return hasattr(getattr(np, module) if module else np, function)


def tensors_for(value: Any, make: Callable[[Any], st.Tensor]) -> Any:
    """``value`` with tensors for the arrays in it."""
    if isinstance(value, np.ndarray):
        return make(value)
    if isinstance(value, (tuple, list)):
        return type(value)(tensors_for(part, make) for part in value)
    if isinstance(value, dict):
        return {name: tensors_for(part, make) for name, part in value.items()}
    return value


def members(value: Any, kind: type | tuple[type, ...]) -> Iterator[Any]:
    """The members of ``value``, at any depth, that are of ``kind``, in order."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from members(part, kind)


def packed(array: Any, pool: Pool) -> st.Tensor:
    return st.from_numpy(array, pool=pool)


def spaced(array: Any, pool: Pool) -> st.Tensor:
    """A view with an offset and with gaps between its elements."""
    whole = st.zeros((2, *array.shape, 2), dtype=array.dtype, pool=pool)
    return whole[1, ..., 1].copy_(array)


def assert_same(result: Any, expected: Any, name: str) -> None:
    """Arrays for tensors, and everything else as it is."""
    if isinstance(expected, (np.ndarray, np.generic)):
        assert isinstance(result, st.Tensor)
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        if name not in UNDEFINED:
            np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12 if expected.itemsize > 4 else 1e-6)
    elif isinstance(expected, (tuple, list)):
        assert type(result) is type(expected)
        assert len(result) == len(expected)
        for one, other in zip(result, expected, strict=True):
            assert_same(one, other, name)
        for field in getattr(expected, "_fields", ()):
            assert isinstance(getattr(result, field), st.Tensor)
    else:
        assert not isinstance(result, st.Tensor)
        assert result == expected


def assert_shared_alike(results: list[Any], operands: list[Any], expected: list[Any], arrays: list[Any]) -> None:
    """A result shares memory with an operand where NumPy's does."""
    for result, oracle in zip(results, expected, strict=True):
        for operand, array in zip(operands, arrays, strict=True):
            shared = bool(np.shares_memory(result.numpy(), operand.numpy()))
            assert shared == bool(np.shares_memory(oracle, array))
            assert not shared or result.untyped_storage() is operand.untyped_storage()


@pytest.mark.parametrize("make", [packed, spaced])
@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [(name, *each) for name, calls in ARGUMENTS.items() for each in calls],
    ids=[f"{name}-{place}" for name, calls in ARGUMENTS.items() for place in range(len(calls))],
)
def test_a_function_gives_numpys_result_as_tensors_in_the_operands_pool(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], make: Any, pool: Pool
) -> None:
    if not existing(name):
        pytest.skip(f"NumPy {np.__version__} has no {name}")
    ours = tensors_for((args, kwargs), lambda array: make(array, pool))
    try:
        expected = looked_up(np, name)(*args, **kwargs)
    except TypeError as error:  # an older NumPy, without that option
        assert np.__array_api_version__ < "2024.12"
        with pytest.raises(TypeError, match=re.escape(str(error))):
            looked_up(xp, name)(*ours[0], **ours[1])
        return
    if name == "count_nonzero":  # of an older NumPy an int
        expected = np.asarray(expected)
    result = looked_up(xp, name)(*ours[0], **ours[1])
    assert_same(result, expected, name)
    operands, results = list(members(ours, st.Tensor)), list(members(result, st.Tensor))
    home = pool if operands else st.default_pool()
    assert all(each.untyped_storage().block.pool is home for each in results)
    if name not in COPIES:
        arrays, oracles = list(members((args, kwargs), np.ndarray)), list(members(expected, (np.ndarray, np.generic)))
        assert_shared_alike(results, operands, oracles, arrays)
    opened = pickle.loads(pickle.dumps(result))
    assert type(opened) is type(result)
    assert all(one.is_set_to(other) for one, other in zip(members(opened, st.Tensor), results, strict=True))


def test_every_function_is_tried() -> None:
    offered = {*dir(xp), *(f"linalg.{name}" for name in dir(xp.linalg)), *(f"fft.{name}" for name in dir(xp.fft))}
    functions = {name for name in offered if not name.rpartition(".")[2].startswith("__")}
    functions -= {*CONSTANTS.split(), *DTYPES.split(), "linalg", "fft"}
    assert functions == {name for name in FUNCTIONS if existing(name)} - {"__array_namespace_info__"}
    assert set(FUNCTIONS) == ARGUMENTS.keys() | APART


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_name_of_the_standard_that_numpy_has_is_there(name: str) -> None:
    if existing(name):
        function = looked_up(xp, name)
        assert callable(function)
        assert name == "__array_namespace_info__" or pickle.loads(pickle.dumps(function)) is function
    else:
        with pytest.raises(AttributeError, match=f"NumPy {np.__version__}"):
            looked_up(xp, name)


def test_the_guide_names_every_function() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "array-api.md").read_text().split()
    unnamed = [name for name in FUNCTIONS if guide.count(name.rpartition(".")[2]) + guide.count(name) == 0]
    assert unnamed == ["__array_namespace_info__"]


def test_constants_and_dtypes() -> None:
    for name in CONSTANTS.split():
        assert getattr(xp, name) is getattr(np, name)
    assert {name: getattr(xp, name) for name in DTYPES.split()} == {name: np.dtype(name) for name in DTYPES.split()}
    assert xp.__array_api_version__ == np.__array_api_version__


@pytest.mark.skipif(not existing("__array_namespace_info__"), reason="NumPy says nothing of itself before 2.1")
def test_what_the_namespace_says_of_itself() -> None:
    info = xp.__array_namespace_info__()
    assert list(info.devices()) == ["cpu"]
    assert info.default_device() == st.zeros(1).device == "cpu"
    assert set(info.dtypes()) == set(DTYPES.split())
    assert info.capabilities()["boolean indexing"] is True
    made = {
        "real floating": [xp.zeros(1), xp.asarray(1.5), xp.linspace(0, 1, 2), xp.mean(xp.arange(3)), xp.full(1, 2.0)],
        "complex floating": [xp.asarray(1j), xp.full(1, 1j), xp.fft.fft(xp.zeros(2))],
        "integral": [xp.asarray(1), xp.arange(3), xp.full(1, 3)],
        "indexing": [xp.argmax(xp.zeros(3)), *xp.nonzero(xp.ones(2)), xp.count_nonzero(xp.ones(2))],
    }
    for kind, tensors in made.items():
        assert [each.dtype for each in tensors] == [info.default_dtypes()[kind]] * len(tensors)


# --- what isn't NumPy's as it is


def test_limits_of_dtypes_are_told_of_tensors_too() -> None:
    for given in (xp.float32, "float32", xp.zeros(2, dtype=xp.float32), np.zeros(2, dtype="float32")):
        assert (xp.finfo(given).eps, xp.finfo(given).dtype) == (np.finfo("float32").eps, np.float32)
    for given in (xp.uint8, xp.zeros(2, dtype=xp.uint8)):
        assert (xp.iinfo(given).max, xp.iinfo(given).dtype) == (255, np.uint8)
    with pytest.raises(ValueError, match="int64"):
        xp.finfo(xp.arange(3))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sorting_goes_down_too_and_keeps_the_order_of_equals(axis: int, pool: Pool) -> None:
    values = np.array([[3, 1, 3, 2], [1, 1, 0, 2], [3, 0, 3, 2]])
    tensor = packed(values, pool)
    ordered, places = xp.sort(tensor, axis=axis, descending=True), xp.argsort(tensor, axis=axis, descending=True)
    # Down, and stable: ascending by the negative.
    expected = np.argsort(-values, axis=axis, kind="stable")
    assert np.array_equal(places.numpy(), expected)
    assert np.array_equal(ordered.numpy(), np.take_along_axis(values, expected, axis))
    assert {each.untyped_storage().block.pool for each in (ordered, places)} == {pool}


def test_sorting_is_stable_unless_told_otherwise() -> None:
    keys = np.tile([1, 0, 2, 1], 500)
    assert np.array_equal(xp.argsort(st.from_numpy(keys)).numpy(), np.argsort(keys, kind="stable"))
    assert np.array_equal(np.sort(xp.argsort(st.from_numpy(keys), stable=False).numpy()), np.arange(2000))


def test_unique_values_are_those_that_unique_inverse_counts_from() -> None:
    labels = st.tensor([7, 3, 7, 100, 3, -5] * 50)
    assert xp.unique_values(labels).tolist() == [-5, 3, 7, 100] == xp.unique_inverse(labels).values.tolist()
    assert np.isnan(xp.unique_values(st.tensor([np.nan, 1.0, np.nan])).tolist()).tolist() == [False, True, True]


def test_frequencies_come_in_any_dtype() -> None:
    for name in ("fftfreq", "rfftfreq"):
        made = getattr(xp.fft, name)(6, d=0.5, dtype=xp.float32)
        assert made.dtype == xp.float32
        assert np.array_equal(made.numpy(), getattr(np.fft, name)(6, 0.5).astype("float32"))


def test_nothing_is_prepended_to_a_difference_when_that_is_none(pool: Pool) -> None:
    values = packed(LARGE, pool)
    plain = xp.diff(values, prepend=None, append=None)
    assert np.array_equal(plain.numpy(), np.diff(LARGE))
    assert plain.untyped_storage().block.pool is pool


def test_asarray_aliases_copies_or_refuses(pool: Pool) -> None:
    tensor = st.arange(6, dtype="float64", pool=pool).view(2, 3).t()
    for shared in (tensor, tensor.numpy(), tensor.memoryview()):
        assert xp.asarray(shared).is_set_to(tensor)
        assert xp.asarray(shared, copy=False, dtype=xp.float64).is_set_to(tensor)
        copied = xp.asarray(shared, copy=True)
        assert copied.untyped_storage() != tensor.untyped_storage()
        assert copied.tolist() == tensor.tolist()
    assert xp.asarray(tensor) is tensor
    home = [xp.asarray(tensor, copy=True), xp.asarray(tensor, dtype=xp.int8)]
    assert all(each.untyped_storage().block.pool is pool for each in home)
    for elsewhere in ([1.0, 2.0], 3, np.ones(2)):
        with pytest.raises(ValueError, match="without a copy"):
            xp.asarray(elsewhere, copy=False)
    with pytest.raises(ValueError, match="without a copy"):
        xp.asarray(tensor, dtype=xp.float32, copy=False)


def test_dlpack_comes_in() -> None:
    tensor = st.arange(4)
    assert xp.from_dlpack(tensor) is tensor
    assert xp.from_dlpack(tensor, copy=True).untyped_storage() is not tensor.untyped_storage()
    assert xp.from_dlpack(np.arange(4), device="cpu").tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="without a copy"):
        xp.from_dlpack(np.arange(4), copy=False)


def test_large_results_are_computed_in_the_pool(pool: Pool) -> None:
    left = st.ones(1 << 16, dtype="float64", pool=pool)
    total = xp.add(left, left)
    assert total.untyped_storage().block.pool is pool
    assert float(xp.sum(total)) == 2 * (1 << 16)


# --- views


def test_views_of_a_view_write_through() -> None:
    base = st.zeros(2, 3, 4)
    xp.permute_dims(base, (2, 0, 1))[3, 1, 2] = 1
    xp.matrix_transpose(base)[0, 3, 0] = 2
    xp.moveaxis(base, 0, -1)[0, 1, 1] = 3
    xp.squeeze(xp.expand_dims(base, axis=1), axis=1)[0, 0, 0] = 4
    xp.reshape(base, (6, 4))[5, 0] = 5
    written = [(1, 2, 3), (0, 0, 3), (1, 0, 1), (0, 0, 0), (1, 2, 0)]
    assert [base[place].item() for place in written] == [1, 2, 3, 4, 5]


def test_a_reshape_that_must_copy_may_be_refused() -> None:
    crossed = st.zeros(2, 3).t()
    assert xp.reshape(crossed, (6,)).untyped_storage() is not crossed.untyped_storage()
    if "copy" not in inspect.signature(np.reshape).parameters:
        pytest.skip(f"reshape of NumPy {np.__version__} has no copy=")
    with pytest.raises(ValueError):
        xp.reshape(crossed, (6,), copy=False)


def test_broadcast_views_are_read_only_as_numpy_says() -> None:
    row = st.arange(3)
    for spread in (xp.broadcast_to(row, (2, 3)), xp.broadcast_arrays(row, st.zeros(2, 1))[0]):
        assert (spread.stride(), spread.is_readonly()) == ((0, 1), True)
        with pytest.raises(ValueError, match="read-only"):
            spread[0, 0] = 1
    kept = np.broadcast_arrays(row.numpy(), np.zeros((2, 1)))[0]
    assert st.as_tensor(kept).is_readonly()


# --- the tensor's own side


def test_a_tensor_has_the_attributes_of_the_standards_array() -> None:
    tensor = st.zeros(2, 3)
    names = [*ARRAY_ATTRIBUTES.split(), *(f"__{kind}{name}__" for name in OPERATORS.split() for kind in ("", "r", "i"))]
    assert [name for name in names if not hasattr(tensor, name)] == []
    assert (tensor.T.shape, tensor.mT.shape, tensor.ndim, tensor.device) == ((3, 2), (3, 2), 2, "cpu")
    with pytest.raises(ValueError):
        tensor[0].mT  # noqa: B018


def test_to_device_gives_the_tensor_itself_or_refuses() -> None:
    tensor = st.zeros(2)
    for device in ("cpu", tensor.device):
        assert tensor.to_device(device) is tensor
    with pytest.raises(ValueError, match="cuda"):
        tensor.to_device("cuda")
    with pytest.raises(ValueError, match="stream"):
        tensor.to_device("cpu", stream=1)


@pytest.mark.parametrize("version", [None, "2021.12", "2022.12"])
def test_a_version_that_there_is_may_be_asked_for(version: str | None) -> None:
    assert st.zeros(1).__array_namespace__(api_version=version) is xp


@pytest.mark.parametrize("version", ["2020.01", "2999.12", "2023", "", 2022.12])
def test_a_version_that_there_is_not_is_refused(version: Any) -> None:
    with pytest.raises(ValueError, match=str(np.__array_api_version__)):
        st.zeros(1).__array_namespace__(api_version=version)


# --- what is refused


def test_only_the_standards_names_are_there() -> None:
    for offering in (xp, xp.linalg, xp.fft):
        for name in ("array", "concatenate", "lstsq", "float16"):
            with pytest.raises(AttributeError, match=name):
                getattr(offering, name)


def test_a_name_that_numpy_lacks_is_named_with_its_version() -> None:
    tomorrow = Namespace("tomorrow", np.linalg, ["det", "of_tomorrow"], {})
    assert "of_tomorrow" not in dir(tomorrow)
    with pytest.raises(AttributeError, match=f"of_tomorrow.*NumPy {np.__version__}"):
        tomorrow.of_tomorrow  # noqa: B018


@pytest.mark.parametrize(
    "make",
    [
        lambda device: xp.zeros(2, device=device),
        lambda device: xp.full(2, 1, device=device),
        lambda device: xp.arange(2, device=device),
        lambda device: xp.eye(2, device=device),
        lambda device: xp.linspace(0, 1, 2, device=device),
        lambda device: xp.asarray([1], device=device),
        lambda device: xp.from_dlpack(np.ones(1), device=device),
        lambda device: xp.zeros_like(st.zeros(1), device=device),
        lambda device: xp.fft.fftfreq(2, device=device),
    ],
)
def test_another_device_is_refused(make: Any) -> None:
    assert make(st.zeros(1).device).device == "cpu"
    with pytest.raises(ValueError, match="cuda"):
        make("cuda")


def test_what_is_no_number_is_a_type_error() -> None:
    for act in (
        lambda: xp.asarray(["a"]),
        lambda: xp.astype(st.zeros(2), "U3"),
        lambda: xp.full(2, "a"),
        lambda: xp.zeros(2, dtype=object),
        lambda: xp.asarray(object()),
        lambda: xp.add(st.zeros(2), "a"),
    ):
        with pytest.raises(TypeError):
            act()


def test_arrays_and_numbers_become_tensors_of_the_default_pool(pool: Pool) -> None:
    total = xp.add(1.5, np.ones(2))
    assert isinstance(total, st.Tensor)
    assert total.untyped_storage().block.pool is st.default_pool()
    parts = xp.linalg.qr(SQUARE)
    assert [type(each) for each in parts] == [st.Tensor, st.Tensor]
    mixed = xp.add(np.ones(2), st.ones(2, pool=pool))
    assert mixed.untyped_storage().block.pool is pool
