"""What one iteration of one job costs to simulate: events, operations, memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results


def observe(results: Results) -> dict[str, Any]:
    """Figures by job; what lacks a run is null."""
    rows = []
    for place, result in results:
        kind, gpus = place["case"].removesuffix(" GPUs").split(", ")
        summary = result.summary
        rows.append(
            {
                "kind": kind,
                "GPUs": int(gpus),
                "nodes": summary["jobs"][0]["operations"],
                "events": summary["events"],
                "wall_s": summary["wall_time_s"],
                "cpu_s": summary["cpu_time_s"],
                "memory_MB": summary["peak_memory_bytes"] / 1e6,
            }
        )
    table = pl.DataFrame(rows)

    def exponent(kind: str, x: str, y: str, least: int) -> float | None:
        part = table.filter(pl.col("kind") == kind, pl.col("GPUs") >= least)
        if part.height < 3:
            return None
        xs, ys = part[x].log().to_numpy(), part[y].log().to_numpy()
        return float(((xs - xs.mean()) * (ys - ys.mean())).sum() / ((xs - xs.mean()) ** 2).sum())

    per_node = {
        kind: events / nodes
        for kind, events, nodes in table.filter(pl.col("GPUs") == 4096).select("kind", "events", "nodes").iter_rows()
    }
    both = len(per_node) == 2
    largest = table.sort("nodes").tail(1)
    return {
        "cost": table.with_columns(pl.col(pl.Float64).round(3)),
        "exponent_dlrm": exponent("DLRM", "GPUs", "events", 512),
        "exponent_genai": exponent("GenAI", "GPUs", "events", 512),
        "exponent_nodes": exponent("GenAI", "nodes", "events", 128),
        "exponent_memory": exponent("GenAI", "nodes", "memory_MB", 512),
        "genai_over_dlrm_per_node": per_node["GenAI"] / per_node["DLRM"] if both else math.nan,
        "largest_nodes": largest["nodes"][0],
        "largest_bytes": 1e6 * largest["memory_MB"][0],
    }


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Events over GPUs, in place of the time of figures 28 and 29."""
    table: pl.DataFrame = observed["cost"]
    for kind in ("DLRM", "GenAI"):
        part = table.filter(pl.col("kind") == kind).sort("GPUs")
        axes.plot(part["GPUs"], part["events"], marker="o", label=kind)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set(xlabel="GPUs", ylabel="events")
    axes.legend(frameon=False)
