"""Regret: what the layout that is predicted to be fastest gave where all that were tried have been measured.

A cell is what somebody had to train on the GPUs that there were: a model, a batch, a system with its software, a number
of GPUs. Its rows differ in their layout alone. The regret of a choice is what it gave over what the best row gave.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.engine import InputError
from windtunnel.explore.measured import answers_of_rows
from windtunnel.validate.board import data_folder
from windtunnel.validate.score import Failed, Score, spearman
from windtunnel.validate.systems import read_systems
from windtunnel.validate.tables import READERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from windtunnel.validate.rows import Row

LEAST = 3
"""Layouts from which a cell has a choice among several to be judged by; two are a pair (`PAIR`)."""
PAIR = 2
AXES = ("tp", "cp", "ep", "pp", "dp")
LAYOUT = ("recompute", "recompute_layers", "layers_per_stage", "expert_tp", "straggle", "sequence_parallel")
"""Keys of `training` that are chosen with a layout."""


@dataclass(frozen=True)
class Cell:
    """A cell and what predictions chose in it."""

    table: str
    name: str
    rows: int
    picked: float
    """Speed of the row that is predicted to be fastest, over that of the fastest."""
    best_of_three: float
    """The same of the best of the three that are predicted to be fastest."""
    rank_correlation: float
    """Spearman's, of predicted and measured times; of a pair 1 in the right order, else -1, or 0 if predicted equal."""

    def record(self) -> dict[str, Any]:
        """A row of a table."""
        return {
            "table": self.table, "cell": self.name, "rows": self.rows, "picked": self.picked,
            "best_of_three": self.best_of_three, "rank_correlation": self.rank_correlation,
        }  # fmt: skip


def estimated(tables: Sequence[str], data: Path | None = None) -> list[Score]:
    """Tables with what the explorer's cost model says of each row, and of what is known of those beside them.

    The measurements are where `windtunnel validate` finds them. Raises `InputError` where they or a table are missing.
    """
    folder = data_folder(data)
    systems = read_systems(folder)
    found: list[Score] = []
    for name in tables:
        table = READERS[name](folder, systems)
        if table is None:
            raise InputError(f"the folder of measured tables has no `{name}`")
        rows = [row for row in table.rows if row.quantity == "time" and row.scenario.get("jobs")]
        beside = [row for row in table.beside if row.scenario.get("jobs")]
        answers = answers_of_rows([*rows, *beside])
        times = dict(zip((id(row) for row in rows), answers, strict=False))
        kept: list[Row] = []
        predicted: list[float] = []
        failed: list[Failed] = []
        for row in rows:
            answer = times[id(row)]
            if isinstance(answer, str) or answer.iteration_s is None:
                failed.append(Failed(row, str(answer)))
            else:
                kept.append(row)
                predicted.append(answer.iteration_s)
        sizes = [
            (row, float(answer.memory_bytes))
            for row, answer in zip(beside, answers[len(rows) :], strict=True)
            if not isinstance(answer, str)
        ]
        facts = table.facts(list(zip(kept, predicted, strict=True)), sizes) if table.facts is not None else {}
        found.append(Score(name, kept, predicted, table.excluded, failed, facts))
    return found


def cells(score: Score, least: int = LEAST, by: Sequence[str] = ()) -> list[Cell]:
    """The cells of a table of iterations with at least `least` layouts; `by` names groups that make a cell instead.

    Rows of one layout (measured twice, or in recipes of 8 bits that no scenario tells apart) are no choice: their
    mean stands for them.
    """
    found: dict[str, dict[str, tuple[float, list[float]]]] = {}
    names: dict[str, str] = {}
    for row, predicted in zip(score.rows, score.predicted, strict=True):
        if row.quantity == "time" and row.scenario.get("jobs"):
            key, name = _cell(row) if not by else _named(row, by)
            names.setdefault(key, name)
            layout = json.dumps([row.system, row.scenario], sort_keys=True)
            found.setdefault(key, {}).setdefault(layout, (predicted, []))[1].append(row.measured)
    return [
        _judged(score.name, names[key], [(predicted, sum(times) / len(times)) for predicted, times in layouts.values()])
        for key, layouts in found.items()
        if len(layouts) >= least
    ]


def _cell(row: Row) -> tuple[str, str]:
    """What a row had to train and on what: a key, and a name for people."""
    job: Mapping[str, Any] = row.scenario["jobs"][0]
    workload = job["workload"]
    layout = job.get("parallelism") or {}
    gpus = math.prod(int(layout.get(axis, 1)) for axis in AXES)
    training = {key: value for key, value in (workload.get("training") or {}).items() if key not in LAYOUT}
    told = {key: value for key, value in workload.items() if key not in {"training", "micro_batch"}}
    container = row.id.partition("/")[2].partition("-")[0] if "task" in row.groups else ""
    key = json.dumps([row.system, gpus, told, training, dict(row.models), container], sort_keys=True)
    model = row.groups.get("size") or str(told.get("model"))
    batch, sequence = told.get("global_batch"), told.get("sequence")
    return key, " ".join(filter(None, [container, f"{model}, {gpus} GPUs, batch {batch} x {sequence}"]))


def _named(row: Row, by: Sequence[str]) -> tuple[str, str]:
    name = ", ".join(row.groups[group] for group in by)
    return name, name


def _judged(table: str, name: str, rows: Iterable[tuple[float, float]]) -> Cell:
    ordered = sorted(rows)
    predicted, measured = np.array(ordered).T
    best = float(measured.min())
    return Cell(
        table,
        name,
        len(ordered),
        best / float(measured[0]),
        best / float(measured[:3].min()),
        spearman(predicted, measured) or 0.0 if len(ordered) > PAIR else _in_order(predicted, measured),
    )


def _in_order(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Rank correlation of two rows, which have no other."""
    return float((np.sign(np.diff(predicted)) * np.sign(np.diff(measured))).sum())
