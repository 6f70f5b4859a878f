"""Points on a Ray cluster (`pip install 'windtunnel[ray]'`).

A task takes along its scenario and the files that this names; its folder comes back as bytes, and is placed in the
store by the process that asked. Nodes share nothing but the cluster: each has Windtunnel, of the same build. A file of
an absolute path does not travel; it must be the same at the same place on every node.

A run that has a limit of time or memory is run by a process beside the task's, which is ended where it takes more: what
waits in Ray's queue, or for a process to start, has taken nothing.
"""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError
from windtunnel.studies.executor import Answer, Death, Task, over
from windtunnel.studies.inputs import named
from windtunnel.studies.recipe import Digests, build

if TYPE_CHECKING:
    from collections.abc import Mapping

Files = dict[str, bytes]
"""Contents by path, relative to a folder, with `/` between its parts."""

TICK = 0.1
"""Seconds between two looks at a run that has limits."""

RENEW_S = 5.0
"""Seconds after which the size of the cluster is asked for again: nodes come and go."""


class RayExecutor:
    """The CPUs of a Ray cluster: the one at `address`, that of `RAY_ADDRESS`, or one of this machine alone."""

    local = False

    def __init__(self, address: str | None = None, most: int | None = None) -> None:
        # Nothing is told to anybody outside unless the user says so.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            ray: Any = import_module("ray")
        except ImportError:
            raise InputError("--engine ray: Ray is not installed\n\nhint: `pip install 'windtunnel[ray]'`") from None
        self._ray = ray
        self._own = not ray.is_initialized()
        if self._own:
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise InputError(f"--engine ray: {str(error).partition(chr(10))[0]}") from None
        self._asked = most
        self._remote = ray.remote(max_retries=0, num_cpus=1)(perform_all)
        self._tasks: dict[Any, list[Task]] = {}
        self._since: dict[Any, float] = {}
        self._bundles: dict[tuple[str, ...], Any] = {}
        self._digests = Digests()
        self.most = 1
        self._renew()

    def _renew(self) -> None:
        self._renewed = time.monotonic()
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        self.most = self._asked or max(1, int(sum(node.get("CPU", 0) for node in nodes)))
        self._largest = max((int(node.get("memory", 0)) for node in nodes), default=0)

    def start(self, tasks: list[Task]) -> None:
        """Begins `tasks`, one after the other, on a CPU of the cluster."""
        travelling = [replace(task, place=Path("place")) for task in tasks]
        bundles = [self._bundle(task) for task in tasks]
        # Ray keeps a node from taking more than its memory; a need that no node meets would wait for ever.
        need = min(max(task.need_bytes for task in tasks), int(0.9 * self._largest))
        reference = self._remote.options(memory=need).remote(travelling, build(), bundles)
        self._tasks[reference] = tasks
        self._since[reference] = time.monotonic()

    def _bundle(self, task: Task) -> Any:  # noqa: ANN401
        """A reference to the files that a task's scenario names; equal ones are sent once."""
        if task.point.files:
            return None
        base = task.point.source.base
        paths = named(task.point.source, task.point.overrides)
        key = (str(base), *(f"{path} {self._digests.of(base / path)}" for path in paths))
        if key not in self._bundles:
            # An absolute path stays what it is: it is looked for where it says.
            files = {path.as_posix(): (base / path).read_bytes() for path in paths if not path.is_absolute()}
            self._bundles[key] = [self._ray.put(files)] if files else None
        return self._bundles[key]

    def wait(self, seconds: float) -> list[Answer | Death]:
        """What ended since the last call, waiting for it at most so long."""
        if time.monotonic() - self._renewed > RENEW_S:
            self._renew()
        if not self._tasks:
            time.sleep(min(seconds, 0.05))
            return []
        some, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=seconds)
        if not some:
            return []
        ready, _ = self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=0)
        return [one for reference in ready for one in self._hear(reference)]

    def _hear(self, reference: Any) -> list[Answer | Death]:  # noqa: ANN401
        from windtunnel.studies.folders import placed

        tasks = self._tasks.pop(reference)
        del self._since[reference]
        try:
            answers: list[tuple[Answer | Death, Files]] = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            behind = tuple(task.number for task in tasks[1:])
            alone = isinstance(error, (self._ray.exceptions.OutOfMemoryError, self._ray.exceptions.WorkerCrashedError))
            how = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            return [Death(tasks[0].number, how, behind, machine=not alone)]
        for task, (answer, files) in zip(tasks, answers, strict=True):
            if isinstance(answer, Answer) and answer.state == "done":
                placed(task.place, files)
        return [answer for answer, _ in answers]

    def running(self) -> Mapping[int, float]:
        """Numbers of the tasks that are with Ray, with the seconds for which they have been, in its queue too."""
        now = time.monotonic()
        return {tasks[0].number: now - self._since[reference] for reference, tasks in self._tasks.items()}

    def used_bytes(self, number: int) -> int:  # noqa: ARG002
        """Not known here: Ray watches the memory of its nodes."""
        return 0

    def stop(self, number: int) -> list[int]:
        """Ends the run of `number` and forgets it; returns the tasks that waited behind it."""
        for reference, tasks in list(self._tasks.items()):
            if tasks[0].number == number:
                self._ray.cancel(reference, force=True)
                del self._tasks[reference], self._since[reference]
                return [task.number for task in tasks[1:]]
        return []

    def close(self) -> None:
        """Ends what runs, and leaves the cluster."""
        for reference in self._tasks:
            self._ray.cancel(reference, force=True)
        self._tasks.clear()
        if self._own:
            self._ray.shutdown()


def perform_all(tasks: list[Task], known: str, bundles: list[Any]) -> list[tuple[Answer | Death, Files]]:
    """On a node: runs tasks one after the other; each answer comes with the files of its folder."""
    ray: Any = import_module("ray")
    found: list[tuple[Answer | Death, Files]] = []
    for task, bundle in zip(tasks, bundles, strict=True):
        if build() != known:
            message = f"`{socket.gethostname()}` has another build of Windtunnel"
            found.append((Answer(task.number, "failed", None, message, 0.0, 0.0), Files()))
        else:
            found.append(_perform(task, {} if bundle is None else ray.get(bundle[0])))
    return found


def _perform(task: Task, files: Files) -> tuple[Answer | Death, Files]:
    from windtunnel.studies.worker import known_digests, perform

    with tempfile.TemporaryDirectory(prefix="windtunnel-") as made:
        base = _unpacked(files, Path(made) / "files")
        place = Path(made) / "store" / "points" / "place"
        source = replace(task.point.source, base=base)
        given = replace(task, place=place, point=replace(task.point, source=source))
        limited = task.most_s is not None or task.most_bytes is not None
        answer = _watched(given) if limited else perform(given, known_digests())
        done = isinstance(answer, Answer) and answer.state == "done"
        left = [path for path in place.rglob("*") if path.is_file()] if done else []
        return answer, {path.relative_to(place).as_posix(): path.read_bytes() for path in left}


def _watched(task: Task) -> Answer | Death:
    """Runs a task in a process of its own, which is kept for the next one, and ends one that goes beyond its limits."""
    from windtunnel.studies.local import LocalExecutor

    executor = LocalExecutor(1)
    try:
        executor.start([task])
        while True:
            found = executor.wait(TICK)
            if found:
                return found[0]
            seconds = executor.running()[task.number]
            message = over(seconds, executor.used_bytes(task.number), task.most_s, task.most_bytes)
            if message is not None:
                return Answer(task.number, "failed", None, message, seconds, 0.0)
    finally:
        executor.close()


def _unpacked(files: Files, root: Path) -> Path:
    """Writes `files` and returns the folder from which their paths count, deep enough for those with `..`."""
    depth = max((Path(name).parts.count("..") for name in files), default=0)
    base = root.joinpath(*("inside" for _ in range(depth)))
    base.mkdir(parents=True)
    for name, content in files.items():
        path = Path(os.path.normpath(base / name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return base
