"""Errors of recorded steps, and of kernels that nobody recorded, as a distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from windtunnel.validate.asked import board_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

TABLES = ("traces", "aic-gemm", "aic-attention")


def errors(table: str) -> np.ndarray:
    """Absolute relative errors of a table's rows, in order."""
    (score,) = board_of([table]).scores
    pairs = zip(score.predicted, score.rows, strict=True)
    return np.sort([abs(predicted / row.measured - 1) for predicted, row in pairs])


def observe(_: Results) -> dict[str, Any]:
    """Shares and medians."""
    found = {table: errors(table) for table in TABLES}
    rows = [
        {
            "table": table,
            "rows": len(off),
            "median_%": 100 * float(np.median(off)),
            "below_2_%": 100 * float((off < 0.02).mean()),
            "p95_%": 100 * float(np.quantile(off, 0.95)),
        }
        for table, off in found.items()
    ]
    return {
        "errors": pl.DataFrame(rows).with_columns(pl.col(pl.Float64).round(2)),
        "recorded_below_2": float((found["traces"] < 0.02).mean()),
        "gemm_median": float(np.median(found["aic-gemm"])),
        "attention_median": float(np.median(found["aic-attention"])),
        "curves": {table: off[:: max(1, len(off) // 500)].tolist() for table, off in found.items()},
    }


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """The distribution of each table's errors."""
    for table, off in observed["curves"].items():
        axes.plot(100 * np.array(off), np.linspace(0, 1, len(off)), label=table)
    axes.set(xlabel="error (%)", ylabel="share of rows", xlim=(0, 30), ylim=(0, 1))
    axes.legend(frameon=False)
