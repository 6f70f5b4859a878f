"""Completion times of the flows, or messages, of several runs in one figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.report.html import text
from windtunnel.report.study.axes import WIDTH, numbers, rule, svg, words
from windtunnel.text import duration, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.report.runs.label import Named

HEIGHT = 320
LEFT, RIGHT, TOP, BOTTOM = 70, 24, 16, 48
SHARES = [i / 100 for i in range(1, 99)] + [0.99, 0.995, 0.999, 1.0]
"""Quantiles that are drawn."""
SPOKEN = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
"""Those that have a mark which tells its figures."""


def quantiles(run: Named, table: str) -> list[float] | None:
    """Times in seconds at `SHARES`; None if the run has no row of `table`."""
    if table not in run.run.tables:
        return None
    import polars as pl  # noqa: PLC0415

    took = (pl.col("finish_ps").cast(pl.Float64) - pl.col("start_ps").cast(pl.Float64)) / 1e12
    wanted = [took.quantile(share, "nearest").alias(str(i)) for i, share in enumerate(SHARES)]
    found = run.run.scan(table).select(wanted).collect().row(0)
    return None if found[0] is None else [float(value) for value in found]


def distribution(lines: Sequence[tuple[Named, list[float]]], noun: str) -> str:
    """The share of `noun` that are done by a time, a line a run."""
    x = numbers([max(value, 1e-12) for _, found in lines for value in found], LEFT, WIDTH - RIGHT)
    y = numbers([0.0, 1.0], HEIGHT - BOTTOM, TOP, from_zero=True)
    content = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        content.append(rule(LEFT, y.at(tick), WIDTH - RIGHT, y.at(tick)))
        content.append(words(LEFT - 8, y.at(tick) + 4, percent(tick).replace(".0 ", " "), anchor="end"))
    for tick in x.ticks():
        content.append(rule(x.at(tick), TOP, x.at(tick), HEIGHT - BOTTOM))
        content.append(words(x.at(tick), HEIGHT - BOTTOM + 20, duration(tick).replace(".000", "").replace(".00", "")))
    content.append(words((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "completion time"))
    for run, found in lines:
        path = " ".join(f"{x.at(max(v, 1e-12)):g},{y.at(s):g}" for v, s in zip(found, SHARES, strict=True))
        style = f"fill:none;stroke:{run.colour};stroke-width:2;stroke-dasharray:{run.dash}"
        content.append(f'<polyline points="{path}" style="{style}"><title>{text(run.name)}</title></polyline>')
        for value, share in zip(found, SHARES, strict=True):
            if share in SPOKEN:
                said = f"{run.name}: {percent(share)} of {noun} take at most {duration(value)}"
                at = f'cx="{x.at(max(value, 1e-12)):g}" cy="{y.at(share):g}"'
                mark = f'<circle {at} r="4.5" style="fill:{run.colour}"><title>{text(said)}</title></circle>'
                content.append(mark)
    return svg(HEIGHT, f"completion times of {noun}", *content)
