"""Segments: named shared memory, mapped once per process and never unmapped; real memory for their parts, and back.

`multiprocessing.shared_memory` makes a segment and is closed at once: its object would unmap under live arrays at
exit, and its resource tracker deletes live segments or prints at exit in most hand-overs. So the name is taken out of
the tracker as soon as the segment stands; what a pool leaves behind when all of its processes are killed is swept by
the next pool made.
"""

from __future__ import annotations

import errno
import gc
import mmap
import os
import sys
from typing import Final

from allocator.config import PAGE_BYTES, POPULATE_CHUNK_BYTES
from allocator.errors import CorruptPool, OutOfSharedMemory
from allocator.system.files import check_own, open_own, unlink_own
from allocator.system.host import segment_path

_MADV_POPULATE_WRITE: Final = 23  # Linux 5.14; the mmap module doesn't name it
_NO_ROOM: Final = (errno.EFAULT, errno.ENOSPC, errno.ENOMEM)


class Segment:
    """One mapping of one segment. The last array or memoryview over `map` ends it; nothing closes it."""

    __slots__ = ("map", "nbytes", "path")

    def __init__(self, name: str) -> None:
        self.path = segment_path(name)
        descriptor = open_own(self.path, os.O_RDWR)
        try:
            self.nbytes = os.fstat(descriptor).st_size
            if not self.nbytes:
                raise CorruptPool(f"segment {name!r} is empty: its maker died, or something cut it; recreate the pool")
            self.map = mmap.mmap(descriptor, self.nbytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
            raise OutOfSharedMemory(
                f"no address space here for the {self.nbytes} bytes of {self.path} (ulimit -v): raise it, or create "
                "the pool where it is as low"
            ) from None
        finally:
            os.close(descriptor)
        self.map.madvise(mmap.MADV_DONTDUMP)

    def populate(self, start: int, nbytes: int) -> bool:
        """Get memory for [start, start + nbytes), from a page on; False when there is none, and then part of it
        may stand.

        A plain write would be answered with SIGBUS there.
        """
        self._check(start, nbytes)
        for offset in range(start, start + nbytes, POPULATE_CHUNK_BYTES):
            length = min(POPULATE_CHUNK_BYTES, start + nbytes - offset)
            try:
                self.map.madvise(_MADV_POPULATE_WRITE, offset, length)
            except OSError as error:
                if error.errno in _NO_ROOM:
                    return False
                if error.errno != errno.EINVAL or not self._allocate(offset, length):
                    return False
        return True

    def _allocate(self, start: int, nbytes: int) -> bool:
        """For kernels before 5.14: allocates without mapping, so the first touch still costs a fault, but can't
        fail.
        """
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.posix_fallocate(descriptor, start, nbytes)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            return False
        finally:
            os.close(descriptor)
        return True

    def _check(self, start: int, nbytes: int) -> None:
        if start % PAGE_BYTES or not 0 <= start <= start + nbytes <= self.nbytes:
            raise CorruptPool(f"a table says that {nbytes} bytes lie at byte {start} of {self.path}: recreate the pool")

    def purge(self, start: int, nbytes: int) -> None:
        """Give the memory of [start, start + nbytes), from a page on, back to the kernel; it reads as zero
        afterwards.
        """
        self._check(start, nbytes)
        self.map.madvise(mmap.MADV_REMOVE, start, nbytes)


def create_segment(name: str, nbytes: int) -> None:
    """Make a sparse segment, of mode 0600, for who has the pool's lock file: another file of ours is a leftover. Raises
    as `open_own` where somebody or something else has the name.
    """
    unlink_own(segment_path(name))
    try:
        _create(name, nbytes)
    except FileExistsError:
        check_own(segment_path(name))
        raise


def _create(name: str, nbytes: int) -> None:
    # Imported here, by who makes a pool: with what they import themselves they are a tenth of NumPy's import.
    from multiprocessing import resource_tracker, shared_memory

    if sys.version_info >= (3, 13):
        shared_memory.SharedMemory(name, create=True, size=nbytes, track=False).close()
        return
    # Known to the tracker before and after, whatever happens between: SharedMemory unregisters what it fails to map or
    # size, also when it hasn't registered it yet, and then the tracker prints a KeyError.
    resource_tracker.register("/" + name, "shared_memory")
    try:
        shared_memory.SharedMemory(name, create=True, size=nbytes).close()
    finally:
        resource_tracker.register("/" + name, "shared_memory")
        resource_tracker.unregister("/" + name, "shared_memory")


def largest_mappable(nbytes: int, at_least: int, beside: int = 0) -> int:
    """`nbytes`, halved until this process can map it and `beside` bytes more (`ulimit -v`, `-f`), but at least
    `at_least`; 0 when not even that. Probed without a segment.

    When `SharedMemory` fails to map, its tracker prints a traceback: so the question is asked first.
    """
    import resource

    largest_file = resource.getrlimit(resource.RLIMIT_FSIZE)[0]

    def fits() -> bool:
        file_fits = largest_file == resource.RLIM_INFINITY or max(nbytes, beside) <= largest_file
        return file_fits and _can_map(nbytes + beside)

    if not _can_map(nbytes + beside):
        gc.collect()  # a pool that was closed may still be mapped, by objects in cycles
    while not fits():
        if nbytes == at_least:
            return 0
        nbytes = max(nbytes // 2, at_least)
    return nbytes


def _can_map(nbytes: int) -> bool:
    try:
        mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0).close()  # PROT_NONE promises no memory
    except (OSError, OverflowError, ValueError):
        return False
    return True


def unlink(name: str) -> None:
    """Remove the name, if it is there and ours. Mappings of the segment live on."""
    unlink_own(segment_path(name))
