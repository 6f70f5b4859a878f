"""Errors by kind of prediction, for the results of runs: `data/errors/training.json`.

A run finds the kind its iteration time is of and shows the board's median and 95th percentile for it. The kinds are
those that the engine tells apart: adapters, experts, jobs that name no framework, dense models with kernels measured
on the GPU or inferred.

A kind's band is made for a table without a part in it, in two steps. Its *scale* is the 95th percentile of its rows;
where these are of few tables, or the tables of few rows, the scale goes part of the way to that of all other kinds, if
that is larger. Its *widening* is by how much rows of a table exceed the scale that the other tables give: a table is
another machine, other software, another year, and farther off than rows of the tables at hand are from one another.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.validate.score import Figures

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from windtunnel.validate.rows import Row
    from windtunnel.validate.score import Score

MEASURED = {"A100-40", "A100-80", "H100-SXM"}
"""GPUs whose GEMM curve in 16 bits was measured."""

SOFTWARE = ("profile", "dispatch", "compute_share", "fused", "fused_loss", "attention", "gradients", "graphs")
"""Keys by which a job that names no framework says what its software does all the same."""

WANTED = 0.95
"""Share of rows that a band is to hold."""

WHOLE = 20
"""Rows by which half of a table counts: of fewer than 19 no 95th percentile of the next one is known."""
BORROWED = 1.0
"""Tables that the other kinds count as, beside a kind's own."""
ELSEWHERE = 0.1
"""What a row of another kind counts in a kind's widening."""


def kind_of(row: Row) -> str | None:
    """The kind of a row's prediction; None if it is not an iteration time."""
    if row.quantity != "time" or "jobs" not in row.scenario:
        return None
    if any("host" in building for building in row.scenario["topology"].get("buildings") or []):
        # Of jobs on GPUs of several kinds no band is told.
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


def gpus_of(row: Row) -> int:
    """GPUs of a row's job."""
    layout: Mapping[str, Any] = row.scenario["jobs"][0].get("parallelism") or {}
    return math.prod(int(layout.get(axis, 1)) for axis in ("tp", "cp", "ep", "pp", "dp"))


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
    return {"kinds": {kind: _kind(seen, kind) for kind in sorted({one.kind for one in seen})}, "board": board}


def _kind(seen: Sequence[Seen], kind: str) -> dict[str, Any]:
    """What is said of a kind. `inside` is the share of rows that a band made without their table holds."""
    rows = [one for one in seen if one.kind == kind]
    errors = _errors(seen)
    inside = 0
    counted = 0
    for table in {one.table for one in rows}:
        others = {place: found for place, found in errors.items() if place[1] != table}
        if not any(place[0] == kind for place in others):
            continue
        left_out = errors[kind, table]
        inside += int((left_out <= band(others, kind)).sum())
        counted += len(left_out)
    return {
        **_figures(Figures.of([one.predicted for one in rows], [one.measured for one in rows])),
        "band": round(band(errors, kind), 3),
        "inside": round(inside / counted, 3) if counted else None,
        "tables": sorted({one.table for one in rows}),
        "gpus": sorted({one.gpu for one in rows}),
        "most_gpus": max(one.gpus for one in rows),
        "longest_sequence": max(one.sequence for one in rows),
    }


Errors = Mapping[tuple[str, str], np.ndarray]
"""Errors of rows by kind and table."""


def _errors(seen: Sequence[Seen]) -> Errors:
    found: dict[tuple[str, str], list[float]] = {}
    for one in seen:
        found.setdefault((one.kind, one.table), []).append(one.error)
    return {place: np.array(errors) for place, errors in sorted(found.items())}


def band(errors: Errors, kind: str) -> float:
    """The error that a row of `kind` in a table without a part in `errors` stays within, by `WANTED`."""
    return (_scale(errors, kind) or 0.0) * _widening(errors, kind)


def _scale(errors: Errors, kind: str, without: str | None = None) -> float | None:
    """95th percentile of a kind's rows, without a table; None without rows.

    It is no less than on the way to that of all other kinds (by logarithms), the farther the fewer the kind's tables.
    Of the other kinds each table counts by its rows n as n / (n + `WHOLE`).
    """
    own = [found for (of, table), found in errors.items() if of == kind and table != without]
    others = [found for (of, _), found in errors.items() if of != kind]
    if not own:
        return _percentile(others) if others else None
    scale = float(np.percentile(np.concatenate(own), 100 * WANTED))
    if not others or scale == 0.0:
        return scale
    tables = sum(_counts(found) for found in own)
    share = tables / (tables + BORROWED)
    return float(max(scale, scale**share * _percentile(others) ** (1.0 - share)))


def _widening(errors: Errors, kind: str) -> float:
    """By how much rows exceed the scale of their kind's other tables: the quantile `WANTED`; never below 1.

    Tables count as for scales, those of other kinds by `ELSEWHERE`.
    """
    ratios: list[np.ndarray] = []
    weights: list[float] = []
    for (of, table), found in errors.items():
        scale = _scale(errors, of, without=table)
        if scale:
            ratios.append(found / scale)
            weights.append(_counts(found) * (1.0 if of == kind else ELSEWHERE))
    return max(1.0, _percentile(ratios, weights)) if ratios else 1.0


def _counts(errors: np.ndarray) -> float:
    """What a table counts as, by its rows."""
    return len(errors) / (len(errors) + WHOLE)


def _percentile(tables: Sequence[np.ndarray], weights: Sequence[float] | None = None) -> float:
    """The quantile `WANTED` of the rows of some tables; each table counts by its weight, by its rows if left out."""
    of = [_counts(found) for found in tables] if weights is None else weights
    each = np.concatenate([np.full(len(found), weight / len(found)) for found, weight in zip(tables, of, strict=True)])
    values = np.concatenate(tables)
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(each[order])
    place = int(np.searchsorted(reached, WANTED * reached[-1]))
    return float(values[order[min(place, len(values) - 1)]])


def _seen(kind: str, table: str, row: Row, predicted: float) -> Seen:
    job = row.scenario["jobs"][0]
    gpu = str(row.scenario["topology"]["host"].get("gpu", ""))
    if kind == "no framework named" and "kind" in row.groups and table == "no-framework":
        # Rows of several tables: what is left out with one of them is all of it.
        table = row.groups["kind"]
    return Seen(kind, table, predicted, row.measured, gpu, gpus_of(row), int(job["workload"]["sequence"]))


def _figures(figures: Figures) -> dict[str, Any]:
    def short(value: float | None) -> float | None:
        return None if value is None else round(value, 3)

    return {"rows": figures.rows, "median": short(figures.median_abs_error), "p95": short(figures.p95_abs_error)}


def text(scores: Iterable[Score]) -> str:
    """The file."""
    return json.dumps(bands(scores), indent=2) + "\n"
