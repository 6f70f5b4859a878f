"""Predictions: every distinct scenario runs once, on as many processes as there are processors."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.validate.collectives import times
from windtunnel.validate.rounds import shortened
from windtunnel.validate.tables import pico

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from windtunnel.validate.rows import Row


def runs_of(row: Row) -> list[tuple[str, dict[str, Any], float]]:
    """What is run for a row: key, scenario and weight. Equal scenarios and models have equal keys."""
    if "mpi" in row.scenario:
        # Its fabric names every rank: the row's own id is the shorter key.
        return [(row.id, dict(row.scenario), 1.0)]
    whole = row.quantity != "time" or "collective" in row.scenario
    short = [(dict(row.scenario), 1.0)] if whole else shortened(row.scenario)
    return [(_key([scenario, row.models, row.quantity]), scenario, weight) for scenario, weight in short]


def _key(what: object) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def predict(
    rows: Iterable[Row], *, processes: int | None = None, done: Callable[[int, int], None] | None = None
) -> dict[str, dict[str, Any] | str]:
    """The summary of each distinct scenario by key (`runs_of`), or the error message where it could not run.

    `done` is told of each scenario that has ended, and of how many there are.
    """
    work: dict[str, tuple[str, str, str]] = {}
    single: dict[str, Any] = {}
    mpi: dict[str, Any] = {}
    for row in rows:
        for key, scenario, _ in runs_of(row):
            if "collective" in scenario:
                single[key] = scenario["collective"]
            elif "mpi" in scenario:
                mpi[key] = scenario["mpi"]
            elif key not in work:
                work[key] = (json.dumps(scenario), json.dumps(dict(row.models)), row.quantity)
    keys = list(work)
    count = processes or os.cpu_count() or 1
    found: dict[str, dict[str, Any] | str] = {}
    if single:
        (seconds,) = times(single.values())
        found.update({key: {"seconds": value} for key, value in zip(single, seconds, strict=True)})
    if mpi:
        answers = pico.times(list(mpi.values()))
        found.update({key: {"seconds": value} for key, value in zip(mpi, answers, strict=True)})
    if count == 1 or len(keys) < 2:
        results: Iterable[dict[str, Any] | str] = map(_run, (work[key] for key in keys))
        _collect(keys, results, found, done)
        return found
    with ProcessPoolExecutor(count) as pool:
        chunk = max(1, min(16, len(keys) // (4 * count)))
        _collect(keys, pool.map(_run, (work[key] for key in keys), chunksize=chunk), found, done)
    return found


def _collect(
    keys: Sequence[str],
    results: Iterable[dict[str, Any] | str],
    found: dict[str, dict[str, Any] | str],
    done: Callable[[int, int], None] | None,
) -> None:
    for i, (key, result) in enumerate(zip(keys, results, strict=True)):
        found[key] = result
        if done is not None:
            done(i + 1, len(keys))


def _run(work: tuple[str, str, str]) -> dict[str, Any] | str:
    scenario, models, quantity = work
    with tempfile.TemporaryDirectory(prefix="windtunnel-") as folder:
        for name, model in json.loads(models).items():
            (Path(folder) / name).write_text(model if isinstance(model, str) else json.dumps(model), encoding="utf-8")
        try:
            if quantity != "time":
                return _bytes_of(engine.explain(scenario, "row", folder, [], {"threads": 1}))
            text = engine.run(scenario, "row", folder, [], {"threads": 1}, _ignore_rows, _ignore_progress)
        except (engine.InputError, engine.RunError) as error:
            return str(error).partition("\n")[0].removeprefix("row: ")
    summary: dict[str, Any] = json.loads(text)
    return summary


def _bytes_of(explained: str) -> dict[str, Any]:
    """What a job says of its memory, in the form of a summary."""
    jobs = json.loads(explained)["jobs"]
    return {"jobs": [{"memory_by_pipeline_rank": job["model"]["memory_by_pipeline_rank"]} for job in jobs]}


def _ignore_rows(_table: str, _columns: object) -> None:
    pass


def _ignore_progress(_fraction: float | None, _simulated: float, _events: int, _phase: str) -> None:
    pass
