"""Fifty random layouts in each of four scenarios, half of them of a framework whose host launches kernel by kernel."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.explore.accuracy import compared, errors
from windtunnel.layout.job import read_job
from windtunnel.source import read_source
from windtunnel.studies.store import Store

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

SCENARIOS = ("hall", "clos", "buildings", "moe")
SOFTWARE = ("none", "megatron")
EACH = 25
SEED = 2027


def observe(_: Results) -> dict[str, Any]:
    """The layouts as a table, and the errors over all of them."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="windtunnel-") as folder, Store(Path(folder)) as store:
        for name in SCENARIOS:
            source = read_source(Path(__file__).with_name(f"{name}.yaml").read_text(encoding="utf-8"))
            for number, framework in enumerate(SOFTWARE):
                job = read_job(source, [("jobs[0].workload.training.framework", framework)])
                for row, error in compared(job, EACH, SEED + number, store):
                    shown = {key: value for key, value in row.candidate.record().items() if key != "layers"}
                    times = {"model_s": row.answer.iteration_s, "flow_s": row.flow_s, "error": error}
                    rows.append({"scenario": name, "framework": framework, **shown, **times})
    found = errors(row["error"] for row in rows)
    return {
        "layouts": pl.DataFrame(rows),
        "number": found.number,
        "largest": found.largest,
        "p95": found.p95,
        "bias": abs(found.mean),
    }


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """The error of each layout over the time of its iteration."""
    table: pl.DataFrame = observed["layouts"]
    for name in SCENARIOS:
        part = table.filter(pl.col("scenario") == name)
        axes.plot(part["flow_s"], 100 * part["error"], "o", markersize=3, label=name)
    axes.axhspan(-5, 5, color="tab:gray", alpha=0.15)
    axes.set_xscale("log")
    axes.set(xlabel="iteration as flows, s", ylabel="error of the cost model, %")
    axes.legend(frameon=False)
