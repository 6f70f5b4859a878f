"""The search: examines every candidate, and runs those that can be among the best, as points of a study.

Candidates run in order of the least time they must take, in rounds; when the next one's least time is above the slowest
of the `top` best found, none that is left can be among them. They are rows all the same, with the time they must take
and this as the reason. With `top` None all that fit run.

The least time is that of the computations, with what tensor, context and expert parallelism make them wait, which
a second micro-batch on one stage tells. A layout of many micro-batches runs with an eighth of them first: every further
one takes at least as long as alone. What such runs tell is no proof, and taken 2% low (`MARGIN`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from windtunnel.engine import InputError
from windtunnel.layout.examine import computing, examine
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

MARGIN = 0.02
"""How much lower a least time is taken than short runs say: a longer run may hide a little more of its waits."""

FIRST_ROUND = 96
"""Candidates that are looked at first."""

LONG = 16
"""Micro-batches from which fewer are run first."""

SHORTER = 8
"""By how much fewer."""

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
    each_s: float | None = None
    """Computations of a micro-batch on the rank that has most."""
    sharp: bool = False
    """Whether its least time has what tensor, context and expert parallelism expose."""
    shortened_s: float | None = None
    """The least time as a run of fewer micro-batches gives it."""
    ideal_s: float | None = None
    """Iteration on a fabric where NICs alone are shared."""
    real_s: float | None = None
    """Iteration on the scenario's fabric."""
    mfu: float | None = None
    tokens_per_s: float | None = None
    folder: str | None = None

    def record(self) -> dict[str, Any]:
        """The row as names and values."""
        kept = {
            key: value for key, value in asdict(self).items() if key not in ("layout", "each_s", "shortened_s", "sharp")
        }
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
    return Row(found.layout, state, found.reason, found.memory_bytes, found.least_s, found.each_s)


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
        if phase == "ideal" and top is not None and _sharpen(job, known, batch, runs):
            waiting.sort(key=least)
            continue
        if phase == "ideal" and top is not None:
            _shorten(job, known, batch, runs)
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


def _kind(layout: Layout) -> Layout:
    """What layouts share that expose the same of tensor, context and expert parallelism."""
    return replace(layout, pp=1, dp=1, zero=0, schedule="1f1b", chunks=1)


def _sharpen(job: Job, known: dict[Layout, Row], batch: list[Layout], runs: _Runs) -> bool:
    """Better least times: what tensor, context and expert parallelism expose is not hidden by other micro-batches.

    A second micro-batch on one pipeline stage without replicas takes its computations and what they wait for; each
    layout of the same tp, cp, ep, micro-batch and recomputation has at least that share of waiting. Says whether
    anything was learnt: all layouts of the kinds in `batch` then have it.
    """
    kinds = sorted({_kind(layout) for layout in batch if not known[layout].sharp})
    if not kinds:
        return False
    points = [
        _point(job, kind, "ideal", batch=number * kind.replicas, memory="ignore") for kind in kinds for number in (1, 2)
    ]
    ended = iter(runs.of(points))
    factors: dict[Layout, float] = {}
    for kind in kinds:
        one, two = (_seconds(next(ended), job) for _ in range(2))
        computes = computing(job, kind)
        if one is not None and two is not None and computes:
            factors[kind] = max(1.0, (1 - MARGIN) * (two - one) / computes)
    asked = set(kinds)
    for layout, row in list(known.items()):
        if row.state == "slower" and not row.sharp and _kind(layout) in asked:
            factor = factors.get(_kind(layout), 1.0)
            least, each = (row.least_s or 0.0) * factor, (row.each_s or 0.0) * factor
            known[layout] = replace(row, least_s=least, each_s=each, sharp=True)
    return True


def _shorten(job: Job, known: dict[Layout, Row], batch: list[Layout], runs: _Runs) -> None:
    """Learns better least times: runs of few micro-batches where there are many, and the computations of the rest."""
    short: list[tuple[Layout, int, int]] = []
    for layout in batch:
        many = layout.micro_batches(job.global_batch)
        few = layout.pp * -(-max(2 * layout.pp, many // SHORTER) // layout.pp)
        if known[layout].shortened_s is None and few * 4 <= many and many >= LONG:
            short.append((layout, few, many))
    points = [_point(job, layout, "ideal", batch=few * layout.replicas) for layout, few, _ in short]
    for (layout, few, many), outcome in zip(short, runs.of(points) if points else [], strict=True):
        row = known[layout]
        seconds = _seconds(outcome, job)
        if seconds is not None and row.least_s is not None:
            told = (1 - MARGIN) * (seconds + (many - few) * (row.each_s or 0.0))
            known[layout] = replace(row, shortened_s=told, least_s=max(row.least_s, told))


def _seconds(outcome: Outcome, job: Job) -> float | None:
    """The iteration time of a run; None if it did not come to its end."""
    if outcome.summary is None:
        return None
    found: float | None = (outcome.summary["jobs"][job.index]["iteration_time_s"] or {}).get("mean")
    return found


def _nth(times: list[float], top: int | None) -> float | None:
    """The slowest of the `top` best; None of fewer."""
    return None if top is None or len(times) < top else sorted(times)[top - 1]


def _point(job: Job, layout: Layout, phase: Fabric, *, batch: int | None = None, memory: str | None = None) -> Point:
    values = layout.keys(job.place)
    fixed: tuple[tuple[str, str], ...] = (
        (f"{job.place}.iterations", "1"),
        (f"{job.place}.workload.training.layers_per_stage", "null"),
    )
    if batch is not None:
        fixed = (*fixed, (f"{job.place}.workload.global_batch", str(batch)))
    if memory is not None:
        fixed = (*fixed, ("memory", memory))
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
    what = (
        "for what its computations take and wait for"
        if row.shortened_s is None
        else "as fewer of its micro-batches do, and the rest"
    )
    what = what if row.ideal_s is None else "on an ideal fabric"
    message = f"not run: it takes at least {least:.4g} s {what}, and the best take {slowest:.4g} s at most"
    return replace(row, state="slower", message=message)


def _order(row: Row, fabric: Fabric) -> tuple[int, float, Layout]:
    seconds = row.time(fabric)
    if seconds is not None:
        return 0, seconds, row.layout
    rank = {"slower": 1, "done": 1, "failed": 2, "refused": 3}[row.state]
    return rank, max(row.least_s or 0.0, row.ideal_s or 0.0), row.layout
