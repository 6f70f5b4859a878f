"""The difference of two runs on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from windtunnel.cli.console import out
from windtunnel.text import UNKNOWN, change
from windtunnel.words import difference_text, figure_text, label, title, value_text

if TYPE_CHECKING:
    from windtunnel.comparison import Comparison, Metric

MAIN = {"iteration_time_s.mean", "tokens_per_s", "mfu", "fct_mean_s"}
"""Keys that stand out."""


def show_comparison(comparison: Comparison) -> None:
    """Prints the knobs, the figures that differ, and what is equal."""
    console = out()
    console.print()
    console.print(Text(f"compared with {comparison.then}", style="bold"), soft_wrap=True)
    _show_knobs(comparison)
    if comparison.metrics:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("", overflow="fold")
        for name in ("then", "now", "change", ""):
            table.add_column(name, justify="right")
        group = None
        for metric in comparison.metrics:
            if metric.group != group:
                group = metric.group
                table.add_row(Text(group, style="dim"))
            table.add_row(*_cells(metric))
        console.print(table)
    console.print(Text(_equal(comparison), style="dim"), soft_wrap=True)
    took = [metric for metric in comparison.machine if metric.then is not None and metric.now is not None]
    if took:
        words = [f"{title(m.key)} {value_text(m.key, m.then)} → {value_text(m.key, m.now)}" for m in took]
        console.print(Text(f"the runs: {', '.join(words)}", style="dim"), soft_wrap=True)


def _show_knobs(comparison: Comparison) -> None:
    console = out()
    if comparison.knobs is None:
        console.print("which keys differ is not known: a run folder without `scenario.yaml`", style="dim")
        return
    if not comparison.knobs:
        console.print("the same scenario", style="dim")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("key", overflow="fold")
    table.add_column("then", overflow="fold")
    table.add_column("now", overflow="fold")
    for knob in comparison.knobs:
        table.add_row(Text(knob.key, style="bold"), Text(_yaml(knob.then)), Text(_yaml(knob.now)))
    console.print(table)


def _yaml(value: Any) -> str:  # noqa: ANN401
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(_yaml(item) for item in value)}]"
    return str(value)


def _cells(metric: Metric) -> list[Text]:
    style = "bold" if metric.key in MAIN else ""
    more = metric.absolute
    signed = f"{'+' if more > 0 else '-'}{difference_text(metric.key, more)}" if more is not None else UNKNOWN
    relative = change(metric.relative)
    cells = [
        f"  {label(metric.key)}",
        figure_text(metric.key, metric.then),
        figure_text(metric.key, metric.now),
        signed,
        relative,
    ]
    return [Text(cell, style=style) for cell in cells]


def _equal(comparison: Comparison) -> str:
    total = len(comparison.equal) + len(comparison.metrics)
    if not comparison.equal:
        return f"all {total} figures differ"
    names = ", ".join(dict.fromkeys(label(key) for _, key in comparison.equal))
    if not comparison.metrics:
        return f"all {total} figures are equal"
    return f"equal: {len(comparison.equal)} of {total} figures: {names}"
