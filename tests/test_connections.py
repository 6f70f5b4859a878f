"""`network.connections`: what messages outside communicators go by, against slow start's arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import windtunnel

if TYPE_CHECKING:
    from pathlib import Path

PACKETS = 150
PAYLOAD = 4084
"""Bytes that a packet carries."""
ROUND_TRIP_S = 2e-3
"""Four times 100 km of fibre at 5 us a km."""
SCENARIO = """
windtunnel: 1
name: ping-pong
fidelity: {fidelity}
topology:
  shape: clos
  hosts: 2
  tiers: [{{ports_down: 2, rate: 100 Gbps, length: 100 km}}]
  host: {{gpus: 1, nics: 1}}
network: {{transport: {transport}, timeout: 20 ms, connections: {connections}}}
jobs: [{{name: a, workload: {{goal: ping-pong.goal}}, iterations: 1}}]
"""


def ping_pong(times: int) -> str:
    """Rank 0 sends `PACKETS`, rank 1 answers with a byte, and so on."""
    there, back = ["rank 0 {"], ["rank 1 {"]
    for i in range(times):
        there += [f"s{i}: send {PACKETS * PAYLOAD}b to 1 tag {i}", f"r{i}: recv 1b from 1 tag {1000 + i}"]
        back += [f"r{i}: recv {PACKETS * PAYLOAD}b from 0 tag {i}", f"s{i}: send 1b to 0 tag {1000 + i}"]
        back.append(f"s{i} requires r{i}")
        if i:
            there.append(f"s{i} requires r{i - 1}")
    return "\n".join(["num_ranks 2", *there, "}", *back, "}", ""])


def seconds(folder: Path, connections: str, times: int, transport: str = "newreno", fidelity: str = "packet") -> float:
    (folder / "ping-pong.goal").write_text(ping_pong(times))
    path = folder / "scenario.yaml"
    path.write_text(SCENARIO.format(connections=connections, transport=transport, fidelity=fidelity))
    return float(windtunnel.run(str(path)).summary["jobs"][0]["finish_s"])


@pytest.mark.parametrize("transport", ["newreno", "cubic"])
def test_the_next_message_of_a_pair_finds_the_window_of_the_one_before(tmp_path: Path, transport: str) -> None:
    """150 packets take windows of 10, 20, 40 and 80, three round trips more: of a pair only the first message."""
    alone = seconds(tmp_path, "message", 1, transport)
    assert alone > 3 * ROUND_TRIP_S
    assert seconds(tmp_path, "pair", 1, transport) == alone
    assert seconds(tmp_path, "message", 10, transport) == pytest.approx(10 * alone, rel=2e-3)
    later = (seconds(tmp_path, "pair", 10, transport) - alone) / 9
    at_line_rate = ROUND_TRIP_S + PACKETS * 4150 * 8 / 100e9
    assert at_line_rate <= later < 1.25 * at_line_rate


@pytest.mark.parametrize("fidelity", ["flow", "message"])
def test_windows_are_of_packets(tmp_path: Path, fidelity: str) -> None:
    """One message at a time: without windows a connection of its own costs nothing."""
    times = [seconds(tmp_path, connections, 10, fidelity=fidelity) for connections in ("message", "pair")]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


def test_what_comes_behind_a_long_message_of_a_pair_waits_for_it(tmp_path: Path) -> None:
    """Two messages at once, of 10 MB and of a byte: the byte is last where it shares the connection, else first."""
    (tmp_path / "ping-pong.goal").write_text(
        "num_ranks 2\nrank 0 {\na: send 10000000b to 1 tag 1\nb: send 1b to 1 tag 2\n}\n"
        "rank 1 {\na: recv 10000000b from 0 tag 1\nb: recv 1b from 0 tag 2\nc: calc 50000000 cpu 1\nc requires b\n}\n"
    )
    ends = {}
    for connections in ("message", "pair"):
        path = tmp_path / "scenario.yaml"
        path.write_text(SCENARIO.format(connections=connections, transport="none", fidelity="flow"))
        ends[connections] = windtunnel.run(str(path)).summary["jobs"][0]["finish_s"]
    whole = 10_000_000 * 8 / 100e9
    assert ends["pair"] - ends["message"] == pytest.approx(whole, rel=0.05)
