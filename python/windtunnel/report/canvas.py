"""Figures that Matplotlib draws, of experiments and of the validation's page.

One look for all, and the same bytes for the same figure. Reports draw theirs by hand (`axes.py`).
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 10.4
"""Inches: the width of the page's column."""

INK, MUTED, GRID = "#1f2933", "#616e7c", "#e4e7eb"
"""Of text, labels and lines; in a page they follow its colours, which the reader's system may have dark."""

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


def svg(fig: Figure, name: str) -> str:
    """The figure as an SVG element; `name` keeps the ids of two figures on a page apart."""
    buffer = io.StringIO()
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        fig.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    for colour, variable in _OF_PAGE.items():
        text = text.replace(f": {colour}", f": var({variable}, {colour})")
    return text[text.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)
