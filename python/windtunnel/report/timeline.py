"""A cluster over time: what its GPUs did, who waited, which job was on which host, which links were full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from matplotlib.patches import Patch

from windtunnel.report.canvas import MUTED, figure, panels, svg
from windtunnel.report.heatmap import grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STATES = {
    "busy": "#4c78a8",
    "stranded": "#e45756",
    "draining": "#f2cf5b",
    "failed": "#7b4b94",
    "idle": "#e4e7eb",
}
"""What a GPU does and its colour, from the bottom of the chart up."""

COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#72b7b2", "#eeca3b", "#9d755d", "#ff9da6", "#86a9cf", "#bab0ac")
"""Of jobs, in turn."""

MOST_HOSTS = 512
"""Hosts drawn; of more, the first are."""

DAY_S = 86_400.0


def calendar_axis(axes: Axes, longest_s: float) -> float:
    """Labels the x axis in days, hours or seconds; what a second is in that unit."""
    for scale, unit in ((DAY_S, "days"), (3_600.0, "hours"), (60.0, "minutes"), (1.0, "s")):
        if longest_s >= 2 * scale or unit == "s":
            break
    axes.set_xlabel(f"time ({unit})")
    return 1 / scale


def usage_chart(usage: pl.DataFrame) -> str:
    """What the GPUs did and how many jobs waited and ran."""
    fig, (gpus, jobs) = panels([2.0, 1.2])
    end = float(usage["from_s"][-1] + usage["span_s"][-1])
    unit = calendar_axis(jobs, end)
    edges = np.append(usage["from_s"].to_numpy(), end) * unit
    base = np.zeros(usage.height)
    for state, colour in STATES.items():
        top = base + usage[state].to_numpy()
        gpus.stairs(top, edges, baseline=base, fill=True, color=colour, linewidth=0)
        base = top
    gpus.set_ylim(0, 1)
    gpus.set_yticks([0, 0.5, 1], labels=["0", "50 %", "100 %"])
    gpus.set_ylabel("GPUs", color=MUTED)
    jobs.stairs(usage["running_jobs"].to_numpy(), edges, color="#4c78a8", label="running")
    jobs.stairs(usage["waiting_jobs"].to_numpy(), edges, color="#e45756", label="waiting")
    jobs.set_ylabel("jobs", color=MUTED)
    jobs.set_ylim(bottom=0)
    jobs.set_xlim(0, end * unit)
    jobs.legend(loc="upper right", ncols=2)
    shown = [state for state in STATES if usage[state].max()]
    fig.legend(handles=[Patch(color=STATES[state], label=state) for state in shown], loc="outside upper left",
               ncols=len(STATES), frameon=False)  # fmt: skip
    return svg(fig, "GPUs and jobs over time")


def hosts_chart(placements: pl.DataFrame, end_s: float) -> str:
    """Jobs over hosts: a bar for each stay of a job on a host, as high as its part of the host's GPUs."""
    last = int(placements["host"].max()) + 1  # type: ignore[arg-type]
    hosts = min(last, MOST_HOSTS)
    per_host = max(int(placements["gpus"].max()), 1)  # type: ignore[arg-type]
    fig, axes = figure(0.8 + min(6.0, 0.03 * hosts + 1.0))
    unit = calendar_axis(axes, end_s)
    names = placements["job"].unique(maintain_order=True).to_list()
    number = {name: i for i, name in enumerate(names)}
    rows = placements.filter(pl.col("host") < hosts).with_columns(pl.col("finish_s").fill_nan(end_s).fill_null(end_s))
    for index, colour in enumerate(COLOURS):
        mine = rows.filter(pl.col("job").replace_strict(number, return_dtype=pl.Int64) % len(COLOURS) == index)
        if mine.height:
            height = mine["gpus"].to_numpy() / per_host
            start, finish = mine["start_s"].to_numpy() * unit, mine["finish_s"].to_numpy() * unit
            axes.barh(mine["host"].to_numpy() + 0.5, finish - start, left=start, height=0.94 * height, color=colour,
                      linewidth=0)  # fmt: skip
    axes.set_ylim(hosts, 0)
    axes.set_xlim(0, end_s * unit)
    axes.set_ylabel("host", color=MUTED)
    return svg(fig, "jobs over hosts")


def waiting_chart(jobs: pl.DataFrame) -> str:
    """Waiting time against the GPUs of a job."""
    fig, axes = figure(2.4)
    rows = jobs.filter(pl.col("start_s").is_not_nan() & pl.col("submit_s").is_not_nan())
    wait = (rows["start_s"] - rows["submit_s"]).to_numpy()
    axes.scatter(rows["ranks"].to_numpy(), np.maximum(wait, 1e-3), s=9, color="#4c78a8", alpha=0.5, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("GPUs of the job")
    axes.set_ylabel("waited (s)", color=MUTED)
    return svg(fig, "waiting time by size")


def heat_chart(heat: pl.DataFrame, end_s: float) -> str:
    """Mean utilisation of the most used links over the calendar, by tier."""
    tiers = sorted(heat["tier"].unique())
    grids: list[tuple[str, Any]] = [(tier, grid(heat.filter(pl.col("tier") == tier))) for tier in tiers]
    fig, axes = panels([0.45 + 0.012 * len(cells) for _, cells in grids])
    unit = calendar_axis(axes[-1], end_s)
    span = float(heat["bin_span_s"][0])
    for ax, (tier, cells) in zip(axes, grids, strict=True):
        image = ax.imshow(cells, aspect="auto", cmap="YlGnBu", vmin=0, vmax=1, interpolation="nearest",
                          extent=(0, span * cells.shape[1] * unit, len(cells), 0))  # fmt: skip
        links = heat.filter(pl.col("tier") == tier).height
        ax.set_yticks([])
        ax.set_ylabel(f"{tier}\n{links:,} links", rotation=0, ha="right", va="center", color=MUTED, fontsize=8.5)
        ax.set_xlim(0, end_s * unit)
    bar = fig.colorbar(image, ax=axes, shrink=0.6, pad=0.01, aspect=18)
    bar.set_ticks([0, 0.5, 1], labels=["0", "50 %", "100 %"])
    return svg(fig, "links over the calendar")
