"""Names in /dev/shm, which any program may give to anything: a pool's file is a plain file of this user, or it is
none.
"""

from __future__ import annotations

import errno
import os
import stat

from allocator.errors import CorruptPool, ForeignUser

_REFUSED = (errno.EACCES, errno.EPERM, errno.ELOOP, errno.EISDIR, errno.ENXIO)
_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe in its place would keep us waiting


def open_own(path: str, flags: int) -> int:
    """A descriptor of a plain file of this user, 0600 where it is made.

    Raises
    ------
    ForeignUser, CorruptPool
        It is somebody else's, or something else.
    OSError
        As `os.open`: it isn't there, or already is.
    """
    try:
        descriptor = os.open(path, flags | _SAFELY, 0o600)
    except OSError as error:
        if error.errno in _REFUSED:
            check_own(path)
        raise
    try:
        _check(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_own(path: str) -> None:
    """Raise as `open_own` unless it is a plain file of this user; opens nothing."""
    _check(path, os.lstat(path))


def _check(path: str, facts: os.stat_result) -> None:
    mode, me = stat.filemode(facts.st_mode), os.geteuid()
    if facts.st_uid != me:
        raise ForeignUser(
            f"{path} ({mode}) belongs to the user with uid {facts.st_uid}, this process runs as uid {me}: a pool is "
            "one user's, so choose another name"
        )
    if not stat.S_ISREG(facts.st_mode):
        raise CorruptPool(f"{path} ({mode}) is no pool's file but has its name: remove it, or choose another name")


def unlink_own(path: str) -> None:
    """Remove a plain file of this user, if that is what stands there. What else it is stays."""
    try:
        check_own(path)
        os.unlink(path)
    except (OSError, CorruptPool):
        pass
