"""`windtunnel topology`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def topology(
    file: Annotated[Path, typer.Argument(help="Scenario, or a file whose root is a topology (YAML).", metavar="FILE")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Build the topology of FILE and print its hosts, switches, links, tiers and what it took."""
    from windtunnel import engine
    from windtunnel.cli.console import print_json
    from windtunnel.cli.show_json import show_json
    from windtunnel.source import read_source

    source = read_source(file)
    text = engine.topology(source.text, source.name, str(source.base))
    if json:
        print_json(text)
    else:
        show_json(text)
