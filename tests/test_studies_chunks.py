"""Short runs in a row on one worker: written down together, each whole, and who is blamed when the worker dies."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from conftest import RING, children
from test_studies_limits import figures
from windtunnel.source import read_source
from windtunnel.studies import worker
from windtunnel.studies.executor import Answer, Death, Task
from windtunnel.studies.local import LocalExecutor
from windtunnel.studies.point import Point
from windtunnel.studies.runner import Limits, run_points
from windtunnel.studies.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "ring.yaml"
    path.write_text(RING, encoding="utf-8")
    return path


def tasks(scenario: Path, folder: Path, *hosts: int) -> list[Task]:
    source = read_source(scenario)
    return [
        Task(i, Point(source, (("topology.hosts", str(n)),)), folder / "points" / "aa" / str(i), tables=False)
        for i, n in enumerate(hosts)
    ]


def test_runs_that_are_written_together_are_those_that_are_written_alone(scenario: Path, tmp_path: Path) -> None:
    digests = worker.known_digests()
    begun: list[int] = []
    asked = tasks(scenario, tmp_path / "one", 4, 5, -1, 6)
    batches = list(worker.performed(asked, digests, lambda task: begun.append(task.number)))
    assert len(batches) == 1
    assert begun == [0, 1, 2, 3] == [answer.number for answer in batches[0]]
    assert [answer.state for answer in batches[0]] == ["done", "done", "refused", "done"]
    for answer, task in zip(batches[0], tasks(scenario, tmp_path / "two", 4, 5, -1, 6), strict=True):
        alone = worker.perform(task, digests)
        assert (alone.state, alone.message, alone.meaning, alone.inputs) == (
            answer.state, answer.message, answer.meaning, answer.inputs,
        )  # fmt: skip
        if answer.text is None:
            continue
        here, there = (
            json.loads((folder / "points" / "aa" / str(task.number) / "summary.json").read_text(encoding="utf-8"))
            for folder in (tmp_path / "one", tmp_path / "two")
        )
        assert figures(here) == figures(there) == figures(json.loads(answer.text))


def test_nothing_is_held_for_long(scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer comes after its folder, and after so much work at the latest."""
    monkeypatch.setattr(worker, "SHORT_S", 0.0)
    asked = tasks(scenario, tmp_path, 4, 5, 6)
    sizes = []
    for answers in worker.performed(asked, worker.known_digests(), lambda _: None):
        sizes.append(len(answers))
        assert all((asked[answer.number].place / "summary.json").is_file() for answer in answers)
    assert sizes == [1, 1, 1]


def ended(executor: LocalExecutor) -> list[Answer | Death]:
    """What comes of tasks, until one of them dies."""
    found: list[Answer | Death] = []
    until = time.monotonic() + 60
    while not any(isinstance(one, Death) for one in found):
        assert time.monotonic() < until
        found += executor.wait(0.1)
    return found


def test_the_run_under_way_is_blamed(scenario: Path, tmp_path: Path) -> None:
    """Of a worker's tasks that is the one that it began last; those before it, if they are not answered, are undone."""
    asked = tasks(scenario, tmp_path, 4, 5, 6, 7)
    long = Point(asked[2].point.source, (("jobs[0].iterations", "600000"),), full=True)
    asked[2] = Task(2, long, asked[2].place, tables=False)
    executor = LocalExecutor(1)
    executor.start(asked)
    (running,) = executor._workers
    until = time.monotonic() + 60
    while running.under_way() != 2:
        assert time.monotonic() < until
        time.sleep(0.01)
    os.kill(running.process.pid, signal.SIGKILL)
    found = ended(executor)
    executor.close()
    death = found[-1]
    assert isinstance(death, Death)
    assert death.number == 2
    answered = {one.number for one in found if isinstance(one, Answer)}
    assert answered | set(death.behind) | {2} == {0, 1, 2, 3}
    assert not answered & set(death.behind)


def test_what_a_dead_worker_has_placed_is_not_run_again(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is there, its answer never came."""
    source = read_source(scenario)
    asked = [Point(source, (("topology.hosts", str(n)),), varied={"hosts": n}) for n in (4, 5, 6)]
    with Store(tmp_path / "runs") as store:
        waited = LocalExecutor.wait
        killed = False

        def dying(self: LocalExecutor, seconds: float) -> Sequence[Answer | Death]:
            nonlocal killed
            if killed or not any(store.place(point).is_dir() for point in asked):
                return waited(self, seconds) if killed else []
            killed = True
            # All answers that are in the pipe are lost with the worker.
            for one in self._workers:
                while one.pipe.poll():
                    one.pipe.recv()
            for number in children():
                os.kill(number, signal.SIGKILL)
            return waited(self, seconds)

        monkeypatch.setattr(LocalExecutor, "wait", dying)
        found = list(run_points(asked, store, limits=Limits(1)))
        assert killed
        assert [outcome.state for outcome in found] == ["done"] * 3
        began = {store.place(point): (store.place(point) / "manifest.json").stat().st_mtime_ns for point in asked}
        assert len(began) == 3
        assert not any(outcome.stored for outcome in found)
