"""Runs both scenarios over their sizes; the axes differ, so they are run here."""

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
HOSTS = (128, 256, 512)
SCALES = (8, 16, 32, 64)


def jobs(result: Result, hosts: int, scale: int) -> dict[str, Any]:
    """Job mode: idle GPUs and waiting."""
    table = result.jobs
    # Up to the last submission: afterwards the queue is no longer kept filled.
    end = float(table["submit_s"].max())  # type: ignore[arg-type]
    ran = table.filter(pl.col("start_s") < end)
    busy = ((ran["finish_s"].clip(upper_bound=end) - ran["start_s"]) * ran["gpus"]).sum()
    return {
        "hosts": hosts,
        "scale": scale,
        "mean_gpus": table["gpus"].mean(),
        "idle": 1 - busy / (end * hosts * 8),
        "waiting_h": ran["waiting_s"].mean() / 3600,
    }


def speed(result: Result, scale: int) -> dict[str, Any]:
    """Flow mode: samples per second and GPU."""
    cluster, table = result.summary["cluster"], result.jobs
    ran = table.filter(pl.col("iteration_time_s").is_not_nan())
    return {
        "scale": scale,
        "mean_gpus": ran["ranks"].mean(),
        "samples_per_s_per_gpu": (ran["samples_per_s"] / ran["ranks"]).dot(ran["ranks"]) / ran["ranks"].sum(),
        "of_those_ended": cluster["samples_per_s_per_gpu"],
        "wall_s": result.summary["wall_time_s"],
        "memo_hits": cluster["episodes"]["memo_hits"],
    }


def observe(_results: Results) -> dict[str, Any]:
    """Both figures, and how the paper compares them."""
    places = [(hosts, scale) for hosts in HOSTS for scale in SCALES]
    asked = [Asked(HERE / "jobs.yaml", {"topology.hosts": hosts, "jobs.scale.gpus": scale}) for hosts, scale in places]
    asked += [Asked(HERE / "speed.yaml", {"jobs.scale.gpus": scale}) for scale in SCALES]
    ran = run_all(asked)
    table = pl.DataFrame([jobs(result, *place) for result, place in zip(ran, places, strict=False)])
    speeds = pl.DataFrame([speed(result, scale) for result, scale in zip(ran[len(places) :], SCALES, strict=True)])
    at = {(row["hosts"], row["scale"]): row for row in table.iter_rows(named=True)}

    def rises(key: str) -> bool:
        steps = [at[HOSTS[-1], scale][key] for scale in SCALES]
        return steps == sorted(steps)

    rate = speeds["samples_per_s_per_gpu"]
    return {
        "idle and waiting": table.with_columns(pl.col(pl.Float64).round(4)),
        "speed": speeds.with_columns(pl.col(pl.Float64).round(2)),
        "speed_loss": 1 - rate[-1] / rate[0],
        "idle_rises": rises("idle"),
        "waiting_rises": rises("waiting_h"),
        "idle_512_over_256": at[512, 32]["idle"] / at[256, 32]["idle"],
        "waiting_512_over_256": at[512, 32]["waiting_h"] / at[256, 32]["waiting_h"],
    }


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Idle GPUs over the mean size of jobs, as figure 13."""
    table: pl.DataFrame = observed["idle and waiting"]
    for hosts in HOSTS:
        part = table.filter(pl.col("hosts") == hosts)
        axes.plot(part["mean_gpus"], part["idle"], marker="o", label=f"{hosts} hosts")
    axes.set_xscale("log", base=2)
    axes.set(xlabel="mean GPUs of a job", ylabel="idle share of the GPUs")
    axes.legend(frameon=False)
