"""`windtunnel list`."""

from __future__ import annotations

import json as json_module
import re
from typing import Annotated

from windtunnel.cli.declare import Argument, Commands, Option

app = Commands()


def kinds() -> list[str]:
    """The kinds of names there are, as the engine's own message about an unknown one has them."""
    from windtunnel import engine

    try:
        engine.names("")
    except engine.InputError as error:
        return re.findall(r"`([a-z-]+)`", str(error).partition("hint:")[2])
    return []


@app.command(name="list")
def names(
    kind: Annotated[
        str | None,
        Argument(
            help="What to list: algorithms, topologies, schedules, gpus, nics, models, …; the kinds if left out.",
            metavar="KIND",
        ),
    ] = None,
    json: Annotated[bool, Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """List the names of KIND that a scenario may use."""
    from rich.table import Table
    from rich.text import Text

    from windtunnel import engine
    from windtunnel.cli.console import out, print_json, talk

    known = [(name, f"windtunnel list {name}") for name in kinds()] if kind is None else engine.names(kind)
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
