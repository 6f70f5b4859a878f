"""Two made cases on the cluster of section 10.1."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from ruamel.yaml import YAML

import windtunnel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results
    from windtunnel.results import Result

HERE = Path(__file__).resolve().parent
DAY_S = 86_400.0
POD = 32
QUIET, WIDE = 16, 64
"""Hosts of a job inside a pod, and of one that needs two."""


def job(name: str, hosts: int, submit_days: float, iterations: int) -> dict[str, Any]:
    """A recommendation model on whole hosts."""
    return {
        "name": name,
        "workload": {"model": "dlrm-1024", "global_batch": 8 * hosts * 512},
        "parallelism": {"dp": 8 * hosts},
        "iterations": iterations,
        "submit": f"{round(submit_days * DAY_S)} s",
        "locality": "pod" if hosts <= POD else "fewest-hosts",
    }


def run(jobs: list[dict[str, Any]]) -> Result:
    """The jobs on the scenario's fabric."""
    scenario = YAML(typ="safe").load((HERE / "scenario.yaml").read_text(encoding="utf-8"))
    scenario["jobs"] = jobs
    return windtunnel.run(scenario, threads=2)


def one(hosts: int) -> float:
    """Iterations a day of a job alone."""
    result = run([job("alone", hosts, 0, 3), job("other", 1, 0, 3)])
    return DAY_S / float(result.jobs.filter(pl.col("job") == "alone")["iteration_time_s"][0])


def observe(_results: Results) -> dict[str, Any]:
    """Periods of congestion in both cases."""
    quiet_rate, wide_rate = one(QUIET), one(WIDE)

    def quiet(i: int, at: float, days: float) -> dict[str, Any]:
        return job(f"quiet-{i}", QUIET, at, round(days * quiet_rate))

    def wide(i: int, at: float, days: float) -> dict[str, Any]:
        return job(f"wide-{i}", WIDE, at, round(days * wide_rate))

    calm = [quiet(i, 0.9 * i, 4.0) for i in range(5)]
    a, b = run([*calm, wide(0, 2.0, 3.8)]), run([*calm[:2], wide(0, 1.0, 1.5), wide(1, 2.0, 2.0), wide(2, 5.0, 1.0)])
    periods = pl.concat(
        [result.congestion.with_columns(case=pl.lit(case)) for case, result in (("a", a), ("b", b))]
    ).sort("case", "from_s", "job")
    of_a = periods.filter(pl.col("case") == "a")
    return {
        "congestion": periods.with_columns(pl.col("from_s") / DAY_S, pl.col("until_s") / DAY_S),
        "a_only_cause": of_a.height > 0 and of_a["cause"].unique().to_list() == ["wide-0"],
        "a_days": covered(of_a) / DAY_S,
        "b_cover": covered(periods.filter(pl.col("case") == "b")) / present(b),
        "quiet_congested": periods.filter(pl.col("job").str.starts_with("quiet")).height,
    }


def covered(periods: pl.DataFrame) -> float:
    """Seconds in which some period is."""
    total, end = 0.0, float("-inf")
    for begin, until in periods.sort("from_s").select("from_s", "until_s").iter_rows():
        total += max(0.0, until - max(begin, end))
        end = max(end, until)
    return total


def present(result: Result) -> float:
    """Seconds in which some wide job ran."""
    wide = result.jobs.filter(pl.col("job").str.starts_with("wide"))
    return covered(wide.select(from_s="start_s", until_s="finish_s"))


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Periods by job, as figure 24."""
    table: pl.DataFrame = observed["congestion"]
    rows = sorted({(case, job) for case, job in table.select("case", "job").iter_rows()})
    for case, name, begin, until in table.select("case", "job", "from_s", "until_s").iter_rows():
        axes.barh(rows.index((case, name)), until - begin, left=begin, color="#e45756" if case == "a" else "#4c78a8")
    axes.set_yticks(range(len(rows)), [f"{case}: {name}" for case, name in rows])
    axes.set(xlabel="days", xlim=(0, 8))
