"""Error and run time of fast-forwarding by the iterations that it simulates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.experiments.runs import Asked, run_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results
    from windtunnel.results import Result

HERE = Path(__file__).resolve().parent
ITERATIONS = (1, 2, 3, 5, 10, 30)
# Leaves twice as narrow upwards: spines are saturated.
NARROW = {"topology.tiers[0].oversubscription": 2}
# A job is lost 312 s after the start (failure.csv) and goes back to its last checkpoint. 15 s is Young's interval,
# sqrt(2 * write * mean time between failures), for one failure in about 1,000 s. It strikes in the middle of such an
# interval: where it strikes while the job writes, a hair's breadth decides on 15 s of work.
FAILURE = {"cluster.faults": [{"log": "failure.csv"}]} | {
    f"jobs[{job}].{key}": value
    for job in range(20)
    for key, value in {"checkpoint": {"every": "15 s", "write": "100 ms"}, "restart": "1 s"}.items()
}


def spans(result: Result) -> pl.Series:
    """Time of each job from start to end."""
    jobs = result.jobs.sort("job")
    return jobs["finish_s"] - jobs["start_s"]


def timed(case: dict[str, Any], *, full: bool = False) -> tuple[Result, float]:
    """A run and the CPU seconds that its engine took."""
    (result,) = run_all([Asked(HERE / "scenario.yaml", case, full=full)])
    return result, float(result.summary["cpu_time_s"])


def measured(reference: tuple[Result, float], case: dict[str, Any], **episodes: float) -> dict[str, float]:
    """Errors and run time of fast-forwarding so, against `reference`, every iteration of the same case."""
    fast, cpu = timed(case | {f"cluster.episodes.{key}": value for key, value in episodes.items()})
    error = (spans(fast) / spans(reference[0]) - 1).abs().to_numpy()
    return {
        "mean_error": float(error.mean()),
        "largest_error": float(error.max()),
        "cpu_s": cpu,
        "speedup": reference[1] / cpu,
        "simulated": int(fast.jobs["simulated_iterations"].sum()),
    }


def observe(_results: Results) -> dict[str, Any]:
    """Errors and times."""
    full, saturated, broken = (timed(case, full=True) for case in ({}, NARROW, FAILURE))
    at = {n: measured(full, {}, iterations=n, tolerance=1) for n in ITERATIONS}
    wide, narrow, failed = measured(full, {}), measured(saturated, NARROW), measured(broken, FAILURE)
    bare = measured(saturated, NARROW, tolerance=1)
    table = pl.DataFrame([{"n": n, **row} for n, row in at.items()])
    cases = {
        "full bisection": wide,
        "one failure": failed,
        "saturated": narrow,
        "saturated, 3 iterations and no more": bare,
    }
    return {
        "exactly n iterations": table.with_columns(pl.col(pl.Float64).round(5)),
        "to a tolerance of 2%": pl.DataFrame([{"case": case, **row} for case, row in cases.items()]).with_columns(
            pl.col(pl.Float64).round(5)
        ),
        "full_cpu_s": full[1],
        "full_iterations": int(full[0].jobs["simulated_iterations"].sum()),
        "largest_error": wide["largest_error"],
        "largest_error_failure": failed["largest_error"],
        "largest_error_saturated": narrow["largest_error"],
        "speedup": min(wide["speedup"], failed["speedup"]),
        "error_30_over_1": at[30]["mean_error"] / at[1]["mean_error"],
        "time_30_over_1": at[30]["cpu_s"] / at[1]["cpu_s"],
    }


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Error and run time over n, as figure 9."""
    table: pl.DataFrame = observed["exactly n iterations"]
    axes.plot(table["n"], 100 * table["mean_error"], marker="o", label="mean error")
    axes.plot(table["n"], 100 * table["largest_error"], marker="o", linestyle=":", label="largest error")
    axes.set(xlabel="iterations simulated in an episode", ylabel="error of a job's time (%)", ylim=(0, None))
    axes.set_xscale("log")
    times = axes.twinx()
    times.plot(table["n"], table["cpu_s"], color="#e45756", marker="x")
    times.set(ylabel="CPU time (s)", ylim=(0, None))
    axes.legend(frameon=False)
