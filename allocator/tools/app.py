"""The commands, by name; how they fail; what they share: pools and sizes as arguments, tables and JSON as output."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any, NoReturn, TypeVar

import click
from click.shell_completion import CompletionItem

from allocator.config import POOL_VARIABLE
from allocator.errors import AllocatorError, PoolNotFound
from allocator.system import host

Command = TypeVar("Command", bound=Callable[..., Any])

# command -> (file, what it does). One line each, so that --help imports none of them.
COMMANDS = {
    "ls": ("listing", "The pools here: how full, who lives, whether orphaned."),
    "stats": ("facts", "A pool's numbers."),
    "clients": ("facts", "The processes of a pool."),
    "tensors": ("facts", "What was sent or published, and who keeps it."),
    "tickets": ("facts", "The messages in flight."),
    "names": ("facts", "What is published."),
    "check": ("facts", "Prove that a pool's tables are sound."),
    "reap": ("upkeep", "Take back what dead processes had."),
    "purge": ("upkeep", "Give memory that nobody uses back to the kernel."),
    "gc": ("upkeep", "Remove the leftovers of pools whose processes are all dead."),
    "map": ("heapmap", "Draw the heap."),
    "top": ("watching", "A pool, live."),
    "metrics": ("metrics", "A pool's numbers for Prometheus."),
    "serve": ("serving", "Keep a pool while clients come and go."),
    "stress": ("stressing", "Random work by many processes, and a verdict."),
    "demo": ("programs", "A tour on this machine."),
    "bench": ("programs", "Measure against what is installed (in a checkout)."),
    "completion": ("programs", "The completion script of a shell."),
}

FINE, WRONG, USAGE, MISSING, UNUSABLE = range(5)
EXIT_CODES = """\b
Exit codes:
  0  done
  1  something is wrong: check or stress found it, or a program that was run failed
  2  wrong usage
  3  no such pool
  4  the pool can't be used: it is corrupt, full, or of another version
"""


class Commands(click.Group):
    """Imports a command when it is asked for, and turns the allocator's errors into exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        try:
            file = import_module(f"allocator.tools.{COMMANDS[cmd_name][0]}")
        except ModuleNotFoundError as error:
            fail(f"{cmd_name} needs {error.name}: pip install 'shmtensor[cli,service]'", USAGE)
        found: click.Command = getattr(file, f"{cmd_name}_command")
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in --help, from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        try:
            return super().invoke(ctx)
        except PoolNotFound as error:
            fail(str(error), MISSING)
        except AllocatorError as error:
            fail(str(error), UNUSABLE)
        except BrokenPipeError:  # `shmtensor tensors | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(FINE)


@click.group(cls=Commands, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="shmtensor", message="%(version)s")
def commands() -> None:
    """Look at shared-memory pools, keep them up, and serve them.

    Looking disturbs nothing: no command but serve takes a place among a pool's processes. POOL is a name that ls
    lists; left out, it is $SHMTENSOR_POOL, or the only pool there is.
    """


def fail(message: str, code: int) -> NoReturn:
    """Say why on stderr, and end with this status."""
    click.echo(f"shmtensor: {message}", err=True)
    sys.exit(code)


# ---- arguments


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in host.pool_names(host.boot_id()) if name.startswith(incomplete)]


def _chosen(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None or ctx.resilient_parsing:
        return value
    if named := os.environ.get(POOL_VARIABLE):
        return named
    names = host.pool_names(host.boot_id())
    if len(names) == 1:
        return names[0]
    if not names:
        raise PoolNotFound("there is no pool on this machine")
    raise click.UsageError(f"which pool? There are {', '.join(names)}: name one, or set {POOL_VARIABLE}")


def pool_argument(command: Command) -> Command:
    """POOL, which may be left out."""
    return click.argument("pool", required=False, callback=_chosen, shell_complete=_complete)(command)


def json_option(command: Command) -> Command:
    """--json."""
    return click.option("--json", "as_json", is_flag=True, help="As JSON; sizes in bytes, times in seconds.")(command)


_UNITS = {unit: 1 << 10 * power for power, unit in enumerate(("", "k", "m", "g", "t"))}
_DECIMAL = {f"{unit}b": 1000**power for power, unit in enumerate(("", "k", "m", "g", "t"))}
_BINARY = {f"{unit}ib": factor for unit, factor in _UNITS.items() if unit}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


class Size(click.ParamType[int]):
    """Bytes as people write them: 4G and 4GiB are 4 x 2^30, 4GB are 4 x 10^9."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes."""
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(value.strip().lower())
        factor = {**_UNITS, **_DECIMAL, **_BINARY}.get(found[2]) if found else None
        if found is None or factor is None:
            self.fail(f"{value!r} is no size: write 512MiB, 4G, 1.5GB or a number of bytes", param, ctx)
        return int(float(found[1]) * factor) if "." in found[1] else int(found[1]) * factor


# ---- output


def size(nbytes: float) -> str:
    """Bytes for people."""
    unit = 0
    while abs(nbytes) >= 1024 and unit < 4:
        nbytes, unit = nbytes / 1024, unit + 1
    digits = 0 if unit == 0 or nbytes >= 100 else 1
    return f"{nbytes:.{digits}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"


def age(seconds: float) -> str:
    """A time for people."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def plain(value: Any) -> Any:
    """A value as JSON has it: dataclasses and named tuples as objects."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def show_json(value: Any) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> None:
    """A table on stdout; numbers, which begin with a digit, to the right. On a terminal rich draws it."""
    if not rows:
        click.echo(empty)
    elif sys.stdout.isatty():
        from rich.console import Console

        from allocator.tools.watching import table

        Console().print(table(heads, rows))
    else:
        widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
        for row in (heads, *rows):
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            click.echo("  ".join(cells).rstrip())
