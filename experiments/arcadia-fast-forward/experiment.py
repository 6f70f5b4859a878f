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
# Leaves twice as narrow upwards: spines are saturated.
NARROW = {"topology.tiers[0].oversubscription": 2, "name": "arcadia-fast-forward-narrow"}


def spans(result: Result) -> pl.Series:
    """Time of each job from start to end."""
    jobs = result.jobs.sort("job")
    return jobs["finish_s"] - jobs["start_s"]


def measured(reference: Result, **episodes: float) -> dict[str, float]:
    """Errors and run time of fast-forwarding so, against `reference`, which simulated every iteration."""
    overrides: dict[str, Any] = {f"cluster.episodes.{key}": value for key, value in episodes.items()}
    if "narrow" in reference.summary["scenario"]:
        overrides |= NARROW
    fast = windtunnel.run(HERE / "scenario.yaml", overrides=overrides, threads=2)
    error = (spans(fast) / spans(reference) - 1).abs().to_numpy()
    wall = fast.summary["wall_time_s"]
    return {
        "mean_error": float(error.mean()),
        "largest_error": float(error.max()),
        "wall_s": wall,
        "speedup": reference.summary["wall_time_s"] / wall,
        "simulated": int(fast.jobs["simulated_iterations"].sum()),
    }


def observe(_results: Results) -> dict[str, Any]:
    """Errors and times."""
    full = windtunnel.run(HERE / "scenario.yaml", full=True, threads=2)
    saturated = windtunnel.run(HERE / "scenario.yaml", overrides=NARROW, full=True, threads=2)
    at = {n: measured(full, iterations=n, tolerance=1) for n in ITERATIONS}
    wide, narrow, bare = measured(full), measured(saturated), measured(saturated, tolerance=1)
    table = pl.DataFrame([{"n": n, **row} for n, row in at.items()])
    cases = {"full bisection": wide, "saturated": narrow, "saturated, 3 iterations and no more": bare}
    return {
        "exactly n iterations": table.with_columns(pl.col(pl.Float64).round(5)),
        "to a tolerance of 2%": pl.DataFrame([{"case": case, **row} for case, row in cases.items()]).with_columns(
            pl.col(pl.Float64).round(5)
        ),
        "full_wall_s": full.summary["wall_time_s"],
        "full_iterations": int(full.jobs["simulated_iterations"].sum()),
        "largest_error": wide["largest_error"],
        "largest_error_saturated": narrow["largest_error"],
        "speedup": wide["speedup"],
        "error_30_over_1": at[30]["mean_error"] / at[1]["mean_error"],
        "time_30_over_1": at[30]["wall_s"] / at[1]["wall_s"],
    }


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Error and run time over n, as figure 9."""
    table: pl.DataFrame = observed["exactly n iterations"]
    axes.plot(table["n"], 100 * table["mean_error"], marker="o", label="mean error")
    axes.plot(table["n"], 100 * table["largest_error"], marker="o", linestyle=":", label="largest error")
    axes.set(xlabel="iterations simulated in an episode", ylabel="error of a job's time (%)", ylim=(0, None))
    axes.set_xscale("log")
    times = axes.twinx()
    times.plot(table["n"], table["wall_s"], color="#e45756", marker="x")
    times.set(ylabel="run time (s)", ylim=(0, None))
    axes.legend(frameon=False)
