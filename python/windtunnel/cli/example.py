"""`windtunnel example`."""

from __future__ import annotations

import json as json_module
import shutil
from pathlib import Path
from typing import Annotated

from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.engine import InputError, nearest

app = Commands()


@app.command()
def example(
    name: Annotated[str | None, Argument(metavar="NAME", help="Which; all are listed if left out.")] = None,
    out: Annotated[Path, Option(metavar="FOLDER", help="Where it goes, with the files that it names.")] = Path(),
    show: Annotated[bool, Option("--print", help="Print the file and write nothing.")] = False,
    json: Annotated[bool, Option("--json", help="Print the list as JSON and nothing else.")] = False,
) -> None:
    """List the examples that come with Windtunnel, or write one of them into a folder."""
    from windtunnel import shipped
    from windtunnel.cli.console import print_json, talk

    known = shipped.examples()
    if name is None:
        rows = [{"name": each, "title": shipped.title(path)} for each, path in known.items()]
        if json:
            print_json(json_module.dumps(rows, indent=2, ensure_ascii=False))
        else:
            _list(rows)
        return
    path = known.get(name.removesuffix(".yaml"))
    if path is None:
        near = nearest(name, list(known))
        hint = f"did you mean `{near}`?" if near else "`windtunnel example` lists them"
        raise InputError(f"no such example: `{name}`\n\nhint: {hint}")
    if show:
        print_json(path.read_text(encoding="utf-8"))
        return
    home = shipped.root() / "examples"
    for file in needed(path):
        target = out / file.relative_to(home)
        if target.exists():
            raise InputError(f"`{target}` is there already\n\nhint: `--out FOLDER` writes elsewhere, `--print` nowhere")
    for file in needed(path):
        target = out / file.relative_to(home)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        talk().print(f"wrote {target}", markup=False, soft_wrap=True)


def needed(path: Path) -> list[Path]:
    """The example and the files that it names, all below the folder of examples."""
    from windtunnel import shipped
    from windtunnel.source import read_source
    from windtunnel.studies.inputs import named

    found = [path, *_scenario_of(path)]
    for file in list(found):
        source = read_source(file)
        found += [(source.base / each).resolve() for each in named(source, [])]
    home = shipped.root() / "examples"
    return sorted({each for each in found if each.is_relative_to(home)})


def _scenario_of(path: Path) -> list[Path]:
    """The scenario that a study is of."""
    from ruamel.yaml import YAML

    tree = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    scenario = tree.get("scenario") if isinstance(tree, dict) and "study" in tree else None
    return [(path.parent / scenario).resolve()] if isinstance(scenario, str) else []


def _list(rows: list[dict[str, str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from windtunnel.cli.console import out

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for row in rows:
        table.add_row(Text(row["name"], style="bold"), Text(row["title"]))
    out().print(table)
