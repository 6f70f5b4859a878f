"""Two axes: a map of one figure, light where it is good."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from windtunnel.better import larger_is_better
from windtunnel.report.axes import WIDTH, label, linked, svg, words
from windtunnel.report.study.table import level_of, said, short_metric, value_of
from windtunnel.words import figure_text

if TYPE_CHECKING:
    from windtunnel.report.study.table import PageRow, Table

LEFT, TOP, BOTTOM = 150, 30, 46
CELL = 40
MOST_LABELS = 24

GOOD, BAD = (222, 235, 247), (8, 64, 129)
"""Colours of the best and the worst value."""


def heat(table: Table, metric: str) -> str:
    """`metric` over the two keys that were varied; empty where no row has it."""
    across, down = table.keys[0], table.keys[1]
    columns, lines = table.levels(across), table.levels(down)
    values = [value_of(row, metric) for row in table.done(metric)]
    if not values:
        return ""
    width = (WIDTH - LEFT - 10) / len(columns)
    cell = min(CELL, max(8.0, 900 / len(lines)))
    height = TOP + cell * len(lines) + BOTTOM
    content = [words(LEFT, 14, short_metric(metric), anchor="start", muted=False)]
    content.append(words(10, 14, f"↓ {down}", anchor="start"))
    content.append(words((LEFT + WIDTH) / 2, height - 6, f"→ {across}"))
    for i, value in enumerate(columns):
        if i % (1 + len(columns) // MOST_LABELS) == 0:
            content.append(words(LEFT + width * (i + 0.5), TOP + cell * len(lines) + 20, label(value)))
    for i, value in enumerate(lines):
        if i % (1 + int(len(lines) * 12 // max(1.0, cell * len(lines)))) == 0:
            content.append(words(LEFT - 8, TOP + cell * (i + 0.5) + 4, label(value), anchor="end"))
    best = table.best(metric)
    for row in table.rows:
        x = LEFT + width * columns.index(level_of(row, across))
        y = TOP + cell * lines.index(level_of(row, down))
        content.append(linked(_cell(row, metric, x, y, width, cell, values, best), row.link, said(row, table.metrics)))
    return svg(height, f"{short_metric(metric)} over {across} and {down}", *content)


def _cell(
    row: PageRow,
    metric: str,
    x: float,
    y: float,
    width: float,
    height: float,
    values: list[float],
    best: PageRow | None,
) -> str:
    mean = row.means.get(metric)
    box = f'<rect x="{x + 1:g}" y="{y + 1:g}" width="{max(1.0, width - 2):g}" height="{max(1.0, height - 2):g}" rx="3" '
    middle = (x + width / 2, y + height / 2 + 4)
    roomy = width > 46 and height > 16
    if mean is None:
        empty = box + 'style="fill:none;stroke:var(--line);stroke-dasharray:3 3"/>'
        return empty + (words(*middle, row.state) if roomy else "")
    share = _share(mean, values)
    share = 1 - share if larger_is_better(metric) else share
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(GOOD, BAD, strict=True))
    ring = ";stroke:var(--ink);stroke-width:2.5" if row is best else ""
    ink = "#1e2832" if share < 0.5 else "#ffffff"
    shown_value = f'<text x="{middle[0]:g}" y="{middle[1]:g}" text-anchor="middle" style="fill:{ink}">'
    label_text = f"{shown_value}{figure_text(metric, mean)}</text>" if roomy else ""
    return box + f'style="fill:rgb({red},{green},{blue}){ring}"/>' + label_text


def _share(value: float, values: list[float]) -> float:
    """How far from the least to the largest, by factors where all are above 0."""
    low, high = min(values), max(values)
    if high == low:
        return 0.0
    if low > 0:
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)
