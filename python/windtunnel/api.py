"""Running scenarios from Python: `run` and `load`."""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import threading
import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.policies import engine_options
from windtunnel.results import Result, TableWriter
from windtunnel.results.folder import check_replaceable, default_name, written_beside
from windtunnel.results.manifest import manifest
from windtunnel.source import Source, override_text, read_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

    from windtunnel._engine import Progress, RunOptions

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
    scheduler: str | None = None,
    placement: str | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Runs a scenario and returns what it found.

    `scenario` is a path, YAML text or a mapping. `overrides` sets keys by path, as `--set` does:
    `{"jobs[0].parallelism.tp": 4}`. `full` simulates every iteration and records every rank. `scheduler` and
    `placement` are classes of one's own, `FILE.py:CLASS` (`windtunnel.policies`). The run folder is `out`,
    or a temporary one that lives as long as the result. `progress` is called about five times a second with the
    fraction done (None if unknown), the simulated time in seconds, and the number of events so far.

    Raises `InputError` on a bad scenario, `RunError` when the run fails. Ctrl-C gives a partial result
    (`summary["partial"]`).
    """
    source = read_source(scenario)
    pairs = [(path, override_text(value)) for path, value in (overrides or {}).items()]
    options: RunOptions = {
        "threads": threads,
        "seed": seed,
        "fidelity": fidelity,
        "full": full,
        "explain": False,
        "scheduler": scheduler,
        "placement": placement,
    }
    if out is not None:
        return run_source(source, pairs, options, target=Path(out), progress=progress)
    folder = tempfile.mkdtemp(prefix="windtunnel-")
    try:
        result = run_source(source, pairs, options, target=Path(folder) / "run", progress=progress)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(result, shutil.rmtree, folder, ignore_errors=True)
    return result


def run_source(
    source: Source,
    overrides: list[tuple[str, str]],
    options: RunOptions,
    *,
    target: Path | None,
    progress: Progress | None = None,
    finish: Callable[[Result], None] | None = None,
) -> Result:
    """Runs `source` into the folder `target`, by default `runs/NAME-FIDELITY`.

    `finish` may add files to the folder before it gets its place.
    """
    if target is not None:
        check_replaceable(target)
    parent = RUNS if target is None else target.absolute().parent
    with written_beside(parent) as (fresh, place):
        with TableWriter(fresh) as writer, _interruptible() as interrupts:
            text = engine.run(
                source.text,
                source.name,
                str(source.base),
                overrides,
                engine_options(options),
                writer.sink,
                interrupts.raising(progress),
            )
        summary = json.loads(text)
        record = manifest(summary, source=source.name, overrides=overrides, options=dict(options), rows=writer.rows)
        (fresh / "summary.json").write_text(text.rstrip("\n") + "\n", encoding="utf-8")
        (fresh / "manifest.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        (fresh / "scenario.yaml").write_text(source.text, encoding="utf-8")
        if finish is not None:
            finish(Result(fresh))
        if target is None:
            target = parent / default_name(str(summary["scenario"]), str(summary["fidelity"]))
        place(target)
    return Result(target)


class _Interrupts:
    """Ctrl-C waits for the next call of `progress`, where it raises: a batch of rows is never torn.

    A second one, before that, raises where it comes and leaves no result.
    """

    def __init__(self) -> None:
        self._pending = False
        self.torn = False

    def handle(self, _signal: int, _frame: FrameType | None) -> None:
        if self._pending:
            self.torn = True
            raise KeyboardInterrupt
        self._pending = True

    def raising(self, progress: Progress | None) -> Progress:
        def raising_progress(fraction: float | None, simulated_s: float, events: int) -> None:
            if self._pending:
                self._pending = False
                raise KeyboardInterrupt
            if progress is not None:
                progress(fraction, simulated_s, events)

        return raising_progress


@contextmanager
def _interruptible() -> Iterator[_Interrupts]:
    interrupts = _Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    before = signal.signal(signal.SIGINT, interrupts.handle)
    try:
        yield interrupts
    except (engine.InputError, engine.RunError):
        # Raised inside a policy, it comes back as that one's failure.
        if interrupts.torn:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
