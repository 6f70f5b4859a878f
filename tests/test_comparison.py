"""The difference of two runs."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

import windtunnel
from windtunnel import Result
from windtunnel.cli import show_compare
from windtunnel.comparison import compare

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

SCENARIO = """\
windtunnel: 1
name: pair
fidelity: packet
topology:
  shape: clos
  hosts: 4
  tiers: [{ports_down: 4, rate: 100 Gbps, length: 5 m}]
  host: {gpus: 1, nics: 1}
network: {buffers: [{size: 60 KB}]}
jobs:
  - name: incast
    workload: {flows: {pattern: incast, bytes: 2 MB}}
    iterations: 1
"""


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    text = io.StringIO()
    console = Console(file=text, width=100, highlight=False)
    monkeypatch.setattr(show_compare, "out", lambda: console)
    return text


def changed(run: Result, folder: Path, scenario: str, overrides: list[str], **network: object) -> Result:
    """A copy of `run` of another scenario, faster by a tenth."""
    shutil.copytree(run.path, folder)
    summary = json.loads(json.dumps(run.summary))
    job = summary["jobs"][0]
    job["iteration_time_s"]["mean"] *= 0.9
    job["exposed_s"]["tp"] = 0.001
    summary["network"].update(network)
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "scenario.yaml").write_text(scenario)
    (folder / "manifest.json").write_text(json.dumps({"overrides": overrides, "options": {}}))
    return Result(folder)


def test_knobs_come_first_then_what_differs_then_what_is_equal(
    finished_run: Result, tmp_path: Path, printed: io.StringIO
) -> None:
    then = changed(finished_run, tmp_path / "then", SCENARIO, [])
    overrides = ["network.transport=dcqcn", "network.buffers[0].size=2 MB", "topology.tiers[0].rate=100 Gbps"]
    now = changed(finished_run, tmp_path / "now", SCENARIO, overrides, ecn_marked=12, packets_dropped=0)
    summary = json.loads((now.path / "summary.json").read_text())
    summary["jobs"][0]["iteration_time_s"]["mean"] *= 2
    summary["wall_time_s"] = 3.0
    (now.path / "summary.json").write_text(json.dumps(summary))
    found = compare(Result(now.path), then)

    knobs = found.knobs
    assert knobs is not None
    assert {(knob.key, knob.then, knob.now) for knob in knobs} == {
        ("network.transport", None, "dcqcn"),
        ("network.buffers[0].size", "60 KB", "2 MB"),
    }
    metrics = {(metric.group, metric.key): metric for metric in found.metrics}
    assert set(metrics) == {
        ("job pretrain", "iteration_time_s.mean"),
        ("network", "ecn_marked"),
        ("network", "packets_dropped"),
    }
    time = metrics["job pretrain", "iteration_time_s.mean"]
    assert time.relative == pytest.approx(1.0)
    assert time.absolute == pytest.approx(then.summary["jobs"][0]["iteration_time_s"]["mean"])
    marks = metrics["network", "ecn_marked"]
    assert (marks.then, marks.now, marks.absolute, marks.relative) == (None, 12, None, None)
    assert ("job pretrain", "exposed_s.tp") in found.equal
    assert ("network", "retransmissions") not in found.equal

    shown = found.to_json()
    assert shown["knobs"][0] == {"key": "network.buffers[0].size", "then": "60 KB", "now": "2 MB"}
    assert "jobs.pretrain.exposed_s.tp" in shown["equal"]
    assert shown["machine"][0]["now"] == 3.0

    show_compare.show_comparison(found)
    lines = [line.rstrip() for line in printed.getvalue().splitlines()]
    assert lines[1] == f"compared with {then.path}"
    assert lines[3].split() == ["network.buffers[0].size", "60", "KB", "2", "MB"]
    row = next(line for line in lines if line.startswith("  iteration time mean"))
    assert row.split()[-2:] == ["+100.0", "%"]
    equal = [line for line in lines if line.startswith("equal: ")]
    assert len(equal) == 1
    assert "exposed tp" in equal[0]
    assert "iteration time mean" not in equal[0]
    assert any(line.startswith("the runs: wall time 1.500 s → 3.000 s") for line in lines)


def test_a_run_equals_itself(finished_run: Result, printed: io.StringIO) -> None:
    found = compare(finished_run, finished_run)
    assert not found.metrics
    # A folder made by hand holds no scenario.
    assert found.knobs is None
    show_compare.show_comparison(found)
    assert "which keys differ is not known" in printed.getvalue()
    assert f"all {len(found.equal)} figures are equal" in printed.getvalue()


def test_jobs_are_paired_by_name_and_a_single_one_by_being_single(finished_run: Result, tmp_path: Path) -> None:
    def with_jobs(name: str, *jobs: str) -> Result:
        folder = tmp_path / name
        shutil.copytree(finished_run.path, folder)
        job = finished_run.summary["jobs"][0]
        summary = {**finished_run.summary, "jobs": [{**job, "name": one} for one in jobs]}
        (folder / "summary.json").write_text(json.dumps(summary))
        return Result(folder)

    assert not compare(with_jobs("a", "x"), with_jobs("b", "y")).metrics
    groups = {metric.group for metric in compare(with_jobs("c", "x", "z"), with_jobs("d", "x", "y")).metrics}
    assert groups == {"job y", "job z"}


@pytest.mark.engine
def test_the_command_compares_with_a_run_a_scenario_and_two_runs(command: Command, tmp_path: Path) -> None:
    (tmp_path / "pair.yaml").write_text(SCENARIO)
    deep = ("--set", "network.buffers[0].size=16 MB")
    command("run", "pair.yaml", "--out", "shallow", "--no-report")
    done = command("run", "pair.yaml", *deep, "--out", "deep", "--compare", "shallow", "--no-report")
    assert "compared with shallow" in done.stdout
    assert "network.buffers[0].size  60 KB  16 MB" in done.stdout
    assert "packets dropped" in done.stdout
    found: dict[str, Any] = json.loads(command("run", "deep", "--compare", "shallow", "--json").stdout)
    assert found["scenario"] == "pair"
    drops = next(m for m in found["comparison"]["metrics"] if m["key"] == "network.packets_dropped")
    assert drops["then"] > 0 == drops["now"]
    assert drops["absolute"] == -drops["then"]
    assert drops["relative"] == -1.0
    # The file is run as it is written: only what this command sets differs.
    text = command(
        "run", "pair.yaml", *deep, "--out", "again", "--compare", "pair.yaml", "--json", "--no-report"
    ).stdout
    other: dict[str, Any] = json.loads(text)["comparison"]
    assert other["knobs"] == found["comparison"]["knobs"]
    assert other["metrics"] == found["comparison"]["metrics"]
    assert other["compared_with"] == "pair.yaml"
    by_seed = command("run", "pair.yaml", "--seed", "2", "--compare", "pair.yaml", "--no-report").stdout
    assert "seed  0     2" in by_seed
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again", "deep", "pair.yaml", "runs", "shallow"]


@pytest.mark.engine
def test_a_run_that_takes_the_place_of_another_is_compared_with_that_one(command: Command, tmp_path: Path) -> None:
    (tmp_path / "pair.yaml").write_text(SCENARIO)
    place = tmp_path / "runs" / "pair-packet"
    command("run", "pair.yaml", "--no-report")
    assert place.is_dir()
    # Both have the same name and fidelity, and so by default the same place.
    deep = ("--set", "network.buffers[0].size=16 MB")
    done = command("run", "pair.yaml", *deep, "--compare", place, "--no-report", "--json")
    found = json.loads(done.stdout)["comparison"]
    assert [knob["key"] for knob in found["knobs"]] == ["network.buffers[0].size"]
    drops = next(m for m in found["metrics"] if m["key"] == "network.packets_dropped")
    assert drops["then"] > 0 == drops["now"]


@pytest.mark.engine
def test_a_file_with_other_contents_is_a_knob(tmp_path: Path) -> None:
    flows = tmp_path / "flows.csv"
    text = SCENARIO.replace("{pattern: incast, bytes: 2 MB}", "{file: flows.csv}")
    (tmp_path / "pair.yaml").write_text(text)
    runs: list[Result] = []
    for size in (1_000_000, 9_000_000, 9_000_000):
        flows.write_text(f"source,destination,bytes\n0,1,{size}\n")
        runs.append(windtunnel.run(tmp_path / "pair.yaml", fidelity="flow", out=tmp_path / f"run{len(runs)}"))
    small, large, same = runs
    assert small.summary["scenario_sha256"] != large.summary["scenario_sha256"] == same.summary["scenario_sha256"]
    (knob,) = compare(large, small).knobs or []
    digest = hashlib.sha256(flows.read_bytes()).hexdigest()
    assert (knob.key, knob.now) == ("contents of flows.csv", digest[:12])
    assert compare(same, large).knobs == []
