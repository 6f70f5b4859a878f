"""Iteration times by job size, shared hosts and queue pairs, over the time that the NICs alone would take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

PAIRS = (1, 4, 16, 32, 64)
ALONE = ("16 GPUs", "64 GPUs", "256 GPUs")


def drawn_load(leaves: int, parts: int, uplinks: int = 4, seed: int = 0, draws: int = 4000) -> float:
    """Expected load of the fullest uplink of any leaf over the mean, if each of `parts` parts draws its uplink."""
    loads = np.random.default_rng(seed).multinomial(parts, [1 / uplinks] * uplinks, size=(draws, leaves))
    return float(loads.max(axis=(1, 2)).mean() * uplinks / parts)


def observe(results: Results) -> dict[str, Any]:
    """Times over the ideal ones; what lacks a run is null."""
    rows = []
    for place, result in results:
        job = result.summary["jobs"][0]
        time = job["iteration_time_s"]["mean"]
        key = (place["case"], place["hash"], place["transport"], place["queue_pairs"])
        rows.append((*key, 1e3 * time, time / job["ideal_iteration_time_s"]))
    columns = ["jobs", "hash", "transport", "queue_pairs", "iteration_ms", "over_ideal"]
    table = pl.DataFrame(rows, schema=columns, orient="row")
    over = {tuple(row[:4]): row[5] for row in table.iter_rows()}
    time = {tuple(row[:4]): row[4] for row in table.iter_rows()}

    def quotient(above: tuple[str, str, str, int], below: tuple[str, str, str, int]) -> float | None:
        return time[above] / time[below] if above in time and below in time else None

    def alone(pairs: int, cases: tuple[str, ...]) -> list[float]:
        keys = [(case, "crc32", transport, pairs) for case in cases for transport in ("dcqcn", "dctcp")]
        return [over[key] for key in keys if key in over]

    drawn = {pairs: drawn_load(8, 8 * pairs) for pairs in PAIRS}
    hashed = over.get(("64 GPUs", "mixed", "none", 32))
    shared, apart = "two jobs, 1 host shared", "two jobs, 0 hosts shared"
    wide = table.pivot("queue_pairs", index=["jobs", "hash", "transport"], values="over_ideal")
    loads = pl.DataFrame([{"queue_pairs": pairs, "drawn_load": load} for pairs, load in drawn.items()])
    return {
        "time over ideal, by queue pairs": wide.with_columns(pl.col(pl.Float64).round(3)),
        "fullest uplink over mean, 8 leaves": loads.with_columns(pl.col(pl.Float64).round(3)),
        "over_ideal_64_32": over.get(("64 GPUs", "crc32", "dcqcn", 32)),
        "over_ideal_alone_32_max": max(alone(32, ALONE), default=None),
        "over_ideal_alone_1_min": min(alone(1, ALONE[1:]), default=None),
        "time_64_over_32": quotient(("64 GPUs", "crc32", "dcqcn", 64), ("64 GPUs", "crc32", "dcqcn", 32)),
        "over_ideal_shared_1_32": over.get((shared, "mixed", "dctcp", 32)),
        "shared_1_over_0_32": quotient((shared, "mixed", "dctcp", 32), (apart, "mixed", "dctcp", 32)),
        "over_drawn_load_64_32": hashed / drawn[32] if hashed else None,
    }


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Time over ideal by queue pairs."""
    table: pl.DataFrame = observed["time over ideal, by queue pairs"]
    lines = {"none": ":", "dcqcn": "-", "dctcp": "--"}
    for row in table.filter(pl.col("jobs").is_in(["64 GPUs", "two jobs, 1 host shared"])).iter_rows():
        pairs = [int(name) for name in table.columns[3:]]
        axes.plot(pairs, row[3:], lines[row[2]], marker="o", markersize=4, label=f"{row[0]}, {row[1]}, {row[2]}")
    axes.set_xscale("log", base=2)
    axes.set_xticks(PAIRS, [str(pairs) for pairs in PAIRS])
    axes.set(xlabel="queue pairs", ylabel="time over ideal")
    axes.legend(frameon=False, fontsize=7)
