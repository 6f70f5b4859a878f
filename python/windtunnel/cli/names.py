"""`windtunnel list`."""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(name="list")
def names(
    kind: Annotated[
        str,
        typer.Argument(help="What to list: algorithms, topologies, schedules, gpus, nics, models, …", metavar="KIND"),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """List the names of KIND that a scenario may use."""
    from rich.table import Table
    from rich.text import Text

    from windtunnel import engine
    from windtunnel.cli.console import out, print_json, talk

    known = engine.names(kind)
    if json:
        print_json(json_module.dumps([{"name": name, "description": text} for name, text in known], indent=2))
        return
    if not known:
        talk().print(f"no {kind}: this program brings none along")
        return
    table = Table.grid(padding=(0, 2))
    for name, text in known:
        table.add_row(Text(name, style="bold"), Text(text))
    out().print(table)
