"""What the tests of reports share: scripts that have a small /dev/shm of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import pytest

NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


class RunSmall(Protocol):
    """Runs a script under a /dev/shm of its own; see `run_small`."""

    def __call__(self, code: str, size: str, *args: object, timeout: float = 60.0) -> str: ...


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
def run_small(run_command: Callable[..., str], tmp_path: Path) -> RunSmall:
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
        return run_command(command, cwd=tmp_path, timeout=timeout)

    return run
