"""A cluster over time: what its GPUs did, who waited, which job was on which host, which links were full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from matplotlib.colors import LogNorm, to_rgba
from matplotlib.patches import Patch

from windtunnel.report.canvas import INK, MUTED, figure, panels, svg
from windtunnel.report.heatmap import grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

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

COLUMNS = 1300
"""Pixels across the chart of jobs over hosts."""

MOST_LANES = 1024
"""Pixels down."""

MOST_CROSSES = 500
"""Faults marked; of more, none is."""

MOST_DOTS = 4096
"""Jobs drawn one by one."""

SHORTEST_S = 1e-3
"""Waiting times below are drawn there."""

WAITS = {
    SHORTEST_S: "0", 1.0: "1 s", 60.0: "1 min", 3_600.0: "1 h", 86_400.0: "1 d", 864_000.0: "10 d",
    8_640_000.0: "100 d",
}  # fmt: skip
"""Marks of an axis of waiting times in seconds, from what stands for none on."""

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


def hosts_chart(placements: pl.DataFrame, end_s: float, faults: pl.DataFrame | None = None) -> str:
    """Jobs over hosts: a lane for each GPU, a colour for each job; what failed, and a cross where it hit a job."""
    hosts, lanes = gpu_lanes(placements, end_s, faults)
    fig, axes = figure(0.8 + min(6.0, 0.03 * len(hosts) + 1.0))
    unit = calendar_axis(axes, end_s)
    # Where there is nothing the page shows through.
    palette = np.array([to_rgba("#ffffff", 0.0), *(to_rgba(colour) for colour in (STATES["failed"], *COLOURS))])
    axes.imshow(palette[lanes], aspect="auto", interpolation="nearest", extent=(0, end_s * unit, len(hosts), 0))
    if faults is not None and 0 < (hits := faults.filter(pl.col("jobs") > 0)).height <= MOST_CROSSES:
        known = hits.with_columns(_host_of(hits)).filter(pl.col("host").is_in(hosts))
        place = np.searchsorted(hosts, known["host"].to_numpy()) + 0.5
        axes.scatter(known["time_s"].to_numpy() * unit, place, s=14, marker="x", color=INK, linewidth=0.8)
    axes.set_xlim(0, end_s * unit)
    step = max(1, -(-len(hosts) // 8))
    axes.set_yticks(np.arange(0, len(hosts), step) + 0.5, labels=[str(host) for host in hosts[::step]])
    axes.set_ylabel("host", color=MUTED)
    return svg(fig, "jobs over hosts")


def gpu_lanes(placements: pl.DataFrame, end_s: float, faults: pl.DataFrame | None = None) -> tuple[Ints, Ints]:
    """The hosts that are told of, and a grid of GPUs × time: 0 nothing, 1 failed, 2 and more the colour of a job.

    A pixel shows what is there at its middle, so that the part of the picture in a colour is the part of the time,
    whatever the number of rows. Of more GPUs than `MOST_LANES` every k-th has a lane.
    """
    known = placements["host"].unique().to_numpy().astype(np.int64)
    step = max(int(np.gcd.reduce(known)), 1)
    hosts = np.arange(0, int(known.max()) + 1, step)
    per_host = int((placements["gpu"] + placements["gpus"]).max())  # type: ignore[arg-type]
    every = -(-len(hosts) * per_host // MOST_LANES)
    lanes = np.zeros((-(-len(hosts) * per_host // every), COLUMNS), dtype=np.int64)
    scale = COLUMNS / end_s if end_s else 0.0

    def paint(rows: pl.DataFrame, first: Any, count: Any, start: Any, finish: Any, colour: Any) -> None:  # noqa: ANN401
        begin = first // step * per_host + rows["gpu"].to_numpy()
        top, bottom = -(-begin // every), -(-(begin + count) // every)
        left = np.maximum(np.ceil(start * scale - 0.5), 0).astype(np.int64)
        right = np.minimum(np.ceil(finish * scale - 0.5), COLUMNS).astype(np.int64)
        seen = (right > left) & (bottom > top)
        for i in np.flatnonzero(seen):
            lanes[top[i] : bottom[i], left[i] : right[i]] = colour[i]

    if faults is not None and faults.height:
        of = faults.with_columns(_host_of(faults), _gpu_of(faults)).filter(
            pl.col("cause").is_in(["gpu", "host"]) & pl.col("host").is_in(hosts)
        )
        start = of["time_s"].to_numpy()
        whole = of.with_columns(
            count=pl.when(pl.col("gpu").is_null()).then(per_host).otherwise(1), gpu=pl.col("gpu").fill_null(0)
        )
        paint(whole, whole["host"].to_numpy(), whole["count"].to_numpy(), start, start + of["repair_s"].to_numpy(),
              np.ones(of.height, dtype=np.int64))  # fmt: skip
    jobs = placements["job"].unique(maintain_order=True)
    number = pl.DataFrame({"job": jobs, "number": np.arange(len(jobs)) % len(COLOURS) + 2})
    rows = placements.join(number, on="job", how="left", maintain_order="left")
    finish = rows["finish_s"].fill_nan(end_s).fill_null(end_s).to_numpy()
    paint(rows, rows["host"].to_numpy().astype(np.int64), rows["gpus"].to_numpy().astype(np.int64),
          rows["start_s"].to_numpy(), finish, rows["number"].to_numpy())  # fmt: skip
    return hosts, lanes


def _host_of(faults: pl.DataFrame) -> pl.Series:
    return faults["component"].str.extract(r"host(\d+)").cast(pl.Int64).alias("host")


def _gpu_of(faults: pl.DataFrame) -> pl.Series:
    return faults["component"].str.extract(r"host\d+/gpu(\d+)").cast(pl.Int64).alias("gpu")


def waiting_chart(jobs: pl.DataFrame) -> str:
    """Waiting time against the GPUs of a job: a dot each, or how many there are of each kind where they are many."""
    fig, axes = figure(2.4)
    gpus = "ranks" if "ranks" in jobs.columns else "gpus"
    rows = jobs.filter(pl.col("start_s").is_not_nan() & pl.col("submit_s").is_not_nan())
    wait = np.maximum((rows["start_s"] - rows["submit_s"]).to_numpy(), SHORTEST_S)
    size = rows[gpus].to_numpy()
    if rows.height <= MOST_DOTS:
        axes.scatter(size, wait, s=9, color="#4c78a8", alpha=0.5, linewidth=0)
    else:
        powers = np.arange(int(np.log2(size.max())) + 2)
        edges = np.geomspace(SHORTEST_S, wait.max() * 1.0001, 61)
        counts, _, _ = np.histogram2d(np.log2(size), wait, bins=[powers - 0.5, edges])
        shown = np.ma.masked_equal(counts.T, 0)
        mesh = axes.pcolormesh(2.0 ** (powers - 0.5), edges, shown, norm=LogNorm(vmin=1), cmap="YlGnBu", linewidth=0,
                               rasterized=True)  # fmt: skip
        fig.colorbar(mesh, ax=axes, pad=0.01, label="jobs")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("GPUs of the job")
    marks = {at: name for at, name in WAITS.items() if at <= 10 * max(wait.max(initial=0.0), SHORTEST_S)}
    axes.set_yticks(list(marks), labels=list(marks.values()))
    axes.minorticks_off()
    axes.set_ylabel("waited", color=MUTED)
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
