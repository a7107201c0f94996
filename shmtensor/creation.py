"""Functions that make tensors from a shape. Those that take something in are in `incoming`.

All take ``dtype`` (float32 unless said otherwise), ``pool`` (the default pool), ``memory_format``,
``capacity`` (bytes to reserve, so that the storage can grow in place) and ``timeout`` (seconds to wait for
memory). All raise `OutOfSharedMemory` when there is no memory, `TypeError` for a dtype that can't be
shared, and `ValueError` for a negative size or a memory format of another rank.
"""

from __future__ import annotations

from operator import index
from typing import Any, SupportsIndex

import numpy as np

from shmtensor.base import TensorBase, dense_layout_of, layout_like
from shmtensor.dtypes import DEFAULT_DTYPE, DType, as_dtype, bool_, complex64, int64
from shmtensor.layout import (
    Layout,
    MemoryFormat,
    checked_shape,
    contiguous,
    contiguous_format,
    preserve_format,
    stride_for,
)
from shmtensor.storage import Pool, default_pool, over
from shmtensor.tensors import Tensor
from shmtensor.viewing import spread

__all__ = [
    "arange",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randn",
    "randn_like",
    "zeros",
    "zeros_like",
]


def empty(
    *size: Any,
    dtype: Any = DEFAULT_DTYPE,
    pool: Pool | None = None,
    memory_format: MemoryFormat = contiguous_format,
    capacity: SupportsIndex | None = None,
    timeout: float | None = None,
) -> Tensor:
    """A tensor of undefined content. ``size`` is ints, or one tuple of ints."""
    shape = size[0] if len(size) == 1 and type(size[0]) is tuple else checked_shape(spread(size))
    for length in shape:
        if type(length) is not int:  # 2.0 is 2 to the cache behind contiguous()
            shape = checked_shape(shape)
            break
    layout = contiguous(shape)
    if memory_format is not contiguous_format:
        layout = Layout(layout.shape, stride_for(layout.shape, memory_format))
    kind = as_dtype(DEFAULT_DTYPE if dtype is None else dtype)
    if pool is None:
        pool = default_pool()
    if capacity is None and timeout is None:
        return Tensor(over(pool.allocate(layout.extent() * kind.itemsize)), kind, layout)
    return Tensor._allocate(pool, kind, layout, capacity, timeout)


def zeros(*size: Any, dtype: Any = DEFAULT_DTYPE, **options: Any) -> Tensor:
    """A tensor of zeros. Options as for `empty`."""
    return empty(*size, dtype=dtype, **options).zero_()


def ones(*size: Any, dtype: Any = DEFAULT_DTYPE, **options: Any) -> Tensor:
    """A tensor of ones. Options as for `empty`."""
    return empty(*size, dtype=dtype, **options).fill_(1)


def full(size: Any, fill_value: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    """A tensor with every element ``fill_value``; the dtype is the value's unless given. Options as for
    `empty`.
    """
    return empty(_shape(size), dtype=_dtype_of(fill_value) if dtype is None else dtype, **options).fill_(fill_value)


def arange(start: Any, end: Any = None, step: Any = 1, *, dtype: Any = None, **options: Any) -> Tensor:
    """The numbers from ``start`` (0 when only one is given) up to, not including, ``end``, ``step`` apart.

    int64 when all are integers, else float32. Options as for `empty`. Raises `ValueError` for a step of 0.
    """
    first, last = (0, start) if end is None else (start, end)
    numbers = [each.item() if hasattr(each, "item") else each for each in (first, last, step)]
    if numbers[2] == 0:
        raise ValueError("arange needs a step that is not 0")
    values = np.arange(*numbers)
    return _filled(values, int64 if values.dtype.kind in "biu" else DEFAULT_DTYPE, dtype, options)


def linspace(start: Any, end: Any, steps: SupportsIndex, *, dtype: Any = None, **options: Any) -> Tensor:
    """``steps`` numbers from ``start`` to ``end``, both included, evenly spaced. Options as for `empty`."""
    return _filled(np.linspace(start, end, index(steps)), DEFAULT_DTYPE, dtype, options)


def eye(n: SupportsIndex, m: SupportsIndex | None = None, *, dtype: Any = DEFAULT_DTYPE, **options: Any) -> Tensor:
    """A matrix of ``n`` rows and ``m`` columns (``n`` unless given), 1 on the diagonal, else 0. Options as
    for `empty`.
    """
    made = zeros((index(n), index(n if m is None else m)), dtype=dtype, **options)
    np.fill_diagonal(made.numpy(), 1)
    return made


def rand(*size: Any, dtype: Any = DEFAULT_DTYPE, generator: Any = None, **options: Any) -> Tensor:
    """Random numbers from 0 up to, not including, 1. Options as for `empty`.

    ``generator`` is a `numpy.random.Generator` or a seed. Without one every call is seeded by the system,
    so that forked workers don't all draw the same numbers.
    """
    return _drawn(empty(*size, dtype=dtype, **options), "random", generator)


def randn(*size: Any, dtype: Any = DEFAULT_DTYPE, generator: Any = None, **options: Any) -> Tensor:
    """Random numbers from the standard normal distribution. ``generator`` as for `rand`, options as for
    `empty`.
    """
    return _drawn(empty(*size, dtype=dtype, **options), "standard_normal", generator)


def empty_like(
    other: Any,
    *,
    dtype: Any = None,
    pool: Pool | None = None,
    memory_format: MemoryFormat = preserve_format,
    capacity: SupportsIndex | None = None,
    timeout: float | None = None,
) -> Tensor:
    """A tensor of undefined content with the shape, dtype and strides (rule 5) of ``other``, in its pool.

    ``other`` may be an array; then the pool is the default pool.
    """
    if isinstance(other, TensorBase):
        source, kind, home = other._layout, other._dtype, other._pool
    else:
        array = np.asarray(other)
        source, kind, home = dense_layout_of(array), array.dtype, None
    where = (home or default_pool()) if pool is None else pool
    wanted = as_dtype(kind if dtype is None else dtype)
    return Tensor._allocate(where, wanted, layout_like(source, memory_format), capacity, timeout)


def zeros_like(other: Any, **options: Any) -> Tensor:
    """As `empty_like`, every element 0."""
    return empty_like(other, **options).zero_()


def ones_like(other: Any, **options: Any) -> Tensor:
    """As `empty_like`, every element 1."""
    return empty_like(other, **options).fill_(1)


def full_like(other: Any, fill_value: Any, **options: Any) -> Tensor:
    """As `empty_like`, every element ``fill_value``."""
    return empty_like(other, **options).fill_(fill_value)


def rand_like(other: Any, *, generator: Any = None, **options: Any) -> Tensor:
    """As `empty_like`, with random numbers from 0 up to, not including, 1. ``generator`` as for `rand`."""
    return _drawn(empty_like(other, **options), "random", generator)


def randn_like(other: Any, *, generator: Any = None, **options: Any) -> Tensor:
    """As `empty_like`, with random numbers from the standard normal distribution. ``generator`` as for
    `rand`.
    """
    return _drawn(empty_like(other, **options), "standard_normal", generator)


def _shape(size: Any) -> tuple[int, ...]:
    return (index(size),) if isinstance(size, SupportsIndex) else checked_shape(size)


def _dtype_of(value: Any) -> DType:
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        return int64
    if isinstance(value, float):
        return DEFAULT_DTYPE
    if isinstance(value, complex):
        return complex64
    return as_dtype(value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype)


def _filled(values: Any, default: DType, dtype: Any, options: dict[str, Any]) -> Tensor:
    made = empty(values.shape, dtype=default if dtype is None else dtype, **options)
    np.copyto(made.numpy(), values, casting="unsafe")
    return made


def _drawn(made: Tensor, distribution: str, generator: Any) -> Tensor:
    """Fill ``made`` with random numbers, drawn straight into it where NumPy can."""
    draw = getattr(np.random.default_rng(generator), distribution)
    if not made.is_floating_point():
        raise TypeError(f"random numbers are floating point, not {made.dtype}")
    if made.dtype.name in ("float32", "float64") and made.is_contiguous() and made.numel():
        draw(dtype=made.dtype.type, out=made.numpy())
        return made
    return made.copy_(draw(made.shape))
