"""Systems fitted on at most 32 GPUs, and what that says of their larger scales."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from windtunnel.calibrate.nccl import Fits, rows_of, whole
from windtunnel.validate.board import data_folder
from windtunnel.validate.collectives import Asked, limits
from windtunnel.validate.systems import read_systems
from windtunnel.validate.tables import nccl

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results
    from windtunnel.validate.rows import Row

MOST = nccl.SMALL_SCALE
SMALL, LARGE = "< 1 MiB", ">= 1 MiB"
STEADY = 0.1
"""A run further from the median of runs alike was disturbed, or those were."""


def observe(_: Results) -> dict[str, Any]:
    """Errors by system and size, and the figures of the claims."""
    data = data_folder(None)
    systems = read_systems(data)
    fits = Fits(systems, rows_of(data, systems))
    judged: dict[str, list[Row]] = defaultdict(list)
    table = nccl.scale(data, systems)
    for row in table.rows if table is not None else []:
        if row.system in fits.rows and any(nccl.members(scale) <= MOST for scale in fits.rows[row.system].scales):
            judged[row.system].append(row)
    every = pl.concat([_errors(fits, name, rows) for name, rows in sorted(judged.items())])
    by_system = every.group_by("system", "size").agg(
        pl.len().alias("rows"),
        pl.col("off").abs().median().alias("median"),
        pl.col("off").abs().quantile(0.95, "linear").alias("p95"),
        pl.col("off").median().alias("bias"),
        pl.col("pool").abs().median().alias("pool_alone"),
        pl.col("alike").abs().median().alias("alike"),
        pl.col("alike").abs().quantile(0.95, "linear").alias("alike_p95"),
    )
    found: dict[str, Any] = {"by_system": by_system.sort("system", "size"), "systems": len(judged)}
    small, large = every.filter(pl.col("size") == SMALL), every.filter(pl.col("size") == LARGE)
    steady = large.filter(pl.col("alike").abs().fill_null(0.0) <= STEADY)
    found["steady_rows"] = len(steady) / len(large)
    for name, rows in (("small", small), ("large", large), ("steady", steady)):
        off = rows["off"].abs().to_numpy()
        found |= {f"{name}_median": float(np.median(off)), f"{name}_p95": float(np.percentile(off, 95))}
    by_scale = every.group_by("system", "size", "scale").agg(pl.col("off").abs().median())
    return {**found, "by_scale": by_scale.sort("system", "size", "scale")}


def _errors(fits: Fits, name: str, rows: list[Row]) -> pl.DataFrame:
    """Predicted/measured - 1 of larger scales: by a fit on the small ones, by the pool alone, by the runs alike."""
    system = fits.systems[name]
    variants = [whole(values, limits(system)) for values in (fits.of(name, most=MOST), fits.without_system(name))]
    measured = np.array([row.measured for row in rows])
    off, pool = np.array(Asked([row.scenario["collective"] for row in rows]).times(variants)) / measured - 1.0
    cells = [(row.groups["scale"], row.groups["kind"], row.scenario["collective"]["bytes"]) for row in rows]
    alike: dict[object, list[float]] = defaultdict(list)
    for cell, seconds in zip(cells, measured, strict=True):
        alike[cell].append(float(seconds))
    return pl.DataFrame(
        {
            "system": [name] * len(rows),
            "size": [row.groups["size"] for row in rows],
            "scale": [nccl.members(row.groups["scale"]) for row in rows],
            "off": off,
            "pool": pool,
            "alike": [
                float(np.median(alike[cell])) / seconds - 1.0 if len(alike[cell]) > 1 else None
                for cell, seconds in zip(cells, measured, strict=True)
            ],
        },
        schema_overrides={"alike": pl.Float64},
    )


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Median errors by ranks, of each system's large and small messages."""
    for (system, size), part in observed["by_scale"].group_by(["system", "size"], maintain_order=True):
        axes.plot(part["scale"], part["off"], "o-" if size == LARGE else "x--", label=f"{system}, {size}")
    axes.set(xscale="log", xlabel="ranks", ylabel="median error of scales left out", ylim=(0, None))
    axes.legend()
