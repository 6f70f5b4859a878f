"""`windtunnel fabrics`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from windtunnel.cli.app import DONE, FAILED
from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.cli.search_bar import SearchBar
from windtunnel.engine import InputError

if TYPE_CHECKING:
    from windtunnel.explore.fabric import Design

app = Commands()


@app.command()
def fabrics(
    scenario: Annotated[Path, Argument(help="Scenario file (YAML), `-` for standard input.", metavar="SCENARIO")],
    oversubscription: Annotated[str, Option(metavar="NUMBERS", help="Of the leaves.")] = "1,2,4",
    rate: Annotated[str | None, Option(metavar="RATES", help="Above the leaves (default: the scenario's).")] = None,
    planes: Annotated[str | None, Option(metavar="NUMBERS", help="Planes (default: the scenario's).")] = None,
    budget: Annotated[float | None, Option(metavar="USD", help="Dollars of the fabric at most.")] = None,
    overrides: Annotated[
        list[str] | None, Option("--set", metavar="PATH=VALUE", help="Set a key of the scenario. Repeatable.")
    ] = None,
    workers: Annotated[int | None, Option(min=1, help="Processes at most (default: as many as cores).")] = None,
    time_limit: Annotated[float | None, Option(min=0.001, metavar="SECONDS", help="Longest run.")] = None,
    fresh: Annotated[bool, Option("--fresh", help="Run all anew.")] = False,
    store: Annotated[Path, Option(help="Folder of runs.")] = Path("runs"),
    json: Annotated[bool, Option("--json", help="Print the outcome as JSON and nothing else.")] = False,
) -> int:
    """Try fabrics for the jobs of a scenario: what each costs, and what the jobs take on it."""
    from windtunnel.cli.option_lists import names, numbers
    from windtunnel.cli.run import parse_override
    from windtunnel.explore.fabric import designs, front, remarks, tried
    from windtunnel.source import read_source
    from windtunnel.studies.runner import Limits
    from windtunnel.studies.store import Store

    if budget is not None and budget <= 0:
        raise InputError(f"--budget: expected more than 0, for nothing is built for nothing, found {budget:g}")
    read, pairs = read_source(scenario), [parse_override(text) for text in overrides or []]
    found = designs(
        read, pairs, oversubscription=numbers("--oversubscription", oversubscription, 1) or (),
        rates=names(rate) or (), planes=numbers("--planes", planes, 1) or (),
    )  # fmt: skip
    with Store(store) as opened, SearchBar("running") as bar:
        limits = Limits(workers=workers, seconds=time_limit)
        rows = tried(read, pairs, found, opened, budget_usd=budget, limits=limits, fresh=fresh, progress=bar.ran)
    edge, said = front(rows), remarks(rows)
    if json:
        from windtunnel.cli.console import print_json

        record = {
            "scenario": read.name, "budget_usd": budget, "designs": [row.record() for row in rows],
            "front": [row.record() for row in edge], "remarks": said,
        }  # fmt: skip
        print_json(json_module.dumps(record))
    else:
        _show(rows, edge, said)
    return DONE if edge else FAILED


def _show(rows: list[Design], edge: list[Design], said: list[str]) -> None:
    from rich.table import Table

    from windtunnel.cli.console import out
    from windtunnel.text import UNKNOWN, count, duration

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("fabric", no_wrap=True)
    for name in ("US$", "slowdown", "iterations", "top ports"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for row in rows:
        price = UNKNOWN if row.usd is None else count(round(row.usd))
        if row.slowdown is None:
            table.add_row(row.name(), price, UNKNOWN, UNKNOWN, UNKNOWN, (row.message or "")[:60])
            continue
        times = ", ".join(duration(seconds) for seconds in row.job_s)
        ports = f"{row.top[0]:,}/{row.top[1]:,}"
        table.add_row(row.name(), price, f"{row.slowdown:.3f}", times, ports, "front" if row in edge else "")
    console = out()
    console.print(table)
    for sentence in said:
        console.print(sentence, markup=False)
