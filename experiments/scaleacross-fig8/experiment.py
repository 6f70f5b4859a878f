"""Iteration times of a mixture of experts over two buildings, by what is outermost and the cables between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.experiments.buildings import draw_orders

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

NICS = 64
MOST, LEAST = 48, 4


def observe(results: Results) -> dict[str, Any]:
    """Times by case, over those of the baseline, and how much more one slows than the other."""
    rows = [
        {
            "outermost": place["case"],
            "ratio": NICS / place["cables"],
            "iteration_s": result.summary["jobs"][0]["iteration_time_s"]["mean"],
        }
        for place, result in results
    ]
    base = {row["outermost"]: row["iteration_s"] for row in rows if row["ratio"] == NICS / MOST}
    for row in rows:
        row["over_baseline"] = row["iteration_s"] / base[row["outermost"]]
    last = {row["outermost"]: row["over_baseline"] for row in rows if row["ratio"] == NICS / LEAST}
    return {"iterations": pl.DataFrame(rows), "slowdown": last["DP-out"] / last["PP-out"]}


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Iteration time over that of the baseline, by the ratio, as figure 8."""
    draw_orders(observed["iterations"], "ratio", "over_baseline", axes)
    axes.set(xlabel="oversubscription between the buildings, 1 to", ylabel="iteration time over that at 1:1.33")
    axes.set_xscale("log", base=2)
