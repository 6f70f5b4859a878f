"""`windtunnel experiments`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from rich.text import Text

from windtunnel.cli.app import DONE, FAILED, INTERRUPTED
from windtunnel.cli.console import out, print_json, talk
from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.cli.study_options import EngineOption, FreshOption, MemoryOption, WorkersOption, limits_of
from windtunnel.engine import InputError
from windtunnel.results.folder import check_file

if TYPE_CHECKING:
    import polars as pl

    from windtunnel.experiments import Outcome
    from windtunnel.studies.runner import Limits

app = Commands()

Json = Annotated[bool, Option("--json", help="Print JSON and nothing else.")]


@app.callback()
def experiments() -> None:
    """List experiments, or run one and check its claims."""


@app.command(name="list")
def list_experiments(json: Json = False) -> None:
    """List the experiments there are."""
    from windtunnel.experiments import find, names

    found = [find(name) for name in names()]
    if json:
        rows = [
            {"name": e.name, "also": list(e.also), "title": e.title, "source": e.source, "claims": len(e.claims)}
            for e in found
        ]
        print_json(json_module.dumps(rows, indent=2, ensure_ascii=False))
        return
    table = Table.grid(padding=(0, 2))
    for e in found:
        name = Text(e.name, style="bold")
        for other in e.also:
            name.append(f", {other}", style="not bold")
        table.add_row(name, Text(e.title), Text(e.source, style="dim"))
    out().print(table)


@app.command()
def run(
    name: Annotated[str | None, Argument(help="Name of an experiment, or its folder.", metavar="NAME")] = None,
    every: Annotated[bool, Option("--all", help="All experiments, and one page that sums them up.")] = False,
    folder: Annotated[
        Path | None,
        Option("--out", help="Folder of the figure (default: runs/experiments/NAME; with --all of all)."),
    ] = None,
    fresh: FreshOption = False,
    workers: WorkersOption = None,
    memory: MemoryOption = None,
    engine: EngineOption = "local",
    store: Annotated[Path, Option(help="Folder of runs.")] = Path("runs"),
    json: Json = False,
) -> int:
    """Run NAME, print every claim with what was expected and observed, and draw the figure; exit 1 if one fails."""
    from windtunnel.cli.study_progress import study_progress
    from windtunnel.experiments import find, run_experiment
    from windtunnel.experiments.runner import points_of

    if (name is None) == (not every):
        raise InputError(
            "expected the name of an experiment or `--all`, not both\n\nhint: `windtunnel experiments list`"
        )
    limits = limits_of(workers, memory=memory, engine=engine)
    check_file(None if folder is None else folder / "index.html", "--out")
    if name is None:
        return _run_all(folder or Path("runs") / "experiments", store, limits, fresh=fresh, as_json=json)
    experiment = find(name)
    target = folder or Path("runs") / "experiments" / experiment.name
    with study_progress(len(points_of(experiment))) as progress:
        try:
            outcome = run_experiment(experiment, out=target, store=store, limits=limits, fresh=fresh, progress=progress)
        except KeyboardInterrupt:
            talk().print(f"interrupted: {progress.kept()} runs are kept; the same command goes on")
            return INTERRUPTED
    progress.say_end()
    if json:
        record = {
            "claims": [v.record() for v in outcome.verdicts],
            "tables": {name: frame.to_dicts() for name, frame in outcome.tables.items()},
        }
        print_json(json_module.dumps(record, indent=2, ensure_ascii=False))
    else:
        _show(outcome)
    return DONE if outcome.holds else FAILED


@app.command()
def report(
    names: Annotated[list[str], Argument(help="Names of experiments, or their folders.", metavar="NAME...")],
    target: Annotated[Path, Option("--out", help="The page.")],
    title: Annotated[str, Option(help="Its title.")] = "Claims",
    intro: Annotated[str, Option(help="What it begins with.")] = "",
    fresh: FreshOption = False,
    workers: WorkersOption = None,
    memory: MemoryOption = None,
    engine: EngineOption = "local",
    store: Annotated[Path, Option(help="Folder of runs.")] = Path("runs"),
) -> int:
    """Run several experiments, and write claim by claim what holds into a Markdown page."""
    from windtunnel.cli.study_progress import study_progress
    from windtunnel.experiments import find, run_experiments
    from windtunnel.experiments.reproduction import markdown
    from windtunnel.results.folder import write_beside

    limits = limits_of(workers, memory=memory, engine=engine)
    check_file(target, "--out")
    with study_progress(0) as progress:
        every = [find(name) for name in names]
        found = run_experiments(every, store=store, limits=limits, fresh=fresh, progress=progress)
    write_beside(target, markdown(title, intro, found).encode())
    out().print(f"wrote {target}", markup=False, soft_wrap=True)
    return DONE


def _run_all(out_folder: Path, store: Path, limits: Limits, *, fresh: bool, as_json: bool) -> int:
    from windtunnel.cli.study_progress import study_progress
    from windtunnel.experiments import Broken, find, names, run_experiments
    from windtunnel.experiments.page import page
    from windtunnel.results.folder import write_beside

    every = [find(name) for name in names()]
    with study_progress(0) as progress:
        try:
            found = run_experiments(every, out=out_folder, store=store, limits=limits, fresh=fresh, progress=progress)
        except KeyboardInterrupt:
            talk().print("interrupted: the runs that were done are kept; the same command goes on")
            return INTERRUPTED
    target = out_folder / "index.html"
    write_beside(target, page(found, out_folder).encode())
    if as_json:
        records = [
            {"name": one.experiment.name, "error": one.message, "claims": []}
            if isinstance(one, Broken)
            else {"name": one.experiment.name, "error": None, "claims": [v.record() for v in one.verdicts]}
            for one in found
        ]
        print_json(json_module.dumps({"experiments": records}, indent=2, ensure_ascii=False))
    else:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for title in ("experiment", "claims", "hold", ""):
            table.add_column(title)
        for one in found:
            if isinstance(one, Broken):
                said = Text(one.message.partition("\n")[0], style="bold red")
                table.add_row(one.experiment.name, str(len(one.experiment.claims)), "", said)
                continue
            held = sum(verdict.holds for verdict in one.verdicts)
            sign = Text("") if one.holds else Text("FAILS", style="bold red")
            table.add_row(one.experiment.name, str(len(one.verdicts)), str(held), sign)
        out().print(table)
        out().print(f"wrote {target}", markup=False, soft_wrap=True)
    return DONE if all(one.holds for one in found) else FAILED


def _show(outcome: Outcome) -> None:
    experiment = outcome.experiment
    console = out()
    console.print(
        Text(experiment.title, style="bold"),
        Text(f" ({experiment.source})" if experiment.source else "", style="dim"),
    )
    for name, frame in outcome.tables.items():
        console.print()
        console.print(_frame(name, frame))
    console.print()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("claim", overflow="fold", ratio=3)
    table.add_column("expected", overflow="fold", ratio=1)
    table.add_column("observed", overflow="fold", ratio=1)
    table.add_column("")
    for claim, verdict in zip(experiment.claims, outcome.verdicts, strict=True):
        within = f" ±{claim.tolerance * 100:g} %" if claim.relative and claim.tolerance else ""
        sign = Text("holds", style="green") if verdict.holds else Text("FAILS", style="bold red")
        table.add_row(
            Text(verdict.claim), Text(_value(verdict.expected) + within), Text(_value(verdict.observed)), sign
        )
    console.print(table)
    if outcome.figure is not None:
        console.print()
        console.print(f"drew {outcome.figure}", markup=False, soft_wrap=True)


def _value(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return str(value)
    if isinstance(value, (int, float)):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(_value(item) for item in value)
    if isinstance(value, dict):
        words = {"min": "at least", "max": "at most"}
        return ", ".join(f"{words.get(key, key)} {_value(item)}" for key, item in value.items())
    return str(value)


def _frame(name: str, frame: pl.DataFrame) -> Table:
    table = Table(title=name, title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column, dtype in frame.schema.items():
        table.add_column(column, justify="right" if dtype.is_numeric() else "left")
    for row in frame.iter_rows():
        table.add_row(*(Text(_value(value)) for value in row))
    return table
