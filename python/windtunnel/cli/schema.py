"""`windtunnel schema`."""

from __future__ import annotations

from windtunnel.cli.declare import Commands

app = Commands()


@app.command()
def schema() -> None:
    """Print the JSON Schema of a scenario, for editors and checks."""
    from windtunnel import engine
    from windtunnel.cli.console import print_json

    print_json(engine.schema())
