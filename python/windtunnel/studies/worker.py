"""A worker process: takes points from a pipe, runs each and leaves its folder. It dies with its parent."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windtunnel.studies.point import Outcome, Point, State

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Task:
    """A point, where its folder goes, and whether that has tables."""

    number: int
    point: Point
    place: Path
    tables: bool


def serve(pipe: Connection, memory_bytes: int | None) -> None:
    """Runs what `pipe` gives until it is closed; answers each task with its number and its outcome."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    while True:
        try:
            task: Task | None = pipe.recv()
        except (EOFError, OSError):
            return
        if task is None:
            return
        pipe.send((task.number, perform(task)))


def perform(task: Task) -> Outcome:
    """Runs a task; what goes wrong is an outcome like any other."""
    from windtunnel.engine import InputError, RunError
    from windtunnel.studies.inputs import inputs
    from windtunnel.studies.recipe import Digests

    wall, cpu = time.monotonic(), time.process_time()
    summary: dict[str, Any] | None = None
    read: list[tuple[str, str]] = []
    state: State = "done"
    message: str | None = None
    try:
        # Before the run: a file that changes meanwhile makes the result stale, and not the other way round.
        read = inputs(task.point, Digests())
        summary = _run(task, read)
    except InputError as error:
        state, message = "refused", _line(error)
    except RunError as error:
        state, message = "failed", _line(error)
    except MemoryError:
        state, message = "failed", "no memory left"
    except OSError as error:
        state, message = "failed", f"cannot write {error.filename or task.place}: {error.strerror}"
    spent = (time.monotonic() - wall, time.process_time() - cpu)
    folder = None if summary is None else task.place
    return Outcome(state, summary, message, folder, *spent, stored=False, inputs=tuple(read))


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _run(task: Task, read: list[tuple[str, str]]) -> dict[str, Any]:
    """The summary; the folder is in place when this returns."""
    from windtunnel import engine
    from windtunnel.results import TableWriter
    from windtunnel.results.folder import written_beside
    from windtunnel.results.manifest import manifest
    from windtunnel.studies.recipe import content_key, engine_build, recipe

    point = task.point
    source, overrides = point.source, list(point.overrides)
    options = {"threads": 1, "seed": point.seed, "fidelity": point.fidelity, "full": point.full}
    begun = time.time()
    with written_beside(task.place.parent) as (fresh, place):
        if task.tables:
            with TableWriter(fresh) as writer:
                text = engine.run(source.text, source.name, str(source.base), overrides, options, writer.sink, _quiet)
            rows = writer.rows
        else:
            text = engine.run(source.text, source.name, str(source.base), overrides, options, _dropped, _quiet)
            rows = {}
        summary: dict[str, Any] = json.loads(text)
        record = manifest(summary, source=source.name, overrides=overrides, options=options, rows=rows)
        record["study"] = {
            "recipe": recipe(point), "content": content_key(point, read), "inputs": read, "build": engine_build(),
            "varied": point.varied, "begun": begun,
        }  # fmt: skip
        (fresh / "summary.json").write_text(text.rstrip("\n") + "\n", encoding="utf-8")
        (fresh / "manifest.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        (fresh / "scenario.yaml").write_text(source.text, encoding="utf-8")
        place(task.place)
    return summary


def _dropped(_table: str, _columns: object) -> None:
    """Rows that nobody keeps."""


def _quiet(*_: object) -> None:
    """Progress that nobody watches; a parent that is gone ends the worker here on other systems than Linux."""
    if os.getppid() == 1 and sys.platform != "linux":
        os._exit(1)
