"""How near the cost model is to flow fidelity, over layouts drawn from all that can run."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windtunnel.explore.prove import prove
from windtunnel.explore.space import Space
from windtunnel.layout.priced import answers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windtunnel.explore.prove import Proven
    from windtunnel.explore.space import Candidate
    from windtunnel.layout.job import Job
    from windtunnel.layout.priced import Answer
    from windtunnel.studies.runner import Limits
    from windtunnel.studies.store import Store

WIDE = Space(
    schedules=("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "dorapp", "zbv"),
    zero=(0, 1, 2, 3),
    orders=("pp-out", "dp-out"),
)
"""More than a search looks at by itself: every ZeRO stage, both orders, schedules that are seldom best."""
TRIED = 12
"""Layouts that are asked for at once for each that is wanted: some do not fit a GPU, or their schedule."""


@dataclass(frozen=True)
class Errors:
    """Errors of iteration times: predicted over simulated, less 1."""

    number: int
    largest: float
    p95: float
    mean: float


def drawn(job: Job, number: int, seed: int, space: Space = WIDE) -> list[tuple[Candidate, Answer]]:
    """At most `number` layouts of `space` that can run and fit, at random, with what the cost model says of each."""
    candidates = space.candidates(job, Counter())
    random.Random(seed).shuffle(candidates)  # noqa: S311
    own, training = job.own["parallelism"], job.own["training"]
    fitting: list[tuple[Candidate, Answer]] = []
    for first in range(0, len(candidates), TRIED * number):
        drawn_now = candidates[first : first + TRIED * number]
        choices = [candidate.choice(own, training) for candidate in drawn_now]
        given = answers(job.source, job.overrides, choices, job=job.index)
        rows = zip(drawn_now, given, strict=True)
        fitting += [row for row in rows if row[1].refused is None and row[1].fits]
        if len(fitting) >= number:
            break
    return fitting[:number]


def compared(
    job: Job, number: int, seed: int, store: Store, limits: Limits | None = None, space: Space = WIDE
) -> list[tuple[Proven, float]]:
    """So many layouts run as flows, each with the error of the cost model."""
    rows = prove(job, drawn(job, number, seed, space), store, flows=number, limits=limits)
    return [
        (row, row.answer.iteration_s / row.flow_s - 1.0)
        for row in rows
        if row.flow_s is not None and row.answer.iteration_s is not None
    ]


def errors(found: Iterable[float]) -> Errors:
    """Of at least one."""
    all_of = list(found)
    sizes = sorted(abs(error) for error in all_of)
    return Errors(len(sizes), sizes[-1], sizes[int(0.95 * (len(sizes) - 1))], statistics.mean(all_of))
