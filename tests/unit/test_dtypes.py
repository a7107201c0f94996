"""The table of dtypes: names, codes, what is refused and how."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from shmtensor import dtypes
from shmtensor.dtypes import EXTENSION_TABLE, TABLE, as_dtype, code_of, from_code
from shmtensor.errors import InvalidHeader

# What is on the wire must never change: this table is written out again on purpose.
CODES = {
    "bool": 1,
    "uint8": 2,
    "uint16": 3,
    "uint32": 4,
    "uint64": 5,
    "int8": 6,
    "int16": 7,
    "int32": 8,
    "int64": 9,
    "float16": 10,
    "float32": 11,
    "float64": 12,
    "complex64": 13,
    "complex128": 14,
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


def test_the_codes_on_the_wire_are_the_ones_they_always_were() -> None:
    assert {name: code for name, (code, _) in TABLE.items()} | EXTENSION_TABLE == CODES
    assert len(set(CODES.values())) == len(CODES)


@pytest.mark.parametrize("name", TABLE)
def test_a_dtype_is_found_by_name_by_dtype_by_scalar_type_and_by_the_name_torch_prints(name: str) -> None:
    wanted = np.dtype(name)
    for value in (name, wanted, wanted.type, f"torch.{name}", wanted.str, wanted.char):
        assert as_dtype(value) == wanted
    assert from_code(code_of(wanted)) == wanted
    assert code_of(wanted) == CODES[name]


def test_constants_carry_the_names_of_the_table() -> None:
    for name, (_, dtype) in TABLE.items():
        assert getattr(dtypes, "bool_" if name == "bool" else name) is dtype
    assert np.float32 == dtypes.DEFAULT_DTYPE


def test_python_number_types_are_the_dtypes_they_are_in_numpy_and_torch() -> None:
    assert [as_dtype(kind).name for kind in (bool, int, float, complex)] == [
        "bool",
        "int64",
        "float64",
        "complex128",
    ]


def test_equal_dtypes_become_one_object() -> None:
    assert as_dtype(np.dtype("q")) is as_dtype(np.dtype("l")) is dtypes.int64
    assert as_dtype(np.dtype("f4", metadata={"unit": "m"})) is dtypes.float32


@pytest.mark.report("R111", "R112")
@pytest.mark.parametrize(
    ("value", "says"),
    [
        (object, "object holds Python objects"),
        ("O", "object holds Python objects"),
        (np.dtype([("a", "O")]), "Python objects"),
        ("U5", "<U5 holds strings"),
        ("S7", "S7 holds strings"),
        ("V3", "V3 holds strings or raw bytes"),
        (str, "strings"),
        ("datetime64[ns]", r"datetime64\[ns\] is a time.*int64"),
        ("m8[s]", r"timedelta64\[s\] is a time"),
        ("f4,i4", "f0.*is structured"),
        ([("a", "f4")], "is structured"),
        ("(2,)f4", "is structured"),
        (">f4", "byte order"),
        (np.longdouble, str(np.dtype(np.longdouble))),
        ("float33", "'float33' is not a dtype; known are bool,"),
        (3, "3 is not a dtype"),
        (None, "None"),
        ({"a": 1}, "is not a dtype"),
    ],
)
def test_what_cannot_be_shared_is_a_type_error_that_names_it_and_says_why(value: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        as_dtype(value)


def test_a_dtype_without_a_code_is_a_type_error() -> None:
    for wrong in (np.dtype("O"), np.dtype("M8[s]"), "float32", None):
        with pytest.raises(TypeError):
            code_of(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [0, -1, 15, 31, 41, 2**70, True, 1.0, None, "float32", (1,)])
def test_a_code_that_no_dtype_has_is_an_invalid_header(code: Any) -> None:
    with pytest.raises(InvalidHeader):
        from_code(code)


@pytest.mark.parametrize("name", EXTENSION_TABLE)
def test_dtypes_of_ml_dtypes_have_names_and_codes_like_the_others(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 and float8_* come with the package ml_dtypes")
    wanted = np.dtype(getattr(ml_dtypes, name))
    for value in (name, wanted, wanted.type, f"torch.{name}"):
        assert as_dtype(value) == wanted
    assert code_of(wanted) == CODES[name]
    assert from_code(CODES[name]) == wanted
    assert dtypes.is_floating_point(wanted)
    assert not dtypes.is_complex(wanted)


@pytest.mark.report("R112")
def test_without_ml_dtypes_bfloat16_is_an_import_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    monkeypatch.setattr(dtypes, "_DTYPES", {})
    for act in (lambda: as_dtype("bfloat16"), lambda: from_code(32), lambda: dtypes.extension("bfloat16")):
        with pytest.raises(ImportError, match="bfloat16 needs the package ml_dtypes: pip install"):
            act()


def test_other_dtypes_of_ml_dtypes_are_refused_by_name() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="int4 comes with the package ml_dtypes")
    with pytest.raises(TypeError, match="int4"):
        as_dtype(ml_dtypes.int4)


def test_torch_dtypes_are_known_by_what_they_print() -> None:
    torch = pytest.importorskip("torch", reason="torch dtypes come with the extra 'torch'")
    for name in TABLE:
        assert as_dtype(getattr(torch, name)) == np.dtype(name)
    assert as_dtype(torch.half) == np.float16
    for wrong in (torch.qint8, torch.complex32):
        with pytest.raises(TypeError, match=r"torch\."):
            as_dtype(wrong)


def test_kinds_are_those_that_torch_reports() -> None:
    torch = pytest.importorskip("torch", reason="torch is the oracle for the kinds of dtypes")
    names = [name for name in CODES if hasattr(torch, name)]
    pytest.importorskip("ml_dtypes", reason="some of the names need the package ml_dtypes")
    for name in names:
        ours, theirs = as_dtype(name), getattr(torch, name)
        assert dtypes.is_floating_point(ours) == theirs.is_floating_point, name
        assert dtypes.is_complex(ours) == theirs.is_complex, name
        assert dtypes.is_signed(ours) == theirs.is_signed, name
        assert ours.itemsize == theirs.itemsize, name
