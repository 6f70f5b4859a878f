"""Maps of link utilisation: one panel per tier, links downwards, time across.

A panel has at most `MOST_ROWS` rows, whatever the links: a table of few is folded as lists, one of many by polars.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from windtunnel.report.axes import WIDTH, Axis, below, box, picture, scale_of_shades, shades, svg, time_unit, words
from windtunnel.results.rows import few_rows
from windtunnel.text import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from windtunnel.results import Result
    from windtunnel.results.rows import Rows

MOST_ROWS = 96
"""Most rows of a panel; of more links, neighbours share a row and the fullest shows."""

NEEDED = ("tier", "utilisation_bins", "bin_span_ps", "name")
"""Columns of `links` that the map is made of."""

LEFT, RIGHT = 130, 100

_TIERS = ("scale-up", "nic", "leaf-up", "leaf-down", "spine-up", "spine-down")


@dataclass(frozen=True)
class Panel:
    """Links of a tier."""

    tier: str
    links: int
    cells: list[list[float]]
    """Of each row the utilisation of its fullest link over time."""
    ends: list[tuple[str, str]]
    """Names of the first and the last link of each row."""


def heatmap(result: Result) -> str:
    """The map of a run's `links`; empty where no link has a course."""
    if "links" not in result.tables:
        return ""
    few = few_rows(result, "links", NEEDED)
    if few is None:
        return many(result.scan("links"))
    if not few.height or "utilisation_bins" not in few:
        return ""
    span_s = max(few["bin_span_ps"], default=0) / 1e12
    bins = max((len(bins) for bins in few["utilisation_bins"]), default=0)
    return _map([folded(few, tier) for tier in _tiers(few["tier"])], bins, span_s)


def many(links: pl.LazyFrame) -> str:
    """The same of a table of any number of links."""
    import polars as pl  # noqa: PLC0415

    there = links.collect_schema().names()
    if "utilisation_bins" not in there:
        return ""
    frame = links.select(name for name in NEEDED if name in there).collect()
    bins = frame["utilisation_bins"].list.len().max()
    span = frame["bin_span_ps"].max()
    if not isinstance(bins, int) or not isinstance(span, int):
        return ""
    found = []
    for tier in _tiers(frame["tier"].unique().to_list()):
        mine = frame.filter(pl.col("tier") == tier)
        edges = _edges(mine.height)
        # Of every row the first link, so that `reduceat` takes the most of those from one to the next.
        padded = pl.col("utilisation_bins").list.concat(pl.lit([0.0] * bins)).list.head(bins)
        course = mine.select(padded.list.to_array(bins)).to_series().to_numpy()
        fullest = _fullest(course, [a for a, _ in edges])
        found.append(Panel(tier, mine.height, fullest, _ends(mine["name"], edges)))
    return _map(found, bins, span / 1e12)


def panels(links: Rows, longest_s: float, span_s: float, name: str, time: tuple[str, float]) -> str:
    """A panel a tier; bins have `span_s`, and the axis is called and scaled as `time` says."""
    return _drawn([folded(links, tier) for tier in _tiers(links["tier"])], longest_s, span_s, name, time)


def folded(links: Rows, tier: str) -> Panel:
    """The panel of a tier."""
    mine = links.where("tier", tier)
    return Panel(tier, mine.height, grid(mine["utilisation_bins"]), _ends(mine["name"], _edges(mine.height)))


def _map(found: list[Panel], bins: int, span_s: float) -> str:
    longest = span_s * bins
    scale, unit = time_unit(longest)
    return _drawn(found, longest, span_s, "link utilisation", (f"time ({unit})", scale))


def _drawn(found: list[Panel], longest_s: float, span_s: float, name: str, time: tuple[str, float]) -> str:
    x = Axis(0.0, longest_s or 1.0, LEFT, WIDTH - RIGHT)
    content, top = "", 6.0
    for panel in found:
        cells = panel.cells
        if not cells or not cells[0]:
            continue
        height = 26 + 1.5 * len(cells)
        width = x.at(span_s * len(cells[0])) - x.start
        pixels = [bytes(min(255, int(255 * value + 0.5)) for value in row) for row in cells]
        content += picture(pixels, shades(), x.start, top, width, height)
        content += words(LEFT - 8, top + height / 2 - 3, panel.tier, anchor="end", muted=False)
        content += words(LEFT - 8, top + height / 2 + 13, f"{panel.links:,} links", anchor="end")
        step = height / len(cells)
        for row, said in enumerate(_said(panel)):
            content += box(x.start, top + step * row, width, step, "transparent", said)
        top += height + 8
    if not content:
        return ""
    content += scale_of_shades(WIDTH - RIGHT + 18, 6, max(60.0, min(160.0, top - 14)), "utilisation")
    top = max(top, 76.0)
    content += "".join(below(x, top, *time))
    return svg(top + 42, name, content)


def _tiers(found: Sequence[str]) -> list[str]:
    return sorted(set(found), key=lambda t: (_TIERS.index(t) if t in _TIERS else len(_TIERS), t))


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


def _ends(names: Sequence[object] | pl.Series, edges: Sequence[tuple[int, int]]) -> list[tuple[str, str]]:
    return [(str(names[a]), str(names[b - 1])) for a, b in edges]


def _fullest(course: NDArray[np.float64], firsts: list[int]) -> list[list[float]]:
    """The largest of each run of rows, from one of `firsts` to the next."""
    import numpy as np  # noqa: PLC0415

    found: list[list[float]] = np.maximum.reduceat(course, firsts, axis=0).tolist()
    return found


def _said(panel: Panel) -> list[str]:
    """What each row tells to who points at it."""
    found = []
    for (first, last), row in zip(panel.ends, panel.cells, strict=True):
        who = first if first == last else f"{first} to {last}, the fullest"
        found.append(f"{who}: {percent(sum(row) / len(row))} on average, {percent(max(row))} at most")
    return found
