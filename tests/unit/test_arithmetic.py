"""All of NumPy on tensors: each ufunc and each function that NumPy lets others override gives what it gives on arrays,
as tensors in the operands' pool, or fails as it does on arrays.

NumPy on arrays is the oracle. Expressions are text, evaluated twice: with arrays and with tensors under the same names.
"""

from __future__ import annotations

import io
import itertools
import operator
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing.overrides import get_overridable_numpy_array_functions

import shmtensor as st
from shmtensor.dtypes import TABLE
from shmtensor.storage import Pool

SHAREABLE = {dtype for _, dtype in TABLE.values()}


def operands() -> dict[str, Any]:
    """Arrays by name, new ones each time, since some expressions write to them."""
    rng = np.random.default_rng(5)
    return {
        "m": rng.normal(size=(3, 4)),
        "n": rng.normal(size=(4, 3)),
        "f": rng.normal(size=(3, 4)).astype("float32"),
        "h": np.arange(6, dtype="float16") / 4,
        "s": np.array([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]]),
        "v": np.array([3.0, 1, 2, 3, 1, 0]),
        "w": np.array([0.5, 1, 2, 4, 8, 16]),
        "gaps": np.array([[1, np.nan, 3], [np.nan, 5, 6]]),
        "i": np.array([[3, 1, 2, 0], [0, 2, 2, 3], [1, 1, 3, 2]]),
        "k": np.array([2, 0, 1]),
        "u": np.array([1, 0, 255, 7, 128, 3, 0, 9], dtype="uint8"),
        "bits": np.array([1, 0, 0, 1, 1, 0, 1, 1], dtype="uint8"),
        "b": np.array([[True, False, True, False], [False, False, True, True], [True, True, True, True]]),
        "c": np.array([1 + 2j, 3 - 1j, -2, 0.5j]),
        "cube": rng.normal(size=(2, 3, 4)),
        "turned": rng.normal(size=(4, 2, 3)).transpose(1, 2, 0),
        "one": np.array(2.5),
        "empty": np.zeros((0, 3)),
    }


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Not the default pool, so that results show whose pool they take. One for all tests, which are many; and without
    a look at what is left: NumPy before 2.5 never lets go of the operands of a ufunc's method that failed
    (https://github.com/numpy/numpy/issues/31677).
    """
    made = Pool.create(limit=1 << 28)
    yield made
    made.close()


def as_tensors(arrays: dict[str, Any], pool: Pool) -> dict[str, Any]:
    return {name: st.from_numpy(array, pool=pool) for name, array in arrays.items()}


def outcome(function: Any, *args: Any, **options: Any) -> Any:
    """What a call returns, or the class that it raises."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return function(*args, **options)
    except Exception as error:
        return type(error)


def check_same(ours: Any, theirs: Any, pool: Pool, at: str) -> None:
    """Raise unless `ours` is what `theirs` is, with tensors in `pool` for arrays and NumPy scalars."""
    if isinstance(theirs, (np.ndarray, np.generic)) and theirs.dtype in SHAREABLE:
        assert isinstance(ours, st.Tensor), (at, type(ours))
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), at
        np.testing.assert_array_equal(ours.numpy(), theirs, err_msg=at)
        assert ours.untyped_storage().block.pool is pool, at
    elif isinstance(theirs, np.ndarray):  # of strings, objects, times: they stay with NumPy
        assert isinstance(ours, np.ndarray), at
        assert ours.dtype == theirs.dtype, at
        np.testing.assert_array_equal(ours, theirs, err_msg=at)
    elif isinstance(theirs, (tuple, list)):
        assert type(ours) is type(theirs), (at, type(ours), type(theirs))
        assert len(ours) == len(theirs), at
        for part, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            check_same(mine, other, pool, f"{at} [{part}]")
    else:
        assert type(ours) is type(theirs), (at, ours, theirs)
        assert ours == theirs, (at, ours, theirs)


# --- every ufunc

UFUNCS = {name: each for name in dir(np) if isinstance(each := getattr(np, name), np.ufunc)}


def filled(kind: str) -> np.ndarray[Any, Any]:
    return (
        np.array([[0, 1, 2], [3, 4, 1]]).astype(kind) / 4 if kind in "fdFD" else np.array([[0, 1, 2], [3, 4, 1]], kind)
    )


@pytest.mark.parametrize("large_bytes", [0, 1 << 16])
@pytest.mark.parametrize("name", UFUNCS)
def test_a_ufunc_computes_on_tensors_what_it_computes_on_arrays(
    name: str, large_bytes: int, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmtensor.arithmetic._LARGE_BYTES", large_bytes)  # 0: all results are computed in place
    ufunc = UFUNCS[name]
    scalars = (2, 2.0, 1j, True, np.float32(2), np.int8(2))
    for kind in "?bBhlLefdFD":
        array = filled(kind)
        tensor = st.from_numpy(array, pool=pool)
        others = ((array, tensor), (array, array), (filled("f"), st.from_numpy(filled("f"), pool=pool)))
        pairs = [(array, tensor), *others, *((each, each) for each in scalars)]
        for (theirs, ours), swap in itertools.product(pairs if ufunc.nin > 1 else pairs[:1], (False, True)):
            arrays = [array, *[theirs] * (ufunc.nin - 1)][:: -1 if swap else 1]
            tensors = [tensor, *[ours] * (ufunc.nin - 1)][:: -1 if swap else 1]
            expected = outcome(ufunc, *arrays)
            check_same(outcome(ufunc, *tensors), expected, pool, f"{kind} {type(theirs)} {swap}")


METHOD_OPTIONS: list[dict[str, Any]] = [
    {},
    {"axis": 1},
    {"axis": -1, "keepdims": True},
    {"axis": None},
    {"axis": (0, 1)},
    {"initial": 1},
    {"dtype": "float64"},
    {"where": np.array([[True, False, True]] * 2), "initial": 1},
    {"axis": 5},
]


@pytest.mark.parametrize("name", UFUNCS)
def test_a_ufuncs_methods_do_on_tensors_what_they_do_on_arrays(name: str, pool: Pool) -> None:
    ufunc = UFUNCS[name]
    for kind, method in itertools.product("?lfD", ("reduce", "accumulate", "reduceat", "outer", "at")):
        rest = {"reduceat": ([0, 1, 0],), "outer": (filled(kind),), "at": (([0, 1], [1, 2]), 2)}.get(method, ())
        for options in METHOD_OPTIONS if method not in ("outer", "at") else [{}]:
            array, other = filled(kind), filled(kind)
            tensor = st.from_numpy(other, pool=pool)
            expected = outcome(getattr(ufunc, method), array, *rest, **options)
            at = f"{kind} {method} {options}"
            check_same(outcome(getattr(ufunc, method), tensor, *rest, **options), expected, pool, at)
            check_same(tensor, array, pool, at)


@pytest.mark.parametrize("name", UFUNCS)
def test_a_ufunc_writes_to_out_where_told_and_returns_it(name: str, pool: Pool) -> None:
    ufunc = UFUNCS[name]
    mask = np.array([[True, False, True], [False, False, True]])
    for kind, into, masked in itertools.product("?ld", "?ldD", (False, True)):
        operand = [filled(kind)] * ufunc.nin
        options: dict[str, Any] = {"where": mask} if masked else {}
        arrays = tuple(np.full((2, 3), 9, into) for _ in range(ufunc.nout))
        tensors = tuple(st.full((2, 3), 9, dtype=np.dtype(into), pool=pool) for _ in range(ufunc.nout))
        expected = outcome(ufunc, *operand, out=arrays, **options)
        got = outcome(ufunc, *operand, out=tensors, **options)
        at = f"{kind} {into} {masked}"
        check_same(got, expected, pool, at)
        check_same(tensors, arrays, pool, at)
        if not isinstance(expected, type):
            given = got if ufunc.nout > 1 else (got,)
            assert all(one is other for one, other in zip(given, tensors, strict=True)), at
        if ufunc.nout == 1:  # one out as such is what the tuple is
            alone = st.full((2, 3), 9, dtype=np.dtype(into), pool=pool)
            check_same(outcome(ufunc, *operand, out=alone, **options), expected, pool, at)


# --- every function

EXPRESSIONS = """
np.sum(m)                                  np.sum(m, axis=0)                   np.sum(m, axis=1, keepdims=True)
np.sum(i, axis=(0, 1), initial=5)          np.sum(m, where=b)                  np.sum(u, dtype='int32')
np.sum(empty, axis=0)                      np.sum(m, axis=3)                   np.max(empty)
np.prod(m, axis=1)                         np.mean(m, axis=0)                  np.mean(h)
np.mean(m, where=b, keepdims=True)         np.std(m, axis=1, ddof=1)           np.var(f)
np.std(m, mean=np.mean(m))                 np.max(m, axis=1)                   np.min(m, initial=0, where=b)
np.amax(m)                                 np.amin(m, axis=0)                  np.ptp(m, axis=0)
np.all(b, axis=1)                          np.any(b)                           np.any(m, axis=0, keepdims=True)
np.argmax(m)                               np.argmin(m, axis=1)                np.argmax(m, axis=1, keepdims=True)
np.count_nonzero(i)                        np.count_nonzero(i, axis=1)         np.median(m, axis=1)
np.median(gaps)                            np.average(m, axis=0)               np.average(m, weights=i)
np.average(v, weights=w, returned=True)    np.percentile(m, 30)                np.percentile(m, [10, 50], axis=1)
np.quantile(m, 0.5, method='lower')        np.quantile(v, h)                   np.trace(s)
np.cumsum(m)                               np.cumsum(m, axis=1)                np.cumprod(i, axis=0)
np.cumulative_sum(v, include_initial=True) np.cumulative_prod(v)               np.nansum(gaps, axis=0)
np.nanprod(gaps)                           np.nanmean(gaps, axis=1)            np.nanstd(gaps)
np.nanvar(gaps, axis=0)                    np.nanmax(gaps)                     np.nanmin(gaps, axis=1)
np.nanargmax(gaps, axis=1)                 np.nanargmin(gaps)                  np.nanmedian(gaps, axis=1)
np.nanpercentile(gaps, 40)                 np.nanquantile(gaps, 0.3, axis=1)   np.nancumsum(gaps)
np.nancumprod(gaps, axis=0)                np.nan_to_num(gaps)                 np.nan_to_num(gaps, nan=7)
np.diff(m)                                 np.diff(v, n=2, prepend=0)          np.ediff1d(v, to_end=w)
np.gradient(m)                             np.gradient(v, w)                   np.trapezoid(v, w)
np.cov(m)                                  np.cov(v, w)                        np.corrcoef(m)
np.correlate(v, w, 'full')                 np.convolve(v, k)                   np.histogram(v)
np.histogram(v, bins=w)                    np.histogram2d(v, w, bins=3)        np.histogramdd(n, bins=2)
np.histogram_bin_edges(v, 'sturges')       np.bincount(u)                      np.bincount(k, weights=[1, 2, 3])
np.digitize(v, w)                          np.searchsorted(w, v)               np.searchsorted(w, 3, side='right')
np.interp(v, w, w)                         np.interp(1.5, w, v)                np.clip(m, -1, 1)
np.clip(i, 1, None)                        np.clip(m, -1, f)                   np.clip(u, 3, 300)
np.sort(m)                                 np.sort(m, axis=0)                  np.sort(v, kind='stable')
np.sort(m, axis=None)                      np.argsort(m, axis=0)               np.lexsort((v, w))
np.partition(v, 2)                         np.argpartition(v, 2)               np.sort_complex(c)
np.unique(v)                               np.unique(i, axis=0)                np.unique(v, True, True, True)
np.unique_all(v)                           np.unique_counts(v)                 np.unique_inverse(v)
np.unique_values(v)                        np.union1d(v, w)                    np.intersect1d(v, w)
np.intersect1d(v, w, return_indices=True)  np.setdiff1d(w, v)                  np.setxor1d(v, w)
np.isin(v, w)                              np.isin(3, v)                       np.nonzero(b)
np.flatnonzero(i)                          np.argwhere(b)                      np.where(b)
np.where(b, m, 0)                          np.where(m > 0, m, f)               np.where(m, 'a', 'b')
np.select([b, m > 0], [m, f], 9)           np.choose(i % 3, [m, m + 1, f])     np.piecewise(v, [v < 2, v >= 2], [0, 1])
np.extract(b, m)                           np.compress([True, False, True], m, axis=0)
np.take(m, k)                              np.take(m, k, axis=1)               np.take(m, 99)
np.take(m, [99], mode='wrap')              np.take_along_axis(m, i, 1)         np.diag(s)
np.diag(v, 1)                              np.diagflat(s)                      np.diagonal(m, 1)
np.diag_indices_from(s)                    np.tril(m)                          np.triu(m, 1)
np.tril_indices_from(s)                    np.triu_indices_from(s)             np.vander(k)
np.concatenate([m, f])                     np.concatenate([m, m], axis=1)      np.concatenate([m, n])
np.concatenate([m, i], axis=None)          np.concatenate([m, m], dtype='f4')  np.stack([m, f], axis=1)
np.stack([m, n])                           np.vstack([m, v[:4]])               np.hstack([v, w])
np.dstack([m, m])                          np.column_stack([v, w])             np.block([[s, s], [s, s]])
np.append(m, v)                            np.insert(m, 1, 0, axis=1)          np.insert(v, [1, 2], w[:2])
np.delete(m, 1, axis=0)                    np.delete(v, [0, 2])                np.split(v, 3)
np.split(v, 4)                             np.array_split(v, 4)                np.hsplit(m, 2)
np.vsplit(m, 3)                            np.dsplit(cube, 2)                  np.unstack(m)
np.tile(m, 2)                              np.tile(v, (2, 2))                  np.repeat(m, 2)
np.repeat(m, [1, 2, 0], axis=0)            np.roll(m, 1)                       np.roll(m, 1, axis=1)
np.rollaxis(cube, 2)                       np.rot90(m)                         np.flip(m)
np.fliplr(m)                               np.flipud(m)                        np.pad(m, 1)
np.pad(v, (1, 2), mode='reflect')          np.pad(m, 1, constant_values=7)     np.resize(v, (2, 4))
np.reshape(m, (2, 6))                      np.reshape(m, 5)                    np.reshape(turned, -1)
np.ravel(m)                                np.ravel(m, 'F')                    np.transpose(cube)
np.transpose(cube, (1, 0, 2))              np.permute_dims(cube)               np.swapaxes(cube, 0, 2)
np.moveaxis(cube, 0, -1)                   np.matrix_transpose(cube)           np.squeeze(m[:1])
np.squeeze(m, 0)                           np.expand_dims(m, 1)                np.atleast_1d(one)
np.atleast_2d(v, one)                      np.atleast_3d(m)                    np.broadcast_to(v, (2, 6))
np.broadcast_arrays(m, v[:4])              np.meshgrid(v, w)                   np.ix_(k, v)
np.trim_zeros(v)                           np.trim_zeros(u, 'f')               np.apply_along_axis(np.sort, 1, m)
np.apply_over_axes(np.sum, cube, [0, 2])   np.einsum('ij,jk', m, n)            np.einsum('ii', s)
np.einsum('ij->ji', m)                     np.einsum('ij,ij->i', m, f)         np.einsum('ij,jk', m, n, optimize=True)
np.einsum('ijk,k', m)                      np.einsum_path('ij,jk', m, n)       np.dot(m, n)
np.dot(m, m)                               np.dot(v, w)                        np.dot(m, 2)
np.inner(v, w)                             np.outer(v, w)                      np.vdot(c, c)
np.kron(s, k)                              np.cross(s, k)                      np.tensordot(m, n, 1)
np.tensordot(cube, m, ([1, 2], [0, 1]))    np.matmul(m, n)                     np.vecdot(m, m)
np.round(m, 2)                             np.around(m)                        np.fix(m)
np.real(c)                                 np.imag(c)                          np.imag(m)
np.angle(c)                                np.angle(c, deg=True)               np.real_if_close(c)
np.isreal(c)                               np.iscomplex(c)                     np.isrealobj(c)
np.iscomplexobj(c)                         np.isposinf(m)                      np.isneginf(m)
np.isclose(m, f)                           np.allclose(m, m)                   np.array_equal(m, m)
np.array_equal(m, n)                       np.array_equiv(v, v)                np.sinc(m)
np.i0(m)                                   np.unwrap(v)                        np.poly(s)
np.roots(k)                                np.polyval(k, m)                    np.polyadd(k, v)
np.polysub(k, v)                           np.polymul(k, v)                    np.polydiv(v, k)
np.polyder(v)                              np.polyint(v)                       np.polyfit(w, v, 2)
np.packbits(bits)                          np.unpackbits(u)                    np.packbits(b, axis=1)
np.unravel_index(k, (2, 2))                np.unravel_index(k, (1, 1))         np.ravel_multi_index((k, k), (3, 3))
np.copy(m)                                 np.copy(m.T, order='K')             np.astype(m, 'int8')
np.astype(f, 'float64')                    np.ones_like(m)                     np.zeros_like(i, dtype='f4')
np.full_like(m, 3)                         np.empty_like(m).ndim               np.linspace(one, 9, 5)
np.linspace(k, 9, 3)                       np.geomspace(w[0], 9, 4)            np.logspace(one, 3, 4)
np.shape(m)                                np.size(m)                          np.size(m, 1)
np.ndim(m)                                 np.result_type(f, 1.0)              np.can_cast(m.dtype, 'f4')
np.result_type(f, i)                       np.common_type(f, m)                np.min_scalar_type(one)
np.shares_memory(m, m[1:])                 np.may_share_memory(m, n)           np.array2string(m)
np.array_repr(k)                           np.array_str(m)                     np.iterable(m)
(np.copyto(m, f), m)                       (np.copyto(m, 0, where=b), m)       (np.copyto(i, 1.5), i)
(np.put(m, [0, 2], 9), m)                  (np.put_along_axis(m, i, 0, 1), m)  (np.place(m, b, k), m)
(np.putmask(m, b, v), m)                   (np.fill_diagonal(s, k), s)         (np.put(m, 99, 9), m)
np.cumsum(v, out=w) is w                   np.sum(m, axis=0, out=v)            np.sum(m, axis=0, out=k)
np.mean(m, axis=1, out=n[0])               np.clip(m, 0, 1, out=m)             np.dot(m, n, out=s) is s
np.concatenate([v, w], out=n.reshape(-1))  np.take(v, k, out=n[0])             np.stack([k, k], out=n)
np.round(m, 1, out=f)                      np.median(m, axis=0, out=n[:, 0])   np.max(i, axis=1, out=k) is k
np.array(v, like=m)                        np.asarray([1, 2], like=m)          np.asanyarray(v, like=m)
np.ascontiguousarray(m.T, like=m)          np.asfortranarray(m, like=m)        np.require(m, ['C'], like=m)
np.arange(5, like=m)                       np.ones(3, like=m)                  np.zeros((2, 2), like=m)
np.empty(3, like=m).nbytes                 np.full(3, 7, like=m)               np.eye(3, like=m)
np.identity(3, like=m)                     np.tri(3, like=m)                   np.fromiter([1, 2], 'f4', like=m)
np.frombuffer(b'abcd', 'u1', like=m)       np.fromstring('1 2', sep=' ', like=m)
np.fromfunction(operator.add, (2, 3), like=m)                                  np.fromfile(path, 'u1', like=m)
np.loadtxt(io.StringIO('1 2'), like=m)     np.genfromtxt(io.StringIO('1 2'), like=m)
written(np.save, m)                        written(np.savetxt, m)              written(np.savez, m)
written(np.savez_compressed, m)            np.lib.stride_tricks.sliding_window_view(v, 3)
np.lib.scimath.sqrt(m)                     np.lib.scimath.log(m)               np.lib.scimath.log2(m)
np.lib.scimath.log10(m)                    np.lib.scimath.logn(2, m)           np.lib.scimath.power(m, 0.5)
np.lib.scimath.arccos(w)                   np.lib.scimath.arcsin(w)            np.lib.scimath.arctanh(w)
np.fft.fft(v)                              np.fft.ifft(c)                      np.fft.fft2(m)
np.fft.ifft2(m)                            np.fft.fftn(cube)                   np.fft.ifftn(m, axes=(0,))
np.fft.rfft(v)                             np.fft.irfft(c)                     np.fft.rfft2(m)
np.fft.irfft2(m)                           np.fft.rfftn(cube)                  np.fft.irfftn(m)
np.fft.hfft(c)                             np.fft.ihfft(v)                     np.fft.fftshift(m)
np.fft.ifftshift(v)                        np.fft.fft(v, n=0)                  np.fft.fft(f)
np.linalg.inv(s)                           np.linalg.inv(m)                    np.linalg.inv(s * 0)
np.linalg.det(s)                           np.linalg.slogdet(s)                np.linalg.solve(s, k)
np.linalg.lstsq(n, w[:4])                  np.linalg.eig(s)                    np.linalg.eigh(s)
np.linalg.eigvals(s)                       np.linalg.eigvalsh(s)               np.linalg.svd(m)
np.linalg.svd(m, compute_uv=False)         np.linalg.svdvals(m)                np.linalg.qr(m)
np.linalg.qr(m, mode='r')                  np.linalg.cholesky(s)               np.linalg.pinv(m)
np.linalg.norm(m)                          np.linalg.norm(m, axis=1)           np.linalg.norm(v, 1)
np.linalg.matrix_norm(m)                   np.linalg.vector_norm(m, axis=0)    np.linalg.cond(s)
np.linalg.matrix_rank(m)                   np.linalg.matrix_power(s, 3)        np.linalg.multi_dot([m, n, s])
np.linalg.matmul(m, n)                     np.linalg.matrix_transpose(m)       np.linalg.outer(v, w)
np.linalg.cross(s, s)                      np.linalg.diagonal(s)               np.linalg.trace(s)
np.linalg.vecdot(m, m)                     np.linalg.tensordot(m, n, 1)        np.linalg.tensorinv(s, ind=1)
np.linalg.tensorsolve(s, k)                np.linalg.cholesky(-s)              np.sum(m.dtype)
"""

# Separated by two blanks or more.
CALLS = [call for line in EXPRESSIONS.strip().splitlines() for call in map(str.strip, line.split("  ")) if call]


def evaluated(expression: str, names: dict[str, Any], path: Path) -> Any:
    def written(function: Any, *args: Any) -> bytes:
        file = io.BytesIO()
        function(file, *args)
        return file.getvalue()

    scope = {"np": np, "io": io, "operator": operator, "path": path, "written": written, **names}
    return outcome(eval, expression, scope)


@pytest.mark.parametrize("expression", CALLS)
def test_a_function_of_numpy_does_on_tensors_what_it_does_on_arrays(
    expression: str, pool: Pool, tmp_path: Path
) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(b"bytes")
    arrays, tensors = operands(), as_tensors(operands(), pool)
    expected = evaluated(expression, arrays, path)
    check_same(evaluated(expression, tensors, path), expected, pool, expression)
    for name, array in arrays.items():  # what was written in place is the same, too
        check_same(tensors[name], array, pool, f"{expression}: {name}")


def test_the_table_names_each_function_that_numpy_lets_others_override() -> None:
    # Not those of records and strings, which have modules of their own, nor of dates: no tensor has such elements.
    modules = {"numpy", "numpy.fft", "numpy.lib.scimath", "numpy.lib.stride_tricks", "numpy.linalg"}
    dates = {"busday_count", "busday_offset", "is_busday", "datetime_as_string"}
    text = " ".join(CALLS)
    for function in get_overridable_numpy_array_functions():
        if function.__module__ not in modules or function.__name__ in dates:
            continue
        name = f"{function.__module__}.{function.__name__}".replace("numpy", "np", 1)
        assert f"{name}(" in text or f"({name}," in text, name
    assert len(CALLS) > 300


# --- operators, promotion


@pytest.mark.parametrize(
    "operation",
    [
        "+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>", "==", "!=", "<", "<=", ">", ">=",
        "+=", "-=", "*=", "/=", "//=", "%=", "**=", "@=", "&=", "|=", "^=", "<<=", ">>=",
    ],
)  # fmt: skip
def test_an_operator_does_what_it_does_on_arrays(operation: str, pool: Pool) -> None:
    square = np.array([[1, 2], [3, 1]])
    values = [square.astype(kind) for kind in ("bool", "int8", "int64", "uint8", "float32", "float64", "complex64")]
    others = [*values, 2, -1, 300, 2.5, 1j, True, np.float64(2), np.int16(3), None, "a", [[1, 2], [3, 4]]]

    def run(left: Any, right: Any) -> Any:
        scope = {"left": left, "right": right}
        code = f"left {operation} right" if operation.endswith("=") and operation not in COMPARISONS else ""
        result = outcome(exec, code, scope) if code else outcome(eval, f"left {operation} right", scope)
        return result if not code or isinstance(result, type) else scope["left"]

    for value, other in itertools.product(values, others):
        for way in ("tensor op other", "other op tensor", "tensor op tensor"):
            is_array = isinstance(other, np.ndarray)
            if way == "tensor op tensor" and not is_array:
                continue
            fresh = [value.copy(), other.copy() if is_array else other]
            mine = [st.from_numpy(value, pool=pool), other.copy() if is_array else other]
            if way == "tensor op tensor":
                mine[1] = st.from_numpy(other, pool=pool)
            if way == "other op tensor":
                if operation.endswith("=") and operation not in COMPARISONS:
                    continue  # an array's in-place operator gives that array
                fresh.reverse()
                mine.reverse()
            check_same(run(*mine), run(*fresh), pool, f"{way} {value.dtype} {other!r}")


COMPARISONS = ("==", "!=", "<=", ">=")


@pytest.mark.parametrize("operation", [operator.neg, operator.pos, operator.invert, abs, round, divmod])
def test_a_unary_operator_or_builtin_does_what_it_does_on_arrays(operation: Any, pool: Pool) -> None:
    for kind in ("bool", "int8", "float32", "complex128"):
        array = np.array([[1, 2], [3, 1]]).astype(kind)
        tensor = st.from_numpy(array, pool=pool)
        args = (2,) if operation is divmod else ()
        check_same(outcome(operation, tensor, *args), outcome(operation, array, *args), pool, kind)
