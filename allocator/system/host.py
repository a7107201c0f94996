"""What this machine has and offers: memory, limits, its boot, its pools, its processes. Facts in bytes; no policy."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, NamedTuple

from allocator.config import HEADROOM_BYTES

SHM_FOLDER = "/dev/shm"


class Room(NamedTuple):
    """Bytes that could still be committed, and the bound that says so."""

    nbytes: int
    bound: str


@lru_cache(maxsize=1)
def boot_id() -> str:
    """Eight hex digits that differ from machine to machine and from boot to boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().replace("-", "")[:8]


# ---- pools, by their names in the folder


def segment_path(name: str) -> str:
    """Where the kernel shows the segment."""
    return os.path.join(SHM_FOLDER, name)


def segment_name(host_id: str, name: str, kind: str) -> str:
    """Of the heap ("h"), the control segment ("c") or the lock file ("l") of a pool; under 30 characters."""
    return f"shmt{host_id}-{name}.{kind}"


def pool_path(host_id: str, name: str, kind: str) -> str:
    """Where the kernel shows that part of the pool."""
    return segment_path(segment_name(host_id, name, kind))


def pool_names(host_id: str) -> list[str]:
    """The pools of which something is there."""
    prefix = segment_name(host_id, "", "")[:-1]
    return sorted({entry[len(prefix) : -2] for entry in os.listdir(SHM_FOLDER) if entry.startswith(prefix)})


def pool_bytes(host_id: str, name: str) -> int:
    """The memory that the pool has, tables included."""
    total = 0
    for kind in ("h", "c"):
        try:
            total += os.stat(pool_path(host_id, name, kind)).st_blocks * 512
        except FileNotFoundError:
            pass  # its maker died before
    return total


# ---- memory and processes


def room() -> Room:
    """The smallest of free tmpfs, available RAM and cgroup room. About 20 us."""
    rooms = [_tmpfs_room(), _ram_room(), *_cgroup_rooms()]
    return min(rooms)


def _tmpfs_room() -> Room:
    stat = os.statvfs(SHM_FOLDER)
    if stat.f_blocks == 0:  # tmpfs mounted without a size
        return Room(1 << 62, f"{SHM_FOLDER} (no size limit)")
    return Room(stat.f_bavail * stat.f_frsize, f"{SHM_FOLDER} ({stat.f_blocks * stat.f_frsize >> 20} MiB in all)")


def _ram_room() -> Room:
    total = 0
    try:
        with open("/proc/meminfo", "rb") as file:
            for line in file:
                if line.startswith(b"MemTotal:"):
                    total = int(line.split()[1]) << 10
                elif line.startswith(b"MemAvailable:"):
                    available = int(line.split()[1]) << 10
                    return Room(max(available - _headroom(total), 0), "available RAM")
    except OSError:
        pass  # this process has no descriptor left, which is no reason to refuse memory
    return Room(1 << 62, "available RAM (unknown)")


def _headroom(nbytes: int) -> int:
    """What is left of so much memory for what isn't shared: at the last byte the next `malloc` of any process there is
    its death.
    """
    return min(HEADROOM_BYTES, nbytes >> 4)


@lru_cache(maxsize=1)
def _cgroup_files() -> tuple[tuple[str, str], ...]:
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        return tuple(cgroup_files(file.read(), "/sys/fs/cgroup"))


def cgroup_files(memberships: str, root: str) -> list[tuple[str, str]]:
    """The (limit, usage) files of every memory cgroup that this process is in, up to the root: all of them bind.

    `memberships` is what /proc/self/cgroup says, `root` where the hierarchies are mounted, of version 2 or 1.
    """
    found = []
    for line in memberships.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, names = root, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            base, names = os.path.join(root, "memory"), ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        parts = path.strip("/").split("/")
        for depth in range(len(parts), -1, -1):
            limit, usage = (os.path.join(base, *parts[:depth], name) for name in names)
            if os.path.exists(limit) and os.path.exists(usage):
                found.append((limit, usage))
    return list(dict.fromkeys(found))


def _cgroup_rooms() -> list[Room]:
    rooms = []
    for limit_path, usage_path in _cgroup_files():
        try:
            limit, usage = _read_number(limit_path), _read_number(usage_path)
        except (OSError, ValueError):
            continue  # "max" (no limit), or a hierarchy that went away
        if limit < 1 << 60:
            rooms.append(
                Room(max(limit - usage - _headroom(limit), 0), f"the memory cgroup ({limit >> 20} MiB in all)")
            )
    return rooms


def _read_number(path: str) -> int:
    with open(path, "rb") as file:
        return int(file.read())


def start_time(pid: int) -> int:
    """Clock ticks after boot at which the process started; 0 if it is gone. For people, with the pid: never to judge
    by.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def process_name(pid: int, started: int) -> str:
    """What the process is called; "?" if it is gone or the pid is another's by now."""
    psutil = load_psutil()
    if psutil is None or start_time(pid) != started:
        return "?"
    try:
        return str(psutil.Process(pid).name())
    except (psutil.Error, OSError):
        return "?"


def load_psutil() -> Any:
    """psutil; None where no descriptor is left to import it with. Called before the critical section by who asks for
    names inside: an import takes long.
    """
    try:
        import psutil
    except OSError:
        return None
    return psutil


def tmpfs_bytes() -> int:
    """The size of /dev/shm; 0 when it has none. For advice: 64 MiB is what container engines give by default."""
    stat = os.statvfs(SHM_FOLDER)
    return stat.f_blocks * stat.f_frsize
