"""Predictions: every distinct scenario runs once, through the runner of studies."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.results import Result
from windtunnel.source import Source
from windtunnel.studies.ask import opened, summaries, with_tables
from windtunnel.studies.point import Point
from windtunnel.validate.collectives import times
from windtunnel.validate.rounds import shortened
from windtunnel.validate.tables import aic, m4, pico, traces, uec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from windtunnel.studies.point import Outcome
    from windtunnel.studies.runner import Limits, Progress
    from windtunnel.studies.store import Store
    from windtunnel.validate.rows import Row


def _collectives(asked: Sequence[Mapping[str, Any]]) -> list[float]:
    (seconds,) = times(asked)
    return seconds


CLOSED: Mapping[str, Callable[[Sequence[Any]], Sequence[float]]] = {
    "collective": _collectives,
    "mpi": pico.times,
    "kernel": aic.times,
    "trace": traces.times,
    "reads": m4.times,
}
"""What is asked without a scenario of its own, all of a kind at once: seconds."""
KEPT = ("iteration_time_s", "memory_by_pipeline_rank")
"""Of a job's summary."""


def runs_of(row: Row) -> list[tuple[str, dict[str, Any], float]]:
    """What is run for a row: key, scenario and weight. Equal scenarios and models have equal keys."""
    if any(key in row.scenario for key in ("mpi", "kernel", "trace", "reads")):
        # A fabric names every rank, and kernels are many: the row's own id is the shorter key.
        return [(row.id, dict(row.scenario), 1.0)]
    if row.quantity in uec.ENDS:
        # Both are of one run.
        return [(_key([row.scenario, row.models, "flows"]), dict(row.scenario), 1.0)]
    whole = row.quantity != "time" or "collective" in row.scenario
    short = [(dict(row.scenario), 1.0)] if whole else shortened(row.scenario)
    return [(_key([scenario, row.models, row.quantity]), scenario, weight) for scenario, weight in short]


def _key(what: object) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def predict(
    rows: Iterable[Row],
    *,
    store: Path | Store | None = None,
    limits: Limits | None = None,
    fresh: bool = False,
    progress: Callable[[Progress], None] | None = None,
    told: Callable[[Mapping[str, dict[str, Any] | str]], None] | None = None,
) -> dict[str, dict[str, Any] | str]:
    """What of each distinct scenario's summary a prediction needs, by key (`runs_of`), or why it could not run.

    Runs are kept in `store`, where unchanged ones are taken from unless `fresh`; without one they are gone afterwards.
    `told` hears after each scenario what is known until then.
    """
    work: dict[str, tuple[str, Row]] = {}
    closed: dict[str, dict[str, Any]] = {kind: {} for kind in CLOSED}
    for row in rows:
        for key, scenario, _ in runs_of(row):
            kind = next((kind for kind in CLOSED if kind in scenario), None)
            if kind is not None:
                closed[kind][key] = scenario[kind]
            elif key not in work:
                work[key] = (json.dumps(scenario), row)
    found: dict[str, dict[str, Any] | str] = {}
    for kind, asked in closed.items():
        if asked:
            answers = CLOSED[kind](list(asked.values()))
            found.update({key: {"seconds": value} for key, value in zip(asked, answers, strict=True)})
    if told is not None:
        told(found)
    flows = {key: one for key, one in work.items() if one[1].quantity in uec.ENDS}
    others = {key: one for key, one in work.items() if key not in flows}
    if work:
        with opened(store) as kept:
            for some, run, result in ((others, summaries, _found), (flows, with_tables, _ends)):
                points = [_point(scenario, row) for scenario, row in some.values()]
                outcomes = run(points, kept, limits=limits, fresh=fresh, progress=progress) if points else iter(())
                for (key, (_, row)), outcome in zip(some.items(), outcomes, strict=True):
                    found[key] = result(outcome, row)
                    if told is not None:
                        told(found)
    return found


def _ends(outcome: Outcome, row: Row) -> dict[str, Any] | str:
    """When the first and the last flow of a run end, in the form of a summary; or why that is not known."""
    if outcome.folder is None:
        return (outcome.message or outcome.state).removeprefix("row: ")
    return {"jobs": [uec.ends(Result(outcome.folder).flows, row.scenario)]}


def _point(scenario: str, row: Row) -> Point:
    models = ((name, model if isinstance(model, str) else json.dumps(model)) for name, model in row.models.items())
    return Point(
        Source(scenario, "row", Path("/")),
        varied={"row": row.id},
        files=tuple(models),
        explain=row.quantity not in ("time", *uec.ENDS),
    )


def _found(outcome: Outcome, _: Row) -> dict[str, Any] | str:
    """A summary, or what an explanation says of a job's memory in the form of one; or why there is none."""
    if outcome.summary is None:
        return (outcome.message or outcome.state).removeprefix("row: ")
    jobs = outcome.summary["jobs"]
    if "network" in outcome.summary:
        # Thousands of whole summaries would fill memory.
        return {"jobs": [{key: job[key] for key in KEPT if key in job} for job in jobs]}
    return {"jobs": [{"memory_by_pipeline_rank": job["model"]["memory_by_pipeline_rank"]} for job in jobs]}
