"""What comes in is copied, unless its memory is in a pool already: then it is aliased. ``copy=`` insists on one."""

from __future__ import annotations

import array as array_module
from typing import Any

import numpy as np
import pytest

import shmtensor as st

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

needs_torch = pytest.mark.skipif(torch is None, reason="torch is optional")
# float8_e5m2 is the one that NumPy takes for a float of its own, of one byte.
EXTENSIONS = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


class Foreign:
    """Something that only speaks the array interface."""

    def __init__(self, source: Any) -> None:
        self.source, self.__array_interface__ = source, source.__array_interface__


def frozen(array: Any) -> Any:
    array.flags.writeable = False
    return array


def numbers() -> Any:
    return np.arange(12, dtype="int32").reshape(3, 4)


def raw(source: Any, **options: Any) -> st.Tensor:
    return st.frombuffer(source, dtype="int32", **options)


# name -> (a function of this library, what it takes, in memory of its own)
ELSEWHERE: dict[str, Any] = {
    "array": (st.from_numpy, numbers),
    "array, as_tensor": (st.as_tensor, numbers),
    "array, dlpack": (st.from_dlpack, numbers),
    "array's buffer": (raw, numbers),
    "read-only array": (st.from_numpy, lambda: frozen(numbers())),
    "read-only array, dlpack": (st.from_dlpack, lambda: frozen(numbers())),
    "transposed": (st.from_numpy, lambda: numbers().T),
    "negative strides": (st.from_numpy, lambda: numbers()[::-1, ::-2]),
    "negative strides, dlpack": (st.from_dlpack, lambda: numbers()[::-1]),
    "stride 0": (st.from_numpy, lambda: np.broadcast_to(np.int32(3), (2, 2))),
    "unaligned": (st.from_numpy, lambda: np.arange(17, dtype="uint8")[1:].view("int32")),
    "no elements": (st.from_numpy, lambda: numbers()[:0]),
    "0-d": (st.from_numpy, lambda: np.array(3)),
    "array interface": (st.as_tensor, lambda: Foreign(numbers())),
    "bytes": (raw, lambda: bytes(range(8))),
    "bytearray": (raw, lambda: bytearray(range(8))),
    "memoryview": (raw, lambda: memoryview(bytearray(range(8)))),
    "memoryview, as_tensor": (st.as_tensor, lambda: memoryview(bytearray(range(8)))),
    "array of the standard library": (st.as_tensor, lambda: array_module.array("i", [1, 2, 3])),
    "list": (st.as_tensor, lambda: [[1, 2], [3, 4]]),
    "number": (st.as_tensor, lambda: 3.5),
}

# The same over memory of a tensor: (function, what it takes of the tensor, the view of the tensor that comes out)
IN_A_POOL: dict[str, Any] = {
    "tensor": (st.as_tensor, lambda t: t, lambda t: t),
    "tensor, dlpack": (st.from_dlpack, lambda t: t, lambda t: t),
    "array": (st.from_numpy, lambda t: t.numpy(), lambda t: t),
    "array, dlpack": (st.from_dlpack, lambda t: t.numpy(), lambda t: t),
    "array's buffer": (raw, lambda t: t.numpy(), lambda t: t.view(12)),
    "part of a buffer": (lambda s, **o: raw(s, offset=8, count=4, **o), lambda t: t.numpy(), lambda t: t.view(12)[2:6]),
    "read-only array": (st.from_numpy, lambda t: t.readonly().numpy(), lambda t: t),
    "read-only array, dlpack": (st.from_dlpack, lambda t: t.readonly().numpy(), lambda t: t),
    "slice": (st.from_numpy, lambda t: t.numpy()[1:, ::2], lambda t: t[1:, ::2]),
    "transposed": (st.from_numpy, lambda t: t.numpy().T, lambda t: t.t()),
    "stride 0": (st.from_numpy, lambda t: np.broadcast_to(t.numpy()[0], (2, 4)), lambda t: t[0].expand(2, 4)),
    "other dtype": (st.from_numpy, lambda t: t.numpy().view("uint8"), lambda t: t.view("uint8")),
    "0-d": (st.from_numpy, lambda t: t.numpy()[1, 2, ...], lambda t: t[1, 2]),
    "array interface": (st.as_tensor, Foreign, lambda t: t),
    "memoryview": (st.as_tensor, lambda t: t.memoryview(), lambda t: t),
    "slice of a memoryview": (st.as_tensor, lambda t: t.memoryview()[1:], lambda t: t[1:]),
    "read-only memoryview": (raw, lambda t: t.memoryview().toreadonly(), lambda t: t.view(12)),
    "storage's memoryview": (raw, lambda t: t.untyped_storage().memoryview(), lambda t: t.view(12)),
    "array by dlpack": (st.as_tensor, np.from_dlpack, lambda t: t),
    "slice of an array by dlpack": (st.from_numpy, lambda t: np.from_dlpack(t)[1:], lambda t: t[1:]),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_memory_that_is_elsewhere_is_copied_in_and_copy_false_says_why_it_would_have_to_be(name: str) -> None:
    take, make = ELSEWHERE[name]
    for copy in (None, True):
        source = make()
        made = take(source, copy=copy)
        expected = np.frombuffer(source, "int32") if take is raw else np.asarray(source)
        assert np.array_equal(made.numpy().reshape(expected.shape), expected)
        assert not np.shares_memory(made.numpy(), expected)
        assert not made.is_readonly()
        assert min(made.stride(), default=1) >= 1  # neither negative nor repeating (rule 15)
        made.fill_(9)  # and it can be written, whatever it came from
    with pytest.raises(ValueError, match=r"without a copy"):
        take(make(), copy=False)


@pytest.mark.parametrize("name", IN_A_POOL)
def test_memory_that_is_in_a_pool_is_aliased_unless_copy_is_true(name: str) -> None:
    take, make, view = IN_A_POOL[name]
    tensor = st.as_tensor(numbers())
    source, expected = make(tensor), view(tensor)
    read_only = "read-only" in name or "stride 0" in name  # NumPy's broadcast arrays are, too
    for copy in (None, False):
        made = take(source, copy=copy)
        assert made.is_set_to(expected)
        assert made.dtype == expected.dtype
        assert made.untyped_storage() is tensor.untyped_storage()
        assert made.is_readonly() == read_only
    made = take(source, copy=True)
    assert made.tolist() == expected.tolist()
    assert made.untyped_storage() is not tensor.untyped_storage()
    assert not made.is_readonly()


def test_arrays_of_a_pool_with_negative_or_odd_strides_are_copied_in() -> None:
    tensor = st.as_tensor(numbers())
    bytes_of = tensor.view(12).view("uint8").numpy()
    for source in (tensor.numpy()[::-1], np.flip(tensor.numpy()), bytes_of[1:9].view("int32")):
        made = st.from_numpy(source)
        assert np.array_equal(made.numpy(), source)
        assert made.untyped_storage() is not tensor.untyped_storage()
        with pytest.raises(ValueError, match="strides"):
            st.from_numpy(source, copy=False)


@pytest.mark.parametrize("name", EXTENSIONS)
def test_dtypes_of_ml_dtypes_come_in_and_are_aliased_like_the_others(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason=f"{name} comes with ml_dtypes")
    array = np.array([[1, 2], [0.5, 4]]).astype(getattr(ml_dtypes, name))
    for made in (st.from_numpy(array), st.as_tensor(array.T).t(), st.tensor(array), st.from_numpy(array[::-1]).flip(0)):
        assert (made.dtype, made.tolist()) == (array.dtype, [[1, 2], [0.5, 4]])
    assert st.frombuffer(array.tobytes(), dtype=name).tolist() == [1, 2, 0.5, 4]
    with pytest.raises(ValueError, match="without a copy"):
        st.from_numpy(array, copy=False)
    tensor = st.from_numpy(array)
    assert st.from_numpy(tensor.numpy()[1:], copy=False).is_set_to(tensor[1:])
    assert st.frombuffer(tensor.view("uint8").memoryview(), dtype=name, copy=False).is_set_to(tensor.view(4))
    with pytest.raises(BufferError, match="uint8"):
        tensor.memoryview()
    with pytest.raises(BufferError):
        tensor.__dlpack__()
    assert not hasattr(tensor, "__array_interface__")


@needs_torch
@pytest.mark.parametrize("name", ["int32", "float64", "complex64", "bool", *EXTENSIONS])
def test_tensors_of_torch_are_copied_in_or_aliased_by_the_same_rule(name: str) -> None:
    if name in EXTENSIONS:
        pytest.importorskip("ml_dtypes", reason=f"{name} comes with ml_dtypes")
    own = torch.ones(3, 4).to(getattr(torch, name))
    for take in (st.as_tensor, st.from_dlpack):
        for source in (own, own.t(), own[1:, ::2]):
            for copy in (None, True):
                made = take(source, copy=copy)
                assert (made.dtype.name, made.shape) == (name, source.shape)
                assert made.data_ptr() != source.data_ptr()
                assert made.to("complex64").tolist() == np.ones(made.shape).tolist()
            with pytest.raises(ValueError, match="without a copy"):
                take(source, copy=False)
    tensor = st.ones((3, 4), dtype=name)
    for take in (st.as_tensor, st.from_dlpack):
        for view in (lambda t: t, lambda t: t.t(), lambda t: t[1:, ::2]):
            source = view(tensor.torch())
            for copy in (None, False):
                assert take(source, copy=copy).is_set_to(view(tensor))
            assert take(source, copy=True).untyped_storage() is not tensor.untyped_storage()


@needs_torch
def test_a_torch_tensor_of_a_pool_is_known_again_by_whatever_way_it_went() -> None:
    tensor = st.as_tensor(numbers())
    ways: list[Any] = [
        lambda t: t.torch(),
        torch.from_dlpack,
        lambda t: torch.from_numpy(t.numpy()),
        lambda t: torch.from_dlpack(t.numpy()),
        lambda t: torch.frombuffer(t.memoryview(), dtype=torch.int32).view(3, 4),
        lambda t: torch.from_numpy(np.from_dlpack(t)),
    ]
    for way in ways:
        shared = way(tensor)
        assert st.as_tensor(shared, copy=False).is_set_to(tensor)
        assert st.from_dlpack(shared[1:].t(), copy=False).is_set_to(tensor[1:].t())
        assert not st.as_tensor(shared).is_readonly()


@needs_torch
def test_torch_ignores_that_dlpack_says_read_only_but_what_comes_back_is_read_only_again() -> None:
    tensor = st.as_tensor(numbers())
    shared = torch.from_dlpack(tensor.readonly())
    again = st.as_tensor(shared, copy=False)
    assert again.is_set_to(tensor)
    assert again.is_readonly()
    writable = tensor.torch()
    assert not st.as_tensor(writable).is_readonly()


def test_what_went_out_by_torch_or_dlpack_is_known_again_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = st.as_tensor(numbers())
    out = [np.from_dlpack(tensor), *([tensor.torch(), torch.from_dlpack(tensor[1:])] if torch else [])]
    monkeypatch.setattr("gc.get_objects", lambda: pytest.fail("all objects of this process were looked through"))
    for each in out:
        assert st.as_tensor(each).untyped_storage() is tensor.untyped_storage()
        assert st.as_tensor(each[1:]).untyped_storage() is tensor.untyped_storage()


def test_an_export_of_a_storage_that_is_gone_is_never_taken_for_the_next_one_at_its_place() -> None:
    tensor = st.as_tensor(numbers())
    address = tensor.data_ptr()
    capsule = tensor.__dlpack__()  # its address is noted
    del tensor, capsule
    others = [st.full((3, 4), 7, dtype="int32") for _ in range(3)]
    (other,) = [each for each in others if each.data_ptr() == address]
    assert st.as_tensor(np.from_dlpack(other)).untyped_storage() is other.untyped_storage()


def test_dlpack_keeps_to_what_the_consumer_asks_for() -> None:
    tensor = st.as_tensor(numbers())
    assert "dltensor_versioned" in repr(tensor.__dlpack__(max_version=(1, 1)))
    assert "dltensor_versioned" not in repr(tensor.__dlpack__(max_version=(0, 8)))
    assert "dltensor_versioned" not in repr(tensor.__dlpack__())
    assert np.shares_memory(np.from_dlpack(tensor, device="cpu"), tensor.numpy())
    assert np.shares_memory(np.from_dlpack(tensor, copy=False), tensor.numpy())
    assert not np.shares_memory(np.from_dlpack(tensor, copy=True), tensor.numpy())
    assert tensor.__dlpack_device__() == (1, 0)
    tensor.__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError, match="device"):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises((RuntimeError, ValueError), match="stream"):  # ValueError since NumPy 2.5
        tensor.__dlpack__(stream=1)
