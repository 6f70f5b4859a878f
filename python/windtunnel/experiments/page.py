"""One page over all experiments: each with its claims, what was observed, and its figure."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from windtunnel.experiments.runner import Broken
from windtunnel.report.html import STYLE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from windtunnel.experiments.check import Verdict
    from windtunnel.experiments.runner import Outcome

_SIGNS = """
.holds { color: #2f855a; } .fails { color: #c53030; font-weight: 600; }
nav a { color: inherit; margin-right: 14px; white-space: nowrap; }
"""


def page(found: Sequence[Outcome | Broken], folder: Path) -> str:
    """HTML of all experiments; their figures are taken in, so that the file stands alone."""
    claims = [verdict for one in found if not isinstance(one, Broken) for verdict in one.verdicts]
    broken = [one for one in found if isinstance(one, Broken)]
    held = sum(verdict.holds for verdict in claims)
    said = f"{held} of {len(claims)} claims of {len(found) - len(broken)} experiments hold"
    if broken:
        said += f"; {len(broken)} could not be run"
    links = "".join(f'<a href="#{escape(one.experiment.name)}">{escape(one.experiment.name)}</a> ' for one in found)
    sections = "".join(_section(one, folder) for one in found)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Experiments</title>'
        f"<style>{STYLE}{_SIGNS}</style></head><body><main><header><h1>Experiments</h1><p>{escape(said)}</p></header>"
        f"<section><nav>{links}</nav></section>{sections}</main></body></html>\n"
    )


def _section(one: Outcome | Broken, folder: Path) -> str:
    experiment = one.experiment
    head = f'<section id="{escape(experiment.name)}"><h2>{escape(experiment.title)}</h2>'
    source = f"<p>{escape(experiment.source)}</p>" if experiment.source else ""
    if isinstance(one, Broken):
        return f'{head}{source}<p class="fails">{escape(one.message)}</p></section>'
    rows = "".join(_row(verdict) for verdict in one.verdicts)
    table = f'<div class="scroll"><table><tr><th>claim<th>expected<th>observed<th></tr>{rows}</table></div>'
    return f"{head}{source}{table}{_figure(one, folder)}</section>"


def _row(verdict: Verdict) -> str:
    sign = '<td class="holds">holds' if verdict.holds else '<td class="fails">FAILS'
    cells = "".join(f"<td>{escape(_value(value))}" for value in (verdict.expected, verdict.observed))
    return f"<tr><td>{escape(verdict.claim)}{cells}{sign}</tr>"


def _value(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _figure(one: Outcome, folder: Path) -> str:
    if one.figure is None:
        return ""
    text = one.figure.read_text(encoding="utf-8")
    svg = re.search(r"<svg.*</svg>", text, re.DOTALL)
    if svg is None:
        return f'<p><a href="{escape(one.figure.relative_to(folder).as_posix())}">figure</a></p>'
    # Names inside a figure are its own: several stand on this page.
    name = re.sub(r"\W", "-", one.experiment.name)
    return re.sub(r'(\bid="|url\(#|href="#)', lambda found: f"{found[1]}{name}-", svg[0])
