"""Errors by kind of prediction, for the results of runs: `data/errors/training.json`.

A run finds the kind its iteration time is of and shows the board's median and 95th percentile for it. The kinds are
those that the engine tells apart: adapters, experts, jobs that name no framework, dense models with kernels measured
on the GPU or inferred. A kind's band is its 95th percentile, widened so that it holds for tables without a part in it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.validate.score import Figures

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from windtunnel.validate.rows import Row
    from windtunnel.validate.score import Score

MEASURED = {"A100-40", "A100-80", "H100-SXM"}
"""GPUs whose GEMM curve in 16 bits was measured."""

SOFTWARE = ("profile", "dispatch", "compute_share", "fused", "fused_loss", "attention", "gradients", "graphs")
"""Keys by which a job that names no framework says what its software does all the same."""

WANTED = 0.95
"""Share of rows that a band is to hold."""


def kind_of(row: Row) -> str | None:
    """The kind of a row's prediction; None if it is not an iteration time."""
    if row.quantity != "time" or "jobs" not in row.scenario:
        return None
    job = row.scenario["jobs"][0]
    training: Mapping[str, Any] = job["workload"].get("training") or {}
    layout: Mapping[str, Any] = job.get("parallelism") or {}
    if training.get("lora_rank"):
        return "adapters"
    if "expert_tp" in training or int(layout.get("ep", 1)) > 1:
        return "experts"
    if training.get("framework", "none") == "none" and not any(key in training for key in SOFTWARE):
        return "no framework named"
    narrow = training.get("precision", "bf16") in ("fp8", "fp4")
    measured = row.scenario["topology"]["host"].get("gpu") in MEASURED and not narrow
    return f"dense, kernels {'measured' if measured else 'inferred'}"


@dataclass(frozen=True)
class Seen:
    """A predicted row: by how much it is off, of which kind and table it is, and what it ran on."""

    kind: str
    table: str
    predicted: float
    measured: float
    gpu: str
    gpus: int
    sequence: int

    @property
    def error(self) -> float:
        """|predicted/measured - 1|."""
        return abs(self.predicted / self.measured - 1.0)


def bands(scores: Iterable[Score]) -> dict[str, Any]:
    """Errors and band by kind, how far the band holds for a table left out, and the board's own figures."""
    seen: list[Seen] = []
    board: dict[str, Any] = {}
    for score in scores:
        found = [
            _seen(kind, score.name, row, predicted)
            for row, predicted in zip(score.rows, score.predicted, strict=True)
            if (kind := kind_of(row)) is not None
        ]
        if found:
            board[score.name] = _figures(score.figures)
        seen += found
    widening = _widening(seen)
    kinds = sorted({one.kind for one in seen})
    return {
        "widening": round(widening, 3),
        "kinds": {kind: _kind(seen, kind, widening) for kind in kinds},
        "board": board,
    }


def _kind(seen: Sequence[Seen], kind: str, widening: float) -> dict[str, Any]:
    """What is said of a kind. `inside` is the share of rows that a band made without their table holds."""
    rows = [one for one in seen if one.kind == kind]
    figures = Figures.of([one.predicted for one in rows], [one.measured for one in rows])
    inside = 0
    counted = 0
    for table in {one.table for one in rows}:
        others = [one for one in seen if one.table != table]
        middle = _p95(others, kind)
        if middle is None:
            continue
        band = middle * _widening(others)
        left_out = [one.error for one in rows if one.table == table]
        inside += sum(error <= band for error in left_out)
        counted += len(left_out)
    return {
        **_figures(figures),
        "band": round(widening * (figures.p95_abs_error or 0.0), 3),
        "inside": round(inside / counted, 3) if counted else None,
        "tables": sorted({one.table for one in rows}),
        "gpus": sorted({one.gpu for one in rows}),
        "most_gpus": max(one.gpus for one in rows),
        "longest_sequence": max(one.sequence for one in rows),
    }


def _p95(seen: Sequence[Seen], kind: str) -> float | None:
    """95th percentile of a kind's errors; None without rows."""
    errors = [one.error for one in seen if one.kind == kind]
    return float(np.percentile(errors, 95)) if errors else None


def _widening(seen: Sequence[Seen]) -> float:
    """By how much a kind's 95th percentile is widened, so that bands made without a table hold 95% of its rows.

    A table is another machine, other software, another year: it is farther off than rows of the tables at hand are from
    one another. The factor is the quantile of error over the others' percentile, for all tables and kinds together;
    never below 1.
    """
    ratios: list[float] = []
    for kind in {one.kind for one in seen}:
        for table in {one.table for one in seen if one.kind == kind}:
            middle = _p95([one for one in seen if one.table != table], kind)
            if middle:
                ratios += [one.error / middle for one in seen if one.kind == kind and one.table == table]
    return max(1.0, float(np.percentile(ratios, 100 * WANTED))) if ratios else 1.0


def _seen(kind: str, table: str, row: Row, predicted: float) -> Seen:
    job = row.scenario["jobs"][0]
    layout: Mapping[str, Any] = job.get("parallelism") or {}
    gpus = math.prod(int(layout.get(axis, 1)) for axis in ("tp", "cp", "ep", "pp", "dp"))
    gpu = str(row.scenario["topology"]["host"].get("gpu", ""))
    if kind == "no framework named" and "kind" in row.groups and table == "no-framework":
        # Rows of several tables: what is left out with one of them is all of it.
        table = row.groups["kind"]
    return Seen(kind, table, predicted, row.measured, gpu, gpus, int(job["workload"]["sequence"]))


def _figures(figures: Figures) -> dict[str, Any]:
    def short(value: float | None) -> float | None:
        return None if value is None else round(value, 3)

    return {"rows": figures.rows, "median": short(figures.median_abs_error), "p95": short(figures.p95_abs_error)}


def text(scores: Iterable[Score]) -> str:
    """The file."""
    return json.dumps(bands(scores), indent=2) + "\n"
