"""Iteration times over two buildings by pipeline schedule, and what longer runs recover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

RATIOS = (1, 4, 8, 16)


def observe(results: Results) -> dict[str, Any]:
    """Times and memory by case, and how the paper compares them; what lacks a run is null."""
    rows = []
    for place, result in results:
        schedule, _, ratio = place["case"].partition(", 1:")
        job = result.summary["jobs"][0]
        row = {"schedule": schedule, "ratio": int(ratio), "iteration_s": job["iteration_time_s"]["mean"]}
        rows.append({**row, "memory_gib": job["memory_bytes_per_gpu"] / 2**30})
    time = {(row["schedule"], row["ratio"]): row["iteration_s"] for row in rows}
    memory = {row["schedule"]: row["memory_gib"] for row in rows}

    def over(ratio: int) -> float | None:
        zbv, dorapp = time.get(("ZBV", ratio)), time.get(("DoraPP N 3", ratio))
        return zbv / dorapp if zbv and dorapp else None

    short, long, zbv = (time.get((name, 16)) for name in ("DoraPP N 3", "DoraPP N 11", "ZBV"))
    return {
        "iterations": pl.DataFrame(rows),
        **{f"zbv_over_dorapp_{ratio}": over(ratio) for ratio in RATIOS},
        "recovered": (short - long) / (short - zbv) if short and long and zbv else None,
        "memory": memory["DoraPP N 11"] / memory["DoraPP N 3"]
        if {"DoraPP N 3", "DoraPP N 11"} <= set(memory)
        else None,
    }


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Iteration time over the ratio, by schedule."""
    table: pl.DataFrame = observed["iterations"]
    for schedule in table["schedule"].unique(maintain_order=True):
        part = table.filter(pl.col("schedule") == schedule).sort("ratio")
        axes.plot(part["ratio"], part["iteration_s"], marker="o", label=schedule)
    axes.set_xscale("log", base=2)
    axes.set_xticks(RATIOS, [f"1:{ratio}" for ratio in RATIOS])
    axes.set(xlabel="bandwidth between buildings over that of NICs", ylabel="iteration time (s)")
    axes.legend(frameon=False)
