"""The command. All peers are up at once and take turns, so that a drift of the machine meets them all."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
from collections.abc import Iterable
from contextlib import ExitStack, closing

import shmtensor as st
from benchmarks.link import Link
from benchmarks.peers import BarePipe, Floor, Peer, Pickle, Segments, Shmtensor
from benchmarks.table import Samples, line, markdown
from benchmarks.works import ROWS, Row, physical_limits

PEERS: list[type[Peer]] = [Shmtensor, Floor, BarePipe, Pickle, Segments]
ROUNDS, QUICK_ROUNDS, QUICK_SHARE = 9, 2, 20  # --quick does a twentieth as often


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few times each: to see that it works")
    parser.add_argument("--pin", action="store_true", help="producer and consumers share one CPU")
    parser.add_argument("--only", metavar="TEXT", default="", help="only works whose name contains this")
    return parser.parse_args()


def chosen_rows(only: str, quick: bool) -> list[Row]:
    """The rows to measure; `SystemExit` when none has `only` in its name."""
    rows = [row for row in ROWS if only in row.name]
    if not rows:
        raise SystemExit(f"no work is called {only!r}; there are {', '.join(dict.fromkeys(row.name for row in ROWS))}")
    return [row._replace(times=max(2, row.times // QUICK_SHARE)) for row in rows] if quick else rows


def with_progress(rows: list[Row]) -> Iterable[Row]:
    """The rows, with a bar on stderr if that is a terminal and tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return rows
    return tqdm(rows, disable=None, leave=False)


def take_turns(row: Row, links: list[Link], rounds: int) -> dict[str, Samples]:
    """The samples of each peer, but for a first round that warms up. Another peer begins each round."""
    samples: dict[str, Samples] = {link.peer.name: [] for link in links}
    for turn in range(rounds + 1):
        first = turn % len(links)
        for link in links[first:] + links[:first]:
            samples[link.peer.name].append(row.work(link, row.nbytes, row.times))
    return {name: found[1:] for name, found in samples.items()}


def main() -> None:
    options = arguments()
    rows, rounds = chosen_rows(options.only, options.quick), QUICK_ROUNDS if options.quick else ROUNDS
    load = os.getloadavg()[0]  # what else runs here: on a busy machine ratios drift too, not only figures
    if shutil.disk_usage("/dev/shm").free < 1 << 30:  # twice what is used; most peers check nothing: SIGBUS
        raise SystemExit("/dev/shm has less than 1 GiB free")
    if options.pin:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # consumers inherit it
    st.default_pool()  # before the consumers start, so that they find it
    with ExitStack() as stack:
        links = [stack.enter_context(closing(Link(peer()))) for peer in PEERS]
        lines = [["work", "size", *(link.peer.name for link in links)]]
        lines += [line(row, take_turns(row, links, rounds), Floor.name) for row in with_progress(rows)]
        limits = physical_limits(next(link for link in links if isinstance(link.peer, Floor)))
    print(f"{markdown(lines)}\n\nMedians; (x): time relative to the floor, paired by round: less is better.")
    where = "both ends on one CPU" if options.pin else "unpinned"
    print(f"Physical limits: {limits}.\n{rounds} rounds, {where}, Python {platform.python_version()}, load {load:.1f}.")


if __name__ == "__main__":
    main()
