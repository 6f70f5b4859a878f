"""Iteration times with and without congestion control, by oversubscription and latency between buildings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

LATENCY_US = {"10 km": 50, "20 km": 100, "200 km": 1000}


def observe(results: Results) -> dict[str, Any]:
    """Ratios of ECN to none, each the mean over PP-out and DP-out; what lacks a run is null."""
    rows = []
    for place, result in results:
        outermost = f"{place['outermost'][-1].upper()}-out"
        job, network = result.summary["jobs"][0], result.summary["network"]
        time = 1e3 * job["iteration_time_s"]["mean"]
        ratio = f"1to{64 // place['cables']}"
        rows.append((ratio, LATENCY_US[place["length"]], outermost, place["case"], time, network["ecn_marked"]))
    columns = ["ratio", "latency_us", "outermost", "control", "iteration_ms", "marked"]
    times = pl.DataFrame(rows, schema=columns, orient="row")
    table = times.pivot("control", index=columns[:3], values="iteration_ms")
    if {"ecn", "none"} <= set(table.columns):
        table = table.with_columns((pl.col("ecn") / pl.col("none")).alias("ecn/none"))
    means = table.drop("outermost").group_by("ratio", "latency_us", maintain_order=True).mean()
    over = {(r, u): v for r, u, v in means.select("ratio", "latency_us", "ecn/none").iter_rows()}
    near, far = over.get(("1to32", 100)), over.get(("1to32", 1000))
    return {
        "iterations (ms) and ratios": table.with_columns(pl.col(pl.Float64).round(4)),
        **{f"ecn_over_none_{r}_{u}us": over.get((r, u)) for r in ("1to16", "1to32") for u in (50, 100, 1000)},
        "ecn_over_none_min": table["ecn/none"].min(),
        "cost_grows_with_latency": None if near is None or far is None else far > near,
    }


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """What congestion control costs over latency."""
    table: pl.DataFrame = observed["iterations (ms) and ratios"]
    for ratio, colour in (("1to16", "#54a24b"), ("1to32", "#4c78a8")):
        for outermost, line in (("DP-out", "-"), ("PP-out", "--")):
            part = table.filter(pl.col("ratio") == ratio, pl.col("outermost") == outermost).sort("latency_us")
            label = f"{outermost}, {ratio.replace('to', ':')}"
            axes.plot(part["latency_us"], part["ecn/none"], line, color=colour, marker="o", label=label)
    axes.axhline(1, color="0.6", linewidth=1)
    axes.set_xscale("log")
    axes.set_xticks([50, 100, 1000], ["50", "100", "1000"])
    axes.set(xlabel="latency between buildings (us)", ylabel="iteration time: DCQCN over none")
    axes.legend(frameon=False)
