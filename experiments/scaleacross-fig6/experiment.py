"""Iteration times of a dense job over four buildings, by what is outermost and what the buildings share."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.experiments.buildings import draw_orders
from windtunnel.experiments.cuts import ORDERS, cut, outermost, times
from windtunnel.experiments.runs import Asked

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

SCENARIO = Path(__file__).resolve().parent / "scenario.yaml"
RATIOS = (1, 4, 8, 16)


HALF = {"jobs[0].workload.model": "gpu-share-half.json"}

WHY = {
    "pp_over_dp_16": "the gap is that of a message to the computation of a chunk, and of replicas to buildings, "
    "neither of which is published: with a layer of half the parameters and operations it is 5.7%, with 80 replicas "
    "for 40 it is 3.4%"
}
"""By figure observed: why a claim on it does not hold."""


def observe(_: Results) -> dict[str, Any]:
    """Times by case, and PP-out's over DP-out's."""
    found = times({
        (name, layer, ratio): Asked(SCENARIO, {**outermost(name), **cut(SCENARIO, ratio), **own})
        for (layer, own, ratios), name in product((("whole", {}, RATIOS), ("half", HALF, RATIOS[-1:])), ORDERS)
        for ratio in ratios
    })  # fmt: skip
    over = {ratio: found["PP-out", "whole", ratio] / found["DP-out", "whole", ratio] for ratio in RATIOS}
    rows = [
        {"outermost": name, "layer": layer, "ratio": ratio, "iteration_s": seconds}
        for (name, layer, ratio), seconds in found.items()
    ]
    return {
        "iterations": pl.DataFrame(rows),
        **{f"pp_over_dp_{ratio}": value for ratio, value in over.items()},
        "pp_over_dp_16_half": found["PP-out", "half", 16] / found["DP-out", "half", 16],
        "least": min(over.values()),
        "slowest_at_last": max(over, key=over.__getitem__) == RATIOS[-1],
    }


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Iteration time by the ratio, as figure 6."""
    draw_orders(observed["iterations"].filter(pl.col("layer") == "whole"), "ratio", "iteration_s", axes)
    axes.set(xlabel="oversubscription between the buildings, 1 to", ylabel="iteration time (s)", ylim=(0, None))
    axes.set_xscale("log", base=2)
