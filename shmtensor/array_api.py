"""The Python array API standard, as `Tensor.__array_namespace__` gives it: NumPy's functions, on tensors.

Owns a table of names and the few functions that can't be NumPy's as they are: those that make tensors, and those
whose signature or result differs from the standard. There is no numeric kernel here. A name that is in the table but
not in the NumPy installed is an `AttributeError`; which version of the standard this is, NumPy says too.

Results are in the pool of the first operand. What is made without an operand is in the default pool, in NumPy's
default dtypes (float64, complex128, int64): the other results have them too, since they are NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from types import ModuleType
from typing import Any

import numpy as np

from shmtensor import creation, dtypes, incoming
from shmtensor.base import Array, TensorBase
from shmtensor.device import check_device
from shmtensor.dtypes import float64
from shmtensor.tensors import Tensor

__all__ = ["namespace"]

_CONSTANTS = "e inf nan newaxis pi"
_DTYPES = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128"

# The functions that are NumPy's as they are.
_FUNCTIONS = {
    "creation": "arange eye linspace meshgrid tril triu",
    "data types": "astype broadcast_arrays broadcast_shapes broadcast_to can_cast isdtype result_type",
    "elementwise": (
        "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_invert bitwise_left_shift bitwise_or "
        "bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1 floor floor_divide "
        "greater greater_equal hypot imag isfinite isinf isnan less less_equal log log10 log1p log2 logaddexp "
        "logical_and logical_not logical_or logical_xor maximum minimum multiply negative nextafter not_equal "
        "positive pow real reciprocal remainder round sign signbit sin sinh sqrt square subtract tan tanh trunc"
    ),
    "inspection": "__array_namespace_info__",
    "indexing": "take take_along_axis",
    "linear algebra": "matmul matrix_transpose tensordot vecdot",
    "manipulation": ("concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack tile unstack"),
    "searching": "argmax argmin nonzero searchsorted where",
    "sets": "isin unique_all unique_counts unique_inverse",
    "statistics": "cumulative_prod cumulative_sum max mean min prod std sum var",
    "utilities": "all any",
}
_LINALG = (
    "cholesky cross det diagonal eig eigh eigvals eigvalsh inv matmul matrix_norm matrix_power matrix_rank "
    "matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm"
)
_FFT = "fft fftn fftshift hfft ifft ifftn ifftshift ihfft irfft irfftn rfft rfftn"


class Namespace(ModuleType):
    """Functions of one of NumPy's modules, each adapted to tensors when it is first asked for, beside ``others``.

    A module, since consumers ask for its ``__name__``; but not this file's own, where ``sum`` and ``any`` would hide
    the builtins.
    """

    def __init__(self, name: str, source: Any, functions: Iterable[str], others: dict[str, Any]) -> None:
        super().__init__(name, f"The array API standard on tensors in shared memory, by {source.__name__}.")
        self.__dict__.update(others)
        self._source = source
        self._functions = frozenset(functions)

    def __getattr__(self, name: str) -> Any:
        if name not in self._functions:
            raise AttributeError(f"{self.__name__} has no {name!r}: it has the array API standard's names only")
        function = getattr(self._source, name, None)
        if function is None:
            raise AttributeError(f"{self.__name__} has no {name!r}, since NumPy {np.__version__} has none yet")
        adapted = _giving_tensors(function)
        adapted.__module__ = __name__
        adapted.__qualname__ = f"{self.__name__}.{name}".removeprefix(f"{__name__}.")  # so that it can be pickled
        setattr(self, name, adapted)
        return adapted

    def __dir__(self) -> list[str]:
        there = {name for name in self._functions if hasattr(self._source, name)}
        return sorted(there.union(name for name in self.__dict__ if name == name.strip("_") or name[:2] == "__"))


def namespace(api_version: str | None = None) -> Namespace:
    """The namespace with the functions of the standard. ``api_version`` is a version of the standard that it must
    have, such as "2024.12".

    Raises `ValueError` for a version that is none, or is later than that of the NumPy installed.
    """
    if api_version is None:
        return _MAIN
    probe: Any = np.empty(0)  # which versions there are, NumPy knows
    try:
        probe.__array_namespace__(api_version=api_version)
    except ValueError as error:
        latest = np.__array_api_version__
        raise ValueError(f"array API {api_version!r}: NumPy {np.__version__} has up to {latest!r}") from error
    return _MAIN


def _giving_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy, which tensors lead to tensors by themselves, with tensors for results of anything else."""

    @wraps(function)
    def giving_tensors(*args: Any, **kwargs: Any) -> Any:
        return _as_tensors(function(*args, **kwargs))

    return giving_tensors


def _as_tensors(result: Any) -> Any:
    if isinstance(result, (np.ndarray, np.generic)):
        return incoming.as_tensor(result)
    if isinstance(result, (tuple, list)):
        parts = [_as_tensors(part) for part in result]
        return result._make(parts) if hasattr(result, "_make") else type(result)(parts)
    return result


def _on_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` of an array, with a tensor for the array and tensors for its results, in the same pool."""

    @wraps(function)
    def on_arrays(x: Any, /, **options: Any) -> Any:
        operand = asarray(x)
        return operand.__array_function__(function, (type(operand),), (operand,), options)

    return on_arrays


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """``obj`` as a tensor: itself, or an alias of its memory when that is in a pool, else a copy.

    A copy of a tensor is in its pool. Raises `ValueError` when there must be a copy and ``copy`` is False.
    """
    check_device(device)
    pool = obj._pool if isinstance(obj, TensorBase) else None
    source = obj if hasattr(obj, "dtype") else np.asarray(obj, dtype)  # Python's numbers get NumPy's dtypes
    return incoming.as_tensor(source, dtype=dtype, copy=copy, pool=pool)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """``x``, of any library that speaks DLPack, as a tensor: an alias when its memory is in a pool, else a copy."""
    check_device(device)
    return incoming.from_dlpack(x, copy=copy)


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of undefined content."""
    check_device(device)
    return creation.empty(shape, dtype=float64 if dtype is None else dtype)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of zeros."""
    return empty(shape, dtype=dtype, device=device).zero_()


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of ones."""
    return empty(shape, dtype=dtype, device=device).fill_(1)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor with every element ``fill_value``, whose dtype it has unless another is given."""
    kind = np.asarray(fill_value).dtype if dtype is None else dtype
    return empty(shape, dtype=kind, device=device).fill_(fill_value)


def empty_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of undefined content with the shape and dtype of ``x``, in its pool."""
    check_device(device)
    return creation.empty_like(x, dtype=dtype)


def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """As `empty_like`, every element 0."""
    return empty_like(x, dtype=dtype, device=device).zero_()


def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """As `empty_like`, every element 1."""
    return empty_like(x, dtype=dtype, device=device).fill_(1)


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """As `empty_like`, every element ``fill_value``."""
    return empty_like(x, dtype=dtype, device=device).fill_(fill_value)


def finfo(type: Any, /) -> Any:
    """NumPy's limits of a floating-point dtype, or of the dtype of a tensor."""
    return np.finfo(_dtype_of(type))


def iinfo(type: Any, /) -> Any:
    """NumPy's limits of an integer dtype, or of the dtype of a tensor."""
    return np.iinfo(_dtype_of(type))


def _dtype_of(type: Any) -> Any:
    return type.dtype if isinstance(type, (Tensor, np.ndarray)) else type


@_on_arrays
def count_nonzero(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """How many elements are not 0. NumPy gives an int when it counts them all."""
    return np.asarray(np.count_nonzero(x, axis=axis, keepdims=keepdims))


@_on_arrays
def diff(x: Array, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Array:
    """The differences of neighbours, ``n`` times. NumPy takes None for an element to prepend or append."""
    edges = {name: edge for name, edge in (("prepend", prepend), ("append", append)) if edge is not None}
    return np.diff(x, n, axis, **edges)


@_on_arrays
def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The elements in order. NumPy knows the ascending order only."""
    ordered = np.sort(x, axis=axis, stable=stable)
    return np.flip(ordered, axis) if descending else ordered


@_on_arrays
def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The places of the elements in order. NumPy knows the ascending order only: for the other one, elements are
    counted from the end, so that equal ones keep their order.
    """
    if not descending:
        return np.argsort(x, axis=axis, stable=stable)
    from_end = np.argsort(np.flip(x, axis), axis=axis, stable=stable)
    places: Array = x.shape[axis] - 1 - np.flip(from_end, axis)
    return places


@_on_arrays
def unique_values(x: Array, /) -> Array:
    """The different elements, in order. The standard asks for no order, and NumPy gives none from 2.3 on; but it does
    in `unique_inverse` and its kin, and consumers (scikit-learn 1.9 is one) index the one with the other.
    """
    return np.unique(x, equal_nan=False)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of `fft`. NumPy takes no dtype."""
    return asarray(np.fft.fftfreq(n, d), dtype=dtype, device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of `rfft`. NumPy takes no dtype."""
    return asarray(np.fft.rfftfreq(n, d), dtype=dtype, device=device)


_OWN = (
    argsort,
    asarray,
    count_nonzero,
    diff,
    empty,
    empty_like,
    finfo,
    from_dlpack,
    full,
    full_like,
    iinfo,
    ones,
    ones_like,
    sort,
    unique_values,
    zeros,
    zeros_like,
)  # fmt: skip
_MAIN = Namespace(
    __name__,
    np,
    " ".join(_FUNCTIONS.values()).split(),
    {
        **{name: getattr(np, name) for name in _CONSTANTS.split()},
        **{name: getattr(dtypes, name) for name in _DTYPES.split()},
        **{function.__name__: function for function in _OWN},
        "bool": dtypes.bool_,
        "linalg": Namespace(f"{__name__}.linalg", np.linalg, _LINALG.split(), {}),
        "fft": Namespace(f"{__name__}.fft", np.fft, _FFT.split(), {"fftfreq": fftfreq, "rfftfreq": rfftfreq}),
        "__array_api_version__": np.__array_api_version__,
    },
)


def __getattr__(name: str) -> Any:
    """The names of the namespace are this file's too: pickled functions are found by them."""
    return getattr(_MAIN, name)


def __dir__() -> list[str]:
    return dir(_MAIN)
