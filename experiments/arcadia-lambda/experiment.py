"""The sweep of lambda on measured collectives."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from windtunnel.calibrate.equation3 import choose, sweep
from windtunnel.calibrate.methods import least_squares
from windtunnel.calibrate.nccl import flat, rows_of, whole
from windtunnel.calibrate.problem import Problem
from windtunnel.validate.board import data_folder
from windtunnel.validate.collectives import Asked, fitted, limits
from windtunnel.validate.systems import read_systems

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

MACHINE = "polaris"
CONSTANTS = ("launch", "hop_tree.0", "hop_ring.0", "hop_ring.2", "share_network.0", "share_network.2")
MOST = 300
"""Rows: pairs of them are counted."""


def observe(_: Results) -> dict[str, Any]:
    """Errors and reversals by lambda."""
    data = data_folder(None)
    system = read_systems(data)[MACHINE]
    every = rows_of(data, {MACHINE: system})[MACHINE]
    taken = sorted(range(len(every.asked)), key=lambda i: (i * 7919) % len(every.asked))[:MOST]
    asked = Asked([every.asked[i] for i in taken])
    first = flat(fitted("pools")["without"][MACHINE])
    first.pop("even", None)

    def predict(sets: Sequence[Mapping[str, float]]) -> np.ndarray:
        return np.array(asked.times([whole({**first, **one}, limits(system)) for one in sets]))

    start = {name: first[name] for name in CONSTANTS}
    measured = np.array([every.measured[i] for i in taken])
    problem = Problem(
        start,
        {name: value / 4 for name, value in start.items()},
        {name: value * 4 for name, value in start.items()},
        measured,
        predict,
        np.full(len(taken), 0.02),
    )
    scales = np.array([every.scales[i] for i in taken])
    found = sweep(problem, scales.tolist())
    relative = np.zeros(len(taken))
    for scale in set(scales.tolist()):
        values = least_squares(replace(problem, rows=np.flatnonzero(scales != scale))).values
        relative[scales == scale] = np.abs(predict([values])[0] / measured - 1)[scales == scale]
    near = [one.left_out for one in found if one.multiple <= 1.0]
    return {
        "sweep": pl.DataFrame([one.__dict__ for one in found]),
        "relative_over_seconds": float(np.median(relative)) / min(one.left_out for one in found),
        "spread": max(near) / min(near),
        "chosen": choose(problem).multiple,
        "reversed": found[-1].reversed_ / found[0].reversed_,
    }


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Error of what was left out by lambda."""
    found = observed["sweep"]
    axes.plot(range(len(found)), 100 * found["left_out"], "o-", label="scales left out")
    axes.plot(range(len(found)), 100 * found["fitted"], "o--", label="fitted")
    axes.set_xticks(range(len(found)), [f"{multiple:g}" for multiple in found["multiple"]])
    axes.set(xlabel="lambda / sigma", ylabel="median error (%)", ylim=(0, None))
    axes.legend()
