"""The board: tables are read, predicted together, and scored one by one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError
from windtunnel.studies.noted import note_folder
from windtunnel.validate.ablation import sample, without
from windtunnel.validate.predict import predict, runs_of
from windtunnel.validate.score import Failed, Score
from windtunnel.validate.systems import read_systems
from windtunnel.validate.tables import BOARD, READERS, uec

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from windtunnel.studies.runner import Limits, Progress
    from windtunnel.studies.store import Store
    from windtunnel.validate.rows import Row, Table

ENVIRONMENT = "WINDTUNNEL_VALIDATION_DATA"
QUICK = 10
"""`--quick` takes every tenth row."""


@dataclass(frozen=True)
class Board:
    """The scores of some tables, and those of which the data are not there."""

    scores: Sequence[Score]
    absent: Sequence[str]

    def record(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {"tables": [score.record() for score in self.scores], "absent": list(self.absent)}


def data_folder(given: Path | None) -> Path:
    """The folder of measured tables: as given, from the environment, or `shared/data` beside the checkout."""
    if given is not None:
        if not given.is_dir():
            raise InputError(f"{given}: no such folder\n\nhint: `--data` names a folder with measured tables")
        note_folder(given)
        return given
    if named := os.environ.get(ENVIRONMENT):
        # Who names a folder means it: other tables would be judged by in its place.
        if not Path(named).is_dir():
            raise InputError(f"{named}: no such folder\n\nhint: `{ENVIRONMENT}` names it in the environment")
        note_folder(Path(named))
        return Path(named)
    places = [folder.parent / "shared" / "data" for folder in [Path(__file__).resolve().parents[3], Path.cwd()]]
    for place in places:
        if place.is_dir():
            note_folder(place)
            return place
    raise InputError(
        "no folder of measured tables\n\nhint: name it with `--data DIR`, or in the environment as "
        f"`{ENVIRONMENT}`; docs/validation.md says what is in it"
    )


def validate(
    tables: Sequence[str] = BOARD,
    *,
    data: Path | None = None,
    quick: bool = False,
    store: Path | Store | None = None,
    limits: Limits | None = None,
    fresh: bool = False,
    progress: Callable[[Progress], None] | None = None,
    only: Mapping[str, Container[str]] | None = None,
    ablated: str | None = None,
    sampled: bool = False,
    told: Callable[[Row, float], None] | None = None,
) -> Board:
    """Predicts and scores `tables`; those whose files are not in the folder are named as absent.

    Runs are kept in `store`, where unchanged ones are taken from unless `fresh`. `only` names the rows of each table
    that are wanted, by id; a table without a name in it is left out. `ablated` names a mechanism that is taken away
    (`ablation.MECHANISMS`), `sampled` takes the rows that ablations are judged by. `told` hears of each row
    when it is predicted.
    """
    folder = data_folder(data)
    systems = read_systems(folder)
    found: list[Table] = []
    absent: list[str] = []
    for name in tables:
        if only is not None and name not in only:
            continue
        table = READERS[name](folder, systems)
        if table is None:
            absent.append(name)
            continue
        if only is not None:
            table.rows = [row for row in table.rows if row.id in only[name]]
            table.beside = []
        if quick:
            table.rows = table.rows[::QUICK]
            table.beside = table.beside[::QUICK]
        if sampled:
            table.rows = sample(table.rows)
            table.beside = []
            table.facts = None
        if ablated is not None:
            table.rows = [without(row, ablated) for row in table.rows]
            table.beside = []
        found.append(table)
    rows = [row for table in found for row in [*table.rows, *table.beside]]
    hear = None if told is None else _Teller(rows, told)
    results = predict(rows, store=store, limits=limits, fresh=fresh, progress=progress, told=hear)
    return Board([_score(table, results) for table in found], absent)


class _Teller:
    """Tells of rows once all that they need has run."""

    def __init__(self, rows: Sequence[Row], told: Callable[[Row, float], None]) -> None:
        self._told = told
        self._needs = {i: (row, {key for key, _, _ in runs_of(row)}) for i, row in enumerate(rows)}
        self._waiting: dict[str, list[int]] = {}
        self._seen = 0
        for i, (_, keys) in self._needs.items():
            for key in keys:
                self._waiting.setdefault(key, []).append(i)

    def __call__(self, results: Mapping[str, dict[str, Any] | str]) -> None:
        """Hears what is known; results are added at the end."""
        for key in islice(results, self._seen, None):
            for i in self._waiting.pop(key, ()):
                row, keys = self._needs[i]
                keys.discard(key)
                if not keys:
                    value = predicted_of(row, results)
                    if not isinstance(value, str):
                        self._told(row, value)
                    del self._needs[i]
        self._seen = len(results)


def predicted_of(row: Row, results: Mapping[str, dict[str, Any] | str]) -> float | str:
    """What is predicted for a row, in the unit of its measurement, or why nothing is."""
    value = 0.0
    for key, _, weight in runs_of(row):
        result = results[key]
        if isinstance(result, str):
            return result
        single = result.get("seconds")
        value += weight * (_predicted(row, result["jobs"][0]) if single is None else float(single))
    return value


def _predicted(row: Row, job: dict[str, Any]) -> float:
    if row.quantity == "time":
        return float(job["iteration_time_s"]["mean"])
    if row.quantity in uec.ENDS:
        return float(job[row.quantity])
    ranks = job["memory_by_pipeline_rank"]
    fullest = ranks[0] if row.quantity == "first" else max(ranks, key=lambda rank: float(rank["total"]))
    return float(fullest["activations" if row.quantity == "activations" else "total"])


def _score(table: Table, results: dict[str, dict[str, Any] | str]) -> Score:
    rows: list[Row] = []
    predicted: list[float] = []
    failed: list[Failed] = []
    for row in table.rows:
        value = predicted_of(row, results)
        if isinstance(value, str):
            failed.append(Failed(row, value))
            continue
        rows.append(row)
        predicted.append(value)
    facts: Mapping[str, float] = {}
    if table.facts is not None:
        beside = [(row, value) for row in table.beside if not isinstance(value := predicted_of(row, results), str)]
        facts = table.facts(list(zip(rows, predicted, strict=True)), beside)
    return Score(table.name, rows, predicted, table.excluded, failed, facts)
