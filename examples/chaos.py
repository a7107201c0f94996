"""Kills processes that work on one pool at random, and proves that nothing is wrong or left afterwards.

The work is that of `stress.py`. A supervisor kills a worker, which it has stopped before now and then, so that the
others meet it asleep; checks the pool; starts another one; and so on.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import random
import signal
import tempfile
import time
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from pathlib import Path
from typing import Any

from stress import nothing_is_left, work
from tqdm import tqdm

from allocator import Pool

LONGEST_PAUSE_SECONDS = 0.05
MOST_OPERATIONS = 1 << 20  # no worker lives that long


def kill(worker: Any, rng: random.Random) -> None:
    """SIGKILL, out of sleep now and then."""
    time.sleep(rng.uniform(0, LONGEST_PAUSE_SECONDS))
    if rng.random() < 0.2:
        os.kill(worker.pid, signal.SIGSTOP)
        time.sleep(rng.uniform(0, LONGEST_PAUSE_SECONDS))
    worker.kill()
    worker.join()
    if worker.exitcode != -signal.SIGKILL:
        raise SystemExit(f"a worker ended with {worker.exitcode} before it was killed: it found something wrong")


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=ArgumentDefaultsHelpFormatter)
    parser.add_argument("--workers", type=int, default=4, help="processes that use the pool")
    parser.add_argument("--kills", type=int, default=200, help="how many to kill")
    parser.add_argument("--limit-mib", type=int, default=128, help="size of the pool in MiB")
    parser.add_argument("--seed", type=int, default=0, help="of the random choices")
    parser.add_argument("--start-method", choices=mp.get_all_start_methods(), default="fork", help="of the workers")
    options = parser.parse_args()
    context, rng = mp.get_context(options.start_method), random.Random(options.seed)
    with Pool.create(limit=options.limit_mib << 20, ticket_grace=1) as pool, tempfile.TemporaryDirectory() as mail:

        def start(number: int) -> Any:
            task = (f"{options.seed}/{number}", MOST_OPERATIONS, pool, Path(mail))
            worker = context.Process(target=work, args=task)
            worker.start()
            return worker

        workers = [start(number) for number in range(options.workers)]
        for number in tqdm(range(options.kills), unit="kill", disable=None):
            victim = rng.randrange(len(workers))
            kill(workers[victim], rng)
            pool.check()
            workers[victim] = start(len(workers) + number)
        for worker in workers:
            kill(worker, rng)
        print(f"seed {options.seed}: {options.kills + len(workers)} workers were killed")
        print(nothing_is_left(pool))


if __name__ == "__main__":
    main()
