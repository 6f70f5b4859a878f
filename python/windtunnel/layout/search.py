"""The search: examines every candidate, and runs those that can be among the best, as points of a study.

Candidates run in order of the least time they must take, in rounds; when the next one's least time is above the slowest
of the `top` best found, none that is left can be among them. They are rows all the same, with the time they must take
and this as the reason. With `top` None all that fit run.

The least time is that of the computations, or what the explorer's cost model says of the layout on the same fabric, if
that is more. What the model says is no proof, and taken 5% low (`MARGIN`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from windtunnel.engine import InputError
from windtunnel.layout.examine import examine
from windtunnel.layout.priced import answers
from windtunnel.layout.space import Space
from windtunnel.source import override_text
from windtunnel.studies.point import Point
from windtunnel.studies.runner import Limits, run_points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from windtunnel.layout.examine import Examined
    from windtunnel.layout.job import Job
    from windtunnel.layout.space import Layout
    from windtunnel.studies.point import Outcome
    from windtunnel.studies.runner import Progress
    from windtunnel.studies.store import Store

TOP = 20
"""Best layouts that are exact."""

MARGIN = 0.05
"""How much lower a least time is taken than the cost model says, whose errors `explore-accuracy` keeps below that."""

FIRST_ROUND = 96
"""Candidates that are looked at first."""

Fabric = Literal["ideal", "real"]
State = Literal["done", "slower", "refused", "failed"]


@dataclass(frozen=True)
class Row:
    """A candidate and what became of it."""

    layout: Layout
    state: State
    """`slower`: not run, since its computations alone take longer than the best; `refused`: not valid, or too large."""
    message: str | None
    memory_bytes: int | None
    least_s: float | None
    ideal_s: float | None = None
    """Iteration on a fabric where NICs alone are shared."""
    real_s: float | None = None
    """Iteration on the scenario's fabric."""
    mfu: float | None = None
    tokens_per_s: float | None = None
    folder: str | None = None

    def record(self) -> dict[str, Any]:
        """The row as names and values."""
        kept = {key: value for key, value in asdict(self).items() if key != "layout"}
        return {**asdict(self.layout), **kept}

    def time(self, fabric: Fabric) -> float | None:
        """The time it is ranked by."""
        return self.ideal_s if fabric == "ideal" else self.real_s


def search(
    job: Job,
    store: Store,
    *,
    space: Space | None = None,
    fabric: Fabric = "ideal",
    top: int | None = TOP,
    limits: Limits | None = None,
    fresh: bool = False,
    examining: Callable[[int, int], None] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> list[Row]:
    """A row per candidate: the fastest first, then those that must be slower by the least time, then the refused.

    The scenario's own layout runs in any case.

    Raises `InputError` if the space holds no layout at all.
    """
    candidates = (space or Space()).layouts(job)
    if not candidates:
        raise InputError(f"no layout of {job.gpus} GPUs in the space that was asked for")
    rows = [_row(found) for found in _examined(job, candidates, examining)]
    open_rows = {row.layout: row for row in rows if row.state == "slower"}
    phases: tuple[Fabric, ...] = ("ideal",) if fabric == "ideal" else ("ideal", "real")
    known = {row.layout: row for row in rows}
    if top is not None:
        _price(job, known)
    runs = _Runs(store, limits or Limits(), fresh, progress)
    for phase in phases:
        _best_first(job, known, list(open_rows), phase, top, runs)
    own = next((row for row in known.values() if is_own(job, row.layout) and row.state == "slower"), None)
    if own is not None:
        for phase in phases:
            (outcome,) = runs.of([_point(job, own.layout, phase)])
            known[own.layout] = _told(known[own.layout], outcome, job, phase)
    done = {row.layout for row in known.values() if row.time(fabric) is not None}
    slowest = _nth([known[layout].time(fabric) or 0.0 for layout in done], top)
    final = [_settled(row, fabric, slowest) for row in known.values()]
    return sorted(final, key=lambda row: _order(row, fabric))


def is_own(job: Job, layout: Layout) -> bool:
    """Whether `layout` is what the scenario has."""
    own = job.own
    sizes = {"tp": layout.tp, "cp": layout.cp, "ep": layout.ep, "pp": layout.pp, "dp": layout.dp}
    settings = (layout.zero, layout.micro_batch, layout.recompute)
    schedule = (layout.schedule, layout.chunks) if layout.pp > 1 else None
    return (
        sizes == job.layout and settings == (own["zero"], own["micro_batch"], own["recompute"] or "none")
        and schedule in (None, (own["schedule"], own["chunks"]))
    )  # fmt: skip


@dataclass(frozen=True)
class _Runs:
    store: Store
    limits: Limits
    fresh: bool
    progress: Callable[[Progress], None] | None

    def of(self, points: list[Point]) -> Iterable[Outcome]:
        return run_points(points, self.store, limits=self.limits, fresh=self.fresh, progress=self.progress)


def _examined(job: Job, candidates: list[Layout], examining: Callable[[int, int], None] | None) -> Iterable[Examined]:
    """Each candidate examined; a layout of sizes that the model cannot have stands for all its settings."""
    impossible: set[tuple[int, ...]] = set()
    for i, layout in enumerate(candidates):
        if examining is not None and i % 16 == 0:
            examining(i, len(candidates))
        sizes = (layout.tp, layout.cp, layout.ep, layout.pp)
        if sizes in impossible:
            continue
        found = examine(job, layout)
        if found.reason is not None and found.memory_bytes is None and "global batch" not in found.reason:
            named = found.reason.startswith("parallelism: `") or (layout.chunks == 1 and "stages" in found.reason)
            if named:
                impossible.add(sizes)
        yield found


def _row(found: Examined) -> Row:
    state: State = "slower" if found.reason is None else "refused"
    return Row(found.layout, state, found.reason, found.memory_bytes, found.least_s)


def _best_first(
    job: Job, known: dict[Layout, Row], candidates: list[Layout], phase: Fabric, top: int | None, runs: _Runs
) -> None:
    """Runs candidates by the least time known of each until no other can be among the best `top`."""

    def least(layout: Layout) -> tuple[float, Layout]:
        row = known[layout]
        return max(row.least_s or 0.0, (row.ideal_s or 0.0) if phase == "real" else 0.0), layout

    waiting = sorted((layout for layout in candidates if known[layout].state != "failed"), key=least)
    times: list[float] = []
    size = FIRST_ROUND
    while waiting:
        cut = _nth(times, top)
        if cut is not None and least(waiting[0])[0] > cut:
            return
        batch = [layout for layout in waiting[:size] if cut is None or least(layout)[0] <= cut]
        if top is not None:
            batch = sorted(batch, key=least)
            batch = batch[: top - len(times)] if cut is None else [each for each in batch if least(each)[0] <= cut]
        taken = set(batch)
        waiting = sorted((layout for layout in waiting if layout not in taken), key=least)
        size = FIRST_ROUND if cut is None else size * 4
        points = [_point(job, layout, phase) for layout in batch]
        for layout, outcome in zip(batch, runs.of(points), strict=True):
            known[layout] = _told(known[layout], outcome, job, phase)
            seconds = known[layout].time(phase)
            if seconds is not None:
                times.append(seconds)


def _price(job: Job, known: dict[Layout, Row]) -> None:
    """Better least times: what the cost model says, as far as it can be trusted."""
    open_rows = [row for row in known.values() if row.state == "slower"]
    choices = [row.layout.choice(job.own["parallelism"], job.own["training"]) for row in open_rows]
    found = answers(job.source, job.overrides, choices, job=job.index, ideal=True, depth="apart")
    for row, answer in zip(open_rows, found, strict=True):
        told = (1 - MARGIN) * (answer.iteration_s or 0.0)
        known[row.layout] = replace(row, least_s=max(row.least_s or 0.0, told))


def _nth(times: list[float], top: int | None) -> float | None:
    """The slowest of the `top` best; None of fewer."""
    return None if top is None or len(times) < top else sorted(times)[top - 1]


def _point(job: Job, layout: Layout, phase: Fabric) -> Point:
    values = layout.keys(job.place)
    fixed: tuple[tuple[str, str], ...] = (
        (f"{job.place}.iterations", "1"),
        (f"{job.place}.workload.training.layers_per_stage", "null"),
    )
    pairs = tuple((key, override_text(value)) for key, value in values.items())
    shown = {key: value for key, value in values.items() if value is not None}
    return Point(
        job.source, (*job.overrides, *fixed, *pairs), fidelity="job" if phase == "ideal" else "flow", varied=shown
    )


def _told(row: Row, outcome: Outcome, job: Job, phase: Fabric) -> Row:
    if outcome.summary is None:
        state: State = "refused" if outcome.state == "refused" else "failed"
        return replace(row, state=state, message=outcome.message)
    found: dict[str, Any] = outcome.summary["jobs"][job.index]
    seconds = (found["iteration_time_s"] or {}).get("mean")
    if phase == "real":
        row = replace(row, real_s=seconds)
    else:
        row = replace(row, ideal_s=seconds)
    folder = None if outcome.folder is None else str(outcome.folder)
    return replace(
        row, state="done", mfu=found["mfu"], tokens_per_s=found["tokens_per_s"], folder=folder,
        memory_bytes=found["memory_bytes_per_gpu"] or row.memory_bytes,
    )  # fmt: skip


def _settled(row: Row, fabric: Fabric, slowest: float | None) -> Row:
    """A row that was not run says why."""
    if row.state not in ("slower", "done") or row.time(fabric) is not None or slowest is None:
        return row
    least = max(row.least_s or 0.0, row.ideal_s or 0.0)
    what = "by the cost model" if row.ideal_s is None else "on an ideal fabric"
    message = f"not run: it takes at least {least:.4g} s {what}, and the best take {slowest:.4g} s at most"
    return replace(row, state="slower", message=message)


def _order(row: Row, fabric: Fabric) -> tuple[int, float, Layout]:
    seconds = row.time(fabric)
    if seconds is not None:
        return 0, seconds, row.layout
    rank = {"slower": 1, "done": 1, "failed": 2, "refused": 3}[row.state]
    return rank, max(row.least_s or 0.0, row.ideal_s or 0.0), row.layout
