"""What each hot path costs, as counts: they are the same on a busy machine, and a change that makes one worse fails.

The numbers are the most that is allowed, and what was counted when they were written. Who makes one smaller writes the
smaller one down.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

import shmtensor as st
from allocator import default
from allocator.system import locks

PACKAGES = tuple(str(Path(st.__file__).parents[1] / name) for name in ("allocator", "shmtensor"))
SYSTEM_MODULES = ("posix", "fcntl", "mmap")
WARM_UPS, REPEATS, MANY = 4, 6, 640
Operation = Callable[[], object]


class Counts(NamedTuple):
    """What an operation does."""

    calls: int  # of Python functions of ours
    mutex: int  # how often it takes the lock of this process
    pool_lock: int  # and the lock that all processes share
    system_calls: int  # by functions of C that our code names; tests/system/test_system_calls.py asks the kernel


class CountingMutex:
    """In the place of MUTEX: the same lock, counting."""

    def __init__(self, lock: Any) -> None:
        self.taken = 0
        self.lock = lock

    def acquire(self, *how: Any) -> bool:
        self.taken += 1
        return bool(self.lock.acquire(*how))

    def release(self) -> None:
        self.lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch, pool: st.Pool) -> Callable[[Operation], Counts]:
    """Counts what one call of an operation does, in a default pool of its own."""
    monkeypatch.setattr(default._Default, "pool", pool)
    mutex = CountingMutex(locks.MUTEX)
    for module in list(sys.modules.values()):
        if getattr(module, "MUTEX", None) is mutex.lock:
            monkeypatch.setattr(module, "MUTEX", mutex)

    def run(operation: Operation) -> Counts:
        functions = system_calls = lockf = 0

        def watch(frame: FrameType, event: str, function: Any) -> None:
            nonlocal functions, system_calls, lockf
            if event == "call":
                functions += is_ours(frame)
            elif event == "c_call" and (function.__module__ or type(function.__self__).__module__) in SYSTEM_MODULES:
                system_calls += 1
                lockf += function.__name__ == "lockf"

        mutex.taken = 0
        sys.setprofile(watch)
        try:
            operation()
        finally:
            sys.setprofile(None)
        return Counts(functions, mutex.taken, lockf // 2, system_calls)

    return run


def is_ours(frame: FrameType) -> bool:
    """Whether it runs a function of ours. A comprehension is one before Python 3.12 only."""
    return frame.f_code.co_filename.startswith(PACKAGES) and not frame.f_code.co_name.startswith("<")


# ---- one operation


def make_look_free(nbytes: int) -> Callable[[], Operation]:
    return lambda: lambda: st.empty((nbytes,), dtype="uint8").numpy()


def send_first() -> Operation:
    tensors = [st.empty((256,)) for _ in range(WARM_UPS + REPEATS)]
    return lambda: ForkingPickler.dumps(tensors.pop())


def on_matrix(operation: Callable[[st.Tensor], object]) -> Callable[[], Operation]:
    def setup() -> Operation:
        tensor = st.empty((8, 256))
        return lambda: operation(tensor)

    return setup


def open_look_drop() -> Operation:
    messages = [bytes(ForkingPickler.dumps(st.empty((256,)))) for _ in range(WARM_UPS + REPEATS)]
    return lambda: pickle.loads(messages.pop()).numpy()


def open_what_is_open() -> Operation:
    tensor = st.empty((256,))
    messages = [bytes(ForkingPickler.dumps(tensor)) for _ in range(WARM_UPS + REPEATS)]
    return lambda: (pickle.loads(messages.pop()), tensor)


OPERATIONS: dict[str, tuple[Callable[[], Operation], Counts]] = {
    "make, look at and free 1 KiB": (make_look_free(1 << 10), Counts(16, 0, 0, 0)),
    "make, look at and free 256 KiB": (make_look_free(256 << 10), Counts(16, 0, 0, 0)),
    "make, look at and free 16 MiB": (make_look_free(16 << 20), Counts(56, 3, 2, 8)),
    "send for the first time": (send_first, Counts(6, 1, 0, 0)),
    "send again": (on_matrix(ForkingPickler.dumps), Counts(4, 0, 0, 0)),
    "take a row and send it": (on_matrix(lambda t: ForkingPickler.dumps(t[3])), Counts(15, 0, 0, 0)),
    "open, look and drop": (open_look_drop, Counts(10, 1, 0, 0)),
    "open what is open here": (open_what_is_open, Counts(5, 1, 0, 0)),
    "t.numpy()": (on_matrix(lambda t: t.numpy()), Counts(4, 0, 0, 0)),
    "t[3]": (on_matrix(lambda t: t[3]), Counts(10, 0, 0, 0)),
    "t[2:5]": (on_matrix(lambda t: t[2:5]), Counts(11, 0, 0, 0)),
    "t[3, 4:8]": (on_matrix(lambda t: t[3, 4:8]), Counts(9, 0, 0, 0)),
    "t.transpose(0, 1)": (on_matrix(lambda t: t.transpose(0, 1)), Counts(11, 0, 0, 0)),
    "t.permute(1, 0)": (on_matrix(lambda t: t.permute(1, 0)), Counts(6, 0, 0, 0)),
    "t.view(16, 128)": (on_matrix(lambda t: t.view(16, 128)), Counts(8, 0, 0, 0)),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_makes_as_many_calls_as_it_did(name: str, count: Callable[[Operation], Counts]) -> None:
    setup, known = OPERATIONS[name]
    operation = setup()
    for _ in range(WARM_UPS):
        operation()
    found = min(count(operation) for _ in range(REPEATS))  # now and then one stocks up for many
    assert found == known, f"{name}: lower what is known if it got better"


# ---- many operations, with what is done once for some of them


def test_many_messages_take_the_lock_of_all_processes_once_in_a_batch_of_rows(
    count: Callable[[Operation], Counts],
) -> None:
    def run() -> None:
        for _ in range(MANY):
            tensor = st.empty((256,))
            message = ForkingPickler.dumps(tensor)
            del tensor
            pickle.loads(message).numpy()

    run()
    found = count(run)
    # Reference rows, three for a message, come up to 512 at a time; slots that others let go of, 64 at a time.
    assert found.pool_lock <= 40
    assert found.mutex <= 2 * MANY + 70  # once for the record, once for opening, and around those sections
    assert found.system_calls <= 4 * found.pool_lock  # lock, two questions of the fence, unlock


def test_allocating_takes_no_lock_however_much_lives(count: Callable[[Operation], Counts]) -> None:
    kept = [st.empty((1024,), dtype="uint8") for _ in range(1000)]
    del kept[::3]  # holes all over
    found = count(lambda: [st.empty((1024,), dtype="uint8") for _ in range(300)])
    assert found[1:] == (0, 0, 0)


# ---- what travels


# Bytes beside the pool's name.
PICKLES: dict[str, tuple[Callable[[st.Tensor], object], int]] = {
    "a tensor": (lambda t: t, 85),
    "a row": (lambda t: t[3], 93),
    "a transposed view": (lambda t: t.T, 97),
    "ten rows": (lambda t: list(t[:10]), 321),
    "a storage": (lambda t: t.untyped_storage(), 70),
}


@pytest.mark.parametrize("what", PICKLES)
def test_a_message_is_no_longer_than_it_was(what: str, pool: st.Pool) -> None:
    pick, most = PICKLES[what]
    value = pick(st.zeros((16, 256), pool=pool))
    assert len(ForkingPickler.dumps(value)) - len(pool.name) <= most
