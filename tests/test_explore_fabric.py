"""Fabrics for a job mix: what designs cost, what jobs take on them, and ports that nobody uses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from conftest import ROOT
from windtunnel.engine import InputError
from windtunnel.explore.fabric import Design, designs, front, remarks
from windtunnel.source import read_source

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

EXAMPLE = ROOT / "examples" / "fabric-design.yaml"


def test_a_naive_clos_of_three_tiers_costs_three_times_one_that_blocks_nowhere() -> None:
    found = designs(read_source(EXAMPLE), [])
    written, free = found[0], {design.name(): design for design in found}["2 tiers, oversubscription 1, bundle 8"]
    assert written.oversubscribed == 2.0
    assert free.oversubscribed == 1.0
    # Of 64 ports of a spine 2 are in use: 256 NICs are halved twice, over 32 spines.
    assert written.top == (64, 32 * 64)
    assert free.top == (256, 256)
    assert written.usd is not None
    assert free.usd is not None
    assert 2.5 < written.usd / free.usd < 3.5
    said = remarks(found)[0]
    assert said.startswith("`as written`: 1,984 of 2,048 ports of the top tier stay empty")
    assert "2.77 times `2 tiers, oversubscription 1, bundle 8`, which blocks nowhere" in said


def test_the_front_has_what_no_cheaper_design_is_as_fast_as() -> None:
    rows = [Design({"a": n}, usd=usd, slowdown=slow) for n, (usd, slow) in enumerate([(3, 1.0), (1, 2.0), (2, 2.0)])]
    assert [row.usd for row in front(rows)] == [1, 3]


def test_what_is_no_clos_is_refused() -> None:
    with pytest.raises(InputError, match="expected a `clos` of two tiers or more"):
        designs(read_source(ROOT / "examples" / "two-buildings.yaml"), [])


def test_the_command_and_its_refusals(command: Command, tmp_path: Path) -> None:
    asked = ("fabrics", EXAMPLE, "--oversubscription", "1,4", "--store", tmp_path / "runs", "--workers", "1")
    small = ("--set", "jobs[0].workload.global_batch=32")
    told = json.loads(command(*asked, *small, "--budget", "1500000", "--json").stdout)
    rows = told["designs"]
    assert all(row["fabric_usd"] <= 1_500_000 for row in rows)
    assert [row["fabric_usd"] for row in rows] == sorted(row["fabric_usd"] for row in rows)
    assert min(row["slowdown"] for row in rows) == 1.0
    # Experts exchange across leaves: a fabric of four times fewer ports above them is cheaper, and not faster.
    slow = {row["oversubscribed"]: row["slowdown"] for row in rows}
    assert slow[4.0] > 1.05 * slow[1.0]
    assert len(told["front"]) > 1
    refused = command(*asked, "--budget", "1000", check=2)
    assert "--budget: no fabric for US$ 1,000: the cheapest takes US$ " in refused.stderr
    assert "--budget: expected more than 0" in command(*asked, "--budget", "0", check=2).stderr


def test_a_slowdown_counts_the_gpus_of_each_job(command: Command, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed.yaml"
    text = EXAMPLE.read_text(encoding="utf-8").replace("dp: 4, zero: 1}", "dp: 2, zero: 1}")
    own = text[text.index("  - name: pretrain") :].replace("dp: 2", "dp: 1").replace("pretrain", "tune")
    mixed.write_text(text + own, encoding="utf-8")
    asked = ("fabrics", mixed, "--oversubscription", "1,4", "--store", tmp_path / "runs", "--workers", "1")
    small = ("--set", "jobs[0].workload.global_batch=16", "--set", "jobs[1].workload.global_batch=8")
    rows = json.loads(command(*asked, *small, "--json").stdout)["designs"]
    assert all(len(row["job_s"]) == 2 for row in rows)
    least = [min(row["job_s"][job] for row in rows) for job in range(2)]
    for row in rows:
        # 128 GPUs and 64.
        slow = [row["job_s"][job] / least[job] for job in range(2)]
        assert row["slowdown"] == pytest.approx((128 * slow[0] + 64 * slow[1]) / 192)
    assert max(row["slowdown"] for row in rows) > 1.02
