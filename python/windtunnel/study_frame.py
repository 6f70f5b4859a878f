"""Rows of a study as a polars frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.studies.rows import Row


def study_frame(rows: Sequence[Row], keys: Sequence[str], metrics: Sequence[str]) -> pl.DataFrame:
    """A row per combination: varied keys, metrics, half widths of their 95% intervals, state, message, folder."""
    columns: dict[str, list[Any]] = {}
    for key in keys:
        values = [row.varied.get(key) for row in rows]
        same = {type(value) for value in values if value is not None}
        columns[key] = (
            values if len(same) <= 1 or same == {int, float} else [None if v is None else str(v) for v in values]
        )
    for path in metrics:
        columns[path] = [row.means[path] for row in rows]
        columns[f"{path} ±"] = [row.halves[path] for row in rows]
    columns |= {
        "state": [row.state for row in rows], "message": [row.message for row in rows],
        "runs": [row.runs for row in rows], "folder": [row.folder for row in rows],
    }  # fmt: skip
    return pl.DataFrame(columns, strict=False)
