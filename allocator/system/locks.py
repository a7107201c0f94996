"""The critical section, in its one shape; and the bytes that say which clients live.

Both are POSIX record locks on the pool's lock file, which the kernel drops when their process dies, however it dies:
byte 0 is the pool's lock, byte 64 + s says that the client in slot s lives. They are lost when *any* descriptor of that
file closes in this process, so there is one descriptor per pool, moved out of the way of `os.closerange`.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import sys
from _thread import RLock, allocate_lock
from collections.abc import Callable
from fcntl import LOCK_EX, LOCK_UN, lockf
from gc import disable, enable, isenabled
from os import SEEK_CUR, getpid, lseek
from typing import Any, Final, TypeVar, TypeVarTuple

from allocator.core.format import MAX_CLIENTS, OWNER_MASK, Header
from allocator.errors import AllocatorError, CorruptPool, PoolReentered
from allocator.system.files import open_own

Result = TypeVar("Result")
Args = TypeVarTuple("Args")

DIRTY: Final = Header.DIRTY
_LIVENESS_BYTE: Final = 64
_FLOCK: Final = "hhqqi4x"  # struct flock: type, whence, start, length, pid


_INSIDE: Final = [False]
"""Whether this process is inside a critical section, of any pool. Only changed under MUTEX."""


class Mutex(RLock):  # type: ignore[misc]  # in C it is no final class
    """The re-entrant lock of C, taken and released without a line of ours."""

    __slots__ = ()


class LastMutex(Mutex):  # type: ignore[misc]
    """The same once the exit hook has run. When the interpreter comes to its end, one thread is left that runs. Daemon
    threads stay where they are for ever, with what locks they have: this one is taken from them, or a finalizer that
    uses a pool would wait until somebody kills it.
    """

    __slots__ = ()

    def __enter__(  # type: ignore[override]  # at exit globals go first
        self,
        is_ending: Callable[[], bool] = sys.is_finalizing,
        inside: list[bool] = _INSIDE,
        take: Callable[[Any], Any] = RLock.__enter__,
    ) -> Any:
        if is_ending() and not self._is_owned():  # type: ignore[attr-defined]  # as `threading.Condition` asks
            self._at_fork_reinit()  # type: ignore[attr-defined]  # as `threading` does in a fork's child
            inside[0] = False
        return take(self)


MUTEX: Final = Mutex()
"""One lock for all pools of a process. Record locks belong to processes, not threads: two pools locked by two threads
of two processes would look like a deadlock to the kernel. It is the re-entrant one only so that a signal handler that
comes in again is told so (`PoolReentered`) rather than left waiting for itself.
"""
is_mutex_owned: Final[Callable[[], bool]] = MUTEX._is_owned  # type: ignore[attr-defined]  # as `threading.Condition` asks
"""Whether this thread has MUTEX."""


_MADV_WIPEONFORK: Final = 18  # Linux 4.14; the mmap module doesn't name it


def _page_wiped_by_forks() -> memoryview:
    page = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    try:
        page.madvise(_MADV_WIPEONFORK)
    except OSError:
        pass  # an older kernel: only what takes the lock is fenced there
    page[0] = 1
    return memoryview(page)


AWAKE: Final = _page_wiped_by_forks()
"""Byte 0 is 0 in a child until our hooks have run there: what takes no lock asks it. A library that forks in C runs
none, and the parent's lists, rows and slots aren't such a child's.
"""

FORKING: Final[list[bool]] = []
"""Not empty from before a fork until this side of it has what is its own. Emptied by a hook that is a function of C:
one of ours can be cut short by a signal before its first line.
"""


class PoolLock:
    """The lock file of one pool, open in this process."""

    __slots__ = ("descriptor", "sign")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.sign = 1 << 61 | os.fstat(descriptor).st_ino & 0xFFFFFFFF
        os.lseek(descriptor, self.sign, os.SEEK_SET)

    def is_ours(self) -> bool:
        """Whether the descriptor still is the lock file: someone may have closed it and reused the number.

        Its file position is the sign, at a tenth of the price of `fstat`: nobody else's file stands there.
        """
        try:
            return os.lseek(self.descriptor, 0, os.SEEK_CUR) == self.sign
        except OSError:
            return False

    def is_linked(self) -> bool:
        """Whether the lock file still has its name: without one the pool is gone, whatever was opened."""
        return os.fstat(self.descriptor).st_nlink > 0

    def live(self, slot: int) -> None:
        """Say that the client in `slot` lives, for as long as this process does."""
        try:
            fcntl.lockf(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _LIVENESS_BYTE + slot)
        except BlockingIOError:
            raise CorruptPool(f"another process lives in slot {slot}, which was free: recreate the pool") from None

    def lives(self, slot: int) -> bool:
        """Whether another process holds the slot's byte. Asked without taking it: its own child could lose it to us."""
        return self._is_held(_LIVENESS_BYTE + slot, 1)

    def anyone_lives(self) -> bool:
        """Whether another process holds any client's byte."""
        return self._is_held(_LIVENESS_BYTE, MAX_CLIENTS)

    def _is_held(self, start: int, length: int) -> bool:
        question = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
        answer = fcntl.fcntl(self.descriptor, fcntl.F_GETLK, question)
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


class Guarded:
    """What the critical section protects: subclassed by the shared side of a pool.

    Everything that the way in looks at lies in this one object, since a process that waited finds its caches cold.
    """

    __slots__ = ("at", "client_words", "due", "header", "lock", "owner", "pid")

    def __init__(self, lock: PoolLock, header: memoryview, client_words: memoryview) -> None:
        self.lock = lock
        self.header = header
        self.client_words = client_words
        self.pid = -1  # whose place this is; -1, which no process has, once the pool is closed here
        self.at = 0  # index of the word of its client slot
        self.owner = 0  # what that word must name
        self.due = False  # whether there is something to catch up with at the next entry

    def section(self, body: Callable[[*Args], Result], *args: *Args) -> Result:
        """`body(*args)` inside the critical section. What is expected comes back as a value, not as an exception.

        Its shape is what survives signals: `with MUTEX` on the bare C lock, then `try` with the unlock in `finally`; a
        context manager of ours would stay locked when Ctrl-C hits between its lines. The collector is off inside, since
        users' finalizers would otherwise run there. The dirty word is cleared by the last statement of the body, never
        in `finally`: what was cut short stays marked, and whoever enters next repairs it.

        Raises
        ------
        PoolClosed
            The pool was closed here, or this process lost its place in it.
        CorruptPool
            The tables hold numbers that can't be.
        """
        with MUTEX:
            if _INSIDE[0]:
                raise PoolReentered(
                    "the pool was used by a signal handler or finalizer inside its own critical section"
                )
            collecting, header, lock = isenabled(), self.header, self.lock
            try:
                disable()
                _INSIDE[0] = True
                try:
                    lockf(lock.descriptor, LOCK_EX, 1)  # one byte, at 0
                except OSError as error:
                    self._lock_again(error)
                # The fence: pid, slot generation and descriptor are still ours.
                if (
                    self.pid != getpid()
                    or self.client_words[self.at] & OWNER_MASK != self.owner
                    or lseek(lock.descriptor, 0, SEEK_CUR) != lock.sign
                ):
                    self.check_open()
                if header[DIRTY]:
                    self.repair()
                header[DIRTY] = 1
                if self.due:
                    self.catch_up()
                result = body(*args)
                header[DIRTY] = 0
                return result
            except AllocatorError:
                raise
            except (ArithmeticError, IndexError, TypeError, ValueError) as error:  # arguments were checked outside
                raise CorruptPool(
                    f"a table holds a number that can't be ({error}): something wrote into it; recreate the pool"
                ) from error
            finally:
                _INSIDE[0] = False
                try:
                    lockf(lock.descriptor, LOCK_UN, 1)
                except OSError:
                    pass  # the descriptor is closed, which the fence has told, and no lock is left to give back
                finally:
                    if collecting:
                        enable()

    def _lock_again(self, error: OSError) -> None:
        while True:
            self.check_open()
            if error.errno != errno.EDEADLK:  # the kernel's guess; wrong here, since no one waits for a second lock
                raise error
            try:
                lockf(self.lock.descriptor, LOCK_EX, 1)
                return
            except OSError as again:
                error = again

    def check_open(self) -> None:
        """Raise PoolClosed, saying why, unless the pool is ours."""
        raise NotImplementedError

    def repair(self) -> None:
        """A holder of the lock died, or was interrupted, half-way."""
        raise NotImplementedError

    def catch_up(self) -> None:
        """Do what could not be done when it fell due."""
        raise NotImplementedError


def try_under_mutex(body: Callable[[*Args], Any], *args: *Args) -> bool:
    """`body(*args)` under MUTEX, if that can be had without waiting for another thread; whether it could.

    An interrupt between taking a lock and `try` would leave it taken for ever. Extending a list by what `map` calls is
    one step of C, so no signal handler runs between the lock and the note that we have it.
    """
    taken: list[bool] = []
    try:
        taken += map(MUTEX.acquire, (False,))
        if taken[0]:
            body(*args)
        return taken[0]
    finally:
        if taken and taken[0]:
            MUTEX.release()


def barrier() -> None:
    """No processor lets later reads pass earlier writes: an atomic operation, here on a lock that nobody else has."""
    allocate_lock().acquire()


def outlive_daemons() -> None:
    """In the exit hook: from now on MUTEX is taken from daemon threads that the interpreter's end has stopped."""
    MUTEX.__class__ = LastMutex


def is_inside() -> bool:
    """Whether the caller, holding MUTEX, is inside a critical section."""
    return _INSIDE[0]


def open_lock_file(path: str, *, create: bool) -> int:
    """A descriptor of the lock file, high up. FileExistsError or FileNotFoundError as `create` says; raises as
    `open_own` where something else has its name.
    """
    low = open_own(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0))
    high = _move_up(low)
    if high != low:
        os.close(low)  # no lock is held through it yet
    return high


def _move_up(descriptor: int) -> int:
    """The same open file under a high number, where loops like `os.closerange(3, 256)` don't reach."""
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    floor = min(soft, 4096) * 3 // 4
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, floor)
    except OSError:
        return descriptor


def try_lock_file(descriptor: int) -> bool:
    """Take the pool's lock if nobody has it: for sweeping pools this process isn't attached to."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


def lock_file(descriptor: int) -> None:
    """Take the pool's lock before there is a client to take it for: while creating and attaching."""
    fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, 0)


def unlock_file(descriptor: int) -> None:
    """The end of `lock_file`."""
    fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, 0)
