"""Error and run time of fast-forwarding by the iterations that it simulates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import windtunnel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results
    from windtunnel.results import Result

HERE = Path(__file__).resolve().parent
ITERATIONS = (1, 2, 3, 5, 10, 30)


def spans(result: Result) -> pl.Series:
    """Time of each job from start to end."""
    jobs = result.jobs.sort("job")
    return jobs["finish_s"] - jobs["start_s"]


def observe(_results: Results) -> dict[str, Any]:
    """Errors and times."""
    full = windtunnel.run(HERE / "scenario.yaml", full=True, threads=2)
    reference, slow = spans(full), full.summary["wall_time_s"]
    rows = []
    for n in ITERATIONS:
        fast = windtunnel.run(HERE / "scenario.yaml", overrides={"cluster.episodes.iterations": n}, threads=2)
        error = (spans(fast) / reference - 1).abs()
        wall = fast.summary["wall_time_s"]
        simulated = fast.jobs["simulated_iterations"].sum()
        rows.append({"n": n, "mean_error": error.mean(), "largest_error": error.max(), "wall_s": wall,
                     "speedup": slow / wall, "simulated": simulated})  # fmt: skip
    narrow = {"topology.tiers[0].oversubscription": 2}
    saturated = spans(windtunnel.run(HERE / "scenario.yaml", overrides=narrow, threads=2))
    truth = spans(windtunnel.run(HERE / "scenario.yaml", overrides=narrow, full=True, threads=2))
    off = (saturated / truth - 1).abs()
    table = pl.DataFrame(rows)
    at = {row["n"]: row for row in rows}
    return {
        "errors and times": table.with_columns(pl.col(pl.Float64).round(5)),
        "full_wall_s": slow,
        "full_iterations": int(full.jobs["simulated_iterations"].sum()),
        "largest_error_3": at[3]["largest_error"],
        "mean_error_3_saturated": off.mean(),
        "largest_error_3_saturated": off.max(),
        "speedup_3": at[3]["speedup"],
        "error_30_over_1": at[30]["mean_error"] / at[1]["mean_error"],
        "time_30_over_1": at[30]["wall_s"] / at[1]["wall_s"],
    }


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Error and run time over n, as figure 9."""
    table: pl.DataFrame = observed["errors and times"]
    axes.plot(table["n"], 100 * table["mean_error"], marker="o", label="mean error")
    axes.plot(table["n"], 100 * table["largest_error"], marker="o", linestyle=":", label="largest error")
    axes.set(xlabel="iterations simulated in an episode", ylabel="error of a job's time (%)", ylim=(0, None))
    axes.set_xscale("log")
    times = axes.twinx()
    times.plot(table["n"], table["wall_s"], color="#e45756", marker="x")
    times.set(ylabel="run time (s)", ylim=(0, None))
    axes.legend(frameon=False)
