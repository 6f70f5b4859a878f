"""Errors by kind of prediction, for the results of runs: `data/errors/training.json`.

A run finds the kind its iteration time is of and shows the board's median and 95th percentile for it. The kinds are
those that the engine tells apart: adapters, experts, and dense models with kernels measured on the GPU or inferred.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from windtunnel.validate.score import Figures

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from windtunnel.validate.rows import Row
    from windtunnel.validate.score import Score

MEASURED = {"A100-40", "A100-80", "H100-SXM"}
"""GPUs whose GEMM curve in 16 bits was measured."""


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
    narrow = training.get("precision", "bf16") in ("fp8", "fp4")
    measured = row.scenario["topology"]["host"].get("gpu") in MEASURED and not narrow
    return f"dense, kernels {'measured' if measured else 'inferred'}"


def bands(scores: Iterable[Score]) -> dict[str, Any]:
    """Median and 95th percentile by kind, how far that holds for a table left out, and the board's own figures."""
    found: dict[str, list[tuple[float, float, str]]] = {}
    tables: dict[str, set[str]] = {}
    board: dict[str, Any] = {}
    for score in scores:
        kinds = [kind_of(row) for row in score.rows]
        for row, predicted, kind in zip(score.rows, score.predicted, kinds, strict=True):
            if kind is not None:
                found.setdefault(kind, []).append((predicted, row.measured, score.name))
                tables.setdefault(kind, set()).add(score.name)
        if any(kinds):
            board[score.name] = _figures(score.figures)
    return {
        "kinds": {
            kind: {
                **_figures(Figures.of(*zip(*((p, m) for p, m, _ in rows), strict=True))),
                "inside": _inside(rows),
                "tables": sorted(tables[kind]),
            }
            for kind, rows in sorted(found.items())
        },
        "board": board,
    }


def _inside(rows: Sequence[tuple[float, float, str]]) -> float | None:
    """Share of rows within the 95th percentile of the other tables: whether the band holds where nothing was measured.

    None where a kind has one table only.
    """
    tables = sorted({table for _, _, table in rows})
    if len(tables) < 2:
        return None
    inside = 0
    for left_out in tables:
        others = [(p, m) for p, m, table in rows if table != left_out]
        band = Figures.of(*zip(*others, strict=True)).p95_abs_error or 0.0
        inside += sum(abs(p / m - 1.0) <= band for p, m, table in rows if table == left_out)
    return round(inside / len(rows), 3)


def _figures(figures: Figures) -> dict[str, Any]:
    def short(value: float | None) -> float | None:
        return None if value is None else round(value, 3)

    return {"rows": figures.rows, "median": short(figures.median_abs_error), "p95": short(figures.p95_abs_error)}


def text(scores: Iterable[Score]) -> str:
    """The file."""
    return json.dumps(bands(scores), indent=2) + "\n"
