"""`demo` and `bench`, which run other programs, and `completion`."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import click
from click.shell_completion import get_completion_class

from allocator.config import POOL_VARIABLE
from allocator.tools.app import FINE, USAGE, WRONG, commands, fail


@click.command("demo")
def demo_command() -> None:
    """Take a tour on this machine: tensors between processes, a death, names. Takes some seconds."""
    _run("shmtensor.demo", "shmtensor is not installed beside allocator")


@click.command("bench", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench_command(arguments: tuple[str, ...]) -> None:
    """Measure against what is installed. All arguments go to `python -m benchmarks`, --help too."""
    _run("benchmarks", "the benchmarks are not installed: run this in a checkout of the project", *arguments)


def _run(module: str, missing: str, *arguments: str) -> None:
    """The module as a program, which knows nothing of pools around it; ends with its status."""
    sys.path.insert(0, os.getcwd())  # a checkout that isn't installed
    if find_spec(module) is None:
        fail(missing, USAGE)
    variables = {name: value for name, value in os.environ.items() if name != POOL_VARIABLE}
    done = subprocess.run([sys.executable, "-m", module, *arguments], env=variables, check=False)
    sys.exit(WRONG if done.returncode else FINE)


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print the script that makes SHELL complete commands, options and pools.

    For bash: source <(shmtensor completion bash)
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(commands, {}, "shmtensor", "_SHMTENSOR_COMPLETE").source())
