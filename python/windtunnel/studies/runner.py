"""The runner: many points on worker processes, as many at once as cores and memory allow; outcomes in order.

Life cycle of a point: asked of the store → handed to an idle worker → its folder placed by the worker → noted in the
store → given out, in the order of the points. A worker that dies is replaced; its point is run once more, alone, and
fails if it takes that one along too. Closing the generator (Ctrl-C) ends the workers and leaves their points undone.

Invariants: no outcome depends on the number of workers; a finished point is never run again unless `fresh`.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING

from windtunnel.studies.memory import Room
from windtunnel.studies.point import Outcome, Point
from windtunnel.studies.worker import Task, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.process import BaseProcess

    from windtunnel.studies.store import Store


@dataclass(frozen=True)
class Limits:
    """What the runs may take."""

    workers: int | None = None
    """Processes at most; as many as cores if None."""
    seconds: float | None = None
    """Wall time of a run, which fails when it takes longer."""
    memory_bytes: int | None = None
    """Address space of a worker."""


@dataclass(frozen=True)
class Progress:
    """Where a study stands."""

    done: int
    total: int
    stored: int
    running: int
    slowest: Point | None
    """The point that has run longest of those that run now."""
    slowest_s: float


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    task: Task | None = None
    since: float = 0.0


@dataclass
class _State:
    waiting: deque[int] = field(default_factory=deque)
    alone: deque[int] = field(default_factory=deque)
    """Points that took their worker along, to be run once more with nothing beside them."""
    retried: set[int] = field(default_factory=set)
    ready: dict[int, Outcome] = field(default_factory=dict)


def run_points(
    points: Sequence[Point],
    store: Store,
    *,
    limits: Limits | None = None,
    fresh: bool = False,
    tables: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Iterator[Outcome]:
    """Outcomes of `points`, in their order, each as soon as all before it are known."""
    runner = _Runner(points, store, limits or Limits(), fresh=fresh, tables=tables, progress=progress)
    try:
        yield from runner.outcomes()
    finally:
        runner.close()


class _Runner:
    def __init__(
        self,
        points: Sequence[Point],
        store: Store,
        limits: Limits,
        *,
        fresh: bool,
        tables: bool,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.points, self.store, self.limits = points, store, limits
        self.fresh, self.tables, self.progress = fresh, tables, progress
        self.state = _State()
        self.workers: list[_Worker] = []
        self.room = Room(max(1, limits.workers or _cores()))
        self.done = self.stored = 0

    def outcomes(self) -> Iterator[Outcome]:
        for i, point in enumerate(self.points):
            known = None if self.fresh else self.store.find(point)
            if known is None:
                self.state.waiting.append(i)
            else:
                self.stored += 1
                self._settle(i, known)
        given = 0
        while given < len(self.points):
            while given in self.state.ready:
                yield self.state.ready.pop(given)
                given += 1
            if given < len(self.points):
                self._hand_out()
                self._collect()

    def close(self) -> None:
        """Ends the workers; points under way are forgotten, to be run another time."""
        for worker in self.workers:
            if worker.task is not None:
                self.store.forget(worker.task.point)
                worker.process.kill()
            worker.pipe.close()
        for worker in self.workers:
            worker.process.join()
        self.workers.clear()

    def _settle(self, number: int, outcome: Outcome) -> None:
        self.state.ready[number] = outcome
        self.done += 1

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self.workers if worker.task is not None]

    def _hand_out(self) -> None:
        busy = self._busy()
        if self.state.alone:
            if not busy:
                self._give(self.state.alone.popleft())
            return
        at_once = self.room.at_once()
        if any(worker.task is not None and worker.task.number in self.state.retried for worker in busy):
            return
        while self.state.waiting and len(self._busy()) < at_once:
            self._give(self.state.waiting.popleft())

    def _give(self, number: int) -> None:
        worker = next((w for w in self.workers if w.task is None), None) or self._hire()
        point = self.points[number]
        worker.task = Task(number, point, self.store.begin(point), self.tables)
        worker.since = time.monotonic()
        worker.pipe.send(worker.task)

    def _hire(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=serve, args=(there, self.limits.memory_bytes), daemon=True)
        process.start()
        there.close()
        worker = _Worker(process, here)
        self.workers.append(worker)
        return worker

    def _collect(self) -> None:
        """Waits for whatever comes first: an answer, a death, a limit."""
        busy = self._busy()
        ready = wait([worker.pipe for worker in busy], timeout=0.2)
        for worker in busy:
            if worker.pipe in ready:
                self._hear(worker)
            elif self.limits.seconds is not None and time.monotonic() - worker.since > self.limits.seconds:
                self._dismiss(worker)
        if self.progress is not None:
            self.progress(self._where())

    def _hear(self, worker: _Worker) -> None:
        task = worker.task
        if task is None:
            return
        try:
            number, outcome = worker.pipe.recv()
        except (EOFError, OSError):
            self._mourn(worker, task)
            return
        worker.task = None
        if outcome.summary is not None:
            self.room.learn(outcome.summary["peak_memory_bytes"])
        self.store.end(task.point, outcome)
        self._settle(number, outcome)

    def _mourn(self, worker: _Worker, task: Task) -> None:
        """A worker is gone: killed for memory, most likely. Its point gets another chance, alone."""
        worker.process.join()
        self.workers.remove(worker)
        if task.number not in self.state.retried:
            self.state.retried.add(task.number)
            self.state.alone.append(task.number)
            return
        code = worker.process.exitcode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"
        self._fail(
            task, f"the process that ran it died ({how}), twice; out of memory?", time.monotonic() - worker.since
        )

    def _dismiss(self, worker: _Worker) -> None:
        task = worker.task
        if task is None:
            return
        worker.process.kill()
        worker.process.join()
        self.workers.remove(worker)
        self._fail(task, f"took longer than {self.limits.seconds:g} s", time.monotonic() - worker.since)

    def _fail(self, task: Task, message: str, wall_s: float) -> None:
        outcome = Outcome("failed", None, message, None, wall_s, 0.0, stored=False)
        self.store.end(task.point, outcome)
        self._settle(task.number, outcome)

    def _where(self) -> Progress:
        busy = self._busy()
        slowest = min(busy, key=lambda worker: worker.since, default=None)
        return Progress(
            self.done,
            len(self.points),
            self.stored,
            len(busy),
            None if slowest is None or slowest.task is None else slowest.task.point,
            0.0 if slowest is None else time.monotonic() - slowest.since,
        )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
