"""What this project wants to be as fast as, and whether it is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from benchmarks import solo
from benchmarks.growth import Living
from benchmarks.peers import Floor, Shmtensor
from benchmarks.table import Results, number_text, ratio
from benchmarks.works import AGAIN, ALLOCATE, FILL, KIB, MIB, PIPELINES, ROW, SEND_PINNED, TRIP

ICEORYX2 = "iceoryx2"


class Goal(NamedTuple):
    """A number that should be at most so much, or at least."""

    text: str
    bound: float
    measured: float
    unit: str = ""
    at_least: bool = False

    def line(self) -> list[str]:
        """Its line of the table."""
        met = self.measured >= self.bound if self.at_least else self.measured <= self.bound
        sign, unit = "≥" if self.at_least else "≤", f" {self.unit}".rstrip()
        return [
            self.text,
            f"{sign} {self.bound:g}{unit}",
            f"{number_text(self.measured)}{unit}",
            "yes" if met else "no",
        ]


# Name and size of a row, who it is compared with, and the most that the ratio may be.
AGAINST = [
    *[(ALLOCATE, nbytes, Floor.name, 1.0) for nbytes in (64, 4 * KIB, 256 * KIB)],
    (SEND_PINNED, KIB, Floor.name, 1.4),
    (SEND_PINNED, KIB, ICEORYX2, 1.0),
    (AGAIN, MIB, Floor.name, 1.4),
    (ROW, 64 * KIB, Floor.name, 1.4),
    *[(TRIP, nbytes, Floor.name, 1.1) for nbytes in (16 * MIB, 256 * MIB)],
    (FILL, 16 * MIB, Floor.name, 1.05),
    *[(name, 8 * MIB, ICEORYX2, 1.0) for name in PIPELINES.values()],
]
HEAD = ["work", "goal", "measured", "met"]


def from_rows(results: Results) -> list[Goal]:
    """The goals that rows of the table answer; those whose peer isn't there are left out."""
    goals = []
    for row, samples in results.items():
        for name, nbytes, peer, most in AGAINST:
            if (row.name, row.nbytes) == (name, nbytes) and peer in samples:
                text = f"{row.name.split(',')[0]}, {row.size}, against {peer}"
                goals.append(Goal(text, most, ratio(samples[Shmtensor.name], samples[peer])))
    return goals


def from_growth(rates: dict[int, float], lived: Living) -> list[Goal]:
    """Those on how cost grows."""
    lives, times = f"{min(lived.us):,} to {max(lived.us):,} living tensors", lived.us.values()
    return [
        Goal(
            f"{max(rates)} processes sharing at once, or fewer: together, against one",
            0.5, min(rates.values()) / rates[1], at_least=True,
        ),
        Goal(f"{lives}: time per tensor, longest against shortest", 1.3, max(times) / min(times)),
        Goal(f"{lives}: descriptors", 3, lived.descriptors),
        Goal(f"{lives}: mappings", 2, lived.mappings),
    ]  # fmt: skip


def from_solo(rounds: int, share: int = 1) -> Sequence[Goal]:
    """Those that need no other process of a peer; `share` divides how much is done."""
    views = solo.views_to_torch(rounds, 2000 // share)
    memory, deaths = solo.bytes_per_tensor(solo.MANY // share), solo.after_deaths_ms(solo.MANY // share)
    many, ms = f"{solo.MANY // share:,}", partial(Goal, unit="ms")
    return [
        *[Goal(f"`{view}` against torch's", 1.5, measured) for view, measured in views.items()],
        ms("first open in a fresh process", 5, solo.first_open_ms(rounds)),
        Goal("import against NumPy's", 1.15, solo.import_to_numpy(rounds)),
        Goal("shared state of a shared tensor", 256, memory["shared"], "B"),
        Goal("Python's own for a living tensor", 600, memory["sent"], "B"),
        ms(f"rebuild after a death, {many} records", 50, deaths["rebuild"]),
        ms(f"reap of a client with {many} holds", 50, deaths["reap"]),
    ]
