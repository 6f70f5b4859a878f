"""Erasure coding (`network.recovery: erasure`): what it costs, what it saves, and what other fidelities make of it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

import windtunnel

if TYPE_CHECKING:
    from pathlib import Path

PAYLOAD, FULL = 4084, 4150
"""Bytes that a full packet carries, and its size on the wire."""
BYTE_S = 8 / 400e9
"""Time of a byte at 400 Gbps."""

PAIR = """
windtunnel: 1
name: pair
fidelity: packet
topology:
  shape: clos
  hosts: 2
  tiers: [{ports_down: 2, rate: 400 Gbps, length: 20 km}]
  host: {gpus: 1, nics: 1}
network: {congestion: none, timeout: 50 ms, recovery: rack}
jobs:
  - {name: send, workload: {goal: pair.goal}}
"""
FAR = """
windtunnel: 1
name: far
fidelity: packet
topology:
  shape: clos
  hosts: 16
  tiers:
    - {ports_down: 8, rate: 400 Gbps, length: 30 m, oversubscription: 1}
    - {ports_down: 2, rate: 400 Gbps, length: 100 km}
  host: {gpus: 1, nics: 1}
network: {congestion: none, window: 8 MB, timeout: 20 ms, load_balancer: spray, recovery: rack}
jobs:
  - name: exchange
    workload: {collective: {kind: all_to_all, bytes: 8 MiB}}
"""


def run(
    folder: Path, text: str, *pairs: tuple[str, object], sizes: tuple[int, ...] = (), threads: int | None = None
) -> dict[str, Any]:
    """The summary of a run of `text`; messages of `sizes` bytes are sent one after the other from host 0 to 1."""
    folder.mkdir(exist_ok=True)
    (folder / "scenario.yaml").write_text(text, encoding="utf-8")
    sends = "\n".join(f"s{i}: send {size}b to 1 tag {i}" for i, size in enumerate(sizes))
    takes = "\n".join(f"r{i}: recv {size}b from 0 tag {i}" for i, size in enumerate(sizes))
    (folder / "pair.goal").write_text(
        f"num_ranks 2\nrank 0 {{\n{sends}\n}}\nrank 1 {{\n{takes}\n}}\n", encoding="utf-8"
    )
    result = windtunnel.run(folder / "scenario.yaml", overrides=dict(pairs), threads=threads)
    return dict(result.summary)


def seconds(summary: dict[str, Any]) -> float:
    """The time of an iteration."""
    return float(summary["jobs"][0]["iteration_time_s"]["mean"])


@pytest.mark.parametrize(("packets", "waits"), [(1, 0), (31, 0), (32, 0), (33, 8), (65, 16)])
def test_a_message_waits_for_the_parity_before_its_last_packet_of_data(
    tmp_path: Path, packets: int, waits: int
) -> None:
    plain = run(tmp_path, PAIR, sizes=(packets * PAYLOAD,))
    coded = run(tmp_path, PAIR, ("network.recovery", "erasure"), sizes=(packets * PAYLOAD,))
    assert seconds(coded) - seconds(plain) == pytest.approx(waits * FULL * BYTE_S, abs=2e-12)
    # The run ends with the last packet of data: parity behind it is still on its way.
    assert coded["network"]["packets_delivered"] == packets + waits
    assert coded["network"]["retransmissions"] == plain["network"]["retransmissions"] == 0


@pytest.mark.parametrize("fidelity", ["flow", "message"])
def test_other_fidelities_count_parity_as_bytes(tmp_path: Path, fidelity: str) -> None:
    size = 3200 * PAYLOAD
    times = {}
    for recovery in ("rack", {"erasure": {"data": 8, "parity": 4}}):
        pairs = (("fidelity", fidelity), ("network.recovery", recovery))
        times[str(recovery)] = seconds(run(tmp_path, PAIR, *pairs, sizes=(size,)))
    plain, coded = times.values()
    # 3,200 packets take half as many of parity.
    assert coded - plain == pytest.approx(1600 * FULL * BYTE_S, rel=2e-3)


def test_losses_that_parity_covers_cost_nothing(tmp_path: Path) -> None:
    loss = ("impairments.loss", [{"on": "all", "rate": 0.001}])
    idle, mended = run(tmp_path, FAR, ("network.recovery", "erasure")), {}
    for recovery in ("rack", "erasure"):
        mended[recovery] = run(tmp_path, FAR, ("network.recovery", recovery), loss)
    coded = mended["erasure"]
    assert coded["network"]["packets_dropped"] > 50
    assert seconds(coded) < 1.01 * seconds(idle)
    # A round trip of 100 km takes 1 ms; the exchange half of it and some.
    assert seconds(mended["rack"]) > 1.4 * seconds(coded)
    # What is lost behind the last message of a queue pair alone is sent again.
    assert coded["network"]["retransmissions"] < 0.02 * coded["network"]["packets_delivered"]


def test_what_parity_does_not_cover_is_sent_again(tmp_path: Path) -> None:
    loss = ("impairments.loss", [{"on": "all", "rate": 0.05, "burst": 4}])
    thin = ("network.recovery", {"erasure": {"data": 16, "parity": 1}})
    for balancer in ("spray", "ecmp"):
        found = run(tmp_path, FAR, thin, loss, ("network.load_balancer", balancer))
        assert found["network"]["retransmissions"] > 100, balancer
        assert found["flows"]["count"] == 16 * 15, balancer


def test_messages_behind_one_another_and_threads(tmp_path: Path) -> None:
    draw = random.Random(5)  # noqa: S311
    sizes = tuple(draw.randint(1, 60 * PAYLOAD) for _ in range(60))
    for data, parity in ((1, 1), (5, 2), (32, 8), (48, 16)):
        coding = ("network.recovery", {"erasure": {"data": data, "parity": parity}})
        lossy = (coding, ("impairments.loss", [{"on": "all", "rate": 0.02, "burst": 3}]), ("network.queue_pairs", 1))
        one = run(tmp_path, PAIR, *lossy, sizes=sizes)
        assert one["flows"]["count"] == len(sizes)
        assert one["network"]["packets_dropped"] > 0
    light = (("network.recovery", "erasure"), ("impairments.loss", [{"on": "all", "rate": 0.01}]))
    alone, several = (run(tmp_path, FAR, *light, threads=threads) for threads in (1, 4))
    assert alone["jobs"] == several["jobs"]
    assert alone["network"] == several["network"]
