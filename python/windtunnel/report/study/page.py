"""The page: what was varied, figures that suit how many keys that are, and the table of all points."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from windtunnel.better import cost
from windtunnel.engine import InputError
from windtunnel.report.html import COLOURS, Raw, card, page, section, text
from windtunnel.report.html import table as html_table
from windtunnel.report.study.front import front, scatter
from windtunnel.report.study.heat import heat
from windtunnel.report.study.lines import lines
from windtunnel.report.study.many import parallel
from windtunnel.report.study.table import short_metric, value_of
from windtunnel.words import figure_text

if TYPE_CHECKING:
    from windtunnel.report.study.table import PageRow, Table

MOST_ROWS = 2_000
"""Rows of the table; a larger study has all of its points in its Parquet file."""

_STYLE = (
    "<style>svg a{cursor:pointer} svg a:hover{opacity:.65} svg a:focus-visible{outline:2px solid var(--ink)}</style>"
)


def study_page(study: Table) -> str:
    """The page of `study` as HTML text."""
    content: list[str] = [_STYLE, _head(study), _cards(study)]
    for metric in study.metrics:
        content += _figures(study, metric)
    if len(study.metrics) > 1:
        first, second = study.metrics[:2]
        drawn = scatter(study, first, second)
        edge = front([row for row in study.done(first) if row.means.get(second) is not None], first, second)
        remark = (
            f"Red: the front of {len(edge)} points that no other beats in one of both without being worse in the other."
        )
        if drawn:
            content.append(section("Two figures", remark, Raw(drawn)))
    content.append(_rows(study))
    return page(f"{study.name} · Windtunnel", *content)


def figure(study: Table, metric: str) -> tuple[str, str]:
    """The figure of one metric that suits how many keys were varied, and a remark; empty where no point has it."""
    varied = [key for key in study.keys if len(study.levels(key)) > 1]
    of_varied = type(study)(study.name, varied or study.keys[:1], study.metrics, study.rows)
    single = len({tuple(str(row.values.get(key)) for key in varied) for row in study.rows}) == len(study.rows)
    if len(varied) <= 1:
        return lines(of_varied, metric), "Bars are 95% intervals over the seeds, a cross is a point without result."
    if len(varied) == 2 and single:
        return heat(of_varied, metric), "The ring marks the best, a dashed cell a point without result."
    return parallel(of_varied, metric), "A line is a point; the red one is the best."


def picture(study: Table, metric: str) -> str:
    """The figure of one metric as a file of its own, for a document: light or dark as its reader is, without links.

    Raises `InputError` where no point has the metric.
    """
    unlinked = [replace(row, link=None) for row in study.rows]
    drawn, _ = figure(replace(study, rows=unlinked), metric)
    if not drawn:
        raise InputError(f"no point has `{metric}`: there is nothing to draw")
    return drawn.replace(">", f"><style>{COLOURS}text{{font-family:sans-serif}}</style>", 1) + "\n"


def _figures(study: Table, metric: str) -> list[str]:
    drawn, remark = figure(study, metric)
    return [section(short_metric(metric), remark, Raw(drawn))] if drawn else []


def _head(study: Table) -> Raw:
    words = f"{len(study.rows):,} points over {', '.join(study.keys)}"
    remark = f"<p>{text(study.remark)}</p>" if study.remark else ""
    return Raw(f"<header><h1>{text(study.name)}</h1><p>{text(words)}</p>{remark}</header>\n")


def _cards(study: Table) -> Raw:
    metric = study.metrics[0]
    best = study.best(metric)
    states: dict[str, int] = {}
    for row in study.rows:
        states[row.state] = states.get(row.state, 0) + 1
    cards = [card(state, f"{number:,}", "points") for state, number in states.items()]
    if best is not None:
        where = ", ".join(f"{key} {value}" for key, value in best.values.items())
        cards.insert(0, card(f"best {short_metric(metric)}", figure_text(metric, value_of(best, metric)), where))
    return Raw(f'<div class="cards">{"".join(cards)}</div>\n')


def _rows(study: Table) -> Raw:
    metric = study.metrics[0]

    def order(row: PageRow) -> tuple[bool, float]:
        known = row.means.get(metric)
        return known is None, cost(metric, known or 0.0)

    rows = sorted(study.rows, key=order)[:MOST_ROWS]
    head = [*study.keys, *(short_metric(name) for name in study.metrics), "state", "run"]
    cells = [
        [
            *(row.values.get(key, "") for key in study.keys),
            *(_figure(row, name) for name in study.metrics),
            row.message or row.state,
            "" if row.link is None else Raw(f'<a href="{text(row.link)}">run</a>'),
        ]
        for row in rows
    ]
    left = len(study.rows) - len(rows)
    remark = f"{left:,} further points are in the Parquet file." if left else ""
    numbers = range(len(study.keys), len(study.keys) + len(study.metrics))
    return section("Points", remark, html_table(head, cells, numbers))


def _figure(row: PageRow, metric: str) -> str:
    half = row.halves.get(metric)
    return figure_text(metric, row.means.get(metric)) + ("" if half is None else f" ± {figure_text(metric, half)}")
