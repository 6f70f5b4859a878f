"""What can be said of a layout before it runs: whether it is refused, its memory, and the least time it must take.

The engine is asked with as few micro-batches as give the same peak of memory, so that an answer takes milliseconds.
The least time: the ranks of a stage do all their computations one after the other, nothing hides them, and the last
stage begins when the first micro-batch has come to it and its last gradient has the way back before it. Per rank r

    T ≥ m · Σ_chunks (forward + backward)     and     T ≥ (p - 1) · (f + b) + m · v · (f + b)

with f and b of the cheapest chunk (Narayanan et al. 2021, section 2.2, without communication).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError
from windtunnel.layout.job import explain

if TYPE_CHECKING:
    from windtunnel.layout.job import Job
    from windtunnel.layout.space import Layout

FILLED = ("1f1b", "interleaved", "gpipe")
"""Schedules whose backward pass is whole: what splits it fills its bubble with the halves."""


@dataclass(frozen=True)
class Examined:
    """A layout with what is known of it before a run."""

    layout: Layout
    reason: str | None
    """Why it is refused; None if it is not."""
    memory_bytes: int | None
    """Of the GPU that holds most."""
    least_s: float | None


def examine(job: Job, layout: Layout) -> Examined:
    """Asks the engine about `layout`."""
    replicas = layout.replicas
    if job.global_batch % replicas:
        said = f"micro_batch · ep · dp = {layout.micro_batch} · {layout.ep} · {layout.dp}"
        return Examined(layout, f"a global batch of {job.global_batch} is not a multiple of {said}", None, None)
    micro_batches = layout.micro_batches(job.global_batch)
    asked = min(micro_batches, _enough(layout))
    changes: dict[str, Any] = {
        key.removeprefix(f"{job.place}."): value for key, value in layout.keys(job.place).items()
    }
    changes["workload.global_batch"] = asked * replicas
    changes["workload.training.layers_per_stage"] = None
    try:
        _, found = explain(job.source, list(job.overrides), job.index, changes)
    except InputError as error:
        return Examined(layout, reason(error, job), None, None)
    memory = found["memory"]
    fits = memory["capacity"] is None or memory["total"] <= memory["capacity"]
    short = next((text for text in found["warnings"] if "GiB missing" in text), None)
    refused = None if fits else _bare(short, job) if short else "does not fit the GPU's memory"
    stages = found["model"]["stages"]
    return Examined(layout, refused, memory["total"], least_time(layout, stages, micro_batches))


def least_time(layout: Layout, stages: list[dict[str, float]], micro_batches: int) -> float:
    """Seconds that no fabric can save."""
    times = [(stage["forward_compute_s"], stage["backward_compute_s"]) for stage in stages]
    if layout.schedule not in FILLED:
        return micro_batches * sum(f + b for f, b in times) / layout.pp
    cheapest = min(f + b for f, b in times)
    bubble = (layout.pp - 1) * cheapest + micro_batches * layout.chunks * cheapest
    return max(micro_batches * longest(layout, stages), bubble)


def longest(layout: Layout, stages: list[dict[str, float]]) -> float:
    """Seconds that a micro-batch takes of the rank that computes longest; the mean where the schedule folds stages."""
    each = [stage["forward_compute_s"] + stage["backward_compute_s"] for stage in stages]
    if layout.schedule not in FILLED:
        return sum(each) / layout.pp
    return max(sum(each[rank :: layout.pp]) for rank in range(layout.pp))


def reason(error: InputError, job: Job) -> str:
    """The first line of a refusal, without the place, which the row says."""
    return _bare(str(error).partition("\n")[0], job)


def _bare(text: str, job: Job) -> str:
    return text.removeprefix(f"{job.source.name}: ").removeprefix(job.place).lstrip(".: ")


def _enough(layout: Layout) -> int:
    """Micro-batches that fill the pipeline: 1F1B holds pp at most, interleaved chunks those of two rounds."""
    if layout.schedule == "1f1b":
        return layout.pp
    return layout.pp * (2 if layout.schedule == "interleaved" else 4)
