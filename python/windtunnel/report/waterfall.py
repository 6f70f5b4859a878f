"""The iteration waterfall: what each iteration's time is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.breakdown import PARTS
from windtunnel.report.axes import INK, ON_LIGHT, WIDTH, Axis, below, box, legend, rule, svg, time_unit, words
from windtunnel.text import duration, percent

if TYPE_CHECKING:
    from windtunnel.results.rows import Rows

MOST_BARS = 40
"""Most iterations drawn; of more, the first and last halves."""

BAR, STEP = 21.0, 29.0
"""Units down a bar, and from one to the next."""

LETTERS = 7.0
"""Units across a letter, beside the bars and in them."""


def waterfall(iterations: Rows, ideal_s: float | None) -> str:
    """Stacked bars of one job's `iterations` rows; a line marks the iteration time on an ideal fabric."""
    order = iterations.order(["episode", "iteration"])
    if len(order) > MOST_BARS:
        order = order[: MOST_BARS // 2] + order[-MOST_BARS // 2 :]
    rows = iterations.take(order)
    labels = _labels(rows)
    totals = [(finish - start) / 1e12 for start, finish in rows.each("start_ps", "finish_ps")]
    longest = max(totals, default=0.0)
    parts = [part for part in PARTS if part.column in rows and any(rows[part.column])]
    content, top = legend([(part.colour, part.name) for part in parts])
    top += 14  # the name of the line
    margin = max(60.0, 24 + LETTERS * max((len(name) for name in labels), default=0))
    x = Axis(0.0, max(longest, ideal_s or 0.0) * 1.01 or 1.0, margin, WIDTH - 20)
    bottom = top + STEP * max(2, len(labels))
    for row, (name, whole) in enumerate(zip(labels, totals, strict=True)):
        y, left = top + STEP * row + (STEP - BAR) / 2, 0.0
        content += words(margin - 8, y + BAR / 2 + 4, name, anchor="end", muted=False)
        for part in parts:
            value = rows[part.column][row] / 1e12
            if not value:
                continue
            share = f", {percent(value / whole)} of it" if whole else ""
            said = f"iteration {name}: {part.name} {duration(value)}{share}"
            width = x.at(left + value) - x.at(left)
            content += box(x.at(left), y, width, BAR, part.colour, said)
            if width > LETTERS * len(duration(value)) + 8:
                colour = ON_LIGHT if part.key in {"bubble", "cp"} else "white"
                more = 'pointer-events="none"'
                content += words(x.at(left) + width / 2, y + BAR / 2 + 4, duration(value), colour=colour, more=more)
            left += value
    if ideal_s:
        content += rule(x.at(ideal_s), top - 4, x.at(ideal_s), bottom, INK, 1, ";stroke-dasharray:4 3")
        content += words(x.at(ideal_s) - 4, top - 7, "ideal fabric", anchor="end")
    scale, unit = time_unit(longest)
    content += "".join(below(x, bottom, f"time ({unit})", scale))
    return svg(bottom + 42, "iteration waterfall", content)


def _labels(rows: Rows) -> list[str]:
    """Numbers of iterations; with the episode where a job did one of that number in several."""
    numbers = rows["iteration"]
    return [
        str(number) if numbers.count(number) == 1 else f"{number} (episode {episode})"
        for number, episode in rows.each("iteration", "episode")
    ]
