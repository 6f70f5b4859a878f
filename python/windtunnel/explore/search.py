"""The search: the cost model answers every candidate, the best are perturbed, and none is left without an account.

A space that is small enough is looked at whole. Of a larger one the layouts of each kind (everything but the number of
stages) are looked at with more and more stages, and no further once more of them stop helping (Li et al. 2026, section
6.2). Then, where stages may have different numbers of layers, layers are moved from stage to stage at random: for each
of the best so many times, none longer than so many times the shortest.

Following exchanges beside passes takes longer than all else, so of layouts where they matter the least that they can
take is asked first. Those that may then be among what is told are asked again, until all that is told was followed.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from windtunnel.explore.space import Accounts, Candidate
from windtunnel.layout.job import explain
from windtunnel.layout.priced import FIRST, Answer, Estimates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from windtunnel.explore.space import Space
    from windtunnel.layout.job import Job
    from windtunnel.layout.priced import Depth

Row = tuple["Candidate", "Answer"]

WHOLE = 20_000
"""Candidates up to which all are looked at."""
SETTLED = 200
"""Best layouts of which exchanges inside passes are followed where they meet others."""
NEAR = 0.97
"""A bound exceeds what it bounds by 3% at most: a line takes gradients to leave a little later than they do."""
KNOBS = (
    "gpus", "tp", "cp", "ep", "pp", "zero", "replicate", "order", "schedule", "chunks", "run_length", "micro_batch",
    "recompute",
)  # fmt: skip


OBJECTIVES = ("time", "memory", "energy", "dollars")
"""What layouts can be ranked by. Energy and dollars of a token follow GPUs x time (`windtunnel.explore.rates`)."""


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
    objective: str = "time"
    """What the layouts are ranked by that are settled, one of `OBJECTIVES`."""
    settled: int = SETTLED
    """Best layouts that are settled."""
    budget_bytes: int | None = None
    """Memory of a GPU that may be used; None: all that it has."""


@dataclass
class Found:
    """What a search gave."""

    rows: list[Row] = field(default_factory=list)
    """Layouts that fit, the fastest first."""
    tried: int = 0
    accounts: Accounts = field(default_factory=Accounts)
    stopped: bool = False
    """Whether it was stopped before its end."""
    whole: bool = True
    """Whether every candidate was looked at."""

    def front(self) -> list[Row]:
        """Layouts that no other beats in time without more memory of a GPU or more GPU-seconds, the fastest first.

        GPU-seconds are what energy and dollars of a token follow; with one number of GPUs they follow the time.
        """
        edges: dict[int, list[Row]] = {}
        for row in self.rows:
            edge = edges.setdefault(row[0].gpus, [])
            if not edge or row[1].memory_bytes < edge[-1][1].memory_bytes:
                edge.append(row)
        found: list[Row] = []
        for row in sorted((row for edge in edges.values() for row in edge), key=_by_time):
            if not any(it[1].memory_bytes <= row[1].memory_bytes and spent(it) <= spent(row) for it in found):
                found.append(row)
        return found

    def ranked(self, objective: str) -> list[Row]:
        """The layouts, the best by `objective` (one of `OBJECTIVES`) first; equals by time or by memory."""
        if objective == "time":
            return self.rows
        return sorted(self.rows, key=lambda row: (cost(row, objective), _seconds(row), row[1].memory_bytes, row[0]))

    def by_knob(self) -> dict[str, dict[Any, Row]]:
        """The fastest layout with each value of each knob, of knobs that have several; fastest values first."""
        best: dict[str, dict[Any, Row]] = {key: {} for key in KNOBS}
        for row in self.rows:
            for key, least in best.items():
                least.setdefault(getattr(row[0], key), row)
        return {key: least for key, least in best.items() if len(least) > 1}

    def sailor(self, gpus: int | None = None) -> Row | None:
        """The fastest that Sailor's planner can choose, of any number of GPUs or of so many."""
        return next((row for row in self.rows if _sails(row[0]) and gpus in (None, row[0].gpus)), None)

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
    gpus: Sequence[int] = (),
    progress: Callable[[str, int, int], None] | None = None,
) -> Found:
    """Layouts of `job` on its GPUs, or on each number of `gpus`, the fastest first. Ctrl-C ends it with what it has.

    Raises `InputError` for a space that contradicts itself or the scenario.
    """
    found = Found()
    space.check(job, gpus)
    candidates = space.candidates(job, found.accounts.left_out, gpus)
    asked = _Asked(job, settings, found, progress)
    try:
        if len(candidates) <= WHOLE:
            asked.answer("layouts", candidates, "line")
        else:
            found.whole = False
            _by_stages(asked, candidates)
        if settings.uneven:
            _explore(asked, job, settings)
        asked.settle()
    except KeyboardInterrupt:
        found.stopped = True
        # A bound cannot be said to be the best so far, unless there is nothing else.
        found.rows = [row for row in found.rows if not row[1].least] or found.rows
    found.rows.sort(key=_by_time)
    return found


def _sails(candidate: Candidate) -> bool:
    """Whether Sailor's planner can choose it (Strati et al. 2025).

    Pipelines outermost, 1F1B, no chunks, no context parallelism.
    """
    plain = candidate.schedule == "1f1b" and candidate.chunks == 1 and not candidate.layers
    return plain and candidate.order == "pp-out" and candidate.cp == 1 and candidate.replicate == 1


def _seconds(row: Row) -> float:
    return row[1].iteration_s or 0.0


def spent(row: Row) -> float:
    """GPU-seconds of an iteration."""
    return _seconds(row) * row[0].gpus


def cost(row: Row, objective: str) -> float:
    """What `objective` compares, the least being best."""
    if objective == "memory":
        return float(row[1].memory_bytes)
    return _seconds(row) if objective == "time" else spent(row)


def _by_time(row: Row) -> tuple[float, Candidate]:
    return _seconds(row), row[0]


def _spread(candidates: list[Candidate]) -> list[Candidate]:
    """Some from everywhere first.

    The first in order have no parallelism, need most memory, and tell a stopped search nothing.
    """
    step = max(1, len(candidates) // FIRST)
    first = candidates[::step]
    random.Random(1).shuffle(first)  # noqa: S311
    return [*first, *(it for i, it in enumerate(candidates) if i % step)]


class _Asked:
    def __init__(
        self, job: Job, settings: Settings, found: Found, progress: Callable[[str, int, int], None] | None
    ) -> None:
        self._job, self._settings, self.found, self._progress = job, settings, found, progress
        self._estimates = Estimates(job.source, job.overrides, job=job.index, ideal=settings.ideal)
        self.seen: set[Candidate] = set()

    def answer(self, what: str, candidates: Sequence[Candidate], depth: Depth) -> list[tuple[Candidate, Answer | None]]:
        """Answers of those not yet asked, None of what does not fit; each is accounted for."""
        job, settings = self._job, self._settings
        fresh = _spread([candidate for candidate in candidates if candidate not in self.seen])
        self.seen.update(fresh)
        own, training = job.own["parallelism"], job.own["training"]
        given: list[tuple[Candidate, Answer | None]] = []

        def told(batch: list[Answer]) -> None:
            for answer in batch:
                given.append((fresh[len(given)], self._accounted(fresh[len(given)], answer)))
            if self._progress is not None:
                self._progress(what, len(given), len(fresh))

        choices = [candidate.choice(own, training) for candidate in fresh]
        self._estimates.answers(choices, depth=depth, fitting=True, budget_bytes=settings.budget_bytes, told=told)
        # Equal stages suit equal GPUs.
        return given + self.balance(fresh, depth) if job.own["speeds"] else given

    def balance(self, candidates: Sequence[Candidate], depth: Depth) -> list[tuple[Candidate, Answer | None]]:
        """Answers of those that have stages of equal layers with layers by the speeds of their GPUs instead.

        The embedding and the head count among them. What comes to equal layers is not told again.
        """
        job, settings = self._job, self._settings
        staged = [candidate for candidate in candidates if candidate.stages > 1 and not candidate.layers]
        own, training = job.own["parallelism"], job.own["training"]
        choices = [{**candidate.choice(own, training), "balanced": True} for candidate in staged]
        answers = self._estimates.answers(choices, depth=depth, fitting=True, budget_bytes=settings.budget_bytes)
        given: list[tuple[Candidate, Answer | None]] = []
        for candidate, answer in zip(staged, answers, strict=True):
            layers = tuple(answer.layers or ())
            other = replace(candidate, layers=layers)
            if layers == tuple(even(job.layers, candidate.stages) or ()) or other in self.seen:
                continue
            self.seen.add(other)
            given.append((other, self._accounted(other, answer)))
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
        """Asks again of what is told.

        Of the best, the front, the best by knob and Sailor's with exchanges beside passes; of the best and the front
        then also with exchanges inside passes that meet others on links.
        """
        settings, found = self._settings, self.found

        def front() -> list[Row]:
            return [*found.ranked(settings.objective)[: settings.settled], *found.front()]

        def beside() -> list[Row]:
            knobs = [row for least in found.by_knob().values() for row in least.values()]
            numbers = sorted({row[0].gpus for row in found.rows})
            return [*front(), *knobs, *filter(None, [found.sailor(number) for number in numbers])]

        self.until(beside, followed, "apart")
        settled: set[Candidate] = set()
        self.until(front, lambda row: row[0] in settled, "close", settled)

    def until(
        self,
        told: Callable[[], list[Row]],
        final: Callable[[Row], bool],
        depth: Depth,
        asked: set[Candidate] | None = None,
    ) -> None:
        """Asks again of what is `told`, at `depth`, until all of it is `final`; `asked` hears which were."""
        found, number = self.found, 0
        while True:
            found.rows.sort(key=_by_time)
            fresh = {row[0] for row in told() if not final(row)}
            # Then all at once that may take the places of those asked first, and not one after the other. To follow
            # exchanges inside passes takes too long for that.
            if number > 0 and depth == "apart":
                fresh |= _rivals(found, self._settings, final)
            if fresh:
                if asked is not None:
                    asked |= fresh
                self._again(sorted(fresh), depth)
            elif number > 0:
                return
            number += 1
            if self._progress is not None:
                self._progress("the best again", number, number)

    def _again(self, candidates: list[Candidate], depth: Depth) -> None:
        own, training = self._job.own["parallelism"], self._job.own["training"]
        choices = [candidate.choice(own, training) for candidate in candidates]
        told = dict(zip(candidates, self._estimates.answers(choices, depth=depth), strict=True))
        self.found.rows = [(candidate, told.get(candidate, answer)) for candidate, answer in self.found.rows]


def _rivals(found: Found, settings: Settings, final: Callable[[Row], bool]) -> set[Candidate]:
    """Layouts that are not final and may be as fast as the last of the best that are, on the front, or best by knob."""
    ended, others = [row for row in found.rows if final(row)], [row for row in found.rows if not final(row)]
    rivals = set()
    objective = settings.objective
    if objective != "memory" and len(ended) >= settings.settled:
        cut = sorted(cost(row, objective) for row in ended)[settings.settled - 1]
        rivals = {row[0] for row in others if NEAR * cost(row, objective) <= cut}

    def classes(candidate: Candidate) -> Iterator[tuple[str, Any]]:
        yield from ((key, getattr(candidate, key)) for key in KNOBS)
        yield "sails", (_sails(candidate), candidate.gpus)

    best: dict[tuple[str, Any], float] = {}
    for row in ended:
        for one in classes(row[0]):
            best.setdefault(one, _seconds(row))
    for row in others:
        if any(NEAR * _seconds(row) < best.get(one, 0.0) for one in classes(row[0])):
            rivals.add(row[0])
    least: dict[int, float] = {}
    for row in sorted(found.rows, key=lambda row: (row[1].memory_bytes, _seconds(row))):
        known = least.get(row[0].gpus, float("inf"))
        if final(row):
            least[row[0].gpus] = min(known, _seconds(row))
        elif NEAR * _seconds(row) < known:
            rivals.add(row[0])
    return rivals


def followed(row: Row) -> bool:
    """Whether its time is no mere bound."""
    return not row[1].least


def _bare(message: str) -> str:
    """A refusal without its place, its hint and its numbers."""
    first = message.partition("\n")[0]
    _, _, said = first.partition("]")
    return re.sub(r"[0-9][0-9.,]*", "n", (said or first).lstrip(".: "))


def _by_stages(asked: _Asked, candidates: list[Candidate]) -> None:
    """More and more stages of each kind, until more of them stop helping."""
    best: dict[tuple[int, Candidate], float] = {}
    ended: set[tuple[int, Candidate]] = set()
    for pp in sorted({candidate.pp for candidate in candidates}):
        wave = [each for each in candidates if each.pp == pp and _kind(each) not in ended]
        times: dict[tuple[int, Candidate], float] = {}
        for candidate, answer in asked.answer(f"{pp} stages", wave, "apart"):
            if answer is not None and answer.iteration_s is not None:
                kind = _kind(candidate)
                times[kind] = min(times.get(kind, float("inf")), answer.iteration_s)
        for kind, seconds in times.items():
            if seconds >= best.get(kind, float("inf")):
                ended.add(kind)
            best[kind] = min(seconds, best.get(kind, float("inf")))


def _kind(candidate: Candidate) -> tuple[int, Candidate]:
    return candidate.gpus, replace(candidate, pp=0, dp=0, chunks=0, run_length=0, layers=())


def _explore(asked: _Asked, job: Job, settings: Settings) -> None:
    """Moves layers between stages of the best: of each as many neighbours as `perturb` says."""
    draw = random.Random(settings.seed)  # noqa: S311

    def best() -> list[Row]:
        return [row for row in asked.found.ranked(settings.objective) if row[0].stages > 1][: settings.keep]

    asked.until(best, followed, "apart")
    chosen = [candidate for candidate, _ in best()]
    if not job.own["speeds"]:
        # The first and the last stage have the embedding and the head beside their layers.
        chosen += [candidate for candidate, answer in asked.balance(chosen, "line") if answer is not None]
    moved: list[Candidate] = []
    for candidate in chosen:
        layers = list(candidate.layers) or even(job.layers, candidate.stages)
        if layers is None:
            continue
        ratio = max(settings.ratio, _ratio(layers))
        for _ in range(settings.perturb):
            other = list(layers)
            for _ in range(draw.randint(1, 3)):
                give, take = draw.randrange(len(other)), draw.randrange(len(other))
                if other[give] > 1 or give in (0, len(other) - 1):
                    other[give] -= 1
                    other[take] += 1
            if min(other) >= 0 and _ratio(other) <= ratio:
                moved.append(replace(candidate, layers=tuple(other)))
    asked.answer("layers moved", list(dict.fromkeys(moved)), "line")


def _ratio(layers: Sequence[int]) -> float:
    """The longest stage over the shortest that has layers."""
    inner = [n for n in layers if n > 0]
    return max(inner) / min(inner)


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
