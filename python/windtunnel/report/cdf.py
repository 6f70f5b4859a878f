"""How long flows or messages take: the share that is done by a time, of one run or of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from windtunnel.report.axes import INK, WIDTH, legend, numbers, polyline, rule, svg, words
from windtunnel.report.html import text
from windtunnel.results.rows import few_rows
from windtunnel.text import duration, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from windtunnel.results import Result

HEIGHT = 320
LEFT, RIGHT, TOP, BOTTOM = 70, 24, 16, 48
SHARES = [i / 100 for i in range(1, 99)] + [0.99, 0.995, 0.999, 1.0]
"""Quantiles that are drawn."""
SPOKEN = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
"""Those that have a mark which tells its figures."""

PATHS = {"scale-up": "#72b7b2", "same-leaf": "#4c78a8", "same-pod": "#b279a2", "beyond": "#e45756"}
"""How far a transfer goes, with its colour."""

LEAST_S = 1e-12
"""Times below are drawn there: an axis by factors has no zero."""


@dataclass(frozen=True)
class Line:
    """A line: its name, its look, and its times in seconds at `SHARES`."""

    name: str
    colour: str
    times: Sequence[float]
    dash: str = "none"
    width: float = 2.0


def cdf(lines: Sequence[Line], noun: str, head: str = "", top: float = 0.0) -> str:
    """The share of `noun` that are done by a time; `head` takes `top` units above."""
    bottom, top = top + HEIGHT - BOTTOM, top + TOP
    x = numbers([max(value, LEAST_S) for line in lines for value in line.times], LEFT, WIDTH - RIGHT)
    y = numbers([0.0, 1.0], bottom, top, from_zero=True)
    content = [head]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        content.append(rule(LEFT, y.at(tick), WIDTH - RIGHT, y.at(tick)))
        content.append(words(LEFT - 8, y.at(tick) + 4, percent(tick).replace(".0 ", " "), anchor="end"))
    for tick in x.ticks():
        content.append(rule(x.at(tick), top, x.at(tick), bottom))
        content.append(words(x.at(tick), bottom + 20, duration(tick).replace(".000", "").replace(".00", "")))
    content.append(words((LEFT + WIDTH - RIGHT) / 2, bottom + 40, "completion time"))
    for line in lines:
        points = [(x.at(max(value, LEAST_S)), y.at(s)) for value, s in zip(line.times, SHARES, strict=True)]
        content.append(polyline(points, line.colour, line.width, f";stroke-dasharray:{line.dash}", line.name))
        for value, share in zip(line.times, SHARES, strict=True):
            if share in SPOKEN:
                said = f"{line.name}: {percent(share)} of {noun} take at most {duration(value)}"
                at = f'cx="{x.at(max(value, LEAST_S)):g}" cy="{y.at(share):g}"'
                mark = f'<circle {at} r="4.5" style="fill:{line.colour}"><title>{text(said)}</title></circle>'
                content.append(mark)
    return svg(bottom + BOTTOM, f"completion times of {noun}", *content)


def by_path(result: Result, table: str) -> str:
    """Completion times of the `flows` or `messages` of one run, all and by how far they go; empty if there are none."""
    known = completion(result, table)
    taken = {name: known[name] for name in ("", *PATHS) if name in known}
    if not taken:
        return ""
    lines, items = [], []
    for name, (count, times) in taken.items():
        colour, width = (PATHS[name], 1.6) if name else (INK, 2.4)
        lines.append(Line(name or "all", colour, times, width=width))
        at = {share: duration(value) for share, value in zip(SHARES, times, strict=True)}
        items.append((colour, f"{name or 'all'}: {count:,}, p50 {at[0.5]}, p99 {at[0.99]}"))
    head, below = legend(items)
    return cdf(lines, table, head, below - 10)


def quantiles(result: Result, table: str) -> list[float] | None:
    """Times in seconds at `SHARES`; None if the run has no row of `table`."""
    found = completion(result, table).get("")
    return None if found is None else found[1]


def completion(result: Result, table: str) -> dict[str, tuple[int, list[float]]]:
    """How many rows `table` has and their times in seconds at `SHARES`, by path; those of all under no name.

    A quantile is the nearest row's time.
    """
    if table not in result.tables:
        return {}
    rows = few_rows(result, table, ["path", "start_ps", "finish_ps"])
    if rows is None:
        return _completion_of_many(result, table)
    groups: dict[str, list[int]] = {}
    for path, start, finish in rows.each("path", "start_ps", "finish_ps"):
        groups.setdefault(path, []).append(finish - start)
    if groups:
        groups[""] = [time for times in groups.values() for time in times]
    return {path: (len(times), _at_shares(sorted(times))) for path, times in groups.items()}


def _at_shares(times: Sequence[int] | pl.Series) -> list[float]:
    return [times[int((len(times) - 1) * share + 0.5)] / 1e12 for share in SHARES]


def _completion_of_many(result: Result, table: str) -> dict[str, tuple[int, list[float]]]:
    import polars as pl  # noqa: PLC0415

    took = (pl.col("finish_ps") - pl.col("start_ps")).alias("took")
    # Sorted once: a quantile of each share would sort anew.
    frame = result.scan(table).select("path", took).sort("took").collect()

    def of(times: pl.Series) -> tuple[int, list[float]]:
        return len(times), _at_shares(times)

    if not len(frame):
        return {}
    groups = frame.partition_by("path", as_dict=True, maintain_order=True)
    return {"": of(frame["took"]), **{path: of(group["took"]) for (path,), group in sorted(groups.items())}}
