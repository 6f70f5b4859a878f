"""Iteration times of a mixture of experts over two buildings, by what is outermost and the number of experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.experiments.buildings import draw_orders

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results


def observe(results: Results) -> dict[str, Any]:
    """Times by case, and how much faster one grows than the other."""
    rows = [
        {
            "outermost": place["case"],
            "experts": int(place["experts"].removeprefix("moe-").removesuffix(".json")),
            "iteration_s": result.summary["jobs"][0]["iteration_time_s"]["mean"],
            "data_s": result.summary["jobs"][0]["exposed_s"]["dp"],
        }
        for place, result in results
    ]
    time = {(row["outermost"], row["experts"]): row["iteration_s"] for row in rows}
    growth = {name: time[name, 128] / time[name, 16] for name in ("PP-out", "DP-out")}
    return {"iterations": pl.DataFrame(rows), "growth": growth["DP-out"] / growth["PP-out"]}


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Iteration time over the experts, as figure 7."""
    draw_orders(observed["iterations"], "experts", "iteration_s", axes)
    axes.set(xlabel="experts", ylabel="iteration time (s)", ylim=(0, None))
