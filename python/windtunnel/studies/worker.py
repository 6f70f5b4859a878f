"""A worker process: takes tasks from a pipe, runs each and leaves its folder. It dies with its parent.

Life cycle of a task: begun, run, written down (its folder gets its place), answered. Of short runs up to `SHORT_S`
processor seconds are written down together, so a worker that is killed loses at most so much, which is run again.

Invariants: an answer that says `done` comes after its folder is in place; answers come in the order of tasks.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import struct
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.studies.executor import Answer, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from windtunnel.engine import TableWriter
    from windtunnel.studies.folders import Written
    from windtunnel.studies.point import Point, State
    from windtunnel.studies.recipe import Digests

PR_SET_PDEATHSIG = 1


SHORT_S = 0.2
"""Processor seconds of runs whose results a worker holds before it writes them down."""

PATIENCE_S = 1.0
"""Seconds for which it holds them at most, however little of the processors it has."""

Mark = struct.Struct("<q")
"""The number of the task under way, where a parent finds it whatever becomes of the worker."""


def main() -> None:
    """Serves the pipe whose number is the first argument; the third one's file gets the number of each task.

    The fourth is standard error, for when it is ready: until then the parent has what is said, and says it once.
    """
    from multiprocessing.connection import Connection

    serve(Connection(int(sys.argv[1])), int(sys.argv[3]), int(sys.argv[4]))


def serve(pipe: Connection, mark: int, talk: int) -> None:
    """Runs what `pipe` gives until it is closed, and answers all tasks of a list in their order, some at a time.

    An empty answer comes first, when it is ready.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    digests = known_digests()
    _import()
    os.dup2(talk, 2)
    os.close(talk)
    try:
        pipe.send([])
        while True:
            tasks: list[Task] | None = pipe.recv()
            if tasks is None:
                return
            for answers in performed(tasks, digests, lambda task: os.pwrite(mark, Mark.pack(task.number), 0)):
                pipe.send(answers)
    except (EOFError, OSError):
        return


def performed(tasks: list[Task], digests: Digests, begin: Callable[[Task], object]) -> Iterator[list[Answer]]:
    """Answers of `tasks`, in their order, as they are known; `begin` hears of each task before it is run.

    What short runs come to is written down together: between two runs of the engine nothing of Python is in the
    processor's caches, and each file, text and hash costs thrice of what it costs beside its like.
    """
    held: list[_Ran | Answer] = []
    since, cpu = time.monotonic(), time.process_time()
    for task in tasks:
        begin(task)
        held.append(_simulated_or_refused(task) if _may_wait(task) else perform(task, digests))
        took, waited = time.process_time() - cpu, time.monotonic() - since
        if not _may_wait(task) or took >= SHORT_S or waited >= PATIENCE_S:
            yield [_settled(one, digests) for one in held]
            held, since, cpu = [], time.monotonic(), time.process_time()
    if held:
        yield [_settled(one, digests) for one in held]


def _may_wait(task: Task) -> bool:
    """Whether all that is left of a run is its summary, and its scenario's folder stays."""
    return not task.tables and not task.point.explain and not task.point.files


def _import() -> None:
    """What every run needs, so that no run's time has it."""
    from windtunnel import bill, engine
    from windtunnel.studies import folders, inputs, recipe

    _ = bill, engine, folders, inputs
    recipe.build()


@cache
def known_digests() -> Digests:
    """Digests that this process has worked out."""
    from windtunnel.studies.recipe import Digests

    return Digests()


_Finished = tuple[str, str, tuple[tuple[str, str], ...], dict[str, Any]]
"""Summary, meaning, files read, and what the index has of the summary."""


@dataclass(frozen=True)
class _Ran:
    """A run that is not written down."""

    task: Task
    text: str
    begun: float
    begun_ns: int
    wall_s: float
    cpu_s: float


def perform(task: Task, digests: Digests) -> Answer:
    """Runs a task and leaves its folder; what goes wrong is an answer like any other."""
    return _settled(_simulated_or_refused(task, digests), digests)


def _simulated_or_refused(task: Task, digests: Digests | None = None) -> _Ran | Answer:
    """Runs a task; one whose folder has more than its summary is written down at once, by `digests`."""
    wall, cpu, begun, begun_ns = time.monotonic(), time.process_time(), time.time(), time.time_ns()
    outcome: str | _Finished
    try:
        if _may_wait(task):
            outcome = _simulated(task, task.point.source.base, None)
        else:
            outcome = _whole(task, digests or known_digests(), begun, begun_ns)
    except Exception as error:  # noqa: BLE001
        return _failed(task, error, (time.monotonic() - wall, time.process_time() - cpu), begun)
    took = (time.monotonic() - wall, time.process_time() - cpu)
    if isinstance(outcome, str):
        return _Ran(task, outcome, begun, begun_ns, *took)
    return _done(task, outcome, took, begun)


def _settled(ran: _Ran | Answer, digests: Digests) -> Answer:
    """Writes a run down, unless it is."""
    if isinstance(ran, Answer):
        return ran
    from windtunnel.studies.folders import written

    task = ran.task
    wall, cpu = time.monotonic(), time.process_time()
    try:
        with written(task.place, ran.begun) as folder:
            found = _finished(task, folder, task.point.source.base, ran.text, {}, digests, ran.begun_ns)
    except Exception as error:  # noqa: BLE001
        took = (ran.wall_s + time.monotonic() - wall, ran.cpu_s + time.process_time() - cpu)
        return _failed(task, error, took, ran.begun)
    took = (ran.wall_s + time.monotonic() - wall, ran.cpu_s + time.process_time() - cpu)
    return _done(task, found, took, ran.begun)


def _done(task: Task, found: _Finished, took: tuple[float, float], begun: float) -> Answer:
    text, meant, read, listed = found
    return Answer(task.number, "done", text, None, *took, meant, read, begun=begun, listed=listed)


def _failed(task: Task, error: Exception, took: tuple[float, float], begun: float) -> Answer:
    """What a run's exception says; one that is a defect is raised."""
    from windtunnel.engine import InputError, RunError

    state: State = "failed"
    full = False
    if isinstance(error, InputError):
        state, message = "refused", str(error)
    elif isinstance(error, RunError):
        message = str(error)
    elif isinstance(error, MemoryError):
        message = "no memory left"
    elif isinstance(error, OSError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        message = f"cannot write `{error.filename or task.place}`: {error.strerror}"
    else:
        raise error
    return Answer(task.number, state, None, message, *took, full_disk=full, begun=begun)


def _whole(task: Task, digests: Digests, begun: float, begun_ns: int) -> _Finished:
    """Runs a task and writes it down: its folder is there before it runs, for its tables."""
    from windtunnel.studies.folders import written

    with _base(task.point) as base, written(task.place, begun) as folder:
        rows: dict[str, int] = {}
        if task.point.explain:
            text = _explained(task, base)
        elif task.tables:
            from windtunnel.engine import TableWriter

            with TableWriter(folder.path) as writer:
                text = _simulated(task, base, writer)
            rows = writer.rows
        else:
            text = _simulated(task, base, None)
        return _finished(task, folder, base, text, rows, digests, begun_ns)


def _finished(
    task: Task, folder: Written, base: Path, text: str, rows: dict[str, int], digests: Digests, begun_ns: int
) -> _Finished:
    """What the folder has; it is in place when this returns."""
    from windtunnel.bill import cost_text, with_cost
    from windtunnel.engine import members
    from windtunnel.studies.folders import SUMMARY, columns
    from windtunnel.studies.inputs import UNKNOWN, named, read_by
    from windtunnel.studies.recipe import meaning, scenario_text

    point = task.point
    tree = scenario_text(point)
    summary: dict[str, Any] = json.loads(members(text, SUMMARY))
    own = {name for name, _ in point.files}
    if point.explain:  # which does not say what it read
        known = [(path.as_posix(), digests.of(base / path)) for path in named(point.source, point.overrides)]
        found = [(name, digest or UNKNOWN) for name, digest in known]
    else:
        cost = cost_text(point.source.name, base, tree, summary)
        text = text if cost is None else with_cost(text, cost)
        found = read_by(summary, base, digests, begun_ns)
    read = [one for one in found if one[0] not in own]
    meant = meaning(point, tree)
    folder.finish(point, text, summary, meant, read, rows, tables=task.tables)
    return text, meant, tuple(read), columns(summary)


@contextmanager
def _base(point: Point) -> Iterator[Path]:
    """The folder in which the scenario finds its files."""
    from windtunnel.engine import InputError

    if not point.files:
        yield point.source.base
        return
    with tempfile.TemporaryDirectory(prefix="windtunnel-") as made:
        for name, text in point.files:
            if Path(name).name != name:
                raise InputError(f"expected the name of a file beside the scenario, found `{name}`")
            (Path(made) / name).write_text(text, encoding="utf-8")
        yield Path(made)


def _options(task: Task) -> dict[str, object]:
    point = task.point
    return {"threads": task.threads, "seed": point.seed, "fidelity": point.fidelity, "full": point.full}


def _simulated(task: Task, base: Path, sink: TableWriter | None) -> str:
    from windtunnel import engine

    point, source = task.point, task.point.source
    options = _options(task)
    if point.policies or _may_be_native(point):
        from windtunnel.policies import engine_options

        options = engine_options({**options, **dict(point.policies)})
    return engine.run(source.text, source.name, str(base), list(point.overrides), options, sink, _quiet)


def _may_be_native(point: Point) -> bool:
    """Whether it may name a library, which the list of trusted files may let run (`windtunnel.native`)."""
    return "backend" in point.source.text or any("backend" in path for path, _ in point.overrides)


def _explained(task: Task, base: Path) -> str:
    from windtunnel import engine

    point, source = task.point, task.point.source
    return engine.explain(source.text, source.name, str(base), list(point.overrides), _options(task))


def _quiet(*_: object) -> None:
    """Progress that nobody watches; a parent that is gone ends the worker here on other systems than Linux."""
    if sys.platform != "linux" and os.getppid() == 1:
        os._exit(1)
