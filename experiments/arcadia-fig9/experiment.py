"""Error and run time of fast-forwarding at packet fidelity, by the iterations that are simulated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.experiments.runs import Asked, run_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results
    from windtunnel.results import Result

SCENARIO = Path(__file__).resolve().parent / "scenario.yaml"
ITERATIONS = (1, 3, 10, 30)
SEEDS = (4, 5, 6)


def spans(result: Result) -> pl.Series:
    """Time of each job from start to end."""
    jobs = result.jobs.sort("job")
    return jobs["finish_s"] - jobs["start_s"]


def episodes(count: int) -> dict[str, float]:
    """So many iterations of each constant stretch, and no more where they differ."""
    return {"cluster.episodes.iterations": count, "cluster.episodes.tolerance": 1}


def observe(_results: Results) -> dict[str, Any]:
    """Errors and times: means over jobs and seeds."""
    cases = {f"{count}": episodes(count) for count in ITERATIONS} | {"tolerance 2%": {}}
    whole = run_all([Asked(SCENARIO, full=True, seed=seed) for seed in SEEDS])
    flows = run_all([Asked(SCENARIO, full=True, seed=seed, fidelity="flow") for seed in SEEDS])
    rows = []
    for name, case in cases.items():
        fast = run_all([Asked(SCENARIO, case, seed=seed) for seed in SEEDS])
        pairs = list(zip(fast, whole, strict=True))
        errors = pl.concat([(spans(one) / spans(all_) - 1).abs() for one, all_ in pairs]).to_numpy()
        rows.append({
            "iterations": name,
            "mean_error": float(errors.mean()),
            "largest_error": float(errors.max()),
            "cpu_s": sum(float(one.summary["cpu_time_s"]) for one in fast),
            "simulated": sum(int(one.jobs["simulated_iterations"].sum()) for one in fast),
        })  # fmt: skip
    by = {row["iterations"]: row for row in rows}
    packets = sum(float(one.summary["cpu_time_s"]) for one in whole)
    return {
        "iterations simulated": pl.DataFrame(rows).with_columns(pl.col(pl.Float64).round(4)),
        "every_packet_cpu_s": packets,
        "every_flow_cpu_s": sum(float(one.summary["cpu_time_s"]) for one in flows),
        "every_iteration": sum(int(one.jobs["iterations"].sum()) for one in whole),
        "error_30_over_1": by["30"]["mean_error"] / by["1"]["mean_error"],
        "time_30_over_1": by["30"]["cpu_s"] / by["1"]["cpu_s"],
        "flows_over_packets": sum(float(one.summary["cpu_time_s"]) for one in flows) / by["1"]["cpu_s"],
        "error_default": by["tolerance 2%"]["mean_error"],
    }


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Error and run time over K, as figure 9."""
    table = observed["iterations simulated"].filter(pl.col("iterations") != "tolerance 2%")
    counts = [int(text) for text in table["iterations"]]
    axes.plot(counts, 100 * table["mean_error"], marker="o", label="mean error")
    axes.set(xlabel="iterations simulated of a constant stretch", ylabel="error of a job's time (%)", ylim=(0, None))
    axes.set_xscale("log")
    times = axes.twinx()
    times.plot(counts, table["cpu_s"], color="#e45756", marker="x")
    times.set(ylabel="CPU time (s)", ylim=(0, None))
    axes.legend(frameon=False)
