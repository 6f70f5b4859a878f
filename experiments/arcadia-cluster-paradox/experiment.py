"""Shortens the jobs of one size at a time and compares when all jobs are done."""

from __future__ import annotations

import csv
import datetime as dt
import io
import random
from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.experiments.runs import Asked, run_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

GPUS = 4096
JOBS = 300
SEEDS = (1, 2, 3, 4, 5, 6, 7, 8)
SCHEDULERS = ("first-fit", "fcfs", "easy", "conservative", "mast")
BAR = 0.99
"""A group loses if all jobs together take more than 1% longer."""
NAMES = {"fifo": "first-fit", "easy": "easy", "conservative": "conservative", "mast": "mast"}
START = dt.datetime(2017, 10, 1, tzinfo=dt.UTC)


def scenario(log: str, scheduler: str) -> dict[str, Any]:
    """The jobs of `log` on the cluster under `scheduler`."""
    return {
        "windtunnel": 1,
        "name": "paradox",
        "seed": 1,
        "fidelity": "job",
        "topology": {"hosts": GPUS // 8, "host": {"gpus": 8}},
        "jobs": {"log": log, "format": "philly", "scale": {"gpus": 8, "max_gpus": 2048},
                 "locality": "fewest-hosts"},
        "cluster": {"scheduler": scheduler},
    }  # fmt: skip


def drawn(seed: int) -> list[tuple[float, float, int]]:
    """Submission, duration and GPUs of jobs like Philly's, as the engine draws them."""
    scale = {"gpus": 256, "max_gpus": 2048, "max_duration": "12 h"}
    jobs = {"like": "philly", "count": JOBS, "load": 4, "scale": scale}
    text = {**scenario("", "first-fit"), "jobs": jobs, "seed": seed}
    (result,) = run_all([Asked(text)])
    table = result.jobs.sort("job")
    return list(table.select("submit_s", "duration_s", "gpus").iter_rows())


def written(jobs: list[tuple[float, float, int]]) -> str:
    """A log in Philly's format."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["timestamp", "duration", "num_gpus", "gpu_time", "cluster"])
    for submit, duration, gpus in jobs:
        at = START + dt.timedelta(seconds=round(submit))
        writer.writerow([at.strftime("%Y-%m-%d %H:%M:%S"), max(duration, 1.0), gpus // 8, duration * gpus, "a"])
    return text.getvalue()


Case = list[tuple[float, float, int]]
"""Submission, duration and GPUs of each job."""


def makespans(cases: list[Case]) -> list[dict[str, float]]:
    """When the last job of each case ends, in seconds, by scheduler."""
    logs = [{"log.csv": written(case)} for case in cases]
    asked = [Asked(scenario("log.csv", scheduler), files=log) for log in logs for scheduler in SCHEDULERS]
    ends = iter([float(result.summary["cluster"]["makespan_s"]) for result in run_all(asked)])
    return [{scheduler: next(ends) for scheduler in SCHEDULERS} for _ in cases]


def observe(_results: Results) -> dict[str, Any]:
    """Gain of each group under each scheduler."""
    rows: list[dict[str, Any]] = []
    cases: list[Case] = []
    first: list[int] = []
    for seed in SEEDS:
        # Durations in whole seconds, as the log has them.
        jobs = [(submit, float(max(round(duration), 1)), gpus) for submit, duration, gpus in drawn(seed)]
        before = len(cases)
        cases.append(jobs)
        for size in sorted({gpus for _, _, gpus in jobs}):
            group = sorted(duration for _, duration, gpus in jobs if gpus == size)
            fastest = group[len(group) // 10]
            after = [(s, min(d, fastest) if gpus == size else d, gpus) for s, d, gpus in jobs]
            for share, changed in (("all", after), ("a tenth faster", faster(jobs, size, seed))):
                rows.append({"seed": seed, "size": size, "jobs": len(group), "change": share, "case": len(cases)})
                first.append(before)
                cases.append(changed)
    ends = makespans(cases)
    for row, before in zip(rows, first, strict=True):
        after_s = ends[row.pop("case")]
        row |= {s: ends[before][s] / after_s[s] for s in SCHEDULERS}
    table = pl.DataFrame(rows)
    return {
        "gains": table.with_columns(pl.col(pl.Float64).round(5)),
        **{f"smallest_{name}": table[column].min() for name, column in NAMES.items()},
        **{f"losers_{name}": (table[column] < BAR).sum() for name, column in NAMES.items()},
        "share_fifo": (table["first-fit"] >= 1).mean(),
    }


def faster(jobs: list[tuple[float, float, int]], size: int, seed: int) -> list[tuple[float, float, int]]:
    """The jobs of a size take between 80 and 100% of their time, each its own part."""
    draw = random.Random(seed)  # noqa: S311 (a draw for a simulation)
    return [(s, max(1.0, round(d * draw.uniform(0.8, 1.0))) if gpus == size else d, gpus) for s, d, gpus in jobs]


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Gain by size of the group, as figure 2."""
    table: pl.DataFrame = observed["gains"]
    for scheduler, marker in (("first-fit", "o"), ("easy", "x")):
        axes.scatter(table["size"], table[scheduler], marker=marker, label=scheduler)
    axes.axhline(1, color="#7b8794", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set(xlabel="GPUs of the jobs made faster", ylabel="time to complete all jobs, before over after")
    axes.legend(frameon=False)
