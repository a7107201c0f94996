"""The dtypes a tensor can have. Owns one table: name, wire code, NumPy dtype.

A wire code is what a header carries. Codes are never reused or renumbered, because two processes may run
different versions. Only native byte order and plain numbers are in the table: a pointer (object dtype), a
string or a record means nothing to the process on the other side, or has no place in a tensor.

bfloat16 and float8_* come from the optional package ml_dtypes, imported when one of them is first asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from shmtensor.errors import InvalidHeader

__all__ = [
    "DEFAULT_DTYPE",
    "DType",
    "as_dtype",
    "bool_",
    "code_of",
    "complex64",
    "complex128",
    "float16",
    "float32",
    "float64",
    "from_code",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_complex",
    "is_floating_point",
    "is_signed",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

DType = np.dtype[Any]

bool_: DType = np.dtype(np.bool_)
uint8: DType = np.dtype(np.uint8)
uint16: DType = np.dtype(np.uint16)
uint32: DType = np.dtype(np.uint32)
uint64: DType = np.dtype(np.uint64)
int8: DType = np.dtype(np.int8)
int16: DType = np.dtype(np.int16)
int32: DType = np.dtype(np.int32)
int64: DType = np.dtype(np.int64)
float16: DType = np.dtype(np.float16)
float32: DType = np.dtype(np.float32)
float64: DType = np.dtype(np.float64)
complex64: DType = np.dtype(np.complex64)
complex128: DType = np.dtype(np.complex128)

DEFAULT_DTYPE: DType = float32

# name -> (code on the wire, NumPy dtype).
TABLE: dict[str, tuple[int, DType]] = {
    "bool": (1, bool_),
    "uint8": (2, uint8),
    "uint16": (3, uint16),
    "uint32": (4, uint32),
    "uint64": (5, uint64),
    "int8": (6, int8),
    "int16": (7, int16),
    "int32": (8, int32),
    "int64": (9, int64),
    "float16": (10, float16),
    "float32": (11, float32),
    "float64": (12, float64),
    "complex64": (13, complex64),
    "complex128": (14, complex128),
}

# name -> code on the wire, for the dtypes that ml_dtypes brings.
EXTENSION_TABLE: dict[str, int] = {
    "bfloat16": 32,
    "float8_e3m4": 33,
    "float8_e4m3": 34,
    "float8_e4m3b11fnuz": 35,
    "float8_e4m3fn": 36,
    "float8_e4m3fnuz": 37,
    "float8_e5m2": 38,
    "float8_e5m2fnuz": 39,
    "float8_e8m0fnu": 40,
}

CODES: dict[DType, int] = {dtype: code for code, dtype in TABLE.values()}
_DTYPES: dict[int, DType] = dict(TABLE.values())
_EXTENSION_NAMES: dict[int, str] = {code: name for name, code in EXTENSION_TABLE.items()}
# What `as_dtype` answers with one look-up.
_ORDINARY: dict[Any, DType] = {
    **{name: dtype for name, (_, dtype) in TABLE.items()},
    **{dtype: dtype for _, dtype in TABLE.values()},
    **{dtype.type: dtype for _, dtype in TABLE.values()},
    bool: bool_,
    int: int64,
    float: float64,
    complex: complex128,
}


def as_dtype(value: object) -> DType:
    """The table's dtype for ``value``: a NumPy dtype or scalar type, a name, a Python number type or a torch
    dtype.

    ``float`` is float64 and ``int`` is int64, as in NumPy and in torch. Raises `TypeError`, which names the
    dtype, for anything that can't be shared: object, string, datetime, structured, long double and
    byte-swapped dtypes. Raises `ImportError` for bfloat16 and float8_* where ml_dtypes is not installed.
    """
    try:
        found = _ORDINARY.get(value)
    except TypeError:  # unhashable, so no dtype we know: a list of fields, say
        found = None
    return found if found is not None else _as_dtype_slowly(value)


def code_of(dtype: DType) -> int:
    """The wire code of ``dtype``. Raises `TypeError`, which names the dtype, when it has none."""
    code = CODES.get(dtype)
    return code if code is not None else _extension_code(dtype)


def from_code(code: int) -> DType:
    """The dtype with this wire code.

    Raises `InvalidHeader` for a code that no dtype has, and `ImportError` for one that needs ml_dtypes, where
    that is not installed here.
    """
    dtype = _DTYPES.get(code) if type(code) is int else None
    return dtype if dtype is not None else _from_code_slowly(code)


def is_complex(dtype: DType) -> bool:
    """Whether ``dtype`` is complex64 or complex128."""
    return dtype.kind == "c"


def is_floating_point(dtype: DType) -> bool:
    """Whether ``dtype`` is real floating point, bfloat16 and float8_* included."""
    return dtype.kind == "f" or dtype.name in EXTENSION_TABLE


def is_signed(dtype: DType) -> bool:
    """Whether ``dtype`` has negative values. float8_e8m0fnu holds powers of two only, so it has none."""
    return dtype.kind not in "bu" and dtype.name != "float8_e8m0fnu"


def extension(name: str) -> DType:
    """The dtype ``name`` of ml_dtypes, say bfloat16. Raises `ImportError` that says what to install."""
    try:
        module = importlib.import_module("ml_dtypes")
    except ImportError as error:
        raise ImportError(f"dtype {name} needs the package ml_dtypes: pip install ml_dtypes") from error
    scalar_type = getattr(module, name, None)
    if scalar_type is None:
        raise ImportError(f"dtype {name} needs a newer ml_dtypes than {module.__version__}")
    dtype: DType = np.dtype(scalar_type)
    return dtype


def _as_dtype_slowly(value: object) -> DType:
    name = _torch_name(value)
    if name in TABLE:
        return TABLE[name][1]
    if name in EXTENSION_TABLE:
        return extension(name)
    if value is None:  # np.dtype(None) is float64, which nobody who writes None means
        raise TypeError("dtype None: name one, for example 'float32'")
    try:
        dtype: DType = np.dtype(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, SyntaxError) as error:  # NumPy evaluates "(2,3)f4" and its like
        raise TypeError(f"{value!r} is not a dtype; known are {_known_names()}") from error
    found = _ORDINARY.get(dtype)
    if found is not None:
        return found
    _extension_code(dtype)
    return dtype


def _torch_name(value: object) -> str:
    """The part of a name after ``torch.``: of a string, or of a torch.dtype, without importing torch."""
    is_torch = type(value).__module__ == "torch" and type(value).__name__ == "dtype"
    return str(value).removeprefix("torch.") if is_torch or isinstance(value, str) else ""


def _extension_code(dtype: DType) -> int:
    """The code of a dtype of ml_dtypes; else the `TypeError` that says why ``dtype`` can't be shared."""
    if not isinstance(dtype, np.dtype):
        raise TypeError(f"expected a NumPy dtype, got {dtype!r}")
    code = EXTENSION_TABLE.get(dtype.name)
    if code is None or dtype.type.__module__ != "ml_dtypes":
        raise TypeError(f"dtype {dtype} {_why_not(dtype)}; use one of {_known_names()}")
    CODES[dtype] = code
    _DTYPES[code] = dtype
    return code


def _from_code_slowly(code: int) -> DType:
    name = _EXTENSION_NAMES.get(code) if type(code) is int else None
    if name is None:
        raise InvalidHeader(f"no dtype has the code {code!r}")
    dtype = extension(name)
    _extension_code(dtype)
    return dtype


def _why_not(dtype: DType) -> str:
    if dtype.hasobject:
        return "holds Python objects, whose addresses mean nothing in another process"
    if dtype.fields is not None or dtype.subdtype is not None:
        return "is structured; give each field a tensor of its own"
    if dtype.kind in "SUVT":
        return "holds strings or raw bytes, not numbers"
    if dtype.kind in "mM":
        return "is a time; share its integers: array.view('int64')"
    if not dtype.isnative:
        return "is not in native byte order; convert with array.astype(array.dtype.newbyteorder('='))"
    return "can't be shared"


def _known_names() -> str:
    return ", ".join([*TABLE, *EXTENSION_TABLE])
