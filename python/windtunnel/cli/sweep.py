"""`windtunnel sweep`."""

from __future__ import annotations

import json as json_module
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from windtunnel.cli.app import DONE, FAILED, INTERRUPTED
from windtunnel.cli.console import out, print_json, say, talk
from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.cli.run import parse_override
from windtunnel.cli.study_options import (
    EngineOption,
    MemoryLimitOption,
    MemoryOption,
    NativeOption,
    TimeLimitOption,
    WorkersOption,
    executor_of,
    limits_of,
)
from windtunnel.cli.study_page import write_picture, write_study_page
from windtunnel.cli.study_table import file_name, replaced, write_table
from windtunnel.engine import InputError
from windtunnel.results.folder import TABLES, check_file, check_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windtunnel.studies.design import Axis
    from windtunnel.studies.point import Outcome, Point
    from windtunnel.studies.rows import Row
    from windtunnel.studies.study import Study

app = Commands()


@app.command()
def sweep(
    scenario: Annotated[Path, Argument(metavar="STUDY|SCENARIO", help="Study, or a scenario with --vary (YAML).")],
    vary: Annotated[
        list[str] | None,
        Option(
            metavar="PATH=VALUES",
            help="Values of a key: `a=1,2,4` or `a=1:8:log`, from 1 to 8 by doubling. Repeatable.",
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None, Option("--metric", metavar="PATH", help="Figure of the summary. Repeatable.")
    ] = None,
    seeds: Annotated[int | None, Option(min=1, help="Runs of each point, with as many seeds.")] = None,
    overrides: Annotated[
        list[str] | None, Option("--set", metavar="PATH=VALUE", help="Set a key at all points. Repeatable.")
    ] = None,
    design: Annotated[
        str | None, Option(help="grid, random, sobol or latin-hypercube; the last three with --points.")
    ] = None,
    points: Annotated[int | None, Option(min=1, help="Points of a design that draws.")] = None,
    fidelity: Annotated[str | None, Option(help="job, message, flow or packet, instead of the file's.")] = None,
    name: Annotated[str | None, Option(help="Name of the study (default: that of its file).")] = None,
    follow: Annotated[
        str | None,
        Option(metavar="WIDTH", help="Add seeds until half the first metric's interval is within it: `2%`."),
    ] = None,
    most_seeds: Annotated[int, Option(min=2, help="Seeds of a point that --follow stops at.")] = 64,
    workers: WorkersOption = None,
    time_limit: TimeLimitOption = None,
    memory_limit: MemoryLimitOption = None,
    memory: MemoryOption = None,
    engine: EngineOption = "local",
    allow_native: NativeOption = False,
    fresh: Annotated[bool, Option("--fresh", help="Run all points anew.")] = False,
    tables: Annotated[bool, Option("--tables", help="Keep the tables of each run, not its summary alone.")] = False,
    store: Annotated[Path, Option(help="Folder of runs.")] = Path("runs"),
    out_file: Annotated[
        Path | None,
        Option("--out", metavar="FILE", help="Table (.parquet or .csv; default: STORE/NAME.parquet)."),
    ] = None,
    html: Annotated[Path | None, Option(metavar="FILE", help="Page (default: STORE/NAME.html).")] = None,
    svg: Annotated[Path | None, Option(metavar="FILE", help="The figure of the first metric as an SVG file.")] = None,
    json: Annotated[bool, Option("--json", help="Print the rows as JSON and nothing else.")] = False,
) -> int:
    """Run all points of a study and put their figures into one table. Points that were run before are not run again."""
    from windtunnel.cli.study_progress import study_progress
    from windtunnel.native import consented
    from windtunnel.studies.check import check_fidelity, check_values
    from windtunnel.studies.follow import follow_width, followed
    from windtunnel.studies.rows import DEFAULT_METRICS, rows
    from windtunnel.studies.runner import run_points
    from windtunnel.studies.store import Store
    from windtunnel.studies.study import check_name

    check_name(name or "", "--name")
    check_fidelity(fidelity, "--fidelity")
    check_file(out_file, "--out", TABLES)
    check_files({"--html": html, "--svg": svg})
    study = (
        _from_options(scenario, vary, design=design, points=points, seeds=seeds, overrides=overrides, name=name)
        if vary
        else _from_file(scenario, seeds=seeds, overrides=overrides, name=name, unused=(design, points))
    )
    if fidelity is not None:
        study = _with(study, fidelity=fidelity)
    asked = tuple(metrics or study.metrics) or DEFAULT_METRICS
    width = None if follow is None else follow_width(follow)
    if width is not None and study.seeds < 2:
        study = _with(study, seeds=2)
    planned = consented(study.plan(say), allow=allow_native)
    check_values(study, planned[0])
    limits = limits_of(workers, time_limit, memory_limit, memory)
    target = out_file or store / f"{file_name(study.name)}.parquet"
    others = replaced(study, target) if out_file is None else None
    with Store(store) as opened, study_progress(len(planned)) as progress:
        _say_changes(study, others, None if vary else opened.begin_study(study.name, planned))

        def run(points: Sequence[Point]) -> Iterator[Outcome]:
            progress.begin()
            executor = executor_of(engine, limits)
            return run_points(
                points, opened, limits=limits, fresh=fresh, tables=tables, progress=progress, executor=executor
            )

        try:
            outcomes = _outcomes(run(planned), planned, asked)
            if width is not None:
                planned, outcomes = followed(planned, outcomes, asked[0], width, most_seeds, run)
        except KeyboardInterrupt:
            talk().print(f"interrupted: {progress.kept()} points are kept; the same command goes on")
            return INTERRUPTED
    found = rows(planned, outcomes, asked)
    write_table(study, found, asked, target)
    page = html or store / f"{file_name(study.name)}.html"
    write_study_page(study, found, asked, page, progress.end())
    if svg is not None:
        write_picture(study, found, asked, svg)
    if json:
        print_json(json_module.dumps({"rows": [_record(row) for row in found], "ran": progress.record()}))
    else:
        _show(study, found, asked)
        if width is not None:
            _say_wide(found, asked[0], width, most_seeds)
        progress.say_end()
        talk().print(f"table: {target}\npage: {page}", markup=False, soft_wrap=True)
    return DONE if any(row.state == "done" for row in found) else FAILED


def _with(study: Study, **changes: Any) -> Study:  # noqa: ANN401
    from dataclasses import replace

    return replace(study, **changes)


def _from_file(
    path: Path, *, seeds: int | None, overrides: list[str] | None, name: str | None, unused: tuple[object, ...]
) -> Study:
    from windtunnel import engine
    from windtunnel.source import read_source
    from windtunnel.studies.study import Study

    given = read_source(path)
    if not re.search(r"^study\s*:", given.text, re.MULTILINE):
        engine.scenario_tree(given.text, given.name, [])  # what is not even YAML says where
        raise InputError(
            f"`{path}` is no study, and no `--vary` says what changes in it\n\n"
            "hint: such as `--vary jobs[0].parallelism.tp=1,2,4`"
        )
    if any(option is not None for option in unused):
        raise InputError("--design, --points: a study says so itself: `design: sobol`, `points: 64`")
    study = Study.read(Path(given.name), given.text)
    changes: dict[str, Any] = {}
    if seeds is not None:
        changes["seeds"] = seeds
    if overrides:
        changes["overrides"] = study.overrides + tuple(parse_override(text) for text in overrides)
    if name is not None:
        changes["name"] = name
    return _with(study, **changes)


def _from_options(
    path: Path,
    vary: list[str],
    *,
    design: str | None,
    points: int | None,
    seeds: int | None,
    overrides: list[str] | None,
    name: str | None,
) -> Study:
    from windtunnel.source import read_source
    from windtunnel.studies.design import KINDS
    from windtunnel.studies.study import Study, default_name

    kind = design or "grid"
    if kind not in KINDS or kind == "list":
        raise InputError(f"--design: expected `grid`, `random`, `sobol` or `latin-hypercube`, found `{kind}`")
    if (kind != "grid") != (points is not None):
        raise InputError("--points goes with a design that draws, and such a design with --points")
    source = read_source(path)
    return Study(
        name=name or default_name(Path(source.name)),
        place=str(path),
        source=source,
        overrides=tuple(parse_override(text) for text in overrides or []),
        axes=tuple(parse_axis(text) for text in vary),
        kind=kind,
        count=points,
        seeds=seeds or 1,
    )


def parse_axis(text: str) -> Axis:
    """`KEY=1,2,4`, `KEY=1:8`, `KEY=100 Gbps:800 Gbps:log` or `KEY=0:1:5` (five points)."""
    from windtunnel.studies.design import axis

    key, separator, values = text.partition("=")
    if not separator or not key.strip() or not values.strip():
        raise InputError(
            f"--vary: expected PATH=VALUES, found `{text}`\n\nhint: such as `--vary jobs[0].iterations=1,2,4`"
        )
    where = f"--vary {key.strip()}"
    parts = values.split(":")
    if len(parts) == 1:
        return axis(key.strip(), [_value(value) for value in _split(values)], where)
    given: dict[str, Any] = {"from": _value(parts[0]), "to": _value(parts[1])}
    for part in parts[2:]:
        if part.strip() in ("log", "linear"):
            given["scale"] = part.strip()
        elif part.strip().isdigit():
            given["points"] = int(part)
        else:
            raise InputError(f"{where}: expected `FROM:TO[:log][:POINTS]`, found `{values}`")
    return axis(key.strip(), given, where)


def _split(values: str) -> list[str]:
    """At commas that stand in no brackets."""
    parts, depth, start = [], 0, 0
    for i, letter in enumerate(values):
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            parts.append(values[start:i])
            start = i + 1
    return [*parts, values[start:]]


def _value(text: str) -> Any:  # noqa: ANN401
    """A number as one, all else as the text that `--set` would take."""
    text = text.strip()
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def _outcomes(found: Iterator[Outcome], planned: Sequence[Point], metrics: tuple[str, ...]) -> list[Outcome]:
    """All outcomes. A metric that does not exist is found at the first that is done."""
    from windtunnel.studies.rows import rows

    outcomes: list[Outcome] = []
    checked = False
    for outcome in found:
        if outcome.summary is not None and not checked:
            rows([planned[len(outcomes)]], [outcome], metrics)
            checked = True
        outcomes.append(outcome)
    return outcomes


MOST_NAMED = 8
"""Points that are named."""


def _say_changes(study: Study, others: str | None, changed: tuple[int, list[Point]] | None) -> None:
    """What of a study that is begun again is not as it was, unless it is another one in whose place it comes."""
    if others is not None:
        say(others)
    if others is not None or changed is None:
        return
    had, stay = changed
    named = _named([point.varied for point in stay])
    talk().print(
        f"`{study.name}` has changed since it was begun: {len(stay) or 'none'} of its {had} points "
        + ("stays" if len(stay) == 1 else "stay")
        + (f": {named}" if named else ""),
        markup=False, soft_wrap=True,
    )  # fmt: skip


def _say_wide(found: list[Row], metric: str, width: float, most: int) -> None:
    """Which points are followed no further, though their interval is wider than was asked for."""
    from windtunnel.studies.follow import is_wide

    wide = [row for row in found if row.runs >= most and is_wide(row, metric, width)]
    if wide:
        say(
            f"{len(wide)} of {len(found)} points {'is' if len(wide) == 1 else 'are'} not within {100 * width:g}% with "
            f"{most} seeds, which `--most-seeds` allows: {_named([row.varied for row in wide])}"
        )


def _named(varied: Sequence[dict[str, Any]]) -> str:
    """Points by what distinguishes them, each once and the first few alone."""
    known = list(
        dict.fromkeys(
            ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in values.items()) for values in varied
        )
    )
    return "; ".join(known[:MOST_NAMED]) + (f"; and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else "")


def _record(row: Row) -> dict[str, Any]:
    return {
        "varied": row.varied, "state": row.state, "message": row.message, "runs": row.runs, "metrics": row.means,
        "half_widths": row.halves, "folder": row.folder,
    }  # fmt: skip


def _show(study: Study, found: list[Row], metrics: tuple[str, ...]) -> None:
    """The rows in order of the first metric, the best marked; refused ones below."""
    from rich.table import Table

    from windtunnel.studies.rows import best, ranked
    from windtunnel.studies.study import short_names

    first = best(found, metrics[0])
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    short = short_names(study.varied_keys())
    for key in study.varied_keys():
        table.add_column(short.get(key, key), overflow="fold")
    for path in metrics:
        table.add_column(path.removeprefix("jobs[0]."), justify="right", overflow="fold")
    table.add_column("")
    for i in ranked(found, metrics[0]):
        row = found[i]
        cells = [str(row.varied.get(key, "")) for key in study.varied_keys()]
        cells += [_figure(row, path) for path in metrics]
        table.add_row(*cells, "best" if i == first else "", style="bold" if i == first else None)
    out().print(table)
    for row in found:
        if row.state != "done":
            values = ", ".join(f"{key}={value}" for key, value in row.varied.items())
            out().print(f"{row.state}: {values}: {row.message}", markup=False, style="dim")


def _figure(row: Row, path: str) -> str:
    from windtunnel.words import figure_text

    mean, half = row.means[path], row.halves[path]
    return figure_text(path, mean) + ("" if half is None else f" ± {figure_text(path, half)}")
