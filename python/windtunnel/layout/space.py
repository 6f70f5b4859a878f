"""The space of layouts: which values of each setting are tried, and their combinations.

The five dimensions take powers of two whose product is the number of GPUs (or all divisors); the settings take those
named. Combinations that are the same layout by definition stand once: a pipeline of one stage has no schedule, and
without replicas there is nothing that ZeRO could share out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windtunnel.layout.job import Job

SCHEDULES = ("1f1b", "interleaved")
MICRO_BATCHES = (1, 2, 4)
ZERO = (1, 3)
MOST_CHUNKS = 8
LARGEST = 200_000
"""Candidates at most."""


@dataclass(frozen=True, order=True)
class Layout:
    """How a job is laid out. `chunks` is 1 where the schedule has none."""

    tp: int
    cp: int
    ep: int
    pp: int
    dp: int
    zero: int
    schedule: str
    chunks: int
    micro_batch: int
    recompute: str

    def keys(self, place: str) -> dict[str, Any]:
        """The keys of the scenario that say it, for the job at `place`; a null takes a key out."""
        at = f"{place}.parallelism"
        return {
            f"{at}.tp": self.tp, f"{at}.cp": self.cp, f"{at}.ep": self.ep, f"{at}.pp": self.pp, f"{at}.dp": self.dp,
            f"{at}.zero": self.zero, f"{at}.schedule.name": self.schedule,
            f"{at}.schedule.chunks": self.chunks if self.chunks > 1 else None,
            f"{place}.workload.micro_batch": self.micro_batch,
            f"{place}.workload.training.recompute": self.recompute,
        }  # fmt: skip

    def choice(self, own: dict[str, Any], training: dict[str, Any]) -> dict[str, Any]:
        """As the cost model is asked, of a job with these sections of its own."""
        schedule = {**(own.get("schedule") or {}), "name": self.schedule, "chunks": self.chunks}
        if self.chunks == 1:
            schedule.pop("chunks")
        sizes = {"tp": self.tp, "cp": self.cp, "ep": self.ep, "pp": self.pp, "dp": self.dp}
        return {
            "parallelism": {**own, **sizes, "zero": self.zero, "schedule": schedule},
            "training": {**training, "recompute": self.recompute, "layers_per_stage": None},
            "micro_batch": self.micro_batch,
        }

    @property
    def replicas(self) -> int:
        """Sequences that go through all pipelines at once."""
        return self.micro_batch * self.dp * self.ep

    def micro_batches(self, global_batch: int) -> int:
        """Micro-batches that go through each pipeline."""
        return global_batch // self.replicas


@dataclass(frozen=True)
class Space:
    """Values to try; what is None follows from the job."""

    schedules: tuple[str, ...] = SCHEDULES
    chunks: tuple[int, ...] | None = None
    """Of the interleaved schedule; if None, numbers that divide a rank's layers, to `MOST_CHUNKS`."""
    micro_batches: tuple[int, ...] | None = None
    zero: tuple[int, ...] | None = None
    recompute: tuple[str, ...] | None = None
    divisors: bool = False
    """Dimensions take all divisors of the number of GPUs and not powers of two alone."""

    def layouts(self, job: Job) -> list[Layout]:
        """The candidates, in order. Raises `InputError` if there are more than `LARGEST`."""
        found: list[Layout] = []
        for sizes in _sizes(job.gpus, experts=job.experts, divisors=self.divisors):
            found += self._of(sizes, job)
            if len(found) > LARGEST:
                raise InputError(
                    f"the space has more than {LARGEST:,} layouts\n\n"
                    "hint: name fewer values with `--zero`, `--micro-batch`, `--recompute`, `--schedule` or `--chunks`"
                )
        return found

    def _of(self, sizes: tuple[int, int, int, int, int], job: Job) -> Iterator[Layout]:
        tp, cp, ep, pp, dp = sizes
        own = job.own
        zeros = self.zero or tuple(sorted({own["zero"], *ZERO} - ({0} if own["zero"] == 0 else set())))
        zeros = zeros[:1] if dp * cp == 1 else zeros
        for zero in zeros:
            for schedule, chunks in self._schedules(pp, job.layers):
                for micro in self.micro_batches or tuple(sorted({own["micro_batch"], *MICRO_BATCHES})):
                    for recompute in self.recompute or _recompute(own):
                        yield Layout(tp, cp, ep, pp, dp, zero, schedule, chunks, micro, recompute)

    def _schedules(self, pp: int, layers: int) -> Iterator[tuple[str, int]]:
        if pp == 1:
            yield "1f1b", 1
            return
        for name in self.schedules:
            if name != "interleaved":
                yield name, 1
            elif self.chunks is not None:
                yield from ((name, chunks) for chunks in self.chunks)
            elif layers % pp == 0:
                each = layers // pp
                yield from ((name, n) for n in range(2, min(MOST_CHUNKS, each) + 1) if each % n == 0)


def _recompute(own: dict[str, Any]) -> tuple[str, ...]:
    """Flash attention keeps no scores, so that `selective` is `none` with it."""
    kinds = ["none", "selective", "full"] if own["attention"] == "unfused" else ["none", "full"]
    return tuple(kinds if own["recompute"] in (None, *kinds) else [*kinds, own["recompute"]])


def _sizes(gpus: int, *, experts: bool, divisors: bool) -> Iterator[tuple[int, int, int, int, int]]:
    """Every (tp, cp, ep, pp, dp) whose product is `gpus`; all but dp from the values that are tried."""

    def of(number: int) -> list[int]:
        return [n for n in range(1, number + 1) if number % n == 0 and (divisors or n & (n - 1) == 0)]

    for tp in of(gpus):
        for cp in of(gpus // tp):
            for ep in of(gpus // (tp * cp)) if experts else [1]:
                for pp in of(gpus // (tp * cp * ep)):
                    yield tp, cp, ep, pp, gpus // (tp * cp * ep * pp)
