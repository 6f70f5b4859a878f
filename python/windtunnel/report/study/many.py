"""Three axes and more: parallel coordinates, a line for each point, the best in front."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.better import cost
from windtunnel.report.axes import WIDTH, Axis, label, linked, numbers, rule, svg, words
from windtunnel.report.study.heat import BAD
from windtunnel.report.study.table import level_of, said, short_metric, value_of
from windtunnel.words import figure_text

if TYPE_CHECKING:
    from windtunnel.report.study.table import PageRow, Table

HEIGHT = 380
LEFT, RIGHT, TOP, BOTTOM = 60, 90, 46, 20
MOST_NAMES = 14
BEST = "#e45756"


def parallel(table: Table, metric: str) -> str:
    """Every point that has `metric` as a line over the varied keys, which ends at the figure; empty where none has."""
    rows = table.done(metric)
    if not rows:
        return ""
    keys = [key for key in table.keys if len(table.levels(key)) > 1]
    step = (WIDTH - LEFT - RIGHT) / max(1, len(keys))
    places = [LEFT + step * i for i in range(len(keys) + 1)]
    axes = [Axis(0, 1, HEIGHT - BOTTOM, TOP, names=tuple(table.levels(key))) for key in keys]
    value = numbers([value_of(row, metric) for row in rows], HEIGHT - BOTTOM, TOP)
    content = []
    for x, key, axis in zip(places, keys, axes, strict=False):
        content.append(rule(x, TOP, x, HEIGHT - BOTTOM))
        content.append(words(x, TOP - 22, key, muted=False))
        names = axis.ticks()
        stride = 1 + len(names) // MOST_NAMES
        content += [words(x + 6, axis.at(name) + 4, label(name), anchor="start") for name in names[::stride]]
    content.append(rule(places[-1], TOP, places[-1], HEIGHT - BOTTOM))
    content.append(words(places[-1], TOP - 22, short_metric(metric), muted=False))
    content += [words(places[-1] + 6, value.at(t) + 4, figure_text(metric, t), anchor="start") for t in value.ticks()]
    best = table.best(metric)
    # The best is drawn last, so that nothing lies on it.
    for row in sorted(rows, key=lambda row: -cost(metric, value_of(row, metric))):
        content.append(
            linked(_line(row, row is best, metric, keys, axes, places, value), row.link, said(row, table.metrics))
        )
    return svg(HEIGHT, f"{short_metric(metric)} over {', '.join(keys)}", *content)


def _line(
    row: PageRow, best: bool, metric: str, keys: list[str], axes: list[Axis], places: list[float], value: Axis
) -> str:
    heights = [axis.at(level_of(row, key)) for key, axis in zip(keys, axes, strict=True)]
    points = " ".join(f"{x:g},{y:g}" for x, y in zip(places, [*heights, value.at(value_of(row, metric))], strict=True))
    colour = BEST if best else "rgb({},{},{})".format(*BAD)
    look = "stroke-width:3" if best else "stroke-width:1.1;stroke-opacity:0.35"
    return f'<polyline points="{points}" style="fill:none;stroke:{colour};{look}"/>'
