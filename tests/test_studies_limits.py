"""What studies bear: memory, limits, a full disk, two at once, kills at any instant."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conftest import children
from windtunnel.engine import InputError
from windtunnel.many import sweep
from windtunnel.source import Source, read_source
from windtunnel.studies.executor import Answer
from windtunnel.studies.local import LocalExecutor
from windtunnel.studies.memory import resident_bytes
from windtunnel.studies.point import Point
from windtunnel.studies.runner import Limits, run_points
from windtunnel.studies.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conftest import Command
    from windtunnel.studies.executor import Death, Task
    from windtunnel.studies.runner import Progress

pytestmark = pytest.mark.engine

SCENARIO = """
windtunnel: 1
name: exchange
seed: 3
fidelity: message
topology:
  shape: clos
  hosts: 8
  tiers:
    - {ports_down: 64, rate: 100 Gbps, length: 5 m}
    - {ports_down: 64, rate: 100 Gbps, length: 5 m}
  host: {gpus: 1, nics: 1}
jobs: [{name: a, iterations: 1, workload: {flows: {pattern: all-to-all, bytes: 1 MiB}}}]
"""

PROGRAM = Path(sys.executable).with_name("windtunnel")

MACHINE = ("wall_time_s", "cpu_time_s", "peak_memory_bytes", "peak_rss_bytes")


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "exchange.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


def of_hosts(scenario: Path, *hosts: int) -> list[Point]:
    source = read_source(scenario)
    return [Point(source, (("topology.hosts", str(n)),), varied={"hosts": n}) for n in hosts]


def figures(summary: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if summary is None else {key: value for key, value in summary.items() if key not in MACHINE}


# Memory


def test_a_sweep_keeps_within_its_memory(tmp_path: Path, scenario: Path) -> None:
    """Six runs of a quarter of a gigabyte each, eight workers asked, 900 MB together: done, few beside each other."""
    together = 900 * 10**6
    sums: list[int] = []
    last: list[Progress] = []

    def watch(progress: Progress) -> None:
        last.append(progress)
        sums.append(sum(map(resident_bytes, children())))

    limits = Limits(8, together_bytes=together)
    with Store(tmp_path / "runs") as store:
        points = of_hosts(scenario, *range(690, 696))
        outcomes = list(run_points(points, store, limits=limits, progress=watch))
    assert [outcome.state for outcome in outcomes] == ["done"] * 6
    peaks = [outcome.summary["peak_memory_bytes"] for outcome in outcomes if outcome.summary is not None]
    assert min(peaks) > 150 * 10**6
    assert last[-1].asked == 8
    assert 1 <= last[-1].at_once <= 4
    # A look comes five times a second, so a run may be above for as long.
    assert max(sums) < 1.25 * together


class Growing:
    """An executor whose runs need 6 GB each of a machine of 24, as a model.

    They grow by half a gigabyte a look, and the kernel kills where together they take more than there is.
    """

    local = True
    gib = 2**30

    def __init__(self, most: int) -> None:
        self.most = most
        self.tasks: dict[int, Task] = {}
        self.used: dict[int, int] = {}
        self.killed = 0

    def start(self, tasks: list[Task]) -> None:
        (task,) = tasks
        self.tasks[task.number], self.used[task.number] = task, self.gib // 4

    def wait(self, _seconds: float) -> list[Answer | Death]:
        time.sleep(0.21)
        found: list[Answer | Death] = []
        for number in list(self.used):
            self.used[number] += self.gib // 2
            if self.used[number] >= 6 * self.gib:
                listed = {"peak_bytes": 6 * self.gib, "name": "a"}
                found.append(Answer(number, "done", "{}", None, 1.0, 1.0, "meaning", listed=listed))
                del self.used[number], self.tasks[number]
        if sum(self.used.values()) > 24 * self.gib:
            self.killed += 1
        return found

    def running(self) -> dict[int, float]:
        return {number: float(-number) for number in self.used}

    def used_bytes(self, number: int) -> int:
        return self.used[number]

    def stop(self, number: int) -> list[int]:
        del self.used[number], self.tasks[number]
        return []

    def close(self) -> None:
        self.tasks.clear()


def test_runs_of_6_gb_on_24_with_8_workers_asked(
    tmp_path: Path, scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = Growing(8)
    monkeypatch.setattr("windtunnel.studies.memory.total_bytes", lambda: 24 * 2**30)
    monkeypatch.setattr("windtunnel.studies.memory.available_bytes", lambda: 24 * 2**30 - sum(executor.used.values()))
    last: list[Progress] = []
    with Store(tmp_path / "runs") as store:
        points = [replace(point, seed=i) for i, point in enumerate(of_hosts(scenario, *[8] * 12))]
        found = list(run_points(points, store, executor=executor, progress=last.append))
    assert [outcome.state for outcome in found] == ["done"] * 12
    assert executor.killed == 0
    assert last[-1].gave_way > 0, "the estimate was too low, and the youngest gave way"
    assert last[-1].asked == 8


def test_a_run_that_takes_too_much_fails_alone(tmp_path: Path, scenario: Path) -> None:
    with Store(tmp_path / "runs") as store:
        limits = Limits(2, memory_bytes=220 * 2**20)
        large, small = run_points(of_hosts(scenario, 900, 8), store, limits=limits)
    assert (large.state, large.message) == ("failed", "took more than 220 MiB")
    assert small.state == "done"


def test_the_command_says_how_many_ran_beside_each_other(command: Command, scenario: Path) -> None:
    done = command(
        "sweep", scenario, "--vary", "topology.hosts=8,9,10,11", "--metric", "jobs[0].finish_s",
        "--workers", "4", "--memory", "200 MB",
    )  # fmt: skip
    assert "1 beside each other at most of 4 that might: memory" in " ".join(done.stderr.split())
    bad = command("sweep", scenario, "--vary", "topology.hosts=8", "--memory", "200 MBs", check=2)
    assert "--memory: expected a size such as `2 GB`, found `200 MBs`" in " ".join(bad.stderr.split())


# What is asked again


def test_texts_that_mean_the_same_share_a_result(tmp_path: Path, scenario: Path) -> None:
    with Store(tmp_path / "runs") as store:
        (first,) = run_points(of_hosts(scenario, 16), store)
        text = f"# a remark\n{SCENARIO.replace('hosts: 8', 'hosts: 16')}"
        (same,) = run_points([Point(Source(text, "other.yaml", tmp_path))], store)
        (other,) = run_points([Point(Source(text, "other.yaml", tmp_path), seed=5)], store)
    assert same.stored
    assert figures(first.summary) == figures(same.summary)
    assert not other.stored


def test_equal_points_run_once(tmp_path: Path, scenario: Path) -> None:
    with Store(tmp_path / "runs") as store:
        outcomes = list(run_points(of_hosts(scenario, 8, 9, 8, 8), store))
        assert len(store.rows()) == 2
    assert outcomes[0] == outcomes[2] == outcomes[3]


def test_a_result_with_tables_serves_both_and_one_without_serves_one(tmp_path: Path, scenario: Path) -> None:
    with Store(tmp_path / "runs") as store:
        (bare,) = run_points(of_hosts(scenario, 8), store)
        (whole,) = run_points(of_hosts(scenario, 8), store, tables=True)
        (again,) = run_points(of_hosts(scenario, 8), store)
        (table,) = run_points(of_hosts(scenario, 8), store, tables=True)
    assert [one.stored for one in (bare, whole, again, table)] == [False, False, True, True]
    assert table.folder is not None
    assert (table.folder / "jobs").is_dir()


def test_a_file_that_changes_while_it_is_read_is_never_served(tmp_path: Path, scenario: Path) -> None:
    """The engine reads it once more for its digest: what it ran with, nobody knows."""
    from windtunnel.studies.inputs import UNKNOWN, read_by  # noqa: PLC0415
    from windtunnel.studies.recipe import Digests, file_digest  # noqa: PLC0415

    (tmp_path / "flows.csv").write_text("source,destination,bytes\n0,1,1000\n", encoding="utf-8")
    digest = file_digest(tmp_path / "flows.csv")
    summary = {"inputs": [{"name": "flows.csv", "sha256": digest}, {"name": "data/nics/connectx-7", "sha256": "aa"}]}
    later = time.time_ns() + 10**9
    assert read_by(summary, tmp_path, Digests(), later) == [("flows.csv", digest)]
    assert read_by(summary, tmp_path, Digests(), later - 10**10) == [("flows.csv", UNKNOWN)]
    elsewhere = {"inputs": [{"name": "gone.csv", "sha256": digest}]}
    assert read_by(elsewhere, tmp_path, Digests(), later) == [("gone.csv", UNKNOWN)]
    _ = scenario


# The store


def test_two_processes_use_one_store(tmp_path: Path, scenario: Path) -> None:
    call = [str(PROGRAM), "sweep", str(scenario), "--metric", "jobs[0].finish_s", "--json", "--workers", "1"]
    calls = [[*call, "--vary", f"topology.hosts={span}"] for span in ("4:20", "8:24")]
    started = [subprocess.Popen(c, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for c in calls]
    answers = [json.loads(process.communicate(timeout=120)[0])["rows"] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert [len(rows) for rows in answers] == [17, 17]
    assert {row["state"] for rows in answers for row in rows} == {"done"}
    with Store(tmp_path / "runs") as store:
        assert sorted(row["varied"]["topology.hosts"] for row in store.rows("state = 'done'")) == list(range(4, 25))
        assert not list((tmp_path / "runs" / "points").glob(".run-*"))


def test_a_folder_whose_row_is_behind_is_taken_up(tmp_path: Path, scenario: Path) -> None:
    """As a kill between the two leaves it."""
    with Store(tmp_path / "runs") as store:
        (done,) = run_points(of_hosts(scenario, 8), store)
    with sqlite3.connect(tmp_path / "runs" / "index.sqlite") as db:
        db.execute("update runs set state = 'running', figures = null, folder = null")
    with Store(tmp_path / "runs") as store:
        (again,) = run_points(of_hosts(scenario, 8), store)
        assert again.stored
        assert [row["state"] for row in store.rows()] == ["done"]
    assert again.folder == done.folder


def test_what_was_queued_by_a_process_that_is_gone_is_interrupted(tmp_path: Path, scenario: Path) -> None:
    with Store(tmp_path / "runs") as store:
        store.queue(of_hosts(scenario, 8))
        assert [row["state"] for row in store.rows()] == ["queued"]
    with sqlite3.connect(tmp_path / "runs" / "index.sqlite") as db:
        (owner,) = db.execute("select owner from runs").fetchone()
        host, _, began = owner.split(".")
        db.execute("update runs set owner = ?", (f"{host}.999999999.{began}",))
    with Store(tmp_path / "runs") as store:
        assert [row["state"] for row in store.rows()] == ["interrupted"]


def test_an_index_of_an_older_version_is_made_anew(tmp_path: Path, scenario: Path) -> None:
    with Store(tmp_path / "runs") as store:
        list(run_points(of_hosts(scenario, 8, 9), store))
    with sqlite3.connect(tmp_path / "runs" / "index.sqlite") as db:
        db.execute("drop table runs")
        db.execute("create table runs (id integer primary key)")
        db.execute("pragma user_version = 1")
    with Store(tmp_path / "runs") as store:
        assert [outcome.stored for outcome in run_points(of_hosts(scenario, 8, 9), store)] == [True, True]


def test_runs_by_name_are_listed_and_their_own(command: Command, tmp_path: Path, scenario: Path) -> None:
    command("run", scenario, "--no-report")
    command("run", scenario, "--no-report", "--set", "jobs[0].iterations=2", "--out", "runs/mine")
    command("run", scenario, "--no-report", "--out", "elsewhere/mine")
    listed = json.loads(command("runs", "list", "--json").stdout)["runs"]
    assert sorted(run["folder"] for run in listed) == ["exchange-message", "mine"]
    assert not (tmp_path / "elsewhere" / "index.sqlite").exists()
    command("run", scenario, "--no-report", "--seed", str(2**64 - 1))
    again = json.loads(command("runs", "list", f"seed={2**64 - 1}", "--json").stdout)["runs"]
    assert [run["folder"] for run in again] == ["exchange-message"]
    numbers = {run["folder"]: str(run["id"]) for run in listed}
    compared = command("runs", "compare", numbers["mine"], numbers["exchange-message"]).stdout
    assert "jobs[0].iterations" in compared
    command("runs", "gc")
    assert (tmp_path / "runs" / "mine" / "summary.json").is_file()
    (tmp_path / "runs" / "index.sqlite").unlink()
    assert len(json.loads(command("runs", "list", "--json").stdout)["runs"]) == 2
    command("runs", "rm", json.loads(command("runs", "list", "folder=mine", "--json").stdout)["runs"][0]["id"])
    assert not (tmp_path / "runs" / "mine").exists()
    assert "did you mean `done`?" in command("runs", "list", "state=doen", check=2).stderr


# What goes wrong


def small_disk(folder: Path) -> bool:
    """Mounts a file system of 300 KB at `folder`, where that is allowed."""
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        return False
    done = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=300k,nr_inodes=400", "tmpfs", str(folder)], capture_output=True, check=False
    )
    return done.returncode == 0


def test_a_full_disk_ends_a_study_and_loses_nothing(command: Command, tmp_path: Path, scenario: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if not small_disk(disk):
        pytest.skip("mounting a small file system needs root")
    try:
        call = ("sweep", scenario, "--vary", "topology.hosts=4:60", "--metric", "jobs[0].finish_s", "--json",
                "--out", tmp_path / "table.parquet", "--store")  # fmt: skip
        full = command(*call, disk / "runs", check=2)
        said = " ".join(full.stderr.split())
        assert "no space is left in" in said, said
        kept = len(list((disk / "runs" / "points").glob("*/*/summary.json")))
        assert kept > 3
        shutil.copytree(disk / "runs", tmp_path / "larger")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    rows = json.loads(command(*call, tmp_path / "larger").stdout)["rows"]
    assert [row["state"] for row in rows] == ["done"] * 57


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(tmp_path: Path, scenario: Path) -> None:
    call = [str(PROGRAM), "sweep", str(scenario), "--vary", "topology.hosts=4:300", "--metric", "jobs[0].finish_s"]
    for number in (signal.SIGINT, signal.SIGTERM):
        with subprocess.Popen(call, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
            before = len(list((tmp_path / "runs" / "points").glob("*/*/summary.json")))
            while len(list((tmp_path / "runs" / "points").glob("*/*/summary.json"))) < before + 3:
                assert process.poll() is None
                time.sleep(0.05)
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert b"of 297 points are kept; the same command goes on" in b" ".join(errors.split())
        assert not list((tmp_path / "runs" / "points").glob(".run-*"))
    with Store(tmp_path / "runs") as store:
        states = {row["state"] for row in store.rows()}
        kept = len(store.rows("state = 'done'"))
    assert states == {"done"}
    assert kept >= 6


def test_a_study_that_changed_says_what_stays(command: Command, tmp_path: Path, scenario: Path) -> None:
    study = tmp_path / "study.yaml"

    def go(hosts: str) -> str:
        study.write_text(
            f"study: 1\nscenario: {scenario.name}\nvary: {{topology.hosts: {hosts}}}\nmetrics: ['jobs[0].finish_s']\n",
            encoding="utf-8",
        )
        return " ".join(command("sweep", study).stderr.split())

    assert "has changed" not in go("[4, 8]")
    assert "has changed" not in go("[4, 8]")
    assert "`study` has changed since it was begun: 1 of its 2 points stays: hosts=8" in go("[8, 16, 32]")
    assert "has changed since it was begun: none of its 3 points stay" in go("[9]")
    go("{from: 4, to: 13}")
    said = go("{from: 4, to: 14}")
    assert "10 of its 10 points stay: hosts=4; hosts=5;" in said
    assert "hosts=11; and 2 more" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--vary", "topology.tiers[0].rate=100,200"], "a unit is missing"),
        (["--vary", "topology.tiers[0].rate=100 Gbps,200"], "a unit is missing"),
        (["--vary", "topology.tiers[0].rate=100 Gbps,200,400 Gbps"], "found `200`: a unit is missing"),
        (["--vary", "topology.tiers[0].rate=100 Gbps,200 GBps,400 Gbps"], "`GBps` is written `Gbps`"),
        (["--vary", "topology.tiers[0].rate=100 Gbps,200 m,400 Gbps"], "`m` is not one of `bps`"),
        (["--vary", "topology.hosts=1:inf"], "expected a number or a quantity"),
        (["--vary", "topology.hostz=1,2"], "did you mean `hosts`?"),
        (["--vary", "topology.hosts=4", "--follow", "wide"], "expected a share of the mean such as `2%`"),
        (["--vary", "topology.hosts=4", "--engine", "rya"], "expected `local`, `ray` or `ray:ADDRESS`"),
        (["--vary", "topology.hosts=4", "--store", "/proc/nothing"], "cannot use `/proc/nothing` as a store"),
    ],
)
def test_bad_studies_are_refused(command: Command, scenario: Path, arguments: list[str], said: str) -> None:
    assert said in " ".join(command("sweep", scenario, *arguments, check=2).stderr.split())


def test_following_adds_seeds_until_the_interval_is_narrow(command: Command, tmp_path: Path) -> None:
    """Flows of random pairs: few seeds say little. What draws nothing takes no more than two."""
    path = tmp_path / "drawn.yaml"
    path.write_text(
        SCENARIO.replace("message", "flow").replace("pattern: all-to-all", "pattern: permutation"), encoding="utf-8"
    )
    call = ("sweep", path, "--vary", "topology.tiers[0].oversubscription=1,4", "--set", "topology.hosts=128",
            "--metric", "jobs[0].finish_s", "--json")  # fmt: skip
    few = json.loads(command(*call, "--seeds", "3").stdout)["rows"]
    many = json.loads(command(*call, "--seeds", "3", "--follow", "3%", "--most-seeds", "200").stdout)["rows"]
    for before, after in zip(few, many, strict=True):
        mean, half = after["metrics"]["jobs[0].finish_s"], after["half_widths"]["jobs[0].finish_s"]
        assert half <= 0.03 * mean
        wide = before["half_widths"]["jobs[0].finish_s"] > 0.03 * before["metrics"]["jobs[0].finish_s"]
        assert (after["runs"] > 3) == wide
    assert any(row["runs"] > 3 for row in many)


# It shows


def placed(folder: Path) -> dict[str, float]:
    return {
        str(path.parent.relative_to(folder)): path.stat().st_mtime
        for path in (folder / "runs" / "points").glob("[0-9a-f]*/*/manifest.json")
    }


def test_200_points_of_which_30_are_refused_killed_five_times(tmp_path: Path, scenario: Path) -> None:
    """Resumed each time: 200 rows, no point run twice to its end, figures equal to those of an undisturbed sweep."""
    assert scenario.name == "exchange.yaml"
    study = tmp_path / "study.yaml"
    study.write_text(
        "study: 1\nscenario: exchange.yaml\nset: {fidelity: packet}\nmetrics: ['jobs[0].finish_s']\n"
        "vary: {topology.hosts: {from: 4, to: 13}, 'jobs[0].iterations': {from: -2, to: 17}}\n",
        encoding="utf-8",
    )  # by packets, so that a run takes long enough for the sweep to be there when it is to be killed
    call = [str(PROGRAM), "sweep", str(study), "--json", "--workers", "2"]
    draw = random.Random(7)  # noqa: S311
    seen: dict[str, float] = {}
    for _ in range(5):
        with subprocess.Popen(call, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            enough = len(seen) + draw.randint(1, 16)
            while len(placed(tmp_path)) < enough:
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        time.sleep(0.2)
        now = placed(tmp_path)
        assert seen.items() <= now.items(), "a point was run twice to its end"
        seen = now
    shown = json.loads(subprocess.run(call, cwd=tmp_path, capture_output=True, check=True, text=True).stdout)["rows"]
    assert seen.items() <= placed(tmp_path).items()
    whole = tmp_path / "whole"
    whole.mkdir()
    undisturbed = json.loads(subprocess.run(call, cwd=whole, capture_output=True, check=True, text=True).stdout)["rows"]
    assert len(shown) == 200
    assert [row["state"] for row in shown].count("refused") == 30
    for here, there in zip(shown, undisturbed, strict=True):
        assert {**here, "folder": None} == {**there, "folder": None}
        if here["folder"] is not None:
            one, two = (json.loads((f / r["folder"] / "summary.json").read_text()) for f, r in
                        ((tmp_path, here), (whole, there)))  # fmt: skip
            assert figures(one) == figures(two)


def test_an_executor_of_one_worker_gives_what_many_give(tmp_path: Path, scenario: Path) -> None:
    def found(workers: int, points: Sequence[Point]) -> list[dict[str, Any] | None]:
        with Store(tmp_path / f"runs-{workers}") as store:
            return [figures(o.summary) for o in run_points(points, store, executor=LocalExecutor(workers))]

    points = of_hosts(scenario, *range(4, 40))
    assert found(1, points) == found(3, points)


@pytest.mark.parametrize(
    ("option", "name", "said"),
    [
        ("--svg", "file/x.svg", "--svg: cannot write `file/x.svg`: not a directory"),
        ("--html", "folder", "--html: expected a file, found the folder `folder`"),
        ("--out", "x.txt", "--out: expected a file that ends in `.parquet` or `.csv`, found `x.txt`"),
        ("--out", f"{'x' * 252}.csv", "file name too long"),
        ("--svg", "/proc/x.svg", "--svg: cannot write `/proc/x.svg`"),
    ],
)
def test_an_impossible_place_is_told_before_anything_runs(
    command: Command, tmp_path: Path, scenario: Path, option: str, name: str, said: str
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    done = command("sweep", scenario, "--vary", "seed=1,2", option, name, "--store", "store", check=2)
    assert said in done.stderr
    assert not (tmp_path / "store").exists()
    assert {path.name for path in tmp_path.iterdir()} <= {"file", "folder", scenario.name}


def test_a_store_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="as a store"):
        Store(tmp_path / "runs")


def test_no_name_leads_out_of_the_store(command: Command, tmp_path: Path, scenario: Path) -> None:
    """Of a scenario, a study, a file of a point; and not what somebody wrote into the index."""
    outside = tmp_path / "precious"
    outside.mkdir()
    (outside / "summary.json").write_text("{}", encoding="utf-8")
    path = tmp_path / "named.yaml"
    path.write_text(SCENARIO.replace("name: exchange", "name: ../../precious"), encoding="utf-8")
    study = ("--vary", "topology.hosts=4,8", "--metric", "jobs[0].finish_s", "--name", "../precious")
    command("sweep", path, *study)
    command("run", path, "--no-report")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["exchange.yaml", "named.yaml", "precious", "runs"]
    with Store(tmp_path / "runs") as store:
        (refused,) = run_points([Point(read_source(scenario), files=(("../a.csv", ""),))], store)
        assert (refused.state, refused.message) == (
            "refused", "expected the name of a file beside the scenario, found `../a.csv`"
        )  # fmt: skip
        number = store.rows("state = 'done'")[0]["id"]
    with sqlite3.connect(tmp_path / "runs" / "index.sqlite") as db:
        db.execute("update runs set folder = '../precious' where id = ?", (number,))
    command("runs", "rm", str(number))
    assert (outside / "summary.json").is_file()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ("vary: {topology.hosts: []}", "expected one value or more, found none"),
        ("vary: {topology.hosts: [4, 8, 4]}", "vary.topology.hosts: `4` is named twice"),
        ("vary: {topology.hosts: [4, .inf]}", "vary.topology.hosts: expected finite values, found `inf`"),
        ("vary: {topology.hosts: {from: 1, to: .inf}}", "expected a number or a quantity"),
        ("vary: {topology.hosts: {from: .nan, to: 8}}", "expected a number or a quantity"),
        ("vary: {topology.hosts: {from: 1, to: 10000000}}", "expected a whole number from 1 to 1000000"),
        ("vary: {topology.hosts: [4, 8]}\nfilter: hosts > 8", "every combination is left out by a filter"),
        ("vary: {topology.hosts: [4, 8]}\nfilter: hostz > 8", "unknown name `hostz`"),
        ("vary: {topology.hosts: [4, 8]}\nmetrics: ['jobs[0].finish']", "did you mean `jobs[0].finish_s`?"),
        ("vary: {topology.hostz: [4, 8]}", "did you mean `hosts`?"),
        ("vary: {'topology.tiers[0].rate': {from: 100, to: 400}}", "a unit is missing"),
        ("vary: {topology.hosts: [4, 8]}\nfilter: hosts > 8", "study.yaml: the design has no point"),
        (f"vary: {{topology.hosts: [4, 8]}}\nname: {'x' * 300}", "name: expected at most 200 bytes, found 300"),
        ("vary: {topology.hosts: [4, 8]", "study.yaml:4:1: "),
        (
            "vary: {topology.hosts: [4, 8]}\nfilter: 'open(1)'",
            "study.yaml: filter: `open(1)` has no meaning here, found",
        ),
        ("vary: {topology.hosts: [4, 8]}\nname: 7\nseeds: two", "seeds: expected a whole number from 1"),
    ],
)
def test_designs_that_cannot_be_are_told_before_they_cost(
    command: Command, tmp_path: Path, scenario: Path, changes: str, said: str
) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(f"study: 1\nscenario: {scenario.name}\n{changes}\n", encoding="utf-8")
    done = command("sweep", study, check=2)
    assert said in " ".join(done.stderr.split())
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").glob("*.parquet"))


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e400"])
def test_a_value_without_end_is_no_point(command: Command, scenario: Path, value: str) -> None:
    done = command("sweep", scenario, "--vary", f"topology.hosts=4,{value}", check=2)
    assert "--vary topology.hosts: expected finite values, found " in done.stderr
    with pytest.raises(InputError, match="expected finite values"):
        sweep(str(scenario), vary={"topology.hosts": [4, float(value)]})


def test_a_script_without_a_guard_asks_for_many_runs(tmp_path: Path, scenario: Path) -> None:
    """Workers do not run the user's script again."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom windtunnel import whatif\n"
        f"found = whatif.add({str(scenario)!r}, 8, means=whatif.Means(2))\nprint(found.differences[0].metric)\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_numbers_that_no_store_has_are_in_no_list(command: Command, tmp_path: Path) -> None:
    with Store(tmp_path / "runs"):
        pass
    assert "there is no run 99999999999999999999" in command("runs", "show", "9" * 20, check=2).stderr
    for key in ("id", "seed"):
        assert json.loads(command("runs", "list", f"{key}={'9' * 30}", "--json").stdout) == {"runs": []}


def test_what_is_no_yaml_says_where(command: Command, tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("a: [1\n", encoding="utf-8")
    assert command("sweep", "broken.yaml", check=2).stderr.startswith("error: broken.yaml:")
    (tmp_path / "empty.yaml").touch()
    assert "the file is empty" in command("sweep", "empty.yaml", check=2).stderr
