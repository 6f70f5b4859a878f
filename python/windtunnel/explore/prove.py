"""Proof: the best layouts of the cost model, run at flow fidelity, and the first of those at packet fidelity.

Runs are points of a study: kept in the store, and not run again. What a run says goes before what the cost model said;
the order that comes out is reported beside the order that went in.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from windtunnel.source import override_text
from windtunnel.studies.point import Point
from windtunnel.studies.runner import Limits, Progress, run_points

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windtunnel.explore.space import Candidate
    from windtunnel.layout.job import Job
    from windtunnel.layout.priced import Answer
    from windtunnel.studies.point import Outcome
    from windtunnel.studies.store import Store


@dataclass(frozen=True)
class Network:
    """Settings of the network that are tried beside layouts; None: as the scenario has it."""

    load_balancer: str | None = None
    queue_pairs: int | None = None
    transport: str | None = None

    def values(self) -> dict[str, object]:
        """The keys of the scenario that say it."""
        found = {
            "network.load_balancer": self.load_balancer,
            "network.queue_pairs": self.queue_pairs,
            "network.transport": self.transport,
        }
        return {key: value for key, value in found.items() if value is not None}

    def name(self) -> str:
        """In words."""
        return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in self.values().items()) or "as written"


@dataclass(frozen=True)
class Proven:
    """A layout with what the cost model said of it and what runs did."""

    candidate: Candidate
    answer: Answer
    estimated_rank: int
    flow_s: float | None = None
    packet_s: float | None = None
    message: str | None = None
    folder: str | None = None
    network: Network = field(default_factory=Network)

    @property
    def best_s(self) -> float:
        """The iteration of the finest run that there is, else the estimate."""
        found = next((s for s in (self.packet_s, self.flow_s, self.answer.iteration_s) if s is not None), None)
        return float("inf") if found is None else found

    def placed(self, objective: str) -> tuple[float, ...]:
        """What layouts are ordered by: those that ran first, by what `objective` says of the finest run."""
        spent = self.best_s * self.candidate.gpus
        of = {"time": self.best_s, "memory": float(self.answer.memory_bytes), "energy": spent, "dollars": spent}
        return (1.0 if self.level < 2 else 2.0, of[objective], self.best_s, self.estimated_rank)

    @property
    def level(self) -> int:
        """0 where packets say it, 1 flows, 2 the cost model."""
        return 0 if self.packet_s is not None else 1 if self.flow_s is not None else 2


def prove(
    job: Job,
    rows: Sequence[tuple[Candidate, Answer]],
    store: Store,
    *,
    flows: int,
    packets: int = 0,
    networks: Sequence[Network] = (),
    ideal: bool = False,
    objective: str = "time",
    limits: Limits | None = None,
    fresh: bool = False,
    progress: Callable[[Progress], None] | None = None,
    told: Callable[[list[Proven]], None] | None = None,
) -> list[Proven]:
    """The first `flows` of `rows` run as flows, the `packets` fastest of these as packets under each of `networks`.

    Those that ran come first, by `objective`; the rest follow as the cost model ordered them. `told` hears after each.
    """
    found = [Proven(candidate, answer, rank) for rank, (candidate, answer) in enumerate(rows, start=1)]

    def run(which: list[int], fidelity: str, under: Network) -> None:
        points = [_point(job, found[i].candidate, fidelity, under, ideal=ideal) for i in which]
        outcomes = run_points(points, store, limits=limits or Limits(), fresh=fresh, progress=progress)
        for i, outcome in zip(which, outcomes, strict=True):
            found[i] = _with(found[i], outcome, job, fidelity, under)
            if told is not None:
                told(list(found))

    run(list(range(min(flows, len(found)))), "flow", Network())
    if packets:
        ran = sorted((i for i, row in enumerate(found) if row.flow_s is not None), key=lambda i: found[i].best_s)
        for under in networks or (Network(),):
            run(ran[:packets], "packet", under)
    return sorted(found, key=lambda row: row.placed(objective))


def _point(job: Job, candidate: Candidate, fidelity: str, under: Network, *, ideal: bool) -> Point:
    values = {**candidate.values(job.place, job.own["parallelism"]), **under.values()}
    pairs = tuple((key, override_text(value)) for key, value in values.items())
    fixed = ((f"{job.place}.iterations", "1"),)
    shown = {key: value for key, value in candidate.record().items() if value is not None}
    level = "job" if ideal and fidelity == "flow" else fidelity
    return Point(job.source, (*job.overrides, *fixed, *pairs), fidelity=level, varied=shown)


def _with(row: Proven, outcome: Outcome, job: Job, fidelity: str, under: Network) -> Proven:
    if outcome.summary is None:
        return replace(row, message=outcome.message)
    seconds = (outcome.summary["jobs"][job.index]["iteration_time_s"] or {}).get("mean")
    folder = None if outcome.folder is None else str(outcome.folder)
    if fidelity == "flow":
        return replace(row, flow_s=seconds, folder=folder)
    if row.packet_s is None or (seconds is not None and seconds < row.packet_s):
        return replace(row, packet_s=seconds, folder=folder, network=under)
    return row


def reordering(rows: Sequence[Proven]) -> dict[str, float | int | None]:
    """How far the proof changed the order: pairs that ran the other way round, and the largest and mean error."""
    ran = [row for row in rows if row.flow_s is not None and row.answer.iteration_s is not None]
    turned = sum(
        ((a.answer.iteration_s, a.estimated_rank) < (b.answer.iteration_s, b.estimated_rank))
        != ((a.flow_s or 0.0) <= (b.flow_s or 0.0))
        for i, a in enumerate(ran)
        for b in ran[i + 1 :]
    )
    errors = [(row.answer.iteration_s or 0.0) / (row.flow_s or 1.0) - 1.0 for row in ran]
    return {
        "proven": len(ran),
        "pairs": len(ran) * (len(ran) - 1) // 2,
        "turned": turned,
        "largest_error": max((abs(error) for error in errors), default=None),
        "mean_error": sum(errors) / len(errors) if errors else None,
    }
