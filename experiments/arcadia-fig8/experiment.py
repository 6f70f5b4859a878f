"""Steps of real training jobs, predicted with more and more of what is known of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from windtunnel.testbed import training
from windtunnel.testbed.compare import HEADER
from windtunnel.testbed.fabric import Shape
from windtunnel.testbed.predict import predicted, simulated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results
    from windtunnel.testbed.training import Trained

RUNS = 8


def observe(_: Results) -> dict[str, Any]:
    """Mean absolute errors, from no alignment to all."""
    shape = Shape()
    runs = list(training.trained(shape, RUNS, training.usual_python()))
    errors = breakdown(shape, [run for run in runs if not run.host_bound])
    names = list(errors)
    gains = {name: errors[before] - errors[name] for before, name in pairwise(names)}
    return {
        "errors": pl.DataFrame({"known": names, "mape": list(errors.values())}),
        "dtype_first": gains["dtype"] == max(gains.values()),
        "overhead_gain": gains["packet overhead"],
        "calibrated": errors["calibration"],
        "never_worse": min(gains.values()) > -0.005,
    }


def breakdown(shape: Shape, runs: Sequence[Trained]) -> dict[str, float]:
    """Mean absolute relative errors of steps by what was known last."""
    measured = np.array([run.step for run in runs])

    def off(seconds: Sequence[float]) -> float:
        return float(np.abs(np.array(seconds) / measured - 1).mean())

    half = [replace(run, buckets=[size // 2 for size in run.buckets]) for run in runs]
    _, steps = predicted(shape, runs)
    return {
        "model and fabric": off(simulated(shape, half, header=0, paths=False)),
        "dtype": off(simulated(shape, runs, header=0, paths=False)),
        "packet overhead": off(simulated(shape, runs, header=HEADER, paths=False)),
        "paths": off(simulated(shape, runs)),
        "calibration": float(np.mean([abs(step.error) for step in steps if step.error is not None])),
    }


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """A bar for each alignment."""
    errors = observed["errors"]
    axes.bar(errors["known"].to_list(), 100 * errors["mape"])
    axes.tick_params(axis="x", rotation=20)
    axes.set(ylabel="mean absolute error of a step (%)")
