"""Photographs become training batches in worker processes, and the consumer never copies one.

Workers cut random crops out of the two photographs that scikit-learn ships, flip half of them, and normalise
straight into shared float32 batches in channels_last order. What goes through the queue is a header of a few
hundred bytes. The consumer takes statistics over every batch and writes a contact sheet.
"""

from __future__ import annotations

import multiprocessing as mp
import pickle
import time
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from multiprocessing.queues import Queue, SimpleQueue
from multiprocessing.synchronize import Barrier
from typing import TypeAlias

import numpy as np
from PIL import Image
from tqdm import tqdm

import shmtensor as st

# Mean and deviation of ImageNet's channels: what most vision models expect their input to be normalised with.
MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], dtype=np.float32)
PATIENCE_SECONDS = 60.0  # nothing here takes as long: a full pool or an empty queue that lasts is an error
BATCHES_AHEAD = 2  # for each worker: one that is being made, one that waits to be read

Jobs: TypeAlias = "SimpleQueue[int | None]"
Results: TypeAlias = "Queue[bytes]"


def fill_batch(batch: st.Tensor, photographs: st.Tensor, rng: np.random.Generator) -> None:
    """Fill a batch (N, 3, H, W) with random crops, in place: channels_last memory is rows of pixels."""
    count, _, height, width = batch.shape
    rows = batch.permute(0, 2, 3, 1).view(count, height, width * 3).numpy()
    scale, shift = np.tile(1 / (255 * DEVIATION), width), np.tile(MEAN / DEVIATION, width)
    for crop_rows in rows:
        photograph = photographs[rng.integers(photographs.shape[0])].numpy()
        top, left = rng.integers(photograph.shape[0] - height + 1), rng.integers(photograph.shape[1] - width + 1)
        crop = photograph[top : top + height, left : left + width]
        flipped = crop[:, ::-1] if rng.random() < 0.5 else crop
        np.multiply(flipped.reshape(height, -1), scale, out=crop_rows)
        crop_rows -= shift


def work(photos: st.Tensor, shape: tuple[int, ...], seed: int, ready: Barrier, jobs: Jobs, results: Results) -> None:
    """Make a batch for each number from `jobs`, until None comes; it depends on seed and number only."""
    ready.wait(PATIENCE_SECONDS)
    while (number := jobs.get()) is not None:
        batch = st.empty(shape, dtype="float32", memory_format=st.channels_last, timeout=PATIENCE_SECONDS)
        fill_batch(batch, photos, np.random.default_rng((seed, number)))
        # results.put((number, batch)) does the same; pickled here, its bytes can be counted.
        results.put(pickle.dumps((number, batch)))


def contact_sheet(batch: st.Tensor, columns: int = 8) -> Image.Image:
    """The images of a batch side by side, as they were before they were normalised."""
    images = batch.permute(0, 2, 3, 1).numpy() * DEVIATION + MEAN
    pixels = np.rint(images * 255).clip(0, 255).astype(np.uint8)
    padded = np.pad(pixels, ((0, -len(pixels) % columns), (0, 0), (0, 0), (0, 0)))
    rows = padded.reshape(-1, columns, *pixels.shape[1:])
    return Image.fromarray(np.vstack([np.hstack(list(row)) for row in rows]))


def arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__, formatter_class=ArgumentDefaultsHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="processes that make batches")
    parser.add_argument("--start-method", choices=mp.get_all_start_methods(), default="spawn", help="of the workers")
    parser.add_argument("--batches", type=int, default=60, help="how many to make")
    parser.add_argument("--batch-size", type=int, default=32, help="images in each")
    parser.add_argument("--size", type=int, default=224, help="height and width of a crop in pixels, at most 427")
    parser.add_argument("--seed", type=int, default=0, help="of the random crops: the same gives the same batches")
    parser.add_argument("--output", default="contact-sheet.png", help="where the contact sheet of the first batch goes")
    options = parser.parse_args()
    if min(options.workers, options.batches, options.batch_size, options.size) < 1 or options.size > 427:
        parser.error("all counts and sizes begin at 1, and --size ends at 427")
    return options


def main() -> None:
    from sklearn.datasets import load_sample_images  # slow to import, and the workers can do without

    options = arguments()
    context = mp.get_context(options.start_method)
    st.default_pool()  # made here, so that the workers find it
    photographs = st.from_numpy(np.stack(load_sample_images().images))
    ready, jobs, results = context.Barrier(options.workers + 1), context.SimpleQueue(), context.Queue()
    task = (photographs, (options.batch_size, 3, options.size, options.size), options.seed, ready, jobs, results)
    workers = [context.Process(target=work, args=task, daemon=True) for _ in range(options.workers)]
    for worker in workers:
        worker.start()
    ready.wait(PATIENCE_SECONDS)
    started = time.perf_counter()
    numbers = iter(range(options.batches))
    for _ in range(BATCHES_AHEAD * options.workers):
        jobs.put(next(numbers, None))
    message_bytes, moments = 0, np.zeros((2, 3))
    for _ in tqdm(range(options.batches), unit="batch", disable=None):
        message = results.get(timeout=PATIENCE_SECONDS)
        message_bytes += len(message)
        number, batch = pickle.loads(message)
        moments += [np.mean(values, axis=(0, 2)).numpy().mean(axis=1) for values in (batch, np.square(batch))]
        if number == 0:
            contact_sheet(batch).save(options.output)
        jobs.put(next(numbers, None))  # None, once there is no more to do, ends a worker
    rate = options.batches / (time.perf_counter() - started)
    for worker in workers:
        worker.join()
    mean, mean_square = moments / options.batches
    print(f"channel means {np.round(mean, 4)}, deviations {np.round(np.sqrt(mean_square - mean**2), 4)}")
    print(f"{rate * options.batch_size:,.0f} images/s, {rate * batch.nbytes / 1e9:.2f} GB/s")
    print(f"{message_bytes / options.batches:.0f} bytes per batch crossed the queue, for {batch.nbytes:,} of pixels")
    print(f"the first batch is drawn in {options.output}")


if __name__ == "__main__":
    main()
