"""Training jobs of the testbed, predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.testbed import training
from windtunnel.testbed.fabric import Shape
from windtunnel.testbed.predict import record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

RUNS = 8


def observe(_: Results) -> dict[str, Any]:
    """The runs, and how far off their steps are."""
    shape = Shape()
    runs = list(training.trained(shape, RUNS, training.usual_python()))
    found = record(shape, runs)
    return {
        "steps": pl.DataFrame(found["runs"]),
        "median": found["median_abs_error"],
        "largest": found["largest_abs_error"],
        "raw": found["raw"],
        "fast_enough": 1 - len(found["host_bound"]) / RUNS,
    }


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Predicted against measured."""
    steps = observed["steps"]
    for name, marker in (("simulated", "o"), ("predicted", "x")):
        axes.scatter(steps["measured"], steps[name], marker=marker, label=name)
    end = float(steps["measured"].max())
    axes.plot([0, end], [0, end], color="grey", linewidth=0.8)
    axes.set(xlabel="measured step (s)", ylabel="step by packets (s)")
    axes.legend()
