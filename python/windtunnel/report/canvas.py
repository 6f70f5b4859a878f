"""Figures as SVG text: one look for all, the same bytes for the same figure."""

from __future__ import annotations

import io
from html import escape
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from windtunnel.text import LONG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

WIDTH = 10.4
"""Inches: the width of the page's column."""

INK, MUTED, GRID = "#1f2933", "#616e7c", "#e4e7eb"
"""Of text, labels and lines; in a page they follow its colours, which the reader's system may have dark."""

ON_LIGHT = "#1e2832"
"""Of text on an area whose own colour is light, whatever the page's is."""

_OF_PAGE = {INK: "--ink", "#000000": "--ink", MUTED: "--muted", GRID: "--line"}

_STYLE: dict[Any, Any] = {
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "text.color": INK,
    "xtick.color": MUTED,
    "xtick.labelsize": 8.5,
    "ytick.color": INK,
    "ytick.labelsize": 8.5,
}


def figure(height: float) -> tuple[Figure, Axes]:
    """An empty figure of the page's width and `height` inches, with its one pair of axes."""
    with mpl.rc_context(_STYLE):
        fig = Figure(figsize=(WIDTH, height), layout="constrained")
        return fig, fig.add_subplot()


def panels(heights: list[float]) -> tuple[Figure, list[Axes]]:
    """A figure of stacked axes of the given heights in inches, sharing their x axis."""
    with mpl.rc_context(_STYLE):
        fig = Figure(figsize=(WIDTH, sum(heights) + 0.5), layout="constrained")
        axes = fig.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
        return fig, list(axes[:, 0])


def svg(fig: Figure, name: str, said: Mapping[str, str] | None = None) -> str:
    """The figure as an SVG element; `name` keeps the ids of two figures on a page apart.

    `said` has texts for who points at an artist, by the id that it was given (`set_gid`).
    """
    buffer = io.StringIO()
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        fig.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    for colour, variable in _OF_PAGE.items():
        text = text.replace(f": {colour}", f": var({variable}, {colour})")
    for key, words in (said or {}).items():
        text = text.replace(f'<g id="{key}">', f"<g><title>{escape(words)}</title>", 1)
    return text[text.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)


def time_axis(axes: Axes, longest_s: float, label: str = "time") -> None:
    """Labels the x axis, whose values are seconds, in the unit that suits `longest_s`."""
    scale, unit = time_unit(longest_s)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / scale:,g}"))
    axes.set_xlabel(f"{label} ({unit})")


def time_unit(longest_s: float) -> tuple[float, str]:
    """Seconds of the unit that suits times up to `longest_s`, and its name; long ones as texts have them."""
    for scale, least, unit in LONG:
        if longest_s >= least:
            return scale, unit
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if longest_s >= 2 * scale:
            return scale, unit
    return 1e-9, "ns"
