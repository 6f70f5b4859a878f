"""The heat map of link utilisation: one panel per tier, links downwards, time across."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from windtunnel.report.canvas import MUTED, panels, svg, time_axis

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_ROWS = 96
"""Most rows of a panel; of more links, neighbours share a row and the fullest shows."""

_TIERS = ("scale-up", "nic", "leaf-up", "leaf-down", "spine-up", "spine-down")


def heatmap(links: pl.DataFrame) -> str:
    """The map of the `links` table."""
    tiers = sorted(links["tier"].unique(), key=lambda t: (_TIERS.index(t) if t in _TIERS else len(_TIERS), t))
    grids = [(tier, grid(links.filter(pl.col("tier") == tier))) for tier in tiers]
    grids = [(tier, cells) for tier, cells in grids if cells.size]
    fig, axes = panels([0.45 + 0.012 * min(MOST_ROWS, len(cells)) for _, cells in grids])
    span_s = float(links["bin_span_ps"].cast(pl.Float64).max() or 0) / 1e12  # type: ignore[arg-type]
    longest = 0.0
    for ax, (tier, cells) in zip(axes, grids, strict=True):
        end = span_s * cells.shape[1]
        longest = max(longest, end)
        image = ax.imshow(
            cells,
            aspect="auto",
            cmap="YlGnBu",
            vmin=0,
            vmax=1,
            interpolation="nearest",
            extent=(0, end, len(cells), 0),
        )
        count = links.filter(pl.col("tier") == tier).height
        ax.set_yticks([])
        ax.set_ylabel(f"{tier}\n{count:,} links", rotation=0, ha="right", va="center", color=MUTED, fontsize=8.5)
        ax.tick_params(axis="x", length=0, labelbottom=False)
        for spine in ax.spines.values():
            spine.set_visible(False)
    axes[-1].tick_params(axis="x", length=3, labelbottom=True)
    time_axis(axes[-1], longest)
    bar = fig.colorbar(image, ax=axes, shrink=min(1.0, 2.2 / sum(fig.get_size_inches()[1:])), pad=0.01, aspect=18)
    bar.set_label("utilisation", color=MUTED)
    bar.outline.set_visible(False)
    bar.set_ticks([0, 0.5, 1], labels=["0", "50 %", "100 %"])
    return svg(fig, "link utilisation")


def grid(links: pl.DataFrame) -> NDArray[np.float32]:
    """Rows of utilisation over time of one tier's links in the order of the table, at most `MOST_ROWS`."""
    rows = links["utilisation_bins"]
    width = int(rows.list.len().max() or 0)  # type: ignore[arg-type]
    cells = np.zeros((links.height, width), dtype=np.float32)
    for i, bins in enumerate(rows):
        cells[i, : len(bins)] = bins.to_numpy()
    if links.height > MOST_ROWS:
        edges = np.linspace(0, links.height, MOST_ROWS + 1).astype(int)[:-1]
        cells = np.maximum.reduceat(cells, edges, axis=0)
    return cells
