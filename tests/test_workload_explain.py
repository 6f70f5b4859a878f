"""`windtunnel workload explain`: two commands from a recording to its page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

pytestmark = pytest.mark.engine
STENCIL = ROOT / "examples" / "traces" / "mpi-stencil"
STEP = [ROOT / "examples" / "traces" / f"step-rank{rank}.json" for rank in range(2)]


def test_the_parts_add_up_and_the_last_rank_is_named(command: Command, tmp_path: Path) -> None:
    workload, page = tmp_path / "stencil.wtw", tmp_path / "explained.html"
    command("import", "mpi", STENCIL, "-o", workload)
    found = json.loads(command("workload", "explain", workload, "-o", page, "--json").stdout)
    parts = found["compute_s"] + sum(found["exposed_s"].values())
    parts += found["bubble_s"] + found["straggler_s"] + found["host_s"]
    assert parts == pytest.approx(found["replayed_s"], rel=1e-9)
    assert found["no_stragglers_s"] == pytest.approx(found["replayed_s"] - found["straggler_s"])
    # Each of the two all-reduces has one rank that came last.
    assert sum(row["last"] for row in found["arrivals"]) == 2
    # Halos: 2 x 2 ranks, 64 points a side, four ways of 8 bytes, 20 steps; beside them two sums of 8 bytes.
    halos = 4 * 2 * 64 * 8 * 20
    assert halos <= found["bytes_between_hosts"] < 1.01 * halos
    assert found["bytes_within_hosts"] == 0
    text = page.read_text()
    assert "Who arrives last" in text
    assert "an ideal fabric" in text
    assert "<script" not in text


def test_a_slower_fabric_exposes_more(command: Command, tmp_path: Path) -> None:
    workload = tmp_path / "step.wtw"
    command("import", "kineto", *STEP, "-o", workload)
    exposed = []
    for rate in ("400 Gbps", "50 Gbps"):
        done = command("workload", "explain", workload, "-o", tmp_path / "x.html", "--rate", rate, "--json")
        exposed.append(sum(json.loads(done.stdout)["exposed_s"].values()))
    assert exposed[1] > 4 * exposed[0]


def test_a_scenario_gives_the_fabric(command: Command, tmp_path: Path) -> None:
    step, page = ROOT / "examples" / "workloads" / "recorded-step.jsonl", tmp_path / "x.html"
    scenario = ROOT / "examples" / "recorded-step.yaml"
    found = json.loads(command("workload", "explain", step, "--on", scenario, "-o", page, "--json").stdout)
    assert (found["gpus_per_host"], found["hosts"]) == (1, 2)
    assert found["replayed_s"] == pytest.approx(0.01457, rel=0.01)
    assert found["coverage"] is None


def test_what_cannot_be_explained_is_refused(command: Command, tmp_path: Path) -> None:
    step = ROOT / "examples" / "workloads" / "recorded-step.jsonl"
    page = tmp_path / "x.html"
    for arguments, said in (
        ([tmp_path / "none.wtw"], "no such file"),
        ([step, "--on", ROOT / "README.md"], "README.md"),
        ([step, "--rate", "fast"], "fast"),
    ):
        done = command("workload", "explain", *arguments, "-o", page, check=2)
        assert said in done.stderr
    assert not page.exists()
    damaged = tmp_path / "w.jsonl"
    damaged.write_bytes(step.read_bytes())
    (tmp_path / "w.jsonl.coverage.json").write_text("{}")
    assert "import again" in command("workload", "explain", damaged, "-o", page, check=2).stderr
