"""Predicted against measured: Narayanan et al. 2021, arXiv:2104.04473, table 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

SEQUENCE, VOCABULARY = 2048, 51200
# Layers, hidden size, measured TFLOP/s per GPU (table 1).
ROWS = {
    "1.7B": (24, 2304, 137),
    "3.6B": (30, 3072, 138),
    "7.5B": (36, 4096, 142),
    "18.4B": (40, 6144, 135),
    "39.1B": (48, 8192, 138),
    "76.1B": (60, 10240, 140),
    "145.6B": (80, 12288, 148),
    "310.1B": (96, 16384, 155),
    "529.6B": (105, 20480, 163),
    "1008B": (128, 25600, 163),
}


def flops(batch: int, layers: int, hidden: int) -> float:
    """FLOPs of an iteration as the authors count them, recomputation included: equation 3."""
    terms = 1 + SEQUENCE / (6 * hidden) + VOCABULARY / (16 * layers * hidden)
    return 96 * batch * SEQUENCE * layers * hidden**2 * terms


def observe(results: Results) -> dict[str, Any]:
    """The table, its errors, and the order of the rows."""
    rows = []
    for place, result in results:
        layers, hidden, measured = ROWS[place["case"]]
        job = result.summary["jobs"][0]
        batch = round(job["tokens_per_s"] * job["iteration_time_s"]["mean"] / SEQUENCE)
        work = flops(batch, layers, hidden) / job["ranks"]
        time = job["iteration_time_s"]["mean"]
        exposed = job["exposed_s"]
        rows.append(
            {
                "model": place["case"],
                "gpus": job["ranks"],
                "measured": measured,
                "predicted": work / time / 1e12,
                "measured_s": work / measured / 1e12,
                "predicted_s": time,
                "error_%": 100 * (time * measured * 1e12 / work - 1),
                "compute_s": job["compute_s"],
                "tp_s": exposed["tp"],
                "pp_s": exposed["pp"],
                "dp_s": exposed["dp"],
                "bubble_s": job["bubble_s"],
            }
        )
    table = pl.DataFrame(rows)
    errors = table["error_%"].abs() / 100
    predicted, measured = table["predicted"], table["measured"]
    return {
        "TFLOP/s per GPU and s": table.with_columns(pl.col(pl.Float64).round(2)),
        "errors": pl.DataFrame({"median_%": [100 * errors.median()], "max_%": [100 * errors.max()]}),
        **{f"tflops_{row['model']}": row["predicted"] for row in rows},
        "median_error": errors.median(),
        "max_error": errors.max(),
        "rank_correlation": float(np.corrcoef(predicted.rank(), measured.rank())[0, 1]),
        "largest_over_smallest": predicted[-1] / predicted[0],
    }


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Predicted against measured TFLOP/s, with lines at 10% to either side."""
    table: pl.DataFrame = observed["TFLOP/s per GPU and s"]
    ends = np.array([100.0, 200.0])
    axes.plot(ends, ends, color="0.4", linewidth=1)
    for factor in (0.9, 1.1):
        axes.plot(ends, factor * ends, color="0.7", linewidth=1, linestyle="--")
    axes.scatter(table["measured"], table["predicted"], zorder=3)
    for model, x, y in table.select("model", "measured", "predicted").iter_rows():
        axes.annotate(model, (x, y), xytext=(5, 4), textcoords="offset points", fontsize=8)
    axes.set(xlabel="measured TFLOP/s per GPU", ylabel="predicted TFLOP/s per GPU", xlim=(120, 190), ylim=(110, 200))
