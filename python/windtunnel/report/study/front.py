"""Two figures of every point, and the front: points that none beats in both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.better import cost
from windtunnel.report.axes import WIDTH, linked, numbers, rule, svg, words
from windtunnel.report.study.table import said, short_metric, value_of
from windtunnel.words import figure_text

if TYPE_CHECKING:
    from windtunnel.report.study.table import PageRow, Table

HEIGHT = 420
LEFT, RIGHT, TOP, BOTTOM = 110, 40, 24, 46
OF_FRONT, OTHER = "#e45756", "#4c78a8"


def front(rows: list[PageRow], first: str, second: str) -> list[PageRow]:
    """Rows that no other beats in one of two figures without being worse in the other, by the first one."""

    def costs(row: PageRow) -> tuple[float, float]:
        return cost(first, value_of(row, first)), cost(second, value_of(row, second))

    found: list[PageRow] = []
    least = float("inf")
    for row in sorted(rows, key=costs):
        if costs(row)[1] < least:
            least = costs(row)[1]
            found.append(row)
    return found


def scatter(table: Table, first: str, second: str) -> str:
    """The points by two figures, with their front; empty of fewer than two points."""
    rows = [row for row in table.done(first) if row.means.get(second) is not None]
    if len(rows) < 2:
        return ""
    x = numbers([value_of(row, first) for row in rows], LEFT, WIDTH - RIGHT)
    y = numbers([value_of(row, second) for row in rows], HEIGHT - BOTTOM, TOP)
    content = [words(LEFT, 14, f"{short_metric(second)} ↑", anchor="start", muted=False)]
    for tick in y.ticks():
        content.append(rule(LEFT, y.at(tick), WIDTH - RIGHT, y.at(tick)))
        content.append(words(LEFT - 8, y.at(tick) + 4, figure_text(second, tick), anchor="end"))
    for tick in x.ticks():
        content.append(rule(x.at(tick), TOP, x.at(tick), HEIGHT - BOTTOM))
        content.append(words(x.at(tick), HEIGHT - BOTTOM + 20, figure_text(first, tick)))
    content.append(words((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, f"{short_metric(first)} →"))
    edge = front(rows, first, second)
    path = " ".join(f"{x.at(value_of(row, first)):g},{y.at(value_of(row, second)):g}" for row in edge)
    content.append(f'<polyline class="front" points="{path}" style="fill:none;stroke:{OF_FRONT};stroke-width:1.6"/>')
    on_edge = {id(row) for row in edge}
    for row in rows:
        colour = OF_FRONT if id(row) in on_edge else OTHER
        place = f'cx="{x.at(value_of(row, first)):g}" cy="{y.at(value_of(row, second)):g}"'
        mark = f'<circle {place} r="4.5" style="fill:{colour};fill-opacity:0.8"/>'
        content.append(linked(mark, row.link, said(row, table.metrics)))
    return svg(HEIGHT, f"{short_metric(second)} against {short_metric(first)}", *content)
