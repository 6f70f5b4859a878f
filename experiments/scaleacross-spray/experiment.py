"""Iteration times of ECMP and of packet spraying, by latency and number of queue pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results


def observe(results: Results) -> dict[str, Any]:
    """Ratios, each the mean over PP-out and DP-out; what lacks a run is null."""
    rows = []
    for place, result in results:
        balancer, latency = place["case"].split(", ")
        outermost = f"{place['outermost'][-1].upper()}-out"
        time = 1e3 * result.summary["jobs"][0]["iteration_time_s"]["mean"]
        rows.append((latency.replace(" ", ""), place["queue_pairs"], outermost, balancer, time))
    columns = ["latency", "queue_pairs", "outermost", "balancer", "iteration_ms"]
    times = pl.DataFrame(rows, schema=columns, orient="row")
    table = times.pivot("balancer", index=columns[:3], values="iteration_ms")
    for name in ("spray", "unlimited", "half"):
        if name in table.columns and "ecmp" in table.columns:
            table = table.with_columns((pl.col(name) / pl.col("ecmp")).alias(f"{name}/ecmp"))
    if {"spray", "unlimited"} <= set(table.columns):
        table = table.with_columns((pl.col("spray") / pl.col("unlimited")).alias("spray/unlimited"))
    means = table.drop("outermost").group_by("latency", "queue_pairs", maintain_order=True).mean()

    def at(ratio: str, latency: str, queue_pairs: int) -> float | None:
        row = means.filter(pl.col("latency") == latency, pl.col("queue_pairs") == queue_pairs)
        return row[ratio][0] if row.height and ratio in row.columns else None

    fifty = [at("unlimited/ecmp", "50us", n) for n in (1, 2, 4, 8)]
    steps = [at("spray/ecmp", "1000us", n) for n in (4, 2, 1)]
    return {
        "iterations (ms) and ratios": table.with_columns(pl.col(pl.Float64).round(4)),
        **{f"spray_over_ecmp_{u}_{n}": at("spray/ecmp", u, n) for u in ("50us", "1000us") for n in (1, 2, 4, 8)},
        "unlimited_over_ecmp_50us_max": None if None in fifty else max(r for r in fifty if r is not None),
        **{f"spray_over_unlimited_50us_{n}": at("spray/unlimited", "50us", n) for n in (4, 8)},
        "spray_gains_to_4": None if None in steps else steps == sorted(steps, key=lambda r: r or 0),
    }


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Ratios to ECMP over the number of queue pairs, DP-out and PP-out."""
    table: pl.DataFrame = observed["iterations (ms) and ratios"]
    for latency, colour in (("50us", "#54a24b"), ("1000us", "#4c78a8")):
        for outermost, line in (("DP-out", "-"), ("PP-out", "--")):
            part = table.filter(pl.col("latency") == latency, pl.col("outermost") == outermost)
            label = f"{outermost}, {latency.replace('us', ' us')}"
            axes.plot(part["queue_pairs"], part["spray/ecmp"], line, color=colour, marker="o", label=label)
    axes.axhline(1, color="0.6", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
    axes.set(xlabel="queue pairs", ylabel="iteration time: spraying over ECMP")
    axes.legend(frameon=False)
