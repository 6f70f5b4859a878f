"""MPI collectives of the testbed, predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from windtunnel.testbed import mpi
from windtunnel.testbed.fabric import Shape
from windtunnel.testbed.mpi_predict import record
from windtunnel.testbed.schedules import SETS, asks, schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

RUNS = 2
SIZES = mpi.SIZES[:-1]
"""1 MiB alone would take two thirds of the time, and 256 KiB asks as well."""


def observe(_: Results) -> dict[str, Any]:
    """The launches, and how far off each fidelity is."""
    shape = Shape(acknowledgements="short")
    runs = list(mpi.launches(shape, list(SETS), SIZES, RUNS))
    found = record(shape, runs)
    rows = [
        {
            **{key: row[key] for key in ("launch", "kind", "algorithm", "bytes", "measured", "packet", "flow")},
            "asks": row["kind"] != "iteration"
            and asks(schedule(row["kind"], row["algorithm"], shape.leaves * shape.hosts, row["bytes"])),
        }
        for row in found["programs"]
        if not row["host_bound"]
    ]
    table = pl.DataFrame(rows)
    errors = (table["packet"] / table["measured"] - 1).abs().to_numpy()
    single = (table["kind"] != "iteration").to_numpy()
    asking = table["asks"].to_numpy()
    return {
        "collectives": table,
        "packet": found["fidelities"]["packet"]["median_abs_error"],
        "flow": found["fidelities"]["flow"]["median_abs_error"],
        "iteration": float(np.median(errors[~single])),
        "short": float(np.percentile(errors[single & ~asking], 95)),
        "asking": float(np.percentile(errors[single & asking], 95)),
        "fast_enough": 1 - len(found["host_bound"]) / len(found["programs"]),
    }


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Predicted over measured, by how long it takes."""
    found = observed["collectives"]
    for name, marker in (("packet", "x"), ("flow", ".")):
        axes.scatter(found["measured"], found[name] / found["measured"], marker=marker, label=name)
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set(xscale="log", xlabel="measured (s)", ylabel="predicted over measured")
    axes.legend()
