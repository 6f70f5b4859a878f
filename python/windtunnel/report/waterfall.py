"""The iteration waterfall: what each iteration's time is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.breakdown import PARTS
from windtunnel.report.canvas import INK, MUTED, ON_LIGHT, figure, svg, time_axis
from windtunnel.text import duration, percent

if TYPE_CHECKING:
    import polars as pl

MOST_BARS = 40
"""Most iterations drawn; of more, the first and last halves."""


def waterfall(iterations: pl.DataFrame, ideal_s: float | None) -> str:
    """Stacked bars of one job's `iterations` rows; a line marks the iteration time on an ideal fabric."""
    rows = iterations.sort("episode", "iteration")
    if rows.height > MOST_BARS:
        rows = rows.head(MOST_BARS // 2).vstack(rows.tail(MOST_BARS // 2))
    labels = _labels(rows)
    fig, axes = figure(1.0 + 0.3 * max(2, rows.height))
    left = [0.0] * rows.height
    start_to_end = _totals(rows)
    longest = max(start_to_end, default=0.0)
    said: dict[str, str] = {}
    for part in PARTS:
        if part.column not in rows.columns:
            continue
        values = [v / 1e12 for v in rows[part.column]]
        if not any(values):
            continue
        bars = axes.barh(labels, values, left=left, height=0.72, color=part.colour, label=part.name, linewidth=0)
        for y, (start, value) in enumerate(zip(left, values, strict=True)):
            key = f"waterfall-{part.key}-{y}"
            bars[y].set_gid(key)
            whole = start_to_end[y]
            share = f", {percent(value / whole)} of it" if whole else ""
            said[key] = f"iteration {labels[y]}: {part.name} {duration(value)}{share}"
            if value > 0.075 * longest:
                colour = ON_LIGHT if part.key in {"bubble", "cp"} else "white"
                axes.text(start + value / 2, y, duration(value), ha="center", va="center", fontsize=8, color=colour)
        left = [a + b for a, b in zip(left, values, strict=True)]
    if ideal_s:
        axes.axvline(ideal_s, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate("ideal fabric ", (ideal_s, 1), xycoords=("data", "axes fraction"), ha="right", va="bottom",
                      fontsize=8, color=MUTED)  # fmt: skip
    axes.invert_yaxis()
    axes.set_ylabel("iteration")
    axes.set_xlim(0, max(longest, ideal_s or 0) * 1.01 or 1)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    time_axis(axes, longest)
    fig.legend(loc="outside upper left", ncols=6, handlelength=1, handleheight=1, columnspacing=1.4,
               frameon=False, fontsize=8.5)  # fmt: skip
    return svg(fig, "iteration waterfall", said)


def _labels(rows: pl.DataFrame) -> list[str]:
    """Numbers of iterations; with the episode where a job did one of that number in several."""
    numbers = rows["iteration"].to_list()
    return [
        str(number) if numbers.count(number) == 1 else f"{number} (episode {episode})"
        for number, episode in zip(numbers, rows["episode"], strict=True)
    ]


def _totals(rows: pl.DataFrame) -> list[float]:
    return [(finish - start) / 1e12 for start, finish in zip(rows["start_ps"], rows["finish_ps"], strict=True)]
