"""What `windtunnel sweep` says and leaves: best first, what is replaced, what is followed no further, how it ran."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from conftest import EIGHT_H100, RING

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

FINISH = ("--metric", "jobs[0].finish_s", "--workers", "1")

DRAWN = """
windtunnel: 1
name: drawn
seed: 1
fidelity: flow
topology:
  shape: clos
  hosts: 8
  tiers:
    - {ports_down: 4, rate: 100 Gbps, length: 5 m, oversubscription: 2}
    - {ports_down: 4, rate: 100 Gbps, length: 5 m}
  host: {gpus: 1, nics: 1}
network: {load_balancer: ecmp}
jobs: [{name: a, workload: {flows: {pattern: permutation, bytes: 4 MiB}}}]
"""
"""Of whose seeds each has other paths."""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "ring.yaml"
    path.write_text(RING, encoding="utf-8")
    return path


def said(command: Command, *arguments: str | Path) -> str:
    return " ".join(command("sweep", *arguments).stderr.split())


def test_the_best_is_the_largest_of_what_is_the_better_the_larger(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(EIGHT_H100, encoding="utf-8")
    varied = ("--vary", "jobs[0].workload.micro_batch=1,2,4", "--workers", "1")
    for metric in ("jobs[0].mfu", "jobs[0].tokens_per_s", "cost.jobs[0].tokens_per_j"):
        shown = command("sweep", path, *varied, "--metric", metric).stdout.splitlines()
        rows = json.loads(command("sweep", path, *varied, "--metric", metric, "--json").stdout)["rows"]
        by_value = sorted(rows, key=lambda row: -row["metrics"][metric])
        assert by_value[0]["metrics"][metric] > by_value[-1]["metrics"][metric]
        order = [line.split()[0] for line in shown if line[:1].isdigit()]
        assert order == [str(row["varied"]["jobs[0].workload.micro_batch"]) for row in by_value]
        (best,) = (line for line in shown if line.rstrip().endswith("best"))
        assert best.split()[0] == order[0]
        assert " h" not in " ".join(shown), "a rate is no time"


def test_a_sweep_of_options_never_changes_since_it_was_begun(command: Command, scenario: Path) -> None:
    """Another axis, or another scenario of the same name, takes the place of the table: that is said, and how not."""
    assert "another sweep" not in said(command, scenario, "--vary", "topology.hosts=2,4", *FINISH)
    assert "another sweep" not in said(command, scenario, "--vary", "topology.hosts=8", *FINISH)
    told = said(command, scenario, "--vary", "jobs[0].iterations=1,2", *FINISH)
    assert "has changed" not in told
    assert (
        "`runs/ring.parquet` is the table of another sweep over `topology.hosts`: it and its page are replaced" in told
    )
    assert "hint: `--name` keeps both" in told
    assert "another sweep" not in said(command, scenario, "--vary", "topology.hosts=2", "--name", "other", *FINISH)
    elsewhere = scenario.parent / "elsewhere" / "ring.yaml"
    elsewhere.parent.mkdir()
    elsewhere.write_text(RING, encoding="utf-8")
    told = said(command, elsewhere, "--vary", "jobs[0].iterations=1,2", *FINISH)
    assert "is the table of another sweep of `../ring.yaml` over `jobs[0].iterations`" in told
    assert "another sweep" not in said(
        command, scenario, "--vary", "topology.hosts=2", "--out", "runs/ring.parquet", *FINISH
    )


def test_a_study_that_changes_its_axes_is_the_same_study(command: Command, scenario: Path) -> None:
    study = scenario.with_name("study.yaml")
    head = f"study: 1\nscenario: {scenario.name}\nmetrics: ['jobs[0].finish_s']\n"
    study.write_text(head + "vary: {topology.hosts: [2, 4]}\n", encoding="utf-8")
    assert "another sweep" not in said(command, study)
    study.write_text(head + "vary: {'jobs[0].iterations': [2]}\n", encoding="utf-8")
    told = said(command, study)
    assert "another sweep" not in told
    assert "`study` has changed since it was begun: none of its 2 points stay" in told
    other = scenario.with_name("other.yaml")
    other.write_text(head + "name: study\nvary: {topology.hosts: [2, 4]}\n", encoding="utf-8")
    told = said(command, other)
    assert "is the table of another sweep of `../study.yaml` over `jobs[0].iterations`" in told
    assert "has changed" not in told


def test_following_that_stops_says_so(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "drawn.yaml"
    path.write_text(DRAWN, encoding="utf-8")
    asked = (path, "--vary", "jobs[0].iterations=1,2", "--follow", "0.1%", "--most-seeds", "5", *FINISH)
    told = said(command, *asked)
    assert (
        "2 of 2 points are not within 0.1% with 5 seeds, which `--most-seeds` allows: iterations=1; iterations=2"
        in told
    )
    assert "10 points · 10 run in" in told
    found = json.loads(command("sweep", *asked, "--json").stdout)
    assert [row["runs"] for row in found["rows"]] == [5, 5]
    assert (found["ran"]["points"], found["ran"]["known"], found["ran"]["run"]) == (10, 10, 0)
    assert "not within" not in said(command, *asked[:3], "--follow", "90%", *FINISH)


def test_the_page_and_the_json_say_how_it_ran(command: Command, tmp_path: Path, scenario: Path) -> None:
    found = json.loads(command("sweep", scenario, "--vary", "topology.hosts=2,4,8", *FINISH, "--json").stdout)
    assert list(found) == ["rows", "ran"]
    ran = found["ran"]
    assert (ran["points"], ran["known"], ran["run"], ran["beside"], ran["workers"]) == (3, 0, 3, 1, 1)
    assert (ran["memory"], ran["put_off"]) == (False, 0)
    assert ran["slowest"]["varied"].keys() == {"topology.hosts"}
    page = (tmp_path / "runs" / "ring.html").read_text(encoding="utf-8")
    assert "3 points · 3 run in" in page
    assert "1 beside each other at most" in page
