"""Every kind of write, as one table for tests here and for the programs that tests start (`runpy.run_path`).

Each entry writes to a matrix of float32 of shape (3, 4), in whatever way, where it may.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np

import shmtensor as st

MASK = np.array([[True, False, True, False]] * 3)


def _set(key: Any) -> Any:
    return lambda t: t.__setitem__(key, 9)


def _set_view(view: Any) -> Any:
    return lambda t: view(t).fill_(9)


class Foreign:
    """Something that only speaks the array interface."""

    def __init__(self, tensor: Any) -> None:
        self.__array_interface__ = tensor.__array_interface__


def _made_writable(array: Any) -> None:
    array.flags.writeable = True


# The writes of a tensor, and through what NumPy offers.
WRITES: dict[str, Any] = {
    "t[0]": _set(0),
    "t[1, 2]": _set((1, 2)),
    "t[1:]": _set(slice(1, None)),
    "t[...]": _set(...),
    "t[None]": _set(None),
    "t[[0, 2]]": _set([0, 2]),
    "t[mask]": _set(MASK),
    "t[True]": _set(True),
    "t[0, [1]]": _set((0, [1])),
    "t[tensor]": lambda t: t.__setitem__(st.tensor([1]), 9),
    "t[0-d tensor]": lambda t: t.__setitem__(st.tensor(1), 9),
    "t[0] = tensor": lambda t: t.__setitem__(0, st.full((4,), 9)),
    "t[1:1]": _set(slice(1, 1)),
    "fill_": lambda t: t.fill_(9),
    "zero_": lambda t: t.zero_(),
    "copy_": lambda t: t.copy_(st.full((3, 4), 9)),
    "copy_ of a number": lambda t: t.copy_(9),
    "masked_fill_": lambda t: t.masked_fill_(MASK, 9),
    "index_fill_": lambda t: t.index_fill_(0, [0], 9),
    "index_copy_": lambda t: t.index_copy_(0, [0], np.full((1, 4), 9)),
    "resize_": lambda t: t.resize_(1000, 1000),
    "resize_ to less": lambda t: t.resize_(2, 2),
    "+=": lambda t: t.__iadd__(9),
    "*=": lambda t: t.__imul__(9),
    "**=": lambda t: t.__ipow__(2),
    "**= tensor": lambda t: t.__ipow__(st.full((4,), 2)),
    "out=": lambda t: np.add(t, 9, out=t),
    "out=(t,)": lambda t: np.add(1, 9, out=(t,)),
    "out= where=": lambda t: np.add(t, 9, out=t, where=MASK),
    "out= of a reduction": lambda t: np.sum(np.ones((2, 3, 4)), axis=0, out=t),
    "out= of a function": lambda t: np.clip(t, 8, 9, out=t),
    "second out=": lambda t: np.modf(np.ones((3, 4)), out=(None, t)),
    "ufunc.at": lambda t: np.add.at(t, [0], 9),
    "np.copyto": lambda t: np.copyto(t, 9),
    "np.put": lambda t: np.put(t, [0], 9),
    "np.place": lambda t: np.place(t, MASK, [9]),
    "np.putmask": lambda t: np.putmask(t, MASK, 9),
    "np.fill_diagonal": lambda t: np.fill_diagonal(t, 9),
    "np.put_along_axis": lambda t: np.put_along_axis(t, np.array([[0]]), 9, 0),
    # Views of it.
    "view": _set_view(lambda t: t.view(12)),
    "view(dtype)": _set_view(lambda t: t.view("uint8")),
    "t()": _set_view(lambda t: t.t()),
    "detach": _set_view(lambda t: t.detach()),
    "slice": _set_view(lambda t: t[1:, ::2]),
    "element": _set_view(lambda t: t[1, 2]),
    "reshape": _set_view(lambda t: t.reshape(2, 6)),
    "contiguous": _set_view(lambda t: t.contiguous()),
    "to": _set_view(lambda t: t.to("float32")),
    "real": _set_view(lambda t: t.real),
    "iteration": _set_view(lambda t: next(iter(t))),
    "unbind": _set_view(lambda t: t.unbind(1)[0]),
    "split": _set_view(lambda t: t.split(2)[0]),
    "as_strided": _set_view(lambda t: t.as_strided((2,), (1,))),
    "set_": _set_view(lambda t: st.zeros(1).set_(t)),
    "set_ of a part": _set_view(lambda t: st.zeros(1).set_(t, 0, (2,), (1,))),
    "as_strided_": _set_view(lambda t: t[0].as_strided_((2,), (1,))),
    "broadcast_tensors": _set_view(lambda t: st.broadcast_tensors(t)[0]),
    "np.transpose": _set_view(np.transpose),
    "np.split": _set_view(lambda t: np.split(t, 3)[1]),
    "from_numpy": _set_view(lambda t: st.from_numpy(t.numpy())),
    "from_dlpack": _set_view(lambda t: st.from_dlpack(np.from_dlpack(t))),
    "as_tensor of a memoryview": _set_view(lambda t: st.as_tensor(t.memoryview())),
    # Exports.
    "numpy": lambda t: t.numpy().fill(9),
    "numpy, made writable": lambda t: _made_writable(t.numpy()),
    "its view, made writable": lambda t: _made_writable(t.numpy()[1:].T.view()),
    "its base, made writable": lambda t: _made_writable(t.numpy().base),
    "asarray": lambda t: np.asarray(t).fill(9),
    "asarray, made writable": lambda t: _made_writable(np.asarray(t)),
    "memoryview": lambda t: t.memoryview().cast("B").__setitem__(0, 9),
    "its array, made writable": lambda t: _made_writable(np.asarray(t.memoryview())),
    "dlpack": lambda t: np.from_dlpack(t).fill(9),
    "dlpack, made writable": lambda t: _made_writable(np.from_dlpack(t)),
    "array interface": lambda t: np.asarray(Foreign(t)).fill(9),
    "array interface, made writable": lambda t: _made_writable(np.asarray(Foreign(t))),
    "dlpack without the flag": lambda t: np.from_dlpack(OldConsumer(t)).fill(9),
    "typed storage": lambda t: t.storage().__setitem__(0, 9),
    "slice of the typed storage": lambda t: t.storage()[1:].fill_(9),
    "copy_ of the typed storage": lambda t: t.storage().copy_(np.full(12, 9)),
    "resize_ of the typed storage": lambda t: t.storage().resize_(1000),
    "pickled": lambda t: pickle.loads(pickle.dumps(t)).fill_(9),
    "header": lambda t: t.header().open().fill_(9),
    "copy.copy": lambda t: copy.copy(t).fill_(9),
}

# Of these a writable tensor keeps its bytes: nothing is there to write, or only leave to write is asked for.
HARMLESS = {"t[1:1]", "resize_ to less", "dlpack without the flag", *(name for name in WRITES if "made" in name)}

# What a sealed storage refuses, too, and a read-only view of an open storage doesn't: the storage is open.
STORAGE_WRITES: dict[str, Any] = {
    "s[0]": lambda t: t.untyped_storage().__setitem__(0, 9),
    "s[1:]": lambda t: t.untyped_storage().__setitem__(slice(1, None), 9),
    "s.fill_": lambda t: t.untyped_storage().fill_(9),
    "s.copy_": lambda t: t.untyped_storage().copy_(bytes(48)),
    "s.resize_": lambda t: t.untyped_storage().resize_(4),
    "s.memoryview": lambda t: t.untyped_storage().memoryview().__setitem__(0, 9),
    "s[:].fill_": lambda t: t.untyped_storage()[:].fill_(9),
    "set_ to the storage": lambda t: st.zeros(1).set_(t.untyped_storage()).fill_(9),
    "s, sent": lambda t: pickle.loads(pickle.dumps(t.untyped_storage())).fill_(9),
}


class OldConsumer:
    """Asks for DLPack without saying a version, as those do that know no read-only flag."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        return self.tensor.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()


def not_effective(make: Any) -> set[str]:
    """The writes of `WRITES` and `STORAGE_WRITES` that change nothing of a writable tensor, each time a new one."""
    unchanged = set()
    for name, write in (WRITES | STORAGE_WRITES).items():
        tensor = make()
        before = bytes(tensor.untyped_storage())
        try:
            write(tensor)
        except ValueError:
            assert name in HARMLESS, name
        if bytes(tensor.untyped_storage()) == before:
            unchanged.add(name)
    return unchanged


def not_refused(tensor: Any, writes: dict[str, Any]) -> list[str]:
    """The writes that did not raise, or that changed a byte."""
    before = bytes(tensor.untyped_storage()), tensor.shape
    passed = []
    for name, write in writes.items():
        try:
            write(tensor)
        except (ValueError, TypeError, BufferError):
            pass
        else:
            passed.append(name)
        if (bytes(tensor.untyped_storage()), tensor.shape) != before:
            passed.append(f"{name} changed it")
            break
    return passed
