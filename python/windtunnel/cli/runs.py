"""`windtunnel runs`: what the store of runs holds."""

from __future__ import annotations

import json as json_module
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from windtunnel.cli.app import DONE
from windtunnel.cli.console import out, print_json, talk
from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.engine import InputError
from windtunnel.studies.filters import asked

if TYPE_CHECKING:
    from windtunnel.studies.store import Store

app = Commands(no_args_is_help=True)

StoreOption = Annotated[Path, Option("--store", help="Folder of runs.")]
JsonOption = Annotated[bool, Option("--json", help="Print JSON and nothing else.")]

FiltersArgument = Annotated[
    list[str] | None, Argument(metavar="KEY=VALUE", help="Such as `state=failed`, or a varied key: `tp=4`.")
]

SHOWN = 50
"""Runs of a table unless `--limit` says otherwise: laying out longer ones takes longer than finding them."""


@app.callback()
def runs() -> None:
    """List, show, compare and remove the runs of a store."""


@app.command(name="list")
def list_runs(
    filters: FiltersArgument = None,
    limit: Annotated[int | None, Option(min=1, help="The newest so many (default: 50; all with --json).")] = None,
    store: StoreOption = Path("runs"),
    json: JsonOption = False,
) -> int:
    """List runs, the newest first."""
    from windtunnel.studies.store import Store

    _there(store)
    with Store(store) as opened:
        what = asked(filters or [], opened.keys())
        if json:
            print_json(f'{{"runs": {opened.listed_json(what, limit)}}}')
            return DONE
        found = opened.listed(what, limit or SHOWN + 1)
    left_out = limit is None and len(found) > SHOWN
    from rich.table import Table

    from windtunnel.text import duration

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("id", "name", "state", "fidelity", "seed", "varied", "took", "begun"):
        table.add_column(title)
    for record in found[:SHOWN] if left_out else found:
        varied = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in record["varied"].items())
        begun = datetime.fromtimestamp(record["begun"], UTC).strftime("%Y-%m-%d %H:%M")
        cells = [record[key] for key in ("id", "name", "state", "fidelity", "seed")]
        table.add_row(*("" if cell is None else str(cell) for cell in cells), varied, duration(record["wall_s"]), begun)
    out().print(table)
    if left_out:
        talk().print(f"the newest {SHOWN}; `--limit N` shows so many, `--json` all", markup=False)
    return DONE


@app.command()
def show(
    number: Annotated[int, Argument(metavar="ID", help="As `windtunnel runs list` has it.")],
    store: StoreOption = Path("runs"),
    json: JsonOption = False,
) -> int:
    """Show a run: its figures, or why there are none (with --json what the index has of it)."""
    from windtunnel.cli.show_run import show as show_run
    from windtunnel.results import Result

    record = _one(store, number)
    if record["folder"] is None:
        if json:
            print_json(json_module.dumps(record))
            return DONE
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
        if record["state"] != "done" or record["folder"] is None:
            raise InputError(f"run {record['id']} has no figures: {record['state']}: {record['message']}")
    later, before = (Result(store / record["folder"]) for record in records)
    show_result(later, compared(later, before, then_name=f"run {earlier}"), as_json=json)
    return DONE


@app.command()
def rm(
    which: Annotated[list[str], Argument(metavar="ID|KEY=VALUE…", help="Runs by number, or all that `list` lists so.")],
    store: StoreOption = Path("runs"),
    json: JsonOption = False,
) -> int:
    """Remove runs and their folders."""
    from windtunnel.studies.store import Store

    numbers = [int(word) for word in which if word.isdigit()]
    filters = [word for word in which if not word.isdigit()]
    for number in numbers:
        _one(store, number, whole=False)
    _there(store)
    with Store(store) as opened:
        if filters:
            numbers += [record["id"] for record in opened.listed(asked(filters, opened.keys()))]
        return _removed(opened, list(dict.fromkeys(numbers)), as_json=json)


@app.command()
def gc(
    filters: FiltersArgument = None,
    store: StoreOption = Path("runs"),
    json: JsonOption = False,
) -> int:
    """Remove what failed, was refused or was cut off, and runs of another build of the engine."""
    from windtunnel.studies.recipe import build
    from windtunnel.studies.store import Store

    _there(store)
    with Store(store) as opened:
        # Runs by name are their owner's, whatever became of them, unless they have left no folder.
        found = opened.listed(asked(filters or [], opened.keys()))
        points = [record for record in found if not record["by_name"] or record["folder"] is None]
        cut_off = ("failed", "refused", "interrupted")
        stale = [r["id"] for r in points if r["state"] in cut_off or r["build"] != build()]
        return _removed(opened, stale, as_json=json)


def _removed(store: Store, numbers: list[int], *, as_json: bool) -> int:
    count = store.remove(numbers)
    if as_json:
        print_json(json_module.dumps({"removed": numbers}))
    else:
        talk().print(f"removed {count}")
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


def _one(store: Path, number: int, *, whole: bool = True) -> dict[str, Any]:
    """A run by its number; if `whole`, one whose folder is there if it has one."""
    from windtunnel.studies.store import Store

    _there(store)
    with Store(store) as opened:
        rows = opened.rows("id = ?", (number,))
        if not rows:
            raise InputError(f"there is no run {number}\n\nhint: `windtunnel runs list` has their numbers")
        (record,) = rows
        if whole and record["folder"] is not None and not (store / record["folder"] / "summary.json").is_file():
            opened.lose(number)
            raise InputError(
                f"the folder of run {number} is gone: `{store / record['folder']}`\n\n"
                f"hint: what made it makes it again; `windtunnel runs rm {number}` takes it off the list"
            )
    return record
