"""The distribution of flow or message completion times, by how far they go."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from windtunnel.report.canvas import MUTED, figure, svg, time_axis
from windtunnel.text import duration, percent

if TYPE_CHECKING:
    from numpy.typing import NDArray

POINTS = 400
"""Quantiles drawn per line."""

MARKS = (0.5, 0.9, 0.99)
"""Quantiles that have a mark, which says its figures."""

DECADES = 30.0
"""Longest over shortest below which the axis has numbers at round values instead of powers of ten."""

_PATHS = {"scale-up": "#72b7b2", "same-leaf": "#4c78a8", "same-pod": "#b279a2", "beyond": "#e45756"}


def cdf(transfers: pl.LazyFrame, noun: str) -> str:
    """The distribution of `finish - start` in the `flows` or `messages` table; `noun` says what they are."""
    times = transfers.select(
        "path", (pl.col("finish_ps").cast(pl.Float64) - pl.col("start_ps").cast(pl.Float64)).alias("ps")
    ).collect()
    fig, axes = figure(3.3)
    share = np.linspace(0, 1, POINTS)
    groups = [("all", times["ps"])]
    groups += [(path, times.filter(pl.col("path") == path)["ps"]) for path in _PATHS]
    longest, shortest = 0.0, math.inf
    said: dict[str, str] = {}
    for name, values in groups:
        if not len(values):
            continue
        seconds = np.quantile(values.to_numpy(), share) / 1e12
        longest, shortest = max(longest, float(seconds[-1])), min(shortest, float(seconds[0]))
        label = f"{name}: {len(values):,}\np50 {duration(_at(seconds, 0.5))}\np99 {duration(_at(seconds, 0.99))}"
        style = {"color": "#1f2933", "linewidth": 2.2} if name == "all" else {"color": _PATHS[name], "linewidth": 1.4}
        axes.plot(np.maximum(seconds, 1e-12), share, label=label, **style)  # type: ignore[arg-type]
        for mark in MARKS:
            key, at = f"cdf-{name}-{mark:g}", max(_at(seconds, mark), 1e-12)
            axes.plot([at], [mark], "o", color=style["color"], markersize=4.5, gid=key)
            said[key] = f"{name}: {percent(mark)} of {noun} take at most {duration(at)}"
    axes.set_xscale("log")
    axes.set_ylim(0, 1.005)
    axes.set_ylabel(f"share of {noun}", color=MUTED)
    axes.grid(visible=True)
    time_axis(axes, longest, "completion time")
    axes.xaxis.set_minor_formatter("")
    if shortest > longest / DECADES:
        # Powers of ten alone would leave the axis with one number or none.
        ticks = MaxNLocator(6).tick_values(shortest, longest)
        axes.xaxis.set_major_locator(FixedLocator([tick for tick in ticks if tick > 0]))
        axes.xaxis.set_minor_locator(NullLocator())
    fig.legend(loc="outside right center", frameon=False, fontsize=8.5)
    return svg(fig, f"completion times of {noun}", said)


def _at(seconds: NDArray[np.float64], share: float) -> float:
    return float(np.interp(share, np.linspace(0, 1, len(seconds)), seconds))
