"""Every error of the allocator. The class says what to do next; the message what was asked and what was there."""

from __future__ import annotations


class AllocatorError(Exception):
    """The root of everything this package raises on purpose."""


class OutOfSharedMemory(AllocatorError, MemoryError):
    """There is no room, even after collecting what nobody uses. Free something, wait (`timeout=`), or raise the bound
    it names.
    """


class StaleHandle(AllocatorError, LookupError):
    """The block a handle names is gone: its last holder dropped it. Send it again; `st.save` keeps bytes beyond
    that.
    """


class ForeignHost(AllocatorError):
    """The handle was made on another machine (or before a reboot). Shared memory ends at the machine: send the
    bytes.
    """


class ForeignUser(AllocatorError, PermissionError):
    """The pool, or what has its name, is another user's. Choose another name, or run as that user: pools are for the
    processes of one.
    """


class PoolClosed(AllocatorError):
    """The pool was closed in this process, or this process lost its place in it. Attach again or use another pool."""


class PoolNotFound(AllocatorError, FileNotFoundError):
    """No pool has this name. Create it first, or check the name."""


class NameNotFound(AllocatorError, LookupError):
    """Nothing is published under this name. Publish it first, wait (`timeout=`), or look at `names()`."""


class PoolExists(AllocatorError, FileExistsError):
    """A pool of this name is alive. Attach to it, or choose another name."""


class CorruptPool(AllocatorError):
    """The shared tables contradict themselves: something wrote into them. Nothing in the pool can be trusted;
    recreate it.
    """


class StorageCapacityError(AllocatorError, ValueError):
    """A block that was sent can't move, so it can't outgrow its capacity. Reserve more with `capacity=` when
    allocating.
    """


class PoolReentered(AllocatorError, RuntimeError):
    """A signal handler or finalizer used the pool while this very thread was changing it. Defer that work to ordinary
    code.
    """
