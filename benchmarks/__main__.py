"""The command. All peers are up at once and take turns, so that a drift of the machine meets them all."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeVar

import shmtensor as st
from benchmarks import goals, report
from benchmarks.growth import Living, in_the_lock, living, throughput, views_together
from benchmarks.link import Link
from benchmarks.optional import Tasks, installed
from benchmarks.peers import BarePipe, Floor, Peer, Pickle, Segments, Shmtensor
from benchmarks.table import Results, Samples
from benchmarks.works import ROWS, Row, physical_limits

PEERS: list[type[Peer]] = [Shmtensor, Floor, BarePipe, Pickle, Segments]
ROUNDS, QUICK_ROUNDS = 9, 1
QUICK_SHARE, QUICK_BYTES = 20, 16 << 20  # --quick does a twentieth as often, and nothing huge
COUNTS, QUICK_COUNTS = (1, 2, 4, 8, 16), (1, 2)  # processes that share at once
MARKS, QUICK_MARKS = (1_000, 10_000, 100_000, 1_000_000), (100, 1_000)  # living tensors
ROOT = Path(__file__).resolve().parents[1]
VIEWS = (1, 2, 4, 16, 64, 256, 1024)  # rows in one message
Item = TypeVar("Item")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few times each: to see that it works")
    parser.add_argument("--pin", action="store_true", help="producer and consumers share one CPU in all works")
    parser.add_argument("--only", metavar="TEXT", default="", help="only works whose name contains this; no growth")
    parser.add_argument(
        "--write",
        nargs="?",
        type=Path,
        const=ROOT,
        metavar="FOLDER",
        help="into README.md and docs/ of the checkout too",
    )
    return parser.parse_args()


def chosen_rows(only: str, quick: bool) -> list[Row]:
    """The rows to measure; `SystemExit` when none has `only` in its name."""
    rows = [row for row in ROWS if only in row.name]
    if not rows:
        raise SystemExit(f"no work is called {only!r}; there are {', '.join(dict.fromkeys(row.name for row in ROWS))}")
    if not quick:
        return rows
    return [row._replace(times=max(2, row.times // QUICK_SHARE)) for row in rows if row.nbytes <= QUICK_BYTES]


def with_progress(items: Sequence[Item]) -> Iterable[Item]:
    """The items, with a bar on stderr if that is a terminal and tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return items
    bar: Iterable[Item] = tqdm(items, disable=None, leave=False)
    return bar


def take_turns(row: Row, links: list[Link], rounds: int, pin: bool) -> dict[str, Samples]:
    """The samples of each peer, but for a first round that warms up. Another peer begins each round."""
    able = [link for link in links if link.peer.sends_again or not row.again]
    samples: dict[str, Samples] = {link.peer.name: [] for link in able}
    cpus = os.sched_getaffinity(0)
    if pin or row.pinned:
        pin_all(able, {max(cpus)})
    try:
        for turn in range(rounds + 1):
            first = turn % len(able)
            for link in able[first:] + able[:first]:
                samples[link.peer.name].append(row.work(link, row.nbytes, row.times))
    finally:
        pin_all(able, cpus)
    return {name: found[1:] for name, found in samples.items()}


def pin_all(links: list[Link], cpus: set[int]) -> None:
    """Keep this process and the consumers on these CPUs."""
    os.sched_setaffinity(0, cpus)
    for link in links:
        link.pin(cpus)


def grow(kinds: Sequence[type[Peer]], quick: bool) -> tuple[dict[str, dict[int, float]], dict[str, Living]]:
    """Operations a second by processes, and time by living tensors. Not of those whose workers are their own."""
    rates: dict[str, dict[int, float]] = {}
    lived: dict[str, Living] = {}
    counts, marks = (QUICK_COUNTS, QUICK_MARKS) if quick else (COUNTS, MARKS)
    for kind in with_progress([kind for kind in kinds if not issubclass(kind, Tasks)]):
        rates[kind.name] = throughput(kind, counts, 1 if quick else 5, 0.1 if quick else 0.5)
        lived[kind.name] = living(kind, marks, 10 if quick else 300 if kind is Shmtensor else 30)
    return rates, lived


def main() -> None:
    options = arguments()
    rows, rounds = chosen_rows(options.only, options.quick), QUICK_ROUNDS if options.quick else ROUNDS
    if shutil.disk_usage("/dev/shm").free < 4 << 30:  # twice what is used; most peers check nothing: SIGBUS
        raise SystemExit("/dev/shm has less than 4 GiB free")
    if options.write and options.only:
        raise SystemExit("--write writes all of it: leave --only out")
    if options.write and importlib.util.find_spec("matplotlib") is None:
        raise SystemExit("--write draws pictures with matplotlib: pip install -e '.[plot]'")
    optional, missing = installed()
    kinds = [*PEERS, *optional]
    where = report.where_and_when(rounds, missing)
    st.default_pool()  # before the consumers start, so that they find it
    with ExitStack() as stack:
        links = [stack.enter_context(closing(Link(kind()))) for kind in kinds]
        for link in links:
            link.wait()
        names = [link.peer.name for link in links]
        results: Results = {row: take_turns(row, links, rounds, options.pin) for row in with_progress(rows)}
        limits = physical_limits(next(link for link in links if isinstance(link.peer, Floor)))
    found_goals = goals.from_rows(results)
    together, locked = {}, (0.0, 0.0)
    if not options.only:  # before a million live: tables that have grown stay so
        together, locked = views_together(VIEWS, rounds), in_the_lock(1_000 if options.quick else 20_000)
        found_goals += goals.from_solo(rounds, QUICK_SHARE if options.quick else 1)
    rates, lived = grow([] if options.only else kinds, options.quick)
    if not options.only:
        found_goals += goals.from_growth(rates[Shmtensor.name], lived[Shmtensor.name])
    found = report.Found(where, names, results, rates, lived, together, locked, found_goals, limits)
    print(report.tables(found))
    if not options.only:
        print(f"\n{report.growth(found)}")
    if options.write:
        write(found, options.write)


def write(found: report.Found, folder: Path) -> None:
    """Pictures, and the parts of README.md and docs/ that are this run's."""
    from benchmarks import plots

    plots.draw_all(folder / "docs" / "benchmarks", found.results, found.rates, found.lived)
    report.splice(folder / "README.md", report.summary(found))
    report.splice(folder / "docs" / "benchmarks.md", report.tables(found))
    report.splice(folder / "docs" / "scaling.md", report.growth(found))


if __name__ == "__main__":
    main()
