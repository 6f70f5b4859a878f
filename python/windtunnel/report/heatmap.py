"""Maps of link utilisation: one panel per tier, links downwards, time across."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.report.axes import WIDTH, Axis, below, box, picture, scale_of_shades, shades, svg, time_unit, words
from windtunnel.text import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.results.rows import Rows

MOST_ROWS = 96
"""Most rows of a panel; of more links, neighbours share a row and the fullest shows."""

NEEDED = ("tier", "utilisation_bins", "bin_span_ps", "name", "link")
"""Columns of `links` that the map is made of."""

LEFT, RIGHT = 130, 100

_TIERS = ("scale-up", "nic", "leaf-up", "leaf-down", "spine-up", "spine-down")


def heatmap(links: Rows) -> str:
    """The map of the `links` table; empty where no link has a course."""
    span_s = max(links["bin_span_ps"], default=0) / 1e12
    longest = span_s * max((len(bins) for bins in links["utilisation_bins"]), default=0)
    scale, unit = time_unit(longest)
    return panels(links, longest, span_s, "link utilisation", (f"time ({unit})", scale))


def panels(links: Rows, longest_s: float, span_s: float, name: str, time: tuple[str, float]) -> str:
    """A panel a tier; bins have `span_s`, and the axis is called and scaled as `time` says."""
    tiers = sorted(set(links["tier"]), key=lambda t: (_TIERS.index(t) if t in _TIERS else len(_TIERS), t))
    x = Axis(0.0, longest_s or 1.0, LEFT, WIDTH - RIGHT)
    content, top = "", 6.0
    for tier in tiers:
        mine = links.where("tier", tier)
        cells = grid(mine["utilisation_bins"])
        if not cells or not cells[0]:
            continue
        height = 26 + 1.5 * len(cells)
        width = x.at(span_s * len(cells[0])) - x.start
        pixels = [bytes(min(255, int(255 * value + 0.5)) for value in row) for row in cells]
        content += picture(pixels, shades(), x.start, top, width, height)
        content += words(LEFT - 8, top + height / 2 - 3, tier, anchor="end", muted=False)
        content += words(LEFT - 8, top + height / 2 + 13, f"{mine.height:,} links", anchor="end")
        step = height / len(cells)
        for row, said in enumerate(_said(mine, cells)):
            content += box(x.start, top + step * row, width, step, "transparent", said)
        top += height + 8
    if not content:
        return ""
    content += scale_of_shades(WIDTH - RIGHT + 18, 6, max(60.0, min(160.0, top - 14)), "utilisation")
    top = max(top, 76.0)
    content += "".join(below(x, top, *time))
    return svg(top + 42, name, content)


def grid(bins: Sequence[Sequence[float]]) -> list[list[float]]:
    """Rows of utilisation over time of one tier's links in their order, at most `MOST_ROWS`."""
    width = max((len(row) for row in bins), default=0)
    rows = [list(row) if len(row) == width else [*row, *([0.0] * (width - len(row)))] for row in bins]
    if len(rows) <= MOST_ROWS:
        return rows
    return [[max(values) for values in zip(*rows[a:b], strict=True)] for a, b in _edges(len(rows))]


def _edges(count: int) -> list[tuple[int, int]]:
    """First link of each row, and that of the next one."""
    rows = min(count, MOST_ROWS)
    return [(row * count // rows, (row + 1) * count // rows) for row in range(rows)]


def _said(links: Rows, cells: Sequence[Sequence[float]]) -> list[str]:
    """What each row tells to who points at it."""
    names = links["name"] if "name" in links else links["link"]
    found = []
    for (a, b), row in zip(_edges(links.height), cells, strict=True):
        who = str(names[a]) if b - a == 1 else f"{names[a]} to {names[b - 1]}, the fullest"
        found.append(f"{who}: {percent(sum(row) / len(row))} on average, {percent(max(row))} at most")
    return found
