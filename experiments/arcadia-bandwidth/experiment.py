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
    """Speed by rate; what lacks a run is null."""
    rows = [{"Gbps": int(place["case"].split()[0]), "speed": speed(result.jobs)} for place, result in results]
    table = pl.DataFrame(rows).sort("Gbps")
    at = dict(table.iter_rows())

    def ratio(above: int, below: int) -> float | None:
        return at[above] / at[below] if above in at and below in at else None

    steps = [at.get(rate) for rate in (100, 400, 1000)]
    return {
        "speed": table.with_columns(pl.col("speed").round(1)),
        "rises": None if None in steps else steps == sorted(steps),
        "speed_1000_over_100": ratio(1000, 100),
        "speed_800_over_ideal": ratio(800, 100_000),
    }


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Speed over bandwidth, as figure 15."""
    table: pl.DataFrame = observed["speed"]
    real = table.filter(pl.col("Gbps") < 100_000)
    axes.plot(real["Gbps"], real["speed"], marker="o")
    for ideal in table.filter(pl.col("Gbps") == 100_000)["speed"]:
        axes.axhline(ideal, color="#7b8794", linestyle="--", label="100 Tbps")
    axes.set(xlabel="rate of links (Gbps)", ylabel="samples/s per GPU", ylim=(0, None))
    axes.legend(frameon=False)
