"""One axis: a line for each figure, with the interval over the seeds."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from windtunnel.report.axes import WIDTH, label, levels, linked, numbers, rule, svg, words
from windtunnel.report.study.table import level_of, said, short_metric, value_of
from windtunnel.words import figure_text

if TYPE_CHECKING:
    from windtunnel.report.study.table import Table

HEIGHT = 300
LEFT, RIGHT, TOP, BOTTOM = 110, 30, 24, 46
COLOUR = "#4c78a8"
APART = 44.0
"""Units between two marks of an axis, at least."""


def lines(table: Table, metric: str) -> str:
    """`metric` over the one key that was varied; empty where no row has it."""
    key = table.keys[0]
    rows = table.done(metric)
    if not rows:
        return ""
    ends = [value_of(row, metric) + sign * (row.halves.get(metric) or 0.0) for row in rows for sign in (-1, 1)]
    x = levels(table.levels(key), LEFT, WIDTH - RIGHT)
    y = numbers(ends, HEIGHT - BOTTOM, TOP, from_zero=True)
    content = [words(LEFT, 14, short_metric(metric), anchor="start", muted=False)]
    for tick in y.ticks():
        content.append(rule(LEFT, y.at(tick), WIDTH - RIGHT, y.at(tick)))
        content.append(words(LEFT - 8, y.at(tick) + 4, figure_text(metric, tick), anchor="end"))
    # Values that were run have marks, unless these would run into each other.
    known = table.levels(key)
    places = sorted(x.at(value) for value in known)
    apart = all(after - before >= APART for before, after in pairwise(places))
    content += [words(x.at(tick), HEIGHT - BOTTOM + 20, label(tick)) for tick in (known if apart else x.ticks())]
    content.append(words((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, key))
    ordered = sorted(rows, key=lambda row: x.at(level_of(row, key)))
    path = " ".join(f"{x.at(level_of(row, key)):g},{y.at(value_of(row, metric)):g}" for row in ordered)
    content.append(f'<polyline points="{path}" style="fill:none;stroke:{COLOUR};stroke-width:1.8"/>')
    best = table.best(metric)
    for row in ordered:
        at, mean, half = x.at(level_of(row, key)), value_of(row, metric), row.halves.get(metric)
        mark = ""
        if half:
            mark += rule(at, y.at(mean - half), at, y.at(mean + half), COLOUR, 1.4)
            mark += "".join(
                rule(at - 5, y.at(end), at + 5, y.at(end), COLOUR, 1.4) for end in (mean - half, mean + half)
            )
        ring = ";stroke:var(--ink);stroke-width:2" if row is best else ""
        mark += f'<circle cx="{at:g}" cy="{y.at(mean):g}" r="5" style="fill:{COLOUR}{ring}"/>'
        content.append(linked(mark, row.link, said(row, table.metrics)))
    for row in table.rows:
        if row.means.get(metric) is None:
            at = x.at(level_of(row, key))
            cross = words(at, HEIGHT - BOTTOM - 6, "×", muted=False)
            content.append(linked(cross, row.link, said(row, table.metrics)))
    return svg(HEIGHT, f"{short_metric(metric)} over {key}", *content)
