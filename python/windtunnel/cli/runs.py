"""`windtunnel runs`: what the store of runs holds."""

from __future__ import annotations

import json as json_module
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from windtunnel.cli.app import DONE
from windtunnel.cli.console import out, print_json, talk
from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.engine import InputError

app = Commands(no_args_is_help=True)

StoreOption = Annotated[Path, Option("--store", help="Folder of runs.")]
JsonOption = Annotated[bool, Option("--json", help="Print JSON and nothing else.")]

COLUMNS = ("id", "name", "state", "fidelity", "seed", "windtunnel", "folder", "message", "recipe", "content", "build")
"""Columns that a filter may name beside varied keys and figures."""


@app.callback()
def runs() -> None:
    """List, show, compare and remove the runs of a store."""


@app.command(name="list")
def list_runs(
    filters: Annotated[
        list[str] | None, Argument(metavar="KEY=VALUE", help="Such as `state=failed` or a varied key.")
    ] = None,
    limit: Annotated[int | None, Option(min=1, help="The newest so many.")] = None,
    store: StoreOption = Path("runs"),
    json: JsonOption = False,
) -> int:
    """List runs, the newest first."""
    found = _found(store, filters or [], limit)
    if json:
        print_json(json_module.dumps({"runs": found}))
        return DONE
    from rich.table import Table

    from windtunnel.text import duration

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("id", "name", "state", "fidelity", "seed", "varied", "took", "begun"):
        table.add_column(title)
    for record in found:
        varied = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in record["varied"].items())
        begun = datetime.fromtimestamp(record["begun"], UTC).strftime("%Y-%m-%d %H:%M")
        cells = [record[key] for key in ("id", "name", "state", "fidelity", "seed")]
        table.add_row(*("" if cell is None else str(cell) for cell in cells), varied, duration(record["wall_s"]), begun)
    out().print(table)
    return DONE


@app.command()
def show(
    number: Annotated[int, Argument(metavar="ID", help="As `windtunnel runs list` has it.")],
    store: StoreOption = Path("runs"),
    json: JsonOption = False,
) -> int:
    """Show a run: its figures, or why there are none."""
    from windtunnel.cli.show_run import show as show_run
    from windtunnel.results import Result

    record = _one(store, number)
    if record["folder"] is None:
        out().print(f"{record['state']}: {record['message']}", markup=False)
        return DONE
    folder = store / record["folder"]
    if json:
        print_json((folder / "summary.json").read_text(encoding="utf-8"))
        return DONE
    show_run(Result(folder), None)
    return DONE


@app.command()
def compare(
    number: Annotated[int, Argument(metavar="ID", help="As `windtunnel runs list` has it.")],
    earlier: Annotated[int, Argument(metavar="EARLIER", help="The run that it is compared with.")],
    store: StoreOption = Path("runs"),
    json: JsonOption = False,
) -> int:
    """Compare two runs: what differs in their scenarios and in their figures."""
    from windtunnel.cli.run import show_result
    from windtunnel.comparison import compare as compared
    from windtunnel.results import Result

    records = [_one(store, each) for each in (number, earlier)]
    for record in records:
        if record["state"] != "done":
            raise InputError(f"run {record['id']} has no figures: {record['state']}: {record['message']}")
    later, before = (Result(store / record["folder"]) for record in records)
    show_result(later, compared(later, before, then_name=f"run {earlier}"), as_json=json)
    return DONE


@app.command()
def rm(
    numbers: Annotated[list[int], Argument(metavar="ID…")],
    store: StoreOption = Path("runs"),
) -> int:
    """Remove runs and their folders."""
    from windtunnel.studies.store import Store

    for number in numbers:
        _one(store, number)
    with Store(store) as opened:
        talk().print(f"removed {opened.remove(numbers)}")
    return DONE


@app.command()
def gc(store: StoreOption = Path("runs")) -> int:
    """Remove what failed, was refused or was cut off, and runs of another build of the engine."""
    from windtunnel.studies.recipe import build
    from windtunnel.studies.store import Store

    _there(store)
    with Store(store) as opened:
        # Runs by name are their owner's, whatever became of them.
        points = [record for record in opened.rows() if not record["by_name"]]
        cut_off = ("failed", "refused", "interrupted")
        stale = [r["id"] for r in points if r["state"] in cut_off or r["build"] != build()]
        talk().print(f"removed {opened.remove(stale)}")
    return DONE


@app.command()
def rebuild(store: StoreOption = Path("runs")) -> int:
    """Make the index anew from the folders."""
    from windtunnel.studies.store import Store

    _there(store)
    with Store(store) as opened:
        talk().print(f"{opened.rebuild()} runs")
    return DONE


def _there(store: Path) -> None:
    if not store.is_dir():
        raise InputError(f"there is no folder of runs `{store}`\n\nhint: name it with `--store`")


def _found(store: Path, filters: list[str], limit: int | None) -> list[dict[str, Any]]:
    from windtunnel.studies.store import Store

    _there(store)
    conditions: list[str] = []
    values: list[object] = []
    interrupted = None
    for text in filters:
        key, separator, value = text.partition("=")
        if not separator:
            raise InputError(f"expected KEY=VALUE, found `{text}`\n\nhint: such as `state=done`")
        if key == "state":
            _check_state(value)
        if key == "state" and value in ("interrupted", "queued", "running"):
            # Whether one that is noted as running has been cut off, only its process says.
            conditions.append("state in ('interrupted', 'queued', 'running')")
            interrupted = value
        elif key in ("id", "seed") and value.lstrip("-").isdigit():
            conditions.append(f"{key} = ?")
            values.append(_signed(int(value)))
        elif key in COLUMNS:
            conditions.append(f"{key} = ?")
            values.append(value)
        else:
            condition, given = _of_key(key, value)
            conditions.append(condition)
            values += given
    with Store(store) as opened:
        found = opened.rows(" and ".join(conditions), tuple(values), limit if interrupted is None else None)
    if interrupted is not None:
        found = [record for record in found if record["state"] == interrupted][:limit]
    return found


def _of_key(key: str, value: str) -> tuple[str, list[object]]:
    """The condition that a varied key or a figure has this value, as text, and what its `?` stand for."""
    path = '$."' + key.replace('"', "") + '"'
    parts: list[str] = []
    values: list[object] = []
    # Words and numbers stand in the JSON as they are (yes and no do not: they are 1 and 0 here). To look for them there
    # first spares most rows the reading of their JSON.
    plain = value not in ("0", "1") and re.fullmatch(r"[A-Za-z0-9_-]+", value) is not None
    for column in ("varied", "figures"):
        first = f"instr({column}, ?) and " if plain else ""
        parts.append(f"({first}cast(json_extract({column}, ?) as text) = ?)")
        values += [*([value] if plain else []), path, value]
    return f"({' or '.join(parts)})", values


def _signed(number: int) -> int:
    from windtunnel.studies.index import signed

    return signed(number) or 0


def _check_state(value: str) -> None:
    from windtunnel.engine import nearest

    known = ["queued", "running", "done", "refused", "failed", "interrupted"]
    if value not in known:
        near = nearest(value, known)
        hint = f"did you mean `{near}`?" if near else f"there are {', '.join(known)}"
        raise InputError(f"no such state: `{value}`\n\nhint: {hint}")


def _one(store: Path, number: int) -> dict[str, Any]:
    from windtunnel.studies.store import Store

    _there(store)
    with Store(store) as opened:
        rows = opened.rows("id = ?", (number,))
    if not rows:
        raise InputError(f"there is no run {number}\n\nhint: `windtunnel runs list` has their numbers")
    return rows[0]
