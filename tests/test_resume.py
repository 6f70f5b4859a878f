"""A run that was killed goes on, and its folder is the one that it would have had."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import windtunnel
from windtunnel.determinism import first_difference
from windtunnel.policies import Scheduler, Start
from windtunnel.results.journal import journal_of

ROOT = Path(__file__).resolve().parents[1]
MONTH = [str(ROOT / "examples/shared-cluster.yaml"), "--set", "jobs.count=14"]
LONGER = [MONTH[0], "--set", "jobs.count=60"]
COMMAND = [sys.executable, "-m", "windtunnel", "run"]


def begun(arguments: list[str], folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments, "--no-report"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    process = begun(arguments, folder)
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def killed_in_its_midst(arguments: list[str], folder: Path, journal: Path, *, wait_s: float) -> bool:
    """Whether it was killed, so long after its journal began to grow; it may have ended before."""
    process = begun(arguments, folder)
    before = journal.stat().st_size if journal.exists() else 0
    while process.poll() is None:
        if journal.exists() and journal.stat().st_size > before:
            time.sleep(wait_s)
            process.kill()
            break
        time.sleep(0.005)
    process.communicate()
    return process.returncode == -signal.SIGKILL


@pytest.mark.engine
def test_a_month_that_was_killed_often_is_an_undisturbed_one(tmp_path: Path) -> None:
    once = ended([*MONTH, "--out", "once"], tmp_path)
    assert once.returncode == 0, once.stderr
    journal, draw, kills = journal_of(tmp_path / "often"), random.Random(3), 0  # noqa: S311
    arguments = [*MONTH, "--out", "often"]
    while kills < 6 and killed_in_its_midst(arguments, tmp_path, journal, wait_s=draw.uniform(0.0, 0.25)):
        kills += 1
        arguments = ["--resume", "often"]
        if not journal.exists():
            # It had its folder, and was killed on its way out.
            break
        assert not (tmp_path / "often").exists(), "nothing stands there before it is whole"
    assert kills > 0
    last = ended(["--resume", "often"], tmp_path) if journal.exists() else None
    assert last is None or last.returncode == 0, last.stderr
    assert not journal.exists()
    assert first_difference(windtunnel.load(tmp_path / "once"), windtunnel.load(tmp_path / "often")) is None


@pytest.mark.engine
def test_a_run_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    process = begun([*LONGER, "--out", "run"], tmp_path)
    journal = journal_of(tmp_path / "run")
    while not journal.exists() or journal.stat().st_size < 5_000:
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "the result is partial, `run`; `windtunnel run --resume run` goes on with it" in err
    assert windtunnel.load(tmp_path / "run").summary["partial"]
    told = ended(["--resume", "run", "--json", "--threads", "1"], tmp_path)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["partial"] is False
    assert windtunnel.load(tmp_path / "run").summary["partial"] is False
    assert not journal.exists()


@pytest.mark.engine
def test_what_cannot_go_on_says_why(tmp_path: Path) -> None:
    def refused(*arguments: str) -> str:
        done = ended([*arguments], tmp_path)
        assert done.returncode == 2, done.stderr
        assert not (tmp_path / "runs").exists()
        return done.stderr

    assert "nowhere.journal: it cannot be read" in refused("--resume", "nowhere")
    assert "found `--seed` beside it" in refused("--resume", "nowhere", "--seed", "4")
    assert "missing argument `SCENARIO`" in refused()
    (tmp_path / "text.journal").write_text("what somebody else has left, and of some length\n", encoding="utf-8")
    assert "no journal of this version" in refused("--resume", "text")
    assert (tmp_path / "text.journal").read_text(encoding="utf-8").startswith("what somebody else")


@pytest.mark.engine
def test_a_run_of_every_iteration_begins_anew_and_says_so(tmp_path: Path) -> None:
    whole = [str(ROOT / "examples/two-jobs.yaml"), "--full", "--set", "jobs[1].iterations=600"]
    once = ended([*whole, "--out", "once"], tmp_path)
    assert once.returncode == 0, once.stderr
    journal, draw, kills = journal_of(tmp_path / "often"), random.Random(7), 0  # noqa: S311
    process = begun([*whole, "--out", "often"], tmp_path)
    while kills < 3:
        while not journal.exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.002)
        time.sleep(draw.uniform(0.0, 0.2))
        if process.poll() is not None:
            break
        process.kill()
        process.communicate()
        kills += 1
        process = begun(["--resume", "often"], tmp_path)
    _, err = process.communicate(timeout=300)
    assert kills > 0
    assert process.returncode == 0, err
    assert "`--full` of several jobs is one simulation from end to end" in err
    assert "the run goes on from its beginning" in err
    assert not journal.exists()
    assert first_difference(windtunnel.load(tmp_path / "once"), windtunnel.load(tmp_path / "often")) is None


class InOrder(Scheduler):
    """First come, first served."""

    def decide(self) -> Start | None:
        head = next(iter(self.waiting), None)
        return None if head is None or head in self.refused else Start(head)


@pytest.mark.engine
def test_a_class_is_given_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scenario, overrides = MONTH[0], {"jobs.count": 10}
    once = windtunnel.run(scenario, overrides=overrides, scheduler=InOrder, out="once")
    with windtunnel.Simulation(scenario, overrides=overrides, scheduler=InOrder, out="run") as run:
        for _ in range(9):
            run.step()
    assert windtunnel.load("run").summary["partial"]
    with pytest.raises(windtunnel.InputError, match=r"a scheduler of its own, the class `.*InOrder`"):
        windtunnel.resume("run")
    assert first_difference(once, windtunnel.resume("run", scheduler=InOrder)) is None
