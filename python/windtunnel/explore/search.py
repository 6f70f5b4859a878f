"""The search: the cost model answers every candidate, the best are perturbed, and none is left without an account.

A space that is small enough is looked at whole. Of a larger one the layouts of each kind (everything but the number of
stages) are looked at with more and more stages, and no further once more of them stop helping (Li et al. 2026, section
6.2). Then, where stages may have different numbers of layers, layers are moved from stage to stage at random: for each
of the best so many times, none longer than so many times the shortest.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from windtunnel.explore.space import Accounts, Candidate
from windtunnel.layout.job import explain
from windtunnel.layout.priced import Answer, Estimates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windtunnel.explore.space import Space
    from windtunnel.layout.job import Job

WHOLE = 20_000
"""Candidates up to which all are looked at."""
SETTLED = 200
"""Best layouts of which exchanges inside passes are followed where they meet others."""
OBJECTIVES = ("time", "memory", "energy", "dollars")


@dataclass(frozen=True)
class Settings:
    """How far the search goes."""

    keep: int = 1000
    """Best candidates that are perturbed."""
    perturb: int = 100
    """Perturbations of each, and of each at most so many are answered."""
    ratio: float = 3.0
    """Layers of the longest stage over those of the shortest, at most."""
    uneven: bool = False
    """Whether stages may have different numbers of layers."""
    seed: int = 1
    ideal: bool = False
    budget_bytes: int | None = None
    """Memory of a GPU that may be used; None: all that it has."""


@dataclass
class Found:
    """What a search gave."""

    rows: list[tuple[Candidate, Answer]] = field(default_factory=list)
    """Layouts that fit, the fastest first."""
    tried: int = 0
    accounts: Accounts = field(default_factory=Accounts)
    stopped: bool = False
    """Whether it was stopped before its end."""
    whole: bool = True
    """Whether every candidate was looked at."""

    def front(self) -> list[tuple[Candidate, Answer]]:
        """Layouts that no other beats in time without taking more memory, the fastest first."""
        edge: list[tuple[Candidate, Answer]] = []
        for row in self.rows:
            if not edge or row[1].memory_bytes < edge[-1][1].memory_bytes:
                edge.append(row)
        return edge

    def empty(self) -> str:
        """What emptied the space, the most frequent reason first."""
        counts = [*self.accounts.left_out.items(), *self.accounts.refused.items()]
        if self.accounts.too_large:
            gib = 2.0**30
            least = (self.accounts.smallest or 0) / gib
            said = f"memory: the one that needs least takes {least:.1f} GiB, and a GPU may hold"
            counts.append((f"{said} {self.accounts.capacity / gib:.1f} GiB", self.accounts.too_large))
        counts.sort(key=lambda item: -item[1])
        lines = [f"{number:>8,}  {reason}" for reason, number in counts]
        return "\n".join(["no layout of the space can run", *(lines or ["       0  layouts: no sizes fit the GPUs"])])


def search(
    job: Job,
    space: Space,
    settings: Settings,
    *,
    progress: Callable[[str, int, int], None] | None = None,
) -> Found:
    """Layouts of `job`, the fastest first. Ctrl-C ends the search with what it has.

    Raises `InputError` for a space that contradicts itself or the scenario.
    """
    found = Found()
    space.check(job)
    candidates = space.candidates(job, found.accounts.left_out)
    asked = _Asked(job, settings, found, progress)
    try:
        if len(candidates) <= WHOLE:
            asked.answer("layouts", candidates)
        else:
            found.whole = False
            _by_stages(asked, candidates)
        if settings.uneven:
            _explore(asked, job, settings)
        asked.settle()
    except KeyboardInterrupt:
        found.stopped = True
    found.rows.sort(key=_by_time)
    return found


def _by_time(row: tuple[Candidate, Answer]) -> tuple[float, Candidate]:
    return row[1].iteration_s or 0.0, row[0]


class _Asked:
    def __init__(
        self, job: Job, settings: Settings, found: Found, progress: Callable[[str, int, int], None] | None
    ) -> None:
        self._job, self._settings, self.found, self._progress = job, settings, found, progress
        self._estimates = Estimates(job.source, job.overrides, job=job.index, ideal=settings.ideal)
        self.seen: set[Candidate] = set()

    def answer(self, what: str, candidates: Sequence[Candidate]) -> list[tuple[Candidate, Answer | None]]:
        """Answers of those not yet asked, None of what does not fit; each is accounted for."""
        job, settings = self._job, self._settings
        fresh = [candidate for candidate in candidates if candidate not in self.seen]
        self.seen.update(fresh)
        own, training = job.own["parallelism"], job.own["training"]
        choices = [candidate.choice(own, training) for candidate in fresh]
        given: list[tuple[Candidate, Answer | None]] = []

        def told(batch: list[Answer]) -> None:
            for answer in batch:
                given.append((fresh[len(given)], self._accounted(fresh[len(given)], answer)))
            if self._progress is not None:
                self._progress(what, len(given), len(fresh))

        self._estimates.answers(choices, apart=True, fitting=True, budget_bytes=settings.budget_bytes, told=told)
        return given

    def _accounted(self, candidate: Candidate, answer: Answer) -> Answer | None:
        """The answer if the layout can run: a row then. Otherwise its reason is counted."""
        accounts = self.found.accounts
        self.found.tried += 1
        limit = self._settings.budget_bytes or answer.capacity_bytes
        if answer.refused is not None:
            accounts.refused[_bare(answer.refused)] += 1
            return None
        if answer.memory_bytes > limit:
            accounts.too_large += 1
            accounts.capacity = limit
            least = accounts.smallest
            accounts.smallest = answer.memory_bytes if least is None else min(least, answer.memory_bytes)
            return None
        self.found.rows.append((candidate, answer))
        return answer

    def settle(self) -> None:
        """Asks again of the best and of the front, with exchanges inside passes that meet others on links."""
        job, found = self._job, self.found
        own, training = job.own["parallelism"], job.own["training"]
        settled: set[Candidate] = set()
        while True:
            found.rows.sort(key=_by_time)
            wanted = [*found.rows[:SETTLED], *found.front()]
            fresh = [candidate for candidate, _ in wanted if candidate not in settled]
            if not fresh:
                return
            fresh = list(dict.fromkeys(fresh))
            settled.update(fresh)
            choices = [candidate.choice(own, training) for candidate in fresh]
            again = self._estimates.answers(choices)
            told = dict(zip(fresh, again, strict=True))
            found.rows = [(candidate, told.get(candidate, answer)) for candidate, answer in found.rows]
            if self._progress is not None:
                self._progress("the best again", len(settled), len(settled))


def _bare(message: str) -> str:
    """A refusal without its place, its hint and its numbers."""
    first = message.partition("\n")[0]
    _, _, said = first.partition("]")
    return re.sub(r"[0-9][0-9.,]*", "n", (said or first).lstrip(".: "))


def _by_stages(asked: _Asked, candidates: list[Candidate]) -> None:
    """More and more stages of each kind, until more of them stop helping."""
    best: dict[Candidate, float] = {}
    ended: set[Candidate] = set()
    for pp in sorted({candidate.pp for candidate in candidates}):
        wave = [each for each in candidates if each.pp == pp and _kind(each) not in ended]
        times: dict[Candidate, float] = {}
        for candidate, answer in asked.answer(f"{pp} stages", wave):
            if answer is not None and answer.iteration_s is not None:
                kind = _kind(candidate)
                times[kind] = min(times.get(kind, float("inf")), answer.iteration_s)
        for kind, seconds in times.items():
            if seconds >= best.get(kind, float("inf")):
                ended.add(kind)
            best[kind] = min(seconds, best.get(kind, float("inf")))


def _kind(candidate: Candidate) -> Candidate:
    return replace(candidate, pp=0, dp=0, chunks=0, run_length=0)


def _explore(asked: _Asked, job: Job, settings: Settings) -> None:
    """Moves layers between stages of the best: of each as many neighbours as `perturb` says."""
    draw = random.Random(settings.seed)  # noqa: S311
    rows = sorted(asked.found.rows, key=lambda row: (row[1].iteration_s or 0.0, row[0]))
    chosen = [candidate for candidate, _ in rows if candidate.stages > 1][: settings.keep]
    moved: list[Candidate] = []
    for candidate in chosen:
        layers = list(candidate.layers) or even(job.layers, candidate.stages)
        if layers is None:
            continue
        for _ in range(settings.perturb):
            other = list(layers)
            for _ in range(draw.randint(1, 3)):
                give, take = draw.randrange(len(other)), draw.randrange(len(other))
                if other[give] > 1 or give in (0, len(other) - 1):
                    other[give] -= 1
                    other[take] += 1
            inner = [n for n in other if n > 0]
            if min(other) >= 0 and max(inner) <= settings.ratio * min(inner):
                moved.append(replace(candidate, layers=tuple(other)))
    asked.answer("layers moved", list(dict.fromkeys(moved)))


def even(layers: int, stages: int) -> list[int] | None:
    """Equal numbers of layers, the first stages one more where they do not divide; None of more stages than layers."""
    if stages > layers:
        return None
    return [layers // stages + (1 if i < layers % stages else 0) for i in range(stages)]


def facts_of(job: Job) -> dict[str, Any]:
    """What the engine says of the topology."""
    topology, _ = explain(
        job.source, list(job.overrides), job.index,
        {"parallelism": {"tp": 1}, "workload.global_batch": 2, "workload.micro_batch": 1,
         "workload.training.layers_per_stage": None},
    )  # fmt: skip
    return topology
