"""What tests share: a pool, scripts run as process trees of their own, and the watch over /dev/shm.

A process tree's stderr is empty and /dev/shm as before after every system test; both are asserted here, so
that no test can forget to.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import psutil
import pytest

if TYPE_CHECKING:
    from allocator import Pool

ROOT = Path(__file__).resolve().parents[1]
SHARED_MEMORY = Path("/dev/shm")
START_METHODS = ("fork", "spawn", "forkserver")
# Folders whose tests start processes: each test there must leave /dev/shm as it was.
WATCHED_FOLDERS = {"system", "crash", "stress", "examples", "reports", "tools"}
POOL_LIMIT_BYTES = 256 << 20
# Killed processes need a moment until the kernel has dropped what they held.
SETTLE_SECONDS = 10.0
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


class RunScript(Protocol):
    """Runs a Python script as a process tree of its own; see `run_script`."""

    def __call__(
        self,
        code: str,
        *args: object,
        start_method: str = "spawn",
        timeout: float = 60.0,
        returncode: int = 0,
        env: dict[str, str] | None = None,
    ) -> str: ...


class RunCommand(Protocol):
    """Runs a program as a process tree of its own; see `run_tree`."""

    def __call__(
        self,
        command: list[str],
        *,
        cwd: Path,
        timeout: float,
        returncode: int = 0,
        env: dict[str, str] | None = None,
    ) -> str: ...


class RunSmall(Protocol):
    """Runs a script under a /dev/shm of its own; see `run_small`."""

    def __call__(self, code: str, size: str, *args: object, timeout: float = 60.0) -> str: ...


def shared_names() -> set[str]:
    """The names in /dev/shm that are a pool's."""
    return {name for name in os.listdir(SHARED_MEMORY) if name.startswith("shmt")}


def open_paths(pid: int) -> set[str]:
    """What a process has open; what it closes meanwhile is left out."""
    paths = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            paths.add(os.readlink(f"/proc/{pid}/fd/{number}"))
    return paths


def held_by_the_living(name: str, pids: list[int]) -> bool:
    """Whether one of these processes maps or has open a shared-memory object of this name."""
    path = str(SHARED_MEMORY / name)
    for pid in pids:
        # It may end meanwhile, or be someone else's.
        with contextlib.suppress(OSError):
            if f"{path}\n" in Path(f"/proc/{pid}/maps").read_text() or path in open_paths(pid):
                return True
    return False


def leftovers(before: set[str]) -> set[str]:
    """New names in /dev/shm that nobody uses any more, or that a child which should be gone still uses.

    Pools of this process (the default pool) and of programs that merely run at the same time are none.
    """
    new = shared_names() - before
    if not new:
        return new
    gc.collect()
    for _ in range(2):  # a program that began or ended while we looked is another one the second time
        ours = {process.pid for process in psutil.Process().children(recursive=True)}
        others = [pid for pid in psutil.pids() if pid not in ours]
        # One file for all of a pool's: while another program makes one, it has only the lock file open.
        new = {name for name in new & shared_names() if not held_by_the_living(f"{name[:-1]}l", others)}
        new = {name for name in new if not held_by_the_living(name, others)}
    return new & shared_names()


def living_members(group: int) -> list[psutil.Process]:
    """The processes of a process group that still run; zombies nobody has waited for don't."""
    members = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return members


def end_group(group: int, patience: float) -> list[psutil.Process]:
    """Wait `patience` seconds for a process group to end, kill what still runs then, and say what that was.

    A resource tracker or a forkserver ends by itself, but a moment after the program it served.
    """
    _, members = psutil.wait_procs(living_members(group), timeout=patience)
    for process in members:
        process.send_signal(signal.SIGKILL)
    psutil.wait_procs(members, timeout=SETTLE_SECONDS)
    return list(members)


@pytest.fixture(scope="session", autouse=True)
def nothing_left_after_the_session() -> Iterator[None]:
    """The whole session leaves /dev/shm as it was, but for pools this process still has open."""
    before = shared_names()
    yield
    left = leftovers(before)
    assert not left, f"left in {SHARED_MEMORY} after the session: {sorted(left)}"


@pytest.fixture(autouse=True)
def nothing_left_in_shared_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test that starts processes leaves /dev/shm as it was."""
    if not WATCHED_FOLDERS.intersection(request.path.relative_to(request.config.rootpath).parts):
        yield
        return
    before = shared_names()
    yield
    left = leftovers(before)
    assert not left, f"left in {SHARED_MEMORY}: {sorted(left)}"


@pytest.fixture(params=START_METHODS)
def start_method(request: pytest.FixtureRequest) -> str:
    """Each start method in turn."""
    method: str = request.param
    return method


@pytest.fixture
def pool() -> Iterator[Pool]:
    """A pool of 256 MiB, closed after the test; closing it must take its names away."""
    from allocator import Pool

    made = Pool.create(limit=POOL_LIMIT_BYTES)
    name = made.name
    yield made
    made.close()
    del made
    gc.collect()
    assert not [path for path in shared_names() if f"-{name}." in path], "a closed pool still has a name"


def run_tree(
    command: list[str],
    *,
    cwd: Path,
    timeout: float,
    returncode: int = 0,
    env: dict[str, str] | None = None,
) -> str:
    """Run a command in a new process group; gives its stdout.

    Asserts that stderr stays empty, that the exit status is `returncode`, that all of it ends within
    `timeout` seconds, and that no process of the tree outlives it. No pool is inherited; `env` adds
    variables.
    """
    variables = {name: value for name, value in os.environ.items() if name != "SHMTENSOR_POOL"}
    # Like the tests themselves, what they start works in a checkout that is not installed.
    variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [variables.get("PYTHONPATH")])])
    variables.update(env or {})
    child = subprocess.Popen(
        command,
        cwd=cwd,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    late = False
    try:
        stdout, stderr = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        late = True
        end_group(child.pid, patience=0)
        stdout, stderr = child.communicate()
    except BaseException:
        end_group(child.pid, patience=0)
        raise
    survivors = end_group(child.pid, patience=SETTLE_SECONDS)
    report = f"--- stdout\n{stdout}\n--- stderr\n{stderr}"
    assert not late, f"still running after {timeout} s\n{report}"
    assert child.returncode == returncode, f"exit status {child.returncode}, not {returncode}\n{report}"
    assert not stderr, f"stderr is not empty\n{report}"
    assert not survivors, f"outlived their parent: {survivors}\n{report}"
    return stdout


@pytest.fixture
def run_command() -> RunCommand:
    """Runs any program, an example say, as `run_script` runs a script."""
    return run_tree


@pytest.fixture
def run_script(tmp_path: Path) -> RunScript:
    """Runs a Python script as `run_tree` does; gives its stdout.

    The script has `mp` (multiprocessing, set to `start_method`) and sees `args` in sys.argv[1:].
    """

    def run(
        code: str,
        *args: object,
        start_method: str = "spawn",
        timeout: float = 60.0,
        returncode: int = 0,
        env: dict[str, str] | None = None,
    ) -> str:
        script = tmp_path / f"script_{len(list(tmp_path.glob('script_*.py')))}.py"
        script.write_text(
            "from __future__ import annotations\n"
            "import multiprocessing as mp\n"
            f"if __name__ == '__main__': mp.set_start_method({start_method!r})\n" + textwrap.dedent(code)
        )
        command = [sys.executable, str(script), *map(str, args)]
        return run_tree(command, cwd=tmp_path, timeout=timeout, returncode=returncode, env=env)

    return run


def mounted(size: str) -> list[str]:
    """The beginning of a command that runs the rest with a /dev/shm of that size."""
    return [*NAMESPACE, "sh", "-c", f'mount -t tmpfs -o {size} tmpfs /dev/shm && exec "$@"', "sh"]


@lru_cache(maxsize=1)
def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    done = subprocess.run([*mounted("size=64m"), "true"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.fixture
def run_small(tmp_path: Path) -> RunSmall:
    """Runs a Python script with a /dev/shm of `size` ("size=64m", say: options of the mount) that nobody else uses.

    As `run_script`, which see; `mp` starts processes by fork.
    """
    if not can_mount():
        pytest.skip("needs `unshare --mount` to have a small /dev/shm of its own")

    def run(code: str, size: str, *args: object, timeout: float = 60.0) -> str:
        script = tmp_path / "small.py"
        script.write_text(
            "from __future__ import annotations\n"
            "import multiprocessing as mp\n"
            "if __name__ == '__main__': mp.set_start_method('fork')\n" + textwrap.dedent(code)
        )
        command = [*mounted(size), sys.executable, str(script), *map(str, args)]
        return run_tree(command, cwd=tmp_path, timeout=timeout)

    return run
