"""What tests of the commands share: `shmtensor` as a process, and pools to look at."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from tools.shell import Peer, command, environment

Shmtensor = Callable[..., Any]
if find_spec("click") is None:  # the commands need the extra `cli`
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def shmtensor() -> Shmtensor:
    """Runs a command in this process; its stdout, or what that says with `--json`. Asserts its status and stderr."""

    def run(*arguments: object, status: int = 0, stderr: str = "") -> Any:
        from click.testing import CliRunner

        from allocator.tools.app import commands

        done = CliRunner().invoke(commands, [str(argument) for argument in arguments], prog_name="shmtensor")
        assert (done.exit_code, done.stderr) == (status, stderr), (done, done.output)
        return json.loads(done.stdout) if "--json" in arguments and not status else done.stdout

    return run


@pytest.fixture
def program() -> Shmtensor:
    """The same as a process of its own."""

    def run(*arguments: object, status: int = 0, stderr: str = "") -> Any:
        done = subprocess.run(
            command(*arguments), env=environment(), capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stderr) == (status, stderr), (done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout) if "--json" in arguments and not status else done.stdout

    return run


@pytest.fixture
def peer() -> Iterator[Callable[[], Peer]]:
    """Makes peers, which end with the test."""
    peers: list[Peer] = []

    def make() -> Peer:
        peers.append(Peer())
        return peers[-1]

    yield make
    for made in peers:
        if made.process.returncode is None:
            made.end()
