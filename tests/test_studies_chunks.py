"""Short runs in a row on one worker: written down together, each whole, and who is blamed when the worker dies."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conftest import RING, children
from test_studies_limits import figures
from windtunnel.engine import RunError
from windtunnel.source import read_source
from windtunnel.studies import local, worker
from windtunnel.studies.executor import Answer, Death, Task
from windtunnel.studies.local import LocalExecutor
from windtunnel.studies.point import Point
from windtunnel.studies.runner import Limits, run_points
from windtunnel.studies.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def test_a_worker_that_cannot_start_ends_the_study_with_its_message(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Said once, and tried once a worker: the next would fare no better, whatever the point."""
    asked = [task.point for task in tasks(scenario, tmp_path, *range(4, 12))]
    local.end_idle()
    begun: list[Sequence[str]] = []
    popen = subprocess.Popen

    def counted(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401
        begun.append(command)
        return popen(command, **options)

    monkeypatch.setattr(local, "START", "import no_module_of_that_name")
    monkeypatch.setattr("windtunnel.studies.local.subprocess.Popen", counted)
    with Store(tmp_path / "runs") as store:
        with pytest.raises(RunError) as raised:
            list(run_points(asked, store, limits=Limits(2)))
        assert store.rows() == [], "nothing is left that might seem to run"
    assert str(raised.value).startswith(
        "cannot start a process for the runs: ModuleNotFoundError: No module named 'no_module_of_that_name'\n\nhint: "
    )
    assert 1 <= len(begun) <= 2
    assert capfd.readouterr().err == ""
    assert children() == []


def test_a_machine_that_gives_no_process_says_so(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object, **__: object) -> subprocess.Popen[bytes]:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    local.end_idle()
    monkeypatch.setattr("windtunnel.studies.local.subprocess.Popen", none)
    (task,) = tasks(scenario, tmp_path, 4)
    with (
        Store(tmp_path / "runs") as store,
        pytest.raises(RunError, match="cannot start a process for the runs: resource temporarily unavailable"),
    ):
        list(run_points([task.point], store, limits=Limits(1)))


def test_a_ready_worker_talks_where_its_parent_does(
    scenario: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What it says on standard error is kept from the terminal until it is ready, and no longer."""
    local.end_idle()
    executor = LocalExecutor(1)
    executor.start(tasks(scenario, tmp_path, 4))
    until = time.monotonic() + 60
    while not executor.wait(0.1):
        assert time.monotonic() < until
    (one,) = executor._workers
    assert one.ready
    there = Path(f"/proc/{one.process.pid}/fd/2").stat()
    here = os.fstat(2)
    assert (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
    executor.close()
    local.end_idle()
    assert capfd.readouterr().err == ""
