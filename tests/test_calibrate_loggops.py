"""`windtunnel calibrate loggops`: the parameters of which round trips were made are found again."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

pytestmark = pytest.mark.engine
L, O_, G_, BYTE, OWN, EAGER = 2_500.0, 800.0, 1_200.0, 0.08, 0.01, 8_192
SIZES = [1, 2, 4, 8, 16, 64, 256, 1_024, 2_048, 4_096, 8_192, 16_384, 65_536, 262_144, 1_048_576]


def pingpongs(noise: float) -> str:
    """Round trips as LogGOPS has them; beyond `EAGER` a send waits for its receiver."""
    draw = random.Random(1)
    lines = ["messages,bytes,delay_ns,min_ns,median_ns"]
    for size in SIZES:
        own = O_ + (size - 1) * OWN
        one = 2 * (L + 2 * own + (size - 1) * BYTE)
        spaced = own if size <= EAGER else own + one / 2
        for messages, delay in ((1, 0.0), (16, 0.0), (16, one)):
            burst = max(own, G_ + (size - 1) * BYTE)
            took = one + (messages - 1) * (delay + spaced if delay else burst)
            least = took * (1 + noise * draw.random())
            lines.append(f"{messages},{size},{delay:.0f},{least:.1f},{least * 1.3:.1f}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("noise", "tolerance"), [(0.0, 0.01), (0.002, 0.12)])
def test_the_parameters_are_found_again(command: Command, tmp_path: Path, noise: float, tolerance: float) -> None:
    table = tmp_path / "pingpong.csv"
    table.write_text(pingpongs(noise))
    found = json.loads(command("calibrate", "loggops", table, "--json").stdout)["loggops"]
    for key, expected in {"L": L, "o": O_, "g": G_}.items():
        assert float(found[key].removesuffix(" ns")) == pytest.approx(expected, rel=tolerance), key
    assert found["G"] == pytest.approx(BYTE, rel=tolerance)
    assert found["S"] == f"{EAGER} B"


def test_what_is_written_is_a_piece_of_a_scenario(command: Command, tmp_path: Path) -> None:
    table, piece = tmp_path / "pingpong.csv", tmp_path / "loggops.yaml"
    table.write_text(pingpongs(0.0))
    said = command("calibrate", "loggops", table, "-o", piece).stdout
    assert "0.0% in the median" in said
    scenario = tmp_path / "one.yaml"
    scenario.write_text(
        "windtunnel: 1\nname: one\nfidelity: message\n"
        + piece.read_text()
        + "topology: {shape: clos, hosts: 2, tiers: [{ports_down: 2, rate: 100 Gbps, length: 5 m}],\n"
        "  host: {gpus: 1, nics: 1, nic: ConnectX-6}}\n"
        "jobs: [{name: one, workload: {goal: one.goal}, iterations: 1}]\n"
    )
    (tmp_path / "one.goal").write_text("num_ranks 2\nrank 0 {\nl1: send 1024b to 1 tag 0\n}\nrank 1 {\nl1: recv 1024b from 0 tag 0\n}\n")
    summary = json.loads(command("run", scenario, "--json", "--no-report", "--out", tmp_path / "run").stdout)
    expected = (L + 2 * (O_ + 1_023 * OWN) + 1_023 * BYTE) * 1e-9
    assert summary["jobs"][0]["iteration_time_s"]["mean"] == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "expected the columns"),
        ("messages,bytes,delay_ns,min_ns,median_ns\n1,1,0,x,2\n", "pingpong.csv:2: expected five numbers"),
        ("messages,bytes,delay_ns,min_ns,median_ns\n1,1,0,-5,2\n", "above 0"),
        ("messages,bytes,delay_ns,min_ns,median_ns\n1,1,0,5,5\n", "at least 4 sizes"),
    ],
)
def test_what_is_no_table_is_refused(command: Command, tmp_path: Path, text: str, said: str) -> None:
    table = tmp_path / "pingpong.csv"
    table.write_text(text)
    assert said in command("calibrate", "loggops", table, check=2).stderr
