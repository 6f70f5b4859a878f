"""Iteration times over two buildings, by what is outermost and how many micro-batches there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.experiments.buildings import draw_orders

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

BATCHES = (176, 96, 48, 16)


def observe(results: Results) -> dict[str, Any]:
    """Times by case, and how the paper compares them; what lacks a run is null."""
    time: dict[tuple[str, int], float] = {}
    for place, result in results:
        outermost, _, batch = place["case"].partition(", batch ")
        time[outermost, int(batch)] = result.summary["jobs"][0]["iteration_time_s"]["mean"]
    over = {
        batch: time["PP-out", batch] / time["DP-out", batch]
        for batch in BATCHES
        if ("PP-out", batch) in time and ("DP-out", batch) in time
    }
    first = [over[batch] for batch in BATCHES[:3] if batch in over]
    rows = [{"outermost": outermost, "batch": batch, "iteration_s": s} for (outermost, batch), s in time.items()]
    return {
        "iterations": pl.DataFrame(rows),
        **{f"pp_over_dp_{batch}": over.get(batch) for batch in BATCHES},
        "closes": first == sorted(first, reverse=True) if len(first) == len(BATCHES[:3]) else None,
    }


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Iteration time over the batch, as figure 5."""
    draw_orders(observed["iterations"], "batch", "iteration_s", axes)
    axes.set(xlabel="sequences in a batch", ylabel="iteration time (s)")
