"""A worker process: takes tasks from a pipe, runs each and leaves its folder. It dies with its parent."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.studies.executor import Answer, Task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from windtunnel.engine import TableWriter
    from windtunnel.studies.point import Point
    from windtunnel.studies.recipe import Digests

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serves the pipe whose number is the first argument."""
    from multiprocessing.connection import Connection

    serve(Connection(int(sys.argv[1])))


def serve(pipe: Connection) -> None:
    """Runs what `pipe` gives until it is closed; answers each task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    digests = known_digests()
    _import()
    try:
        while True:
            tasks: list[Task] | None = pipe.recv()
            if tasks is None:
                return
            for task in tasks:
                pipe.send(perform(task, digests))
    except (EOFError, OSError):
        return


def _import() -> None:
    """What every run needs, so that no run's time has it."""
    from windtunnel import engine
    from windtunnel.studies import folders, inputs, recipe

    _ = engine, folders, inputs
    recipe.engine_build()


@cache
def known_digests() -> Digests:
    """Digests that this process has worked out."""
    from windtunnel.studies.recipe import Digests

    return Digests()


def perform(task: Task, digests: Digests) -> Answer:
    """Runs a task; what goes wrong is an answer like any other."""
    from windtunnel.engine import InputError, RunError

    wall, cpu, begun = time.monotonic(), time.process_time(), time.time()
    text = message = meant = None
    read: list[tuple[str, str]] = []
    state, full = "done", False
    try:
        text, meant, read = _run(task, digests, begun)
    except InputError as error:
        state, message = "refused", str(error)
    except RunError as error:
        state, message = "failed", str(error)
    except MemoryError:
        state, message = "failed", "no memory left"
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        state, message = "failed", f"cannot write `{error.filename or task.place}`: {error.strerror}"
    return Answer(
        task.number, state, text, message, time.monotonic() - wall, time.process_time() - cpu,  # type: ignore[arg-type]
        meant, tuple(read), full, begun,
    )  # fmt: skip


def _run(task: Task, digests: Digests, begun: float) -> tuple[str, str, list[tuple[str, str]]]:
    """Summary, meaning and files read; the folder is in place when this returns."""
    from windtunnel.bill import with_bill
    from windtunnel.studies.folders import written
    from windtunnel.studies.inputs import UNKNOWN, named, read_by
    from windtunnel.studies.recipe import meaning, scenario_tree

    point = task.point
    before_ns = time.time_ns()
    with _base(point) as base, written(task.place, begun) as folder:
        rows: dict[str, int] = {}
        if point.explain:
            text = _explained(task, base)
        elif task.tables:
            from windtunnel.engine import TableWriter

            with TableWriter(folder.path) as writer:
                text = _simulated(task, base, writer)
            rows = writer.rows
        else:
            text = _simulated(task, base, None)
        tree = scenario_tree(point)
        if point.explain:
            summary: dict[str, Any] = json.loads(text)
        else:
            text, summary = with_bill(text, replace(point.source, base=base), point.overrides, tree)
        own = {name for name, _ in point.files}
        if point.explain:  # which does not say what it read
            known = [(path.as_posix(), digests.of(base / path)) for path in named(point.source, point.overrides)]
            found = [(name, digest or UNKNOWN) for name, digest in known]
        else:
            found = read_by(summary, base, digests, before_ns)
        read = [one for one in found if one[0] not in own]
        meant = meaning(point, tree)
        folder.finish(point, text, summary, meant, read, rows, tables=task.tables)
    return text, meant, read


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
    if point.policies:
        from windtunnel.policies import engine_options

        options = engine_options({**options, **dict(point.policies)})
    return engine.run(source.text, source.name, str(base), list(point.overrides), options, sink, _quiet)


def _explained(task: Task, base: Path) -> str:
    from windtunnel import engine

    point, source = task.point, task.point.source
    return engine.explain(source.text, source.name, str(base), list(point.overrides), _options(task))


def _quiet(*_: object) -> None:
    """Progress that nobody watches; a parent that is gone ends the worker here on other systems than Linux."""
    if sys.platform != "linux" and os.getppid() == 1:
        os._exit(1)
