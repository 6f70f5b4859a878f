"""Points on worker processes of this machine.

Idle workers outlive their executor, for the next one of this process: a worker costs half a second to start, and who
asks often (a fit, a drain) asks for few runs each time. They end with the process.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from typing import IO

from windtunnel.engine import RunError
from windtunnel.studies.executor import Answer, Death, Task
from windtunnel.studies.memory import resident_bytes
from windtunnel.studies.worker import Mark

START = "import sys, json; sys.path[:] = json.loads(sys.argv[2]); from windtunnel.studies.worker import main; main()"
"""What a worker runs: it is told its pipe, where modules are, where it says which task it runs, and standard error."""

HEAVY = 1 << 30
"""A worker that keeps so many bytes after a run is replaced."""


LAST = 4096
"""Bytes that are read of what a worker said before it ended."""


_idle: list[_Worker] = []
"""Workers of executors that are closed."""


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    pipe: Connection
    mark: IO[bytes]
    """Where it says which task it runs."""
    said: IO[bytes]
    """What it says on standard error until it is ready."""
    tasks: deque[Task] = field(default_factory=deque)
    """Those that are not answered, in the order in which they are run."""
    since: float = 0.0
    """When it began the first of them, or was ready for it."""
    ready: bool = False
    """Whether it has started, which it says by an empty list of answers."""

    def under_way(self) -> int | None:
        """The task that it began last."""
        found = os.pread(self.mark.fileno(), Mark.size, 0)
        return Mark.unpack(found)[0] if len(found) == Mark.size else None

    def close(self) -> None:
        """Lets it end."""
        self.pipe.close()
        self.mark.close()
        self.said.close()


def _hired() -> _Worker:
    with ExitStack() as undone:
        here, there = Pipe()
        undone.enter_context(here)
        # Not by `multiprocessing`, which would import the user's own script in each worker.
        mark, said = (undone.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        talk = _standard_error()
        given = [there.fileno(), mark.fileno(), talk]
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", START, str(given[0]), json.dumps(sys.path), str(given[1]), str(given[2])],
                pass_fds=given,
                stdin=subprocess.DEVNULL,
                stderr=said,
            )
        except OSError as error:
            raise _no_start((error.strerror or str(error)).lower()) from None
        finally:
            os.close(talk)
            there.close()
        undone.pop_all()  # they live as long as the worker
    return _Worker(process, here, mark, said)


def _standard_error() -> int:
    """A further number for standard error, which a worker takes up when it is ready."""
    try:
        return os.dup(2)
    except OSError:  # it is closed
        return os.open(os.devnull, os.O_WRONLY)


def _last_line(file: IO[bytes]) -> str:
    """What a process said at the end: of a traceback, the error."""
    size = os.fstat(file.fileno()).st_size
    text = os.pread(file.fileno(), LAST, max(0, size - LAST)).decode("utf-8", "replace")
    return text.strip().rpartition("\n")[2]


def _no_start(why: str) -> RunError:
    return RunError(
        f"cannot start a process for the runs: {why}\n\n"
        f"hint: it is `{sys.executable}`, with this Windtunnel; what is done by now is kept"
    )


class LocalExecutor:
    """Processes of this machine, each with one run at a time; hired as they are needed."""

    local = True

    def __init__(self, most: int | None = None) -> None:
        self.most = max(1, most or cores())
        self._workers: list[_Worker] = []

    def start(self, tasks: list[Task]) -> None:
        """Begins the first of `tasks` on an idle worker."""
        worker = next((w for w in self._workers if not w.tasks), None) or self._hire()
        worker.tasks.extend(tasks)
        worker.since = time.monotonic()
        try:
            worker.pipe.send(tasks)
        except OSError:
            return  # it died idle, which `wait` finds

    def _hire(self) -> _Worker:
        while _idle:
            kept = _idle.pop()
            if kept.process.poll() is None:
                self._workers.append(kept)
                return kept
            kept.close()
        worker = _hired()
        self._workers.append(worker)
        return worker

    def wait(self, seconds: float) -> list[Answer | Death]:
        """What ended since the last call, waiting for it at most so long."""
        busy = {worker.pipe: worker for worker in self._workers if worker.tasks}
        found: list[Answer | Death] = []
        for pipe in wait(list(busy), timeout=seconds):
            if isinstance(pipe, Connection):
                found += self._hear(busy[pipe])
        return found

    def _hear(self, worker: _Worker) -> list[Answer | Death]:
        found: list[Answer | Death] = []
        try:
            while worker.tasks and worker.pipe.poll():
                answers: list[Answer] = worker.pipe.recv()
                worker.ready = True
                found += answers
                for _ in answers:
                    worker.tasks.popleft()
                worker.since = time.monotonic()
        except (EOFError, OSError):
            found.append(self._bury(worker))
            return found
        if not worker.tasks and resident_bytes(worker.process.pid) > HEAVY:
            self._dismiss(worker)
        return found

    def _bury(self, worker: _Worker) -> Death:
        marked, said = worker.under_way(), _last_line(worker.said)
        self._dismiss(worker)
        code = worker.process.returncode
        if not worker.ready and code > 0:  # the next one would fare no better
            raise _no_start(said or f"it ended with exit status {code}")
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        numbers = [task.number for task in worker.tasks]
        running = marked if marked in numbers else numbers[0]
        return Death(running, how, tuple(number for number in numbers if number != running))

    def _dismiss(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.close()
        worker.process.kill()
        worker.process.wait()

    def running(self) -> dict[int, float]:
        """Numbers of the tasks that run now, with the seconds for which they have; 0 of one whose process starts."""
        now = time.monotonic()
        return {w.tasks[0].number: now - w.since if w.ready else 0.0 for w in self._workers if w.tasks}

    def used_bytes(self, number: int) -> int:
        """What the process that runs `number` has in memory."""
        worker = self._with(number)
        return 0 if worker is None else resident_bytes(worker.process.pid)

    def _with(self, number: int) -> _Worker | None:
        return next((w for w in self._workers if w.tasks and w.tasks[0].number == number), None)

    def stop(self, number: int) -> list[int]:
        """Ends the run of `number` and forgets it; returns the tasks that waited behind it."""
        worker = self._with(number)
        if worker is None:
            return []
        behind = [task.number for task in worker.tasks][1:]
        self._dismiss(worker)
        return behind

    def close(self) -> None:
        """Ends workers whose runs are undone, and keeps the others for the next executor."""
        for worker in list(self._workers):
            if worker.tasks or len(_idle) >= cores():
                self._dismiss(worker)
            else:
                _idle.append(worker)
        self._workers.clear()


def end_idle() -> None:
    """Ends the workers that wait for a next executor."""
    while _idle:
        worker = _idle.pop()
        worker.close()
        worker.process.wait()


atexit.register(end_idle)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
