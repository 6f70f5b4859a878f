"""Share of an iteration in which the network is waited for."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

SAMPLES = (128, 512, 2048)
TABLES, WIDTH, BYTES = 1024, 64, 2
"""Of the sheet `dlrm-1024`: tables, features of a row, bytes of a number on the wire."""
DENSE = sum(
    inner * outer
    for layers in ((256, 1024, 512, 64), (64 + (TABLES + 1) * TABLES // 2, 512, 1024, 512, 256, 1))
    for inner, outer in pairwise(layers)
)
"""Parameters of the dense layers; the top MLP takes the products of all pairs and the bottom's output."""
GOODPUT = 400e9 / 8 * 4096 / 4160
"""Payload that the NIC of a host of 8 GPUs carries, in B/s."""


def wire_s(gpus: int, samples: int) -> float:
    """Time that an iteration needs of a host's NIC: two exchanges of vectors, and a ring of gradients."""
    hosts = gpus / 8
    exchange = 8 * samples * TABLES * WIDTH * BYTES * (gpus - 8) / gpus
    ring = 2 * (hosts - 1) / hosts * DENSE * BYTES
    return (2 * exchange + ring) / GOODPUT


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
                "exposed_ms": 1e3 * job["exposed_communication_s"],
                "compute_ms": 1e3 * job["compute_s"],
                "wire_ms": 1e3 * wire_s(gpus, samples),
            }
        )
    table = pl.DataFrame(rows).sort("samples", "GPUs")
    # 0: computation hides as much of the wire's time as it can; 1: it hides nothing.
    bare = table.filter(pl.col("GPUs") > 8).with_columns(
        bare=(pl.col("exposed_ms") - pl.col("wire_ms") + pl.col("compute_ms")) / pl.col("compute_ms")
    )
    share = {(g, s): x for g, s, x in table.select("GPUs", "samples", "share").iter_rows()}

    def rises(samples: int) -> bool | None:
        steps = [share.get((gpus, samples)) for gpus in (8, 64, 1024)]
        return None if None in steps else steps == sorted(steps) and steps[0] != steps[-1]

    return {
        "exposed": table.with_columns(pl.col(pl.Float64).round(4)),
        **{f"rises_{samples}": rises(samples) for samples in SAMPLES},
        "least_bare": bare["bare"].min(),
        "most_bare": bare.filter(pl.col("GPUs") == 1024)["bare"].max(),
        "share_8": max((share.get((8, samples), 1.0) for samples in SAMPLES), default=None),
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
