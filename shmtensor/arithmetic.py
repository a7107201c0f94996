"""Arithmetic is NumPy's: operators, ufuncs and NumPy's functions take tensors and give tensors in the same
pool.

No numeric kernel here. Owns the way in (tensors to arrays) and the way back: a result that is a view of a
tensor's memory becomes a view, any other is copied into the pool, or computed right there when it is large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from shmtensor.base import READ_ONLY, VIEW, TensorBase
from shmtensor.copying import refuse_writing
from shmtensor.dtypes import as_dtype
from shmtensor.layout import Layout, contiguous, preserved
from shmtensor.provenance import alias_of, is_writable

__all__ = ["Arithmetic"]

# Below this size NumPy's own result is in a CPU cache and cheap to copy; asking for its dtype beforehand
# costs more.
_LARGE_BYTES = 64 * 1024


class Arithmetic(TensorBase, NDArrayOperatorsMixin):
    """The two protocols through which NumPy asks a tensor to do arithmetic, and the operators that rest on
    them.
    """

    __slots__ = ()

    __hash__ = TensorBase.__hash__  # by identity: == compares elements

    # In these NumPy's operators do more than the ufunc that they are named after.

    def __eq__(self, other: object) -> Any:
        """Elementwise, and False everywhere for what can't be compared, as a string."""
        try:
            return super().__eq__(other)
        except TypeError:
            return self._wrapped(self.numpy() == _unwrapped(other, {}), {})

    def __ne__(self, other: object) -> Any:
        """Elementwise, and True everywhere for what can't be compared, as a string."""
        try:
            return super().__ne__(other)
        except TypeError:
            return self._wrapped(self.numpy() != _unwrapped(other, {}), {})

    def __pow__(self, exponent: Any) -> Any:
        """Elementwise. For 2, 0.5 and their like NumPy squares and takes roots, which is exact and quick."""
        if type(exponent) in _NUMBERS:
            return self._wrapped(self.numpy() ** exponent, {})
        return super().__pow__(exponent)

    def __ipow__(self, exponent: Any) -> Self:
        """In place what ``**`` is."""
        if type(exponent) in _NUMBERS:
            refuse_writing(self)
            array = self.numpy()
            array **= exponent
        else:
            np.power(self, exponent, out=self)  # type: ignore[call-overload]  # through __array_ufunc__
        return self

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """NumPy's ufunc on the elements. ``out=`` is written and returned; other results are new tensors."""
        outputs = kwargs.get("out", ())
        _refuse_writing(inputs[:1] if method == "at" else outputs)
        arrays = [each.numpy() if isinstance(each, TensorBase) else each for each in inputs]
        if not kwargs and method == "__call__":
            made = self._large_output(ufunc, arrays)
            if made is not None:
                ufunc(*arrays, out=made.numpy())
                return made
        known = _plain_outputs(outputs)
        options = {name: _unwrapped(value, known) for name, value in kwargs.items()}
        return self._wrapped(getattr(ufunc, method)(*arrays, **options), known)

    def __array_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Any other NumPy function. ``out=`` is written and returned; a result that shares memory is a
        view.
        """
        if not all(issubclass(each, (TensorBase, np.ndarray)) for each in types):
            return NotImplemented
        out = kwargs.get("out")
        outputs = out if isinstance(out, tuple) else (out,)
        _refuse_writing(outputs)
        known = _plain_outputs(outputs)
        arrays = _unwrapped(args, known)
        return self._wrapped(func(*arrays, **_unwrapped(dict(kwargs), known)), known)

    def _large_output(self, ufunc: np.ufunc, arrays: list[Any]) -> TensorBase | None:
        """Where a large elementwise result can be computed into at once; None where it takes NumPy to find
        out.
        """
        if ufunc.signature is not None or ufunc.nout != 1:
            return None
        operands = [each for each in arrays if isinstance(each, np.ndarray)]
        if max([each.nbytes for each in operands]) < _LARGE_BYTES:
            return None
        shape = np.broadcast_shapes(*[each.shape for each in operands])
        layout = contiguous(shape)
        # A Python number is known by its type: it takes the dtype of the others.
        kinds = [each.dtype if hasattr(each, "dtype") else type(each) for each in arrays]
        if not _NUMBERS.issuperset(kind for kind in kinds if isinstance(kind, type)):
            return None
        try:
            dtype = as_dtype(ufunc.resolve_dtypes((*kinds, None))[-1])
        except TypeError:
            return None  # NumPy says why, when it comes to compute
        if self._layout.shape == shape:
            layout = Layout(shape, preserved(self._layout))
        return self._allocate(self._pool, dtype, layout)

    def _wrapped(self, result: Any, known: Mapping[int, Any]) -> Any:
        """``result`` with tensors for its arrays; ``known`` are the tensors that some of them came from."""
        if isinstance(result, (np.ndarray, np.generic)):
            return self._wrapped_array(result, known)
        if isinstance(result, tuple):
            parts = [self._wrapped(part, known) for part in result]
            return result._make(parts) if hasattr(result, "_make") else tuple(parts)
        if isinstance(result, list):
            return [self._wrapped(part, known) for part in result]
        return result

    def _wrapped_array(self, result: Any, known: Mapping[int, Any]) -> Any:
        if id(result) in known:
            return known[id(result)]
        try:
            dtype = as_dtype(result.dtype)
        except TypeError:
            return result  # strings and objects, as of np.array2string or np.equal(t, None), stay with NumPy
        alias = alias_of(result)
        if alias is not None:
            flags = VIEW if is_writable(result) else VIEW | READ_ONLY
            return type(self)(alias[0], dtype, alias[1], flags)
        return self._adopt(np.asarray(result, dtype), self._pool)


_NUMBERS = frozenset({int, float, complex})


def _unwrapped(value: Any, known: dict[int, Any]) -> Any:
    """``value`` with arrays for the tensors in it, which are noted in ``known`` under the id of their
    array.
    """
    if isinstance(value, TensorBase):
        array = value.numpy()
        known[id(array)] = value
        return array
    if type(value) in (tuple, list):
        return type(value)([_unwrapped(part, known) for part in value])
    if type(value) is dict:
        return {name: _unwrapped(part, known) for name, part in value.items()}
    return value


def _plain_outputs(outputs: tuple[Any, ...]) -> dict[int, Any]:
    """The arrays among ``outputs``, by id: they are returned as they are."""
    return {id(each): each for each in outputs if isinstance(each, np.ndarray)}


def _refuse_writing(targets: tuple[Any, ...]) -> None:
    for target in targets:
        if isinstance(target, TensorBase):
            refuse_writing(target)
