"""The figure of an experiment that its file describes: a figure of the summary against an axis, a line per series."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError
from windtunnel.experiments.check import lookup

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

COLOURS = ("#4c78a8", "#e45756", "#54a24b", "#f58518", "#b279a2", "#72b7b2", "#9d755d", "#1f2933")


def draw_figure(figure: dict[str, Any], results: Results, axes: Axes) -> None:
    """Draws `figure` (`x`, `y`, and where wanted `series`, `kind`: line or bar, `label`, `log`) on `axes`."""
    x, y, series = figure["x"], figure["y"], figure.get("series")
    lines: dict[str, list[tuple[Any, float]]] = {}
    for place, result in results:
        if x not in place or (series is not None and series not in place):
            raise InputError(
                f"figure: no axis `{x if x not in place else series}`\n\nhint: there are {', '.join(place)}"
            )
        value = lookup(result.summary, y)
        if value is not None:
            lines.setdefault(str(place[series]) if series else "", []).append((place[x], value))
    if figure.get("kind", "line") == "bar":
        _bars(lines, axes)
    else:
        for i, (name, points) in enumerate(lines.items()):
            xs, ys = zip(*points, strict=True)
            axes.plot(xs, ys, marker="o", markersize=4, label=name, color=COLOURS[i % len(COLOURS)])
    if figure.get("log"):
        axes.set_yscale("log")
        if all(isinstance(p, (int, float)) for points in lines.values() for p, _ in points):
            axes.set_xscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(x)
    axes.set_ylabel(figure.get("label", y))
    axes.grid(visible=True, axis="y")
    if series:
        axes.legend(frameon=False)


def _bars(lines: dict[str, list[tuple[Any, float]]], axes: Axes) -> None:
    ticks = list(dict.fromkeys(str(x) for points in lines.values() for x, _ in points))
    width = 0.8 / max(1, len(lines))
    for i, (name, points) in enumerate(lines.items()):
        at = [ticks.index(str(x)) + (i - (len(lines) - 1) / 2) * width for x, _ in points]
        axes.bar(at, [y for _, y in points], width=width * 0.94, label=name, color=COLOURS[i % len(COLOURS)])
    axes.set_xticks(range(len(ticks)), ticks)
