"""`windtunnel schema`."""

from __future__ import annotations

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a scenario, for editors and checks."""
    from windtunnel import engine
    from windtunnel.cli.console import print_json

    print_json(engine.schema())
