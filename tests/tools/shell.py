"""`shmtensor` as a command line, and peers: other processes that do what they are told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def command(*arguments: object) -> list[str]:
    """The command line of `shmtensor`, also where that isn't installed."""
    return [sys.executable, "-m", "allocator", *map(str, arguments)]


def environment() -> dict[str, str]:
    """Without a pool of this process's, and with this checkout on the path."""
    variables = {name: value for name, value in os.environ.items() if name != "SHMTENSOR_POOL"}
    return {**variables, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), variables.get("PYTHONPATH")]))}


class Peer:
    """Another process with pools in it, which does what it is told: a line of Python at a time."""

    def __init__(self) -> None:
        code = "import sys, gc, shmtensor as st\nfor line in sys.stdin:\n    exec(line)\n    print('done', flush=True)"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid

    def __call__(self, line: str) -> str:
        """What the line printed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        said = []
        while (answer := self.process.stdout.readline()) != "done\n":
            assert answer, "the peer died"
            said.append(answer)
        return "".join(said)

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> None:
        """Let it go as a program that is done."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


class Service:
    """One run of `shmtensor serve`."""

    def __init__(self, name: str, *options: str, env: dict[str, str] | None = None) -> None:
        read, write = os.pipe()
        arguments = ("serve", "--name", name, "--limit", "64M", "--log-format", "json", "--ready-fd", write, *options)
        self.process = subprocess.Popen(
            command(*arguments),
            env={**environment(), **(env or {})},
            pass_fds=[write],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid
        os.close(write)
        with open(read) as ready:
            self.ready = ready.read()
        if not self.ready:
            raise AssertionError(self.process.communicate(timeout=20))

    def events(self) -> list[dict[str, Any]]:
        """What it logged, once it has ended."""
        assert self.process.stdout is not None
        out, err = self.process.communicate(timeout=20)
        assert not out
        return [json.loads(line) for line in err.splitlines()]

    def tell(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, status: int = 0) -> list[str]:
        """Stop it, if it runs; the events, in order."""
        if self.process.poll() is None and status == 0:
            self.tell(signal.SIGTERM)
        names = [event["event"] for event in self.events()]
        assert self.process.returncode == status
        return names

    def kill(self) -> None:
        self.process.kill()
        self.events()
