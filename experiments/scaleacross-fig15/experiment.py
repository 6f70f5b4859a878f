"""Iteration times over two buildings, by how far parameters are sharded and how much bandwidth buildings share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

RATIOS = (1, 4, 8, 16)
KINDS = ("FSDP", "HSDP")


def observe(results: Results) -> dict[str, Any]:
    """Times and memory by case, and how the paper compares them."""
    jobs: dict[tuple[str, int], dict[str, Any]] = {}
    for place, result in results:
        kind, _, ratio = place["case"].partition(", 1:")
        jobs[kind, int(ratio)] = result.summary["jobs"][0]
    time = {case: float(job["iteration_time_s"]["mean"]) for case, job in jobs.items()}
    gaps = {ratio: time["HSDP", ratio] / time["FSDP", ratio] for ratio in RATIOS}
    rows = [
        {"sharding": kind, "ratio": ratio, "iteration_s": time[kind, ratio], "memory_gib": memory(jobs[kind, ratio])}
        for kind in KINDS
        for ratio in RATIOS
    ]
    return {
        "iterations": pl.DataFrame(rows),
        **{f"hsdp_over_fsdp_{ratio}": gap for ratio, gap in gaps.items()},
        "hsdp_saves_16": 1.0 - gaps[16],
        "memory": memory(jobs["HSDP", 1]) / memory(jobs["FSDP", 1]),
    }


def memory(job: dict[str, Any]) -> float:
    """GiB of the fullest GPU."""
    return float(job["memory_bytes_per_gpu"]) / 2**30


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Iteration time over the ratio, relative to FSDP's, as figure 15."""
    table: pl.DataFrame = observed["iterations"]
    base = table.filter(pl.col("sharding") == "FSDP").sort("ratio")["iteration_s"]
    for kind, colour in zip(KINDS, ("#4c78a8", "#e45756"), strict=True):
        part = table.filter(pl.col("sharding") == kind).sort("ratio")
        axes.plot(part["ratio"], part["iteration_s"] / base, color=colour, marker="o", label=kind)
    axes.set_xscale("log", base=2)
    axes.set_xticks(RATIOS, [f"1:{ratio}" for ratio in RATIOS])
    axes.set(xlabel="bandwidth between buildings over that of NICs", ylabel="iteration time over that of FSDP")
    axes.legend(frameon=False)
