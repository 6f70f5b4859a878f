"""Training speed of the jobs that ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results


def speed(jobs: pl.DataFrame) -> float:
    """Samples per second and GPU of all jobs of several hosts that ran."""
    ran = jobs.filter(pl.col("iteration_time_s").is_not_nan(), pl.col("ranks") > 8)
    return float(ran["samples_per_s"].sum() / ran["ranks"].sum())


def observe(results: Results) -> dict[str, Any]:
    """Speed by length; what lacks a run is null."""
    rows = [{"metres": int(place["case"].split()[0]), "speed": speed(result.jobs)} for place, result in results]
    table = pl.DataFrame(rows).sort("metres")
    at = dict(table.iter_rows())
    base = at.get(1)
    return {
        "speed": table.with_columns(pl.col("speed").round(1)),
        **{f"speed_{m}_over_1": at[m] / base if base and m in at else None for m in (10, 100, 1000, 10_000)},
    }


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Speed over length, as figure 16."""
    table: pl.DataFrame = observed["speed"]
    axes.plot(table["metres"], table["speed"], marker="o")
    axes.set_xscale("log")
    axes.set(xlabel="length of every fibre (m)", ylabel="samples/s per GPU", ylim=(0, None))
