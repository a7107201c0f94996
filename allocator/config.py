"""Tunables, each with its unit and its reason. Constants only: the environment is read where it is used."""

from __future__ import annotations

from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20
TIB: Final = 1 << 40

PAGE_BYTES: Final = 4096
ALIGNMENT_BYTES: Final = 64
"""A cache line, and the alignment that DLPack consumers and AVX-512 ask for."""

MIN_SPAN_ORDER: Final = 16
"""Spans start at 64 KiB: smaller ones would cost more in rows than in memory."""

MAX_SLOT_BYTES: Final = 512 * KIB
"""Above this a block is a whole span: the lock costs little beside touching that much memory."""

MIN_SLOT_SPAN_BYTES: Final = 256 * KIB
MAX_SLOT_SPAN_BYTES: Final = MIB
SLOTS_PER_SPAN: Final = 32
"""A slot span has this many slots where its size allows: the lock is taken once for so many blocks."""

COMMIT_STEP_BYTES: Final = 64 * KIB
"""Slot spans and tables get real memory in these steps, so that a small user of many sizes stays small."""

POPULATE_CHUNK_BYTES: Final = 64 * MIB
"""`mmap.madvise` keeps the interpreter lock; between chunks other threads run."""

MIN_ADDRESS_SPACE_BYTES: Final = TIB
ADDRESS_SPACE_PER_LIMIT: Final = 32
"""Address space is free; it must outlast every mix of span orders, since spans are never split or merged."""

DEFAULT_LIMIT_SHARE: Final = 0.8
"""Of the smallest of free tmpfs, available RAM and cgroup room: the rest is for everybody else."""

HEADROOM_BYTES: Final = 64 * MIB
"""Of RAM and of a memory cgroup this stays free, or a sixteenth where that is less: processes need memory of their own
to handle the refusal.
"""

RESERVE_BATCH: Final = 64
"""Record and reference rows a client takes at first, so that sharing takes the lock once in 64."""

LARGEST_RESERVE_BATCH: Final = 512
"""Each time a client needs more, it takes twice as many, up to this: who sends without end waits less often."""

TICKET_GRACE_SECONDS: Final = 60.0
"""How long the message of a dead sender is safe even when memory is needed."""

SERVICE_GRACE_SECONDS: Final = 60.0
"""How long a pool whose service was killed waits for it to be started again, without any client."""

WAIT_FIRST_SECONDS: Final = 0.001
WAIT_LONGEST_SECONDS: Final = 0.05
"""Back-off while waiting for memory (`timeout=`): short enough to follow a pipeline, long enough to cost nothing."""

ROOM_RECHECK_BYTES: Final = 16 * MIB
ROOM_RECHECK_SECONDS: Final = 0.05
"""The machine's free memory is read again after this much was committed or this long has passed."""

EXIT_PRIORITY: Final = -1000
"""After `multiprocessing.Queue`'s feeder threads (-5) have pickled what is buffered: those messages need their
tickets.
"""

POOL_VARIABLE: Final = "SHMTENSOR_POOL"
"""The environment variable by which children find their parent's default pool."""

HTTP_TOKEN_VARIABLE: Final = "SHMTENSOR_HTTP_TOKEN"
"""The token of the service's page, for those who can't read a new one at each start, as Prometheus."""

TRACE_VARIABLE: Final = "SHMTENSOR_TRACE"
"""Set to 1, blocks and messages are listed with the line that made them. It costs 5 us a block, 30 us a message."""
