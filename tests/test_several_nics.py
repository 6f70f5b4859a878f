"""GPUs with several NICs: a message leaves by all of them in equal parts, unless the programs name NICs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import windtunnel

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

FIDELITIES = ("message", "flow", "packet")
BYTES = 64 << 20


def scenario(nics: int, workload: dict[str, Any], fidelity: str) -> dict[str, Any]:
    """Two hosts of one GPU with so many NICs of 100 Gbit/s."""
    return {
        "windtunnel": 1,
        "name": "nics",
        "fidelity": fidelity,
        "topology": {
            "shape": "clos",
            "tiers": [{"ports_down": 2 * nics, "rate": "100 Gbps", "length": "5 m"}],
            "host": {"gpus": 1, "nics": nics},
            "hosts": 2,
        },
        "jobs": [{"name": "j", "workload": workload, "iterations": 1}],
    }


def seconds(told: dict[str, Any], folder: Path) -> tuple[float, list[float]]:
    """Of an iteration; and the bytes that each NIC of the first host sent."""
    result = windtunnel.run(told, out=folder)
    links = result.links.iter_rows(named=True) if told["fidelity"] != "message" else ()
    sent = {row["name"].partition(" ")[0]: float(row["bytes"]) for row in links if row["tier"] == "nic-up"}
    used = [sent.get(f"host0/nic{nic}", 0.0) for nic in range(told["topology"]["host"]["nics"])]
    return float(result.summary["jobs"][0]["iteration_time_s"]["mean"]), used


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("nics", [2, 4])
def test_a_message_takes_a_part_of_the_time(nics: int, fidelity: str, tmp_path: Path) -> None:
    workload = {"collective": {"kind": "broadcast", "algorithm": "ring", "bytes": f"{BYTES} B", "ranks": 2}}
    one, _ = seconds(scenario(1, workload, fidelity), tmp_path / "one")
    several, used = seconds(scenario(nics, workload, fidelity), tmp_path / "several")
    assert several == pytest.approx(one / nics, rel=0.03)
    if fidelity != "message":
        # Each NIC of the sender carries as much as the others.
        assert used == pytest.approx([used[0]] * nics, rel=0.06)
        assert used[0] == pytest.approx(BYTES / nics, rel=0.06)


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_programs_that_name_nics_have_these(fidelity: str, tmp_path: Path) -> None:
    """A message that names the second NIC leaves by it alone, and takes as long as by one."""
    program = tmp_path / "named.goal"
    sender, receiver = f"l1: send {BYTES}b to 1 tag 1 nic 1", f"l1: recv {BYTES}b from 0 tag 1"
    program.write_text(f"num_ranks 2\nrank 0 {{\n{sender}\n}}\nrank 1 {{\n{receiver}\n}}\n")
    one, _ = seconds(scenario(1, {"goal": str(program)}, fidelity), tmp_path / "one")
    named, used = seconds(scenario(4, {"goal": str(program)}, fidelity), tmp_path / "named")
    assert named == pytest.approx(one, rel=0.02)
    if fidelity != "message":
        assert used[1] > BYTES
    assert used[0] + sum(used[2:]) == 0


@pytest.mark.parametrize("fidelity", ["flow", "packet"])
def test_what_a_cut_cable_carried_goes_by_the_others(fidelity: str, tmp_path: Path) -> None:
    workload = {"collective": {"kind": "broadcast", "algorithm": "ring", "bytes": f"{BYTES} B", "ranks": 2}}
    whole = scenario(4, workload, fidelity)
    cut = scenario(4, workload, fidelity)
    cut["topology"]["failed"] = ["host0/nic2 -> leaf0"]
    two, used = seconds(cut, tmp_path / "cut")
    one, _ = seconds(whole, tmp_path / "whole")
    assert two == pytest.approx(one * 4 / 3, rel=0.03)
    assert used[2] == 0
