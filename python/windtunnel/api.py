"""Running scenarios from Python: `run`, `resume` and `load`."""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import weakref
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.bill import with_bill
from windtunnel.given import override_pairs, plain_options
from windtunnel.interrupts import interruptible
from windtunnel.policies import class_name, engine_options
from windtunnel.progress import WRITING, with_phases
from windtunnel.results import Result
from windtunnel.results.folder import check_name, check_replaceable, default_name, written_beside
from windtunnel.results.journal import journal_of, kept_if_of_use, request_text, unfinished
from windtunnel.results.manifest import manifest
from windtunnel.source import Source, read_source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windtunnel._engine import Gate, Progress, RunOptions
    from windtunnel.policies import Placement, Scheduler
    from windtunnel.progress import AnyProgress

RUNS = Path("runs")
"""Folder of the runs whose place was not given."""


def load(path: str | Path) -> Result:
    """The run in folder `path`. Raises `InputError` if it is none."""
    return Result(path)


def run(
    scenario: str | Path | Mapping[str, Any],
    *,
    fidelity: str | None = None,
    seed: int | None = None,
    threads: int | None = None,
    overrides: Mapping[str, object] | None = None,
    full: bool = False,
    scheduler: str | type[Scheduler] | None = None,
    placement: str | type[Placement] | None = None,
    allow_native: bool = False,
    out: str | Path | None = None,
    progress: AnyProgress | None = None,
    gate: Gate | None = None,
) -> Result:
    """Runs a scenario and returns what it found.

    `scenario` is a path, YAML text or a mapping. `overrides` sets keys by path, as `--set` does:
    `{"jobs[0].parallelism.tp": 4}`. `full` simulates every iteration and records every rank. `scheduler` and
    `placement` are classes of one's own, as such or as `FILE.py:CLASS` (`windtunnel.policies`). `allow_native` lets the
    library of `network.backend` run in this process (`windtunnel.native`). The run folder is `out`, or a temporary one
    that lives as long as the result. `progress` is called about five times a second with the fraction done of the
    present phase (None if unknown), the simulated time in seconds, the number of events so far, and, if it takes four
    arguments, the phase: `preparing`, `ideal fabric` (the run for comparison), `simulating`, `writing`. With three it
    hears fractions of `simulating` alone.

    Raises `InputError` on a bad scenario, `RunError` when the run fails, and whatever `progress` raises, which stops
    the run. Ctrl-C, SIGTERM and SIGHUP give a partial result (`summary["partial"]`) as soon as the engine heeds them;
    one that comes when it is done raises `KeyboardInterrupt`. A run whose folder `out` names can go on after that, or
    after it was killed: see `resume`. `gate` moves the run's clock: see `Simulation`.
    """
    source = read_source(scenario)
    pairs = override_pairs(overrides)
    options: RunOptions = {
        "threads": threads,
        "seed": seed,
        "fidelity": fidelity,
        "full": full,
        "explain": False,
        "scheduler": scheduler,
        "placement": placement,
        "allow_native": allow_native,
    }
    return run_anywhere(source, pairs, plain_options(options), out=out, progress=progress, gate=gate)


def run_anywhere(
    source: Source,
    overrides: list[tuple[str, str]],
    options: RunOptions,
    *,
    out: str | Path | None,
    progress: AnyProgress | None,
    plan: engine.Plan | None = None,
    gate: Gate | None = None,
) -> Result:
    """Runs `source` into `out`, or into a temporary folder that lives as long as the result."""
    if out is not None:
        target = Path(out)
        return run_source(
            source, overrides, options, target=target, progress=progress, plan=plan, gate=gate, journal=True
        )
    folder = tempfile.mkdtemp(prefix="windtunnel-")
    try:
        target = Path(folder) / "run"
        result = run_source(source, overrides, options, target=target, progress=progress, plan=plan, gate=gate)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(result, shutil.rmtree, folder, ignore_errors=True)
    return result


def resume(
    folder: str | Path,
    *,
    threads: int | None = None,
    scheduler: str | type[Scheduler] | None = None,
    placement: str | type[Placement] | None = None,
    progress: AnyProgress | None = None,
) -> Result:
    """Goes on with the run that was to have `folder` and was stopped or killed; returns what it found.

    What it comes to is, to the byte, what it would have come to undisturbed. All that the run was asked for is known
    but classes: a `scheduler` or `placement` that was given as one is given again. `threads` may be others.

    Raises `InputError` if no journal of such a run is there, or if what it was made from has changed since.
    """
    left = unfinished(Path(folder), scheduler=scheduler, placement=placement)
    options = plain_options({**left.options, "threads": threads})
    return run_source(left.source, left.overrides, options, target=left.target, progress=progress, going_on=True)


def run_source(
    source: Source,
    overrides: list[tuple[str, str]],
    options: RunOptions,
    *,
    target: Path | None,
    progress: AnyProgress | None = None,
    finish: Callable[[Result], None] | None = None,
    plan: engine.Plan | None = None,
    gate: Gate | None = None,
    journal: bool = False,
    going_on: bool = False,
) -> Result:
    """Runs `source` into the folder `target`, by default `runs/NAME-FIDELITY`.

    `finish` may add files to the folder before it gets its place. With `journal` the run keeps a file beside its folder
    until it has ended, with which it can go on if it is killed; `going_on` says that it does. `plan` is what `source`
    comes to, if that was made before.
    """
    tell = with_phases(progress)
    name, where = _folder_name(source, overrides, options, target)
    check_name(name, where)
    if target is not None:
        check_replaceable(target)
    parent = RUNS if target is None else target.absolute().parent
    with ExitStack() as heeding, ExitStack() as folder:
        # Heeded before there is anything to lose, and until the engine has ended.
        interrupts = heeding.enter_context(interruptible())
        fresh, place = folder.enter_context(written_beside(parent))
        interrupts.made = fresh
        given = {**engine_options(options), "gate": gate}
        final = target or (parent / name if name else None)
        kept = journal_of(final) if final is not None and (journal or going_on) else None
        interrupts.journal = kept
        folder.enter_context(kept_if_of_use(kept))
        if final is not None and going_on:
            given["resume"] = str(kept)
        elif final is not None and journal:
            given["journal"] = (
                str(kept),
                request_text(source, overrides, options, final, report=finish is not None),
            )
        with engine.TableWriter(fresh) as writer:
            told = interrupts.raising(tell)
            try:
                text = _simulated(source, overrides, given, writer, told, plan)
            except (engine.InputError, engine.RunError):
                # It would fail again. A journal that was there already is the user's.
                if kept is not None and not going_on:
                    kept.unlink(missing_ok=True)
                raise
            # Who has raised is not called again.
            if interrupts.raised is None:
                tell(0.0, 0.0, 0, WRITING)
        heeding.close()
        if interrupts.raised is not None:
            raise interrupts.raised
        text, summary = with_bill(text, source, overrides)
        tell(0.5, 0.0, 0, WRITING)
        asked = {key: class_name(value) if isinstance(value, type) else value for key, value in options.items()}
        record = manifest(summary, source=source.name, overrides=overrides, options=asked, rows=writer.rows)
        record["interrupted_by"] = signal.Signals(interrupts.number).name if summary["partial"] else None
        (fresh / "summary.json").write_text(text.rstrip("\n") + "\n", encoding="utf-8")
        (fresh / "manifest.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        (fresh / "scenario.yaml").write_text(source.text, encoding="utf-8")
        if finish is not None:
            finish(Result(fresh))
            tell(1.0, 0.0, 0, WRITING)
        if target is None:
            target = parent / default_name(str(summary["scenario"]), str(summary["fidelity"]))
        place(target)
        if kept is not None and not summary["partial"]:
            kept.unlink(missing_ok=True)
    interrupts.raise_unheeded()
    return Result(target)


def _simulated(
    source: Source,
    overrides: list[tuple[str, str]],
    given: dict[str, Any],
    writer: engine.TableWriter,
    tell: Progress,
    plan: engine.Plan | None,
) -> str:
    """The summary of a run, as JSON text."""
    if plan is not None:
        return plan.run(given, writer, tell)
    return engine.run(source.text, source.name, str(source.base), overrides, given, writer, tell)


def _folder_name(
    source: Source, overrides: list[tuple[str, str]], options: RunOptions, target: Path | None
) -> tuple[str, str]:
    """The name of the run's folder, and what says so. A scenario that is none is refused by the engine, not here."""
    if target is not None:
        return target.name, "--out"
    try:
        tree = json.loads(engine.scenario_tree(source.text, source.name, overrides))
    except engine.InputError:
        return "", source.name
    name, fidelity = (str(tree.get(key, "")) if isinstance(tree, dict) else "" for key in ("name", "fidelity"))
    return default_name(name, options.get("fidelity") or fidelity), f"{source.name}: name"
