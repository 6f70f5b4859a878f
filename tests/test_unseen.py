"""What packet fidelity says that flow fidelity would not have seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import windtunnel
from windtunnel.report import write_report
from windtunnel.unseen import unseen, unseen_line

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel import Result

QUIET = {
    "packets_delivered": 1000, "packets_dropped": 0, "loss_rate": 0.0, "ecn_marked": 0, "pfc_pause_s": None,
    "retransmissions": 0, "reordered_packets": 0, "mean_queueing_delay_s": 1e-7, "path_unevenness": 0.01,
}  # fmt: skip

TOPOLOGY = {
    "shape": "clos", "hosts": 8, "host": {"gpus": 1, "nics": 1},
    "tiers": [{"ports_down": 4, "rate": "400 Gbps", "length": "20 m"},
              {"ports_down": 8, "rate": "400 Gbps", "length": "50 m"}],
}  # fmt: skip


def met(fidelity: str = "packet", **network: object) -> dict[str, Any]:
    return {"fidelity": fidelity, "network": {**QUIET, **network}}


def test_each_counter_has_its_phrase() -> None:
    assert unseen(met("flow", packets_delivered=None)) is None
    assert unseen_line(met("flow", ecn_marked=1)) is None
    assert unseen(met()) == []
    assert unseen_line(met()) == "no loss, pause, mark or queue that flow fidelity would not see"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"packets_dropped": 1, "loss_rate": 0.001}, "1 packet lost (0.1 %)"),
        ({"retransmissions": 1200}, "1,200 sent again"),
        ({"pfc_pause_s": 0.002}, "pauses of 2.000 ms over all ports"),
        ({"ecn_marked": 5}, "5 marked by queues"),
        ({"reordered_packets": 7}, "7 out of order"),
        ({"mean_queueing_delay_s": 2e-6}, "2.000 µs in queues for a mean packet"),
        ({"path_unevenness": 0.12}, "uplinks that hashed paths fill unevenly (one +12.0 %)"),
    ]
    for network, phrase in cases:
        assert unseen(met(**network)) == [phrase]
    both = unseen_line(met(ecn_marked=5, packets_dropped=2, loss_rate=0.002))
    assert both == "flow fidelity would not see: 2 packets lost (0.2 %), 5 marked by queues"


def run(workload: dict[str, Any], **network: object) -> Result:
    jobs = [{"name": "job", "workload": workload}]
    return windtunnel.run({
        "windtunnel": 1, "name": "met", "seed": 1, "fidelity": "packet", "topology": TOPOLOGY, "network": network,
        "jobs": jobs,
    })  # fmt: skip


@pytest.mark.engine
def test_an_incast_shows_and_a_ring_does_not(tmp_path: Path) -> None:
    incast = run({"flows": {"pattern": "incast", "bytes": "4 MB"}}, buffers=[{"size": "2 MB"}])
    phrases = unseen(incast.summary)
    assert phrases
    assert "lost" in phrases[0]
    assert any("marked by queues" in phrase for phrase in phrases)
    page = write_report(incast, tmp_path / "incast.html").read_text(encoding="utf-8")
    assert "What flow fidelity would not see" in page
    assert f"<li>{phrases[0]}</li>" in page
    ring = run({"collective": {"kind": "all_reduce", "algorithm": "ring", "bytes": "8 MiB"}}, transport="none")
    assert unseen(ring.summary) == []
    assert "Nothing: no loss" in write_report(ring, tmp_path / "ring.html").read_text(encoding="utf-8")


@pytest.mark.engine
def test_hashed_packets_fill_uplinks_unevenly() -> None:
    """A path number of few is a draw: 4 uplinks by 4 numbers and 7 flows are far from even, 256 numbers are nearer."""
    exchange = {"flows": {"pattern": "permutation", "bytes": "4 MB"}}
    few = run(exchange, transport="uec", load_balancer="spray", paths=4).summary["network"]["path_unevenness"]
    many = run(exchange, transport="uec", load_balancer="spray", paths=256).summary["network"]["path_unevenness"]
    assert few > many >= 0
    assert few > 0.05
    assert run(exchange, transport="uec").summary["network"]["path_unevenness"] is None
