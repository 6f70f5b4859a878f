"""The Gantt chart of one pipeline: what each rank's streams do over an iteration.

A stream's operations are laid on a grid of `COLUMNS` pixels; each pixel shows the kind of work that fills most of it.
The chart costs the same for a hundred operations as for a million.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patches import Patch

from windtunnel.breakdown import PART, PARTS
from windtunnel.report.canvas import figure, svg, time_axis
from windtunnel.results.streams import stream_name

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

COLUMNS = 2600
"""Pixels across the chart."""

MOST_LANES = 64
"""Most rows drawn; of more ranks, the first are shown."""

KINDS = {
    "forward": ("forward", "#4a57ff"),
    "backward": ("backward", "#14102c"),
    "weight": ("weight gradient", "#b491be"),
    "compute": ("compute", PART["compute"].colour),
    **{part.key: (part.name.replace("exposed ", ""), part.colour) for part in PARTS if part.name.startswith("exposed")},
}
"""Kind of work → name and colour."""

_KEYS = list(KINDS)

_PASSES = (("forward", r"^F\d"), ("backward", r"^[BI]\d"), ("weight", r"^W\d"))
"""Kind of a computation by its label: the letter of its pass, then chunk and microbatch, such as `F0.3 attention`."""


@dataclass(frozen=True)
class Lane:
    """A row of the chart: a rank's stream, and per pixel the kind of work (index into `KINDS`) or -1."""

    label: str
    first_of_rank: bool
    pixels: NDArray[np.int16]


def gantt(operations: pl.DataFrame) -> str:
    """The chart of the `operations` rows of one job and iteration, by stage and stream; empty if nothing takes time."""
    start = operations["start_ps"].to_numpy().astype(np.float64)
    finish = operations["finish_ps"].to_numpy().astype(np.float64)
    begin, end = float(start.min()), float(finish.max())
    span = max(end - begin, 1.0)
    rows = lanes(operations, (start - begin) / span, (finish - begin) / span)
    if not any((lane.pixels >= 0).any() for lane in rows):
        return ""
    fig, axes = figure(0.9 + min(7.0, 0.21 * len(rows) + 0.25))
    used: set[int] = set()
    boxes: dict[int, list[tuple[float, float, float]]] = {}
    for y, lane in enumerate(rows):
        for kind, left, width in runs(lane.pixels):
            boxes.setdefault(kind, []).append((left / COLUMNS * span / 1e12, y - 0.4, width / COLUMNS * span / 1e12))
            used.add(kind)
    for kind, items in boxes.items():
        _fill(axes, items, KINDS[_KEYS[kind]][1])
    for y, lane in enumerate(rows):
        if lane.first_of_rank and y:
            axes.axhline(y - 0.5, color="#cbd2d9", linewidth=0.6)
    axes.set_yticks(range(len(rows)), [lane.label for lane in rows], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.set_xlim(0, span / 1e12)
    axes.spines["left"].set_visible(False)
    time_axis(axes, span / 1e12, "time in the iteration")
    patches = [Patch(color=KINDS[_KEYS[kind]][1], label=KINDS[_KEYS[kind]][0]) for kind in sorted(used)]
    fig.legend(handles=patches, loc="outside upper left", ncols=9, handlelength=1, handleheight=1, columnspacing=1.4,
               frameon=False, fontsize=8.5)  # fmt: skip
    return svg(fig, "Gantt chart of one pipeline")


def lanes(operations: pl.DataFrame, start: NDArray[np.float64], finish: NDArray[np.float64]) -> list[Lane]:
    """One lane per rank and stream, in the order of stage, rank and stream; times are fractions of the chart."""
    kinds = kinds_of(operations)
    stage = operations["stage"].to_numpy()
    rank = operations["rank"].to_numpy()
    stream = operations["stream"].to_numpy()
    keys = np.stack([stage, rank, stream], axis=1)
    names, inverse = np.unique(keys, axis=0, return_inverse=True)
    result: list[Lane] = []
    several = len({(s, r) for s, r, _ in names}) > len({s for s, _, _ in names})
    staged = len({s for s, _, _ in names}) > 1
    streams = len({t for _, _, t in names}) > 1
    before = None
    for i, (s, r, t) in enumerate(names[:MOST_LANES]):
        mine = inverse.reshape(-1) == i
        first = before != (s, r)
        before = (s, r)
        # Without a pipeline a stage says nothing, as a stream does where there is one.
        where = (f"stage {s} (rank {r})" if several else f"stage {s}") if staged else f"rank {r}"
        name = stream_name(int(t), operations.filter(mine)) if streams else ""
        label = "   ".join(part for part in (where if first else "", name) if part)
        result.append(Lane(label, first, rasterise(start[mine], finish[mine], kinds[mine])))
    return result


def kinds_of(operations: pl.DataFrame) -> NDArray[np.int16]:
    """Kind of work of each operation, as an index into `KINDS`."""
    labels = operations["label"]
    calc = (operations["kind"] == "calc").to_numpy()
    dimension = operations["dimension"].to_numpy()
    kinds = np.full(operations.height, _KEYS.index("other"), dtype=np.int16)
    for key in ("tp", "cp", "ep", "pp", "dp"):
        kinds[dimension == key] = _KEYS.index(key)
    kinds[calc] = _KEYS.index("compute")
    for key, pattern in _PASSES:
        kinds[calc & labels.str.contains(pattern).to_numpy()] = _KEYS.index(key)
    return kinds


def rasterise(start: NDArray[np.float64], finish: NDArray[np.float64], kinds: NDArray[np.int16]) -> NDArray[np.int16]:
    """Per pixel the kind that fills most of it, or -1 where less than a tenth is filled."""
    filled = np.zeros((len(KINDS), COLUMNS + 2))
    left, right = start * COLUMNS, finish * COLUMNS
    first, last = left.astype(np.int64), right.astype(np.int64)
    # Whole pixels by a difference array, the two ends by their fractions.
    delta = np.zeros((len(KINDS), COLUMNS + 2))
    np.add.at(delta, (kinds, first), 1.0)
    np.add.at(delta, (kinds, last), -1.0)
    filled = np.cumsum(delta, axis=1)
    np.add.at(filled, (kinds, first), first - left)
    np.add.at(filled, (kinds, last), right - last)
    filled = filled[:, :COLUMNS]
    best = filled.argmax(axis=0)
    pixels = np.where(filled.max(axis=0) >= 0.1, best, -1)
    return pixels.astype(np.int16)


def runs(pixels: NDArray[np.int16]) -> list[tuple[int, int, int]]:
    """Runs of one kind as (kind, first pixel, pixels); empty pixels are left out."""
    edges = np.flatnonzero(np.diff(pixels)) + 1
    starts = np.concatenate([[0], edges])
    ends = np.concatenate([edges, [len(pixels)]])
    return [(int(pixels[a]), int(a), int(b - a)) for a, b in zip(starts, ends, strict=True) if pixels[a] >= 0]


def _fill(axes: object, items: list[tuple[float, float, float]], colour: str) -> None:
    """Draws boxes (left, top, width), 0.8 high, as one path: thousands of elements would make the page slow."""
    from matplotlib.patches import PathPatch  # noqa: PLC0415
    from matplotlib.path import Path  # noqa: PLC0415

    x, y, w = np.array(items).T
    corners = np.stack([x, y, x + w, y, x + w, y + 0.8, x, y + 0.8, x, y], axis=1).reshape(-1, 2)
    codes = np.tile([Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY], len(items))
    patch = PathPatch(Path(corners, codes), facecolor=colour, linewidth=0, edgecolor="none")
    axes.add_patch(patch)  # type: ignore[attr-defined]
