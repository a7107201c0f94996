"""The command line: `shmtensor`, or `python -m allocator`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that the arguments name; its exit status."""
    try:
        import click  # noqa: F401
    except ImportError:
        sys.exit("shmtensor's commands need click and rich: pip install 'shmtensor[cli]'")
    from allocator.tools.app import commands

    commands(prog_name="shmtensor")


if __name__ == "__main__":
    main()
