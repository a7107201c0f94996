"""One set of weights in shared memory, trained by several processes at once, without a lock.

A softmax classifier learns the 1,797 handwritten digits that scikit-learn ships. Its weights are one shared
tensor of 65 x 10; each worker takes mini-batches from its own share of the digits and writes its update
straight to the weights that all of them read ("Hogwild"). Of two updates in the same instant one may be lost:
that costs a step, not the result.
"""

from __future__ import annotations

import multiprocessing as mp
import time
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from multiprocessing.synchronize import Barrier

import numpy as np
import numpy.typing as npt

import shmtensor as st

CLASSES = 10
BATCH_SIZE = 16
LEARNING_RATE = 0.1
HELD_OUT_SHARE = 0.25
PATIENCE_SECONDS = 60.0  # no epoch takes as long: a worker that waits so long for the others has lost one


def gradient(
    weights: npt.NDArray[np.float64], images: npt.NDArray[np.float64], labels: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """The slope of the mean cross-entropy over some images, by the weights."""
    scores = images @ weights
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    error = odds / odds.sum(axis=1, keepdims=True)
    error[np.arange(len(labels)), labels] -= 1
    slope: npt.NDArray[np.float64] = images.T @ error / len(labels)
    return slope


def train(
    rank: int,
    weights: st.Tensor,
    images: st.Tensor,
    labels: st.Tensor,
    noticed: st.Tensor,
    epochs: int,
    seed: int,
    together: Barrier,
) -> None:
    """Train on these images; `noticed[rank]` counts how often others had changed the weights meanwhile."""
    rng = np.random.default_rng((seed, rank))
    shared, features, classes = weights.numpy(), images.numpy(), labels.numpy()
    mine = shared.copy()  # the weights as this worker last saw them
    for _ in range(epochs):
        together.wait(PATIENCE_SECONDS)  # so that no worker is done before another has started
        order = rng.permutation(len(features))
        for start in range(0, len(order), BATCH_SIZE):
            chosen = order[start : start + BATCH_SIZE]
            noticed[rank] += int(not np.array_equal(mine, shared))
            shared -= LEARNING_RATE * gradient(shared, features[chosen], classes[chosen])
            mine[:] = shared


def load(seed: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """The digits in random order: 64 pixels from 0 to 1 and a constant 1 each, and what they show."""
    from sklearn.datasets import load_digits  # slow to import, and the workers can do without

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(pixels))
    images = np.column_stack([pixels / 16, np.ones(len(pixels))])
    return images[order], labels[order]


def accuracy(weights: st.Tensor, images: npt.NDArray[np.float64], labels: npt.NDArray[np.int64]) -> float:
    """The share of images whose label gets the highest score."""
    return float(np.mean((images @ weights.numpy()).argmax(axis=1) == labels))


def arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__, formatter_class=ArgumentDefaultsHelpFormatter)
    parser.add_argument("--workers", type=int, default=4, help="processes that train")
    parser.add_argument("--start-method", choices=mp.get_all_start_methods(), default="spawn", help="of the workers")
    parser.add_argument("--epochs", type=int, default=30, help="how often each worker goes through its digits")
    parser.add_argument("--seed", type=int, default=0, help="of the split and of the order of the digits")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    context = mp.get_context(options.start_method)
    st.default_pool()  # made here, so that the workers find it
    digits, digit_labels = load(options.seed)
    cut = int(len(digits) * HELD_OUT_SHARE)
    held_out, held_out_labels = digits[:cut], digit_labels[:cut]
    images, labels = st.from_numpy(digits[cut:]), st.from_numpy(digit_labels[cut:])
    weights = st.zeros((digits.shape[1], CLASSES), dtype="float64")
    noticed = st.zeros((options.workers,), dtype="int64")
    together = context.Barrier(options.workers)
    print(f"before: {accuracy(weights, held_out, held_out_labels):.3f} of the held-out digits are right")
    # Every worker gets a view of its rows: a header of a few hundred bytes, no copy.
    shares = [slice(rank, None, options.workers) for rank in range(options.workers)]
    common = (noticed, options.epochs, options.seed, together)
    tasks = [(rank, weights, images[rows], labels[rows], *common) for rank, rows in enumerate(shares)]
    workers = [context.Process(target=train, args=task, daemon=True) for task in tasks]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise SystemExit("a worker failed")
    seconds = time.perf_counter() - started
    for rank, count in enumerate(noticed.tolist()):
        print(f"worker {rank}: before {count:,} of its steps, others had changed the weights")
    print(f"after:  {accuracy(weights, held_out, held_out_labels):.3f}, {seconds:.1f} s including the start")


if __name__ == "__main__":
    main()
