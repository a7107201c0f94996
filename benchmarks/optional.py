"""The libraries that take part where they are installed."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections import deque
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.looking import look
from benchmarks.peers import ITEM_BYTES, Array, Peer, Pickle


class Torch(Peer):
    """Torch's shared tensors, allocated as its DataLoader does: shared from the start. Each has a descriptor."""

    name = "torch fd"
    strategy = "file_descriptor"

    def make(self, nbytes: int, to: int = 0) -> Any:
        torch = self._torch()
        storage = torch.UntypedStorage._new_shared(nbytes)
        return torch.empty(0, dtype=torch.float32).set_(storage, 0, (nbytes // ITEM_BYTES,), (1,))

    def array(self, item: Any) -> Array:
        array: Array = item.numpy()
        return array

    def send(self, pipe: Connection, item: Any) -> None:
        self._torch()
        pipe.send(item)

    def _torch(self) -> Any:
        import torch
        import torch.multiprocessing as sharing

        sharing.set_sharing_strategy(self.strategy)  # it is the process's, and both strategies take part
        return torch


class TorchFiles(Torch):
    """The same with a file for each tensor, and a daemon that removes them."""

    name = "torch fs"
    strategy = "file_system"


class Loaned:
    """Memory that a sample is written to, as NumPy asks for it."""

    def __init__(self, address: int, items: int) -> None:
        self.__array_interface__ = {"data": (address, False), "shape": (items,), "typestr": "<f4", "version": 3}


class Iceoryx2(Peer):
    """Publish and subscribe, in native code. A sample moves when it is sent: neither again nor in parts."""

    name = "iceoryx2"
    sends_again = False

    def __init__(self, borrowed: int = 16) -> None:  # samples that a consumer may have: more than any pipeline here
        self.base = f"benchmarks/{uuid.uuid4().hex}"
        self.borrowed = borrowed
        self.publishers = [self._publisher(number) for number in range(2)]  # one for each consumer

    @classmethod
    def for_many(cls) -> Iceoryx2:
        return cls(100_064)

    def __getstate__(self) -> dict[str, Any]:
        return {"base": self.base}

    def _service(self, number: int) -> Any:
        import iceoryx2

        iceoryx2.set_log_level(iceoryx2.LogLevel.Fatal)
        self.node = iceoryx2.NodeBuilder.new().create(iceoryx2.ServiceType.Ipc)
        builder = self.node.service_builder(iceoryx2.ServiceName.new(f"{self.base}/{number}"))
        return builder.publish_subscribe(iceoryx2.Slice[np.ctypeslib.as_ctypes_type(np.uint8)])

    def _publisher(self, number: int) -> Any:
        import iceoryx2

        service = self._service(number).subscriber_max_borrowed_samples(self.borrowed)
        service = service.subscriber_max_buffer_size(16).max_publishers(1).max_subscribers(1)
        builder = service.enable_safe_overflow(False).create().publisher_builder()
        builder = builder.initial_max_slice_len(4096).max_loaned_samples(self.borrowed)
        builder = builder.allocation_strategy(iceoryx2.AllocationStrategy.PowerOfTwo)
        return builder.backpressure_strategy(iceoryx2.BackpressureStrategy.RetryUntilDelivered).create()

    def enter(self, number: int) -> None:
        self.subscriber = self._service(number).open().subscriber_builder().create()

    def make(self, nbytes: int, to: int = 0) -> list[Any]:
        return [self.publishers[to].loan_slice_uninit(nbytes), nbytes]

    def array(self, item: list[Any]) -> Array:
        sample, nbytes = item
        if nbytes is None:
            return np.frombuffer(sample.payload().as_memory_view(), np.float32)
        return np.asarray(Loaned(sample.payload_ptr, nbytes // ITEM_BYTES))

    def send(self, pipe: Connection, item: list[Any]) -> None:
        sample, item[0] = item[0].assume_init(), None
        sample.send()
        pipe.send(None)  # wakes the consumer

    def receive(self, pipe: Connection) -> list[Any]:
        pipe.recv()
        return [self.subscriber.receive(), None]

    def drop(self, item: list[Any], *, made: bool) -> None:
        if item[0] is not None:
            item[0].delete()


class Tasks(Pickle):
    """A library with workers of its own: they are called rather than sent to. `Calls` stands for the pipe."""

    def call(self, worker: int, array: Any, everything: bool) -> Any:
        """Have worker number `worker` look at it; what `answer` takes."""
        raise NotImplementedError

    def answer(self, call: Any) -> tuple[float, float]:
        """What the worker saw."""
        raise NotImplementedError


class Ray(Tasks):
    """An object store: writing copies the array there."""

    name = "Ray"

    def __init__(self) -> None:
        os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
        import ray

        self.folder = tempfile.TemporaryDirectory(prefix="ray")
        ray.init(
            include_dashboard=False,
            object_store_memory=2 << 30,
            num_cpus=2,
            log_to_driver=False,
            logging_level="error",
            _temp_dir=self.folder.name,
            runtime_env={"env_vars": {"PYTHONPATH": os.getcwd()}},
        )
        self.ray, looker = ray, ray.remote(num_cpus=0)(Looker)
        self.workers = [looker.remote() for _ in range(2)]

    def call(self, worker: int, array: Any, everything: bool) -> Any:
        return self.workers[worker].look.remote(self.ray.put(array), everything)

    def answer(self, call: Any) -> tuple[float, float]:
        seen: tuple[float, float] = self.ray.get(call)
        return seen

    def close(self) -> None:
        self.ray.shutdown()
        self.folder.cleanup()


class Looker:
    """Ray's worker."""

    def look(self, array: Any, everything: bool) -> tuple[float, float]:
        """As `looking.look`."""
        return look(array, everything)


class Joblib(Tasks):
    """Its pool of processes: arrays above 64 KiB go through a file that the worker maps, smaller ones are pickled."""

    name = "joblib"
    sends_again = False  # it would send the file that it wrote the first time, whatever was written to the array since

    def __init__(self) -> None:
        from joblib.executor import get_memmapping_executor

        self.executor = get_memmapping_executor(2, max_nbytes=64 << 10, mmap_mode="r", context_id=uuid.uuid4().hex)

    def call(self, worker: int, array: Any, everything: bool) -> Any:
        return self.executor.submit(look, array, everything)

    def answer(self, call: Any) -> tuple[float, float]:
        seen: tuple[float, float] = call.result()
        return seen

    def close(self) -> None:
        self.executor.terminate(kill_workers=True)


class Calls:
    """What a pipe does for others: an array goes out, and what its consumer saw comes back."""

    def __init__(self, peer: Tasks, worker: int) -> None:
        self.peer = peer
        self.worker = worker
        self.everything = False
        self.calls: deque[Any] = deque()

    def send(self, array: Any) -> None:
        """Call the worker."""
        self.calls.append(self.peer.call(self.worker, array, self.everything))

    def recv(self) -> tuple[float, float]:
        """The answer to the first call that has none yet."""
        return self.peer.answer(self.calls.popleft())


OPTIONAL: dict[str, tuple[type[Peer], ...]] = {
    "torch": (Torch, TorchFiles),
    "ray": (Ray,),
    "joblib": (Joblib,),
    "iceoryx2": (Iceoryx2,),
}
"""By the package that they need."""


def installed() -> tuple[list[type[Peer]], list[str]]:
    """The peers that are to be had here, and what would have to be installed for the others."""
    found: list[type[Peer]] = []
    missing = []
    for package, peers in OPTIONAL.items():
        try:
            version(package)
            found += peers
        except PackageNotFoundError:
            missing.append(package)
    return found, missing
