"""`windtunnel run`."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from windtunnel.cli.app import DONE, FAILED, INTERRUPTED
from windtunnel.cli.console import say
from windtunnel.cli.declare import Argument, Commands, Option
from windtunnel.engine import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windtunnel._engine import RunOptions
    from windtunnel.comparison import Comparison
    from windtunnel.results import Result
    from windtunnel.source import Source
    from windtunnel.studies.point import State

app = Commands()


@app.command()
def run(
    scenario: Annotated[
        Path | None,
        Argument(
            help="Scenario file (YAML), `-` for standard input; with --compare also a run folder.",
            metavar="SCENARIO",
            show_default=False,
        ),
    ] = None,
    fidelity: Annotated[str | None, Option(help="job, message, flow or packet, instead of the file's.")] = None,
    overrides: Annotated[
        list[str] | None,
        Option("--set", metavar="PATH=VALUE", help="Set a key, such as `jobs[0].parallelism.tp=4`. Repeatable."),
    ] = None,
    threads: Annotated[int | None, Option(min=1, help="Threads; the result does not depend on it.")] = None,
    seed: Annotated[int | None, Option(min=0, max=2**64 - 1, help="Seed, instead of the file's.")] = None,
    out: Annotated[Path | None, Option(help="Run folder (default: runs/NAME-FIDELITY).")] = None,
    json: Annotated[bool, Option("--json", help="Print the summary as JSON and nothing else.")] = False,
    explain: Annotated[
        bool, Option("--explain", help="Print layers, bytes, FLOPs, memory and schedule; do not run.")
    ] = False,
    compare: Annotated[
        Path | None,
        Option(metavar="RUN", help="Compare with an earlier run, or with a scenario run as it is written."),
    ] = None,
    resume: Annotated[
        Path | None,
        Option(metavar="FOLDER", help="Go on with the run that was to have FOLDER and was killed or stopped."),
    ] = None,
    full: Annotated[bool, Option("--full", help="Simulate every iteration and record every rank.")] = False,
    check_determinism: Annotated[
        bool,
        Option("--check-determinism", help="Run twice, with other threads; fail at the first difference."),
    ] = False,
    scheduler: Annotated[
        str | None, Option(help="Scheduler, instead of the file's: a name, or FILE.py:CLASS of your own.")
    ] = None,
    placement: Annotated[
        str | None, Option(help="Placement of all jobs, instead of the file's: a name, or FILE.py:CLASS.")
    ] = None,
    lenient: Annotated[
        bool, Option("--lenient", help="Leave out rows of a job log that have holes, and count them.")
    ] = False,
    layout: Annotated[
        str | None,
        Option(metavar="auto", help="auto: lay the first job out as is fastest (`windtunnel layouts`)."),
    ] = None,
    allow_native: Annotated[
        bool, Option("--allow-native", help="Let the library of `network.backend` run in this process.")
    ] = False,
    report: Annotated[bool, Option(help="Write the HTML report and the trace into the run folder.")] = True,
) -> int:
    """Run SCENARIO and say where the time of an iteration goes."""
    from windtunnel.policies import is_own
    from windtunnel.source import read_source

    pairs = [parse_override(text) for text in overrides or []]
    own = scheduler if scheduler is not None and is_own(scheduler) else None
    if scheduler is not None and own is None:
        pairs.append(("cluster.scheduler", scheduler))
    options: RunOptions = {
        "threads": threads,
        "seed": seed,
        "fidelity": fidelity,
        "full": full,
        "explain": explain,
        "scheduler": own,
        "placement": placement,
        "allow_native": allow_native,
    }
    if resume is not None:
        _check_alone(
            {
                "SCENARIO": scenario is not None,
                "--fidelity": fidelity is not None,
                "--set": bool(overrides),
                "--seed": seed is not None,
                "--out": out is not None,
                "--explain": explain,
                "--compare": compare is not None,
                "--full": full,
                "--check-determinism": check_determinism,
                "--scheduler": scheduler is not None,
                "--placement": placement is not None,
                "--lenient": lenient,
                "--allow-native": allow_native,
                "--layout": layout is not None,
            }
        )
        result = _resumed(resume, threads, report=report)
        _list(result, anyway=False)
        return _told(result, as_json=json)
    if scenario is None:
        raise InputError("missing argument `SCENARIO`\n\nhint: `windtunnel run --help` shows how it is used")
    if compare is not None and _is_run(scenario) and not (explain or check_determinism or lenient or layout or pairs):
        show_result(_open(scenario), _comparison(_open(scenario), compare, _earlier(compare), threads), as_json=json)
        return DONE
    source = read_source(scenario)
    if lenient:
        _add_lenient(source, pairs)
    if layout is not None:
        pairs += _layout(layout, source, pairs)
    if explain:
        return _explain(source, pairs, options, as_json=json)
    # Read before the run, which may take its place.
    earlier = None if compare is None else _earlier(compare)
    with _failure_listed(source, pairs, options, out):
        result = _run(source, pairs, options, out=out, report=report)
    _list(result, anyway=out is None)
    _warn(result)
    comparison = None
    if compare is not None and earlier is not None and not result.summary["partial"]:
        comparison = _comparison(result, compare, earlier, threads)
    status = _told(result, comparison, as_json=json, warned=True)
    return _check(result, source, pairs, options) if check_determinism and status == DONE else status


def _check_alone(others: dict[str, bool]) -> None:
    """Refuses what `--resume` cannot heed: the run is what it was asked to be when it was begun."""
    given = [name for name, is_given in others.items() if is_given]
    if given:
        raise InputError(
            f"--resume: a run goes on as it was begun, found `{given[0]}` beside it\n\n"
            "hint: `--threads`, `--json` and `--no-report` may be given; else run the scenario anew"
        )


def _resumed(folder: Path, threads: int | None, *, report: bool) -> Result:
    from windtunnel.api import run_source
    from windtunnel.cli.progress import progress
    from windtunnel.results.journal import unfinished

    left = unfinished(folder)
    options: RunOptions = {**left.options, "threads": threads}
    finish = add_views if report and left.report else None
    with progress() as callback:
        return run_source(
            left.source,
            left.overrides,
            options,
            target=left.target,
            progress=callback,
            finish=finish,
            going_on=True,
        )


def _warn(result: Result) -> None:
    for job in result.summary["jobs"]:
        for warning in job.get("warnings", []):
            say(f"warning: {warning}")
    for warning in result.summary.get("warnings", []):
        say(f"warning: {warning}")
    for warning in (result.summary["cluster"].get("log") or {}).get("warnings", []):
        say(f"warning: {warning}")


def _told(result: Result, comparison: Comparison | None = None, *, as_json: bool, warned: bool = False) -> int:
    """Shows a run that has ended; the exit status."""
    from windtunnel.results.journal import journal_of

    if not warned:
        _warn(result)
    show_result(result, comparison, as_json=as_json)
    if not result.summary["partial"]:
        return DONE
    on = "" if not journal_of(result.path).is_file() else f"; `windtunnel run --resume {result.path}` goes on with it"
    say(f"interrupted: the result is partial, `{result.path}`{on}")
    return interrupted_status(result.manifest.get("interrupted_by"))


@contextmanager
def _failure_listed(
    source: Source, pairs: list[tuple[str, str]], options: RunOptions, out: Path | None
) -> Iterator[None]:
    """Lists a run that is refused or fails, in the store in which its folder would be, if that is there."""
    import time

    from windtunnel.engine import RunError

    begun = time.time()
    try:
        yield
    except (InputError, RunError) as error:
        from windtunnel.api import RUNS
        from windtunnel.results.folder import default_name
        from windtunnel.studies.point import Point
        from windtunnel.studies.said import said
        from windtunnel.studies.store import list_failure

        point = Point(source, tuple(pairs), seed=options["seed"], fidelity=options["fidelity"])
        own = said(point)
        name = default_name(own["name"], own["fidelity"] or "") if own["name"] else Path(source.name).stem
        root, place = (RUNS, name) if out is None else (out.absolute().parent, out.name)
        state: State = "refused" if isinstance(error, InputError) else "failed"
        list_failure(root, place, point, state, str(error), begun, time.time() - begun)
        raise


def _list(result: Result, *, anyway: bool) -> None:
    """Lists the run in the store that it is in: one that is there, if not `anyway`."""
    from windtunnel.results.folder import INDEX

    if not anyway and not (result.path.absolute().parent / INDEX).is_file():
        return
    from windtunnel.studies.store import list_run

    complaint = list_run(result.path, anyway=anyway)
    if complaint is not None:
        say(f"warning: {complaint}")


def interrupted_status(name: str | None) -> int:
    """The exit status of a run that a signal has ended: 128 and its number, as shells have it."""
    import signal

    return INTERRUPTED if name is None else 128 + signal.Signals[name]


def _layout(asked: str, source: Source, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Overrides of `--layout`."""
    if asked != "auto":
        raise InputError(
            f"--layout: expected `auto`, found `{asked}`\n\nhint: `--set jobs[0].parallelism.tp=4` sets one of your own"
        )
    from windtunnel.cli.layouts import best_layout

    return best_layout(source, pairs)


def _add_lenient(source: Source, pairs: list[tuple[str, str]]) -> None:
    """Adds to `pairs` what `--lenient` says, which is of jobs that come from a log."""
    import json

    from windtunnel import engine

    tree = json.loads(engine.scenario_tree(source.text, source.name, pairs))
    if isinstance(tree, dict) and isinstance(tree.get("jobs"), list):
        raise InputError(
            "--lenient: expected jobs of a log, found a list of jobs\n\n"
            "hint: a log of faults has a key of its own: `--set cluster.faults[0].lenient=true`"
        )
    pairs.append(("jobs.lenient", "true"))


def parse_override(text: str) -> tuple[str, str]:
    """`PATH=VALUE` as a pair."""
    path, separator, value = text.partition("=")
    if not separator or not path.strip():
        raise InputError(
            f"--set: expected PATH=VALUE, found `{text}`\n\nhint: such as `--set jobs[0].parallelism.tp=4`"
        )
    return path.strip(), value.strip()


def _is_run(path: Path) -> bool:
    return (path / "summary.json").is_file()


def _open(path: Path) -> Result:
    """The run in a folder, read once to see that it is one."""
    from windtunnel.results import Result

    earlier = Result(path)
    earlier.check()
    _ = earlier.summary, earlier.manifest, earlier.scenario
    return earlier


def _earlier(path: Path) -> Result | Source:
    """What is compared with: the run in a folder, or a scenario."""
    from windtunnel.source import read_source

    return read_source(path) if path.is_file() else _open(path)


def _comparison(result: Result, path: Path, earlier: Result | Source, threads: int | None) -> Comparison:
    """Compares with a run, or with a scenario, which is run as it is written, or taken from the store if it was."""
    from windtunnel.api import RUNS
    from windtunnel.cli.study_progress import study_progress
    from windtunnel.comparison import compare
    from windtunnel.results import Result
    from windtunnel.studies.ask import opened, results
    from windtunnel.studies.point import Point
    from windtunnel.studies.runner import Limits

    if isinstance(earlier, Result):
        return compare(result, earlier)
    with opened(RUNS) as store, study_progress(1) as progress:
        (then,) = results([Point(earlier)], store, limits=Limits(threads=threads), progress=progress)
        return compare(result, then, then_name=str(path))


def show_result(result: Result, comparison: Comparison | None, *, as_json: bool) -> None:
    """Prints a run, and how it differs from another."""
    if not as_json:
        from windtunnel.cli.show_run import show

        show(result, comparison)
        return
    from windtunnel.cli.console import print_json

    text = (result.path / "summary.json").read_text(encoding="utf-8")
    if comparison is not None:
        import json

        text = json.dumps({**json.loads(text), "comparison": comparison.to_json()})
    print_json(text)


def _explain(source: Source, pairs: list[tuple[str, str]], options: RunOptions, *, as_json: bool) -> int:
    from windtunnel import engine
    from windtunnel.cli.console import print_json
    from windtunnel.policies import engine_options

    text = engine.explain(source.text, source.name, str(source.base), pairs, engine_options(options))
    if as_json:
        print_json(text)
    else:
        import json

        from windtunnel.cli.show_explain import show_explanation

        show_explanation(json.loads(text))
    return DONE


def _run(
    source: Source, pairs: list[tuple[str, str]], options: RunOptions, *, out: Path | None, report: bool
) -> Result:
    from windtunnel.api import run_source
    from windtunnel.cli.progress import progress

    with progress() as callback:
        return run_source(
            source,
            pairs,
            options,
            target=out,
            progress=callback,
            finish=add_views if report else None,
            journal=True,
        )


def add_views(result: Result) -> None:
    """Writes the report and the trace into the run folder."""
    from windtunnel.report import write_report
    from windtunnel.trace import write_trace

    write_report(result, result.path / "report.html")
    if "operations" in result.tables:
        write_trace(result, result.path / "trace.pftrace.gz")


def _check(result: Result, source: Source, pairs: list[tuple[str, str]], options: RunOptions) -> int:
    import tempfile

    from windtunnel.api import run_source
    from windtunnel.determinism import first_difference

    other: RunOptions = {**options, "threads": 2 if options["threads"] == 1 else 1}
    with tempfile.TemporaryDirectory(prefix="windtunnel-") as folder:
        again = run_source(source, pairs, other, target=Path(folder) / "again")
        difference = first_difference(result, again)
    if difference is None and result.summary["fidelity"] == "packet":
        from windtunnel import engine
        from windtunnel.policies import engine_options

        counts = (1, max(2, options["threads"] or 0))
        given = engine_options(options)
        difference = engine.compare_events(source.text, source.name, str(source.base), pairs, given, counts)
    if difference is None:
        say(f"deterministic: the same bytes with {options['threads'] or 'all'} and {other['threads']} threads")
        return DONE
    say(f"error: not deterministic: {difference}")
    return FAILED
