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
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from typing import IO

from windtunnel.studies.executor import Answer, Death, Task
from windtunnel.studies.memory import resident_bytes
from windtunnel.studies.worker import Mark

START = "import sys, json; sys.path[:] = json.loads(sys.argv[2]); from windtunnel.studies.worker import main; main()"
"""What a worker runs: it is told its pipe, where modules are found, and where it says which task it runs."""

HEAVY = 1 << 30
"""A worker that keeps so many bytes after a run is replaced."""


_idle: list[_Worker] = []
"""Workers of executors that are closed."""


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    pipe: Connection
    mark: IO[bytes]
    """Where it says which task it runs."""
    tasks: deque[Task] = field(default_factory=deque)
    """Those that are not answered, in the order in which they are run."""
    since: float = 0.0

    def under_way(self) -> int | None:
        """The task that it began last."""
        found = os.pread(self.mark.fileno(), Mark.size, 0)
        return Mark.unpack(found)[0] if len(found) == Mark.size else None

    def close(self) -> None:
        """Lets it end."""
        self.pipe.close()
        self.mark.close()


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
        here, there = Pipe()
        # Not by `multiprocessing`, which would import the user's own script in each worker.
        mark = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        process = subprocess.Popen(
            [sys.executable, "-c", START, str(there.fileno()), json.dumps(sys.path), str(mark.fileno())],
            pass_fds=[there.fileno(), mark.fileno()],
            stdin=subprocess.DEVNULL,
        )
        there.close()
        worker = _Worker(process, here, mark)
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
        marked = worker.under_way()
        self._dismiss(worker)
        code = worker.process.returncode
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
        """Numbers of the tasks that run now, with the seconds for which they have."""
        now = time.monotonic()
        return {worker.tasks[0].number: now - worker.since for worker in self._workers if worker.tasks}

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
