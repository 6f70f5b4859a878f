"""Share of an iteration in which the network is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

SAMPLES = (128, 512, 2048)


def observe(results: Results) -> dict[str, Any]:
    """The share by GPUs and samples, and how the paper compares them; what lacks a run is null."""
    rows = []
    for place, result in results:
        gpus, samples = (int(part.split()[0]) for part in place["case"].split(", "))
        job = result.summary["jobs"][0]
        time = job["iteration_time_s"]["mean"]
        rows.append(
            {
                "GPUs": gpus,
                "samples": samples,
                "iteration_ms": 1e3 * time,
                "share": job["exposed_communication_s"] / time,
            }
        )
    table = pl.DataFrame(rows).sort("samples", "GPUs")
    share = {(g, s): x for g, s, x in table.select("GPUs", "samples", "share").iter_rows()}

    def rises(samples: int) -> bool | None:
        steps = [share.get((gpus, samples)) for gpus in (8, 64, 1024)]
        return None if None in steps else steps == sorted(steps) and steps[0] != steps[-1]

    return {
        "exposed": table.with_columns(pl.col(pl.Float64).round(4)),
        **{f"rises_{samples}": rises(samples) for samples in SAMPLES},
        "share_1024_512": share.get((1024, 512)),
    }


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """The share over the job's size, as figure 1."""
    table: pl.DataFrame = observed["exposed"]
    for samples in SAMPLES:
        part = table.filter(pl.col("samples") == samples)
        axes.plot(part["GPUs"], part["share"], marker="o", label=f"{samples} samples a GPU")
    axes.set_xscale("log", base=2)
    axes.set(xlabel="GPUs of the job", ylabel="exposed network time over iteration time", ylim=(0, 1))
    axes.legend(frameon=False)
