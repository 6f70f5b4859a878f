"""Bubble shares: the time of an iteration that a pipeline rank does not compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results

# Micro-batches, layers of a rank, GEMMs of a layer in a pass, and seconds of each (kernels.csv).
WORK_S = 8 * 2 * 4 * 0.1
"""Forward work of a rank; the gradients of inputs and of weights take as long again, each."""


def observe(results: Results) -> dict[str, Any]:
    """Shares of each schedule, and how long the ranks wait between their first and last computation."""
    rows = []
    for place, result in results:
        time = result.summary["jobs"][0]["iteration_time_s"]["mean"]
        operations = result.operations.filter(pl.col("kind") == "calc").group_by("rank")
        busy = operations.agg((pl.col("finish_ps") - pl.col("start_ps")).sum().alias("busy"), pl.col("start_ps").min())
        spans = operations.agg((pl.col("finish_ps").max() - pl.col("start_ps").min()).alias("span"))
        gaps = busy.join(spans, on="rank").select((pl.col("span") - pl.col("busy")).max())
        rows.append(
            {
                "schedule": place["case"],
                "iteration_s": time,
                "bubble_percent": 100 * (1 - 3 * WORK_S / time),
                "bubble_over_work_percent": 100 * (time / (3 * WORK_S) - 1),
                "gap_s": gaps.item() / 1e12,
            }
        )
    table = pl.DataFrame(rows)
    shares = {f"bubble_{row['schedule']}": row["bubble_percent"] for row in rows}
    ratios = {f"over_work_{row['schedule']}": row["bubble_over_work_percent"] for row in rows}
    times = {row["schedule"]: row["iteration_s"] for row in rows}
    bubble = {name: time - 3 * WORK_S for name, time in times.items()}
    return {
        "bubbles": table,
        **shares,
        **ratios,
        **{f"gap_{row['schedule']}": row["gap_s"] for row in rows},
        "zb1p_over_1f1b": bubble["zb1p"] / bubble["1f1b"],
    }
