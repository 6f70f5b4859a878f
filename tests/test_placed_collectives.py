"""Collectives cost what the places of their ranks make of them, wherever a placement puts these."""

from __future__ import annotations

from typing import Any

import pytest

import windtunnel


def _scenario(gpus: int, placement: str, kind: str, size: str, ranks: int, length: str = "2 km") -> dict[str, Any]:
    scale_up = {"rate": "1600 Gbps", "latency": "500 ns"}
    return {
        "windtunnel": 1,
        "name": "placed",
        "seed": 3,
        "fidelity": "flow",
        "topology": {
            "shape": "clos",
            "hosts": 16,
            "host": {"gpus": gpus, "nics": gpus, "gpu": "H100-SXM", "scale_up": scale_up},
            "tiers": [
                {"ports_down": 4 * gpus, "rate": "400 Gbps", "length": length},
                {"ports_down": 16, "rate": "400 Gbps", "length": "100 m"},
            ],
        },
        "network": {"transport": "none", "load_balancer": "spray"},
        "jobs": [
            {
                "name": "a",
                "placement": placement,
                "workload": {"collective": {"kind": kind, "bytes": size, "ranks": ranks}},
            }
        ],
    }


def _seconds(scenario: dict[str, Any], fidelity: str) -> float:
    summary = windtunnel.run(scenario, fidelity=fidelity).summary
    return float(summary["jobs"][0]["iteration_time_s"]["mean"])


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce"])
@pytest.mark.parametrize("size", ["64 KiB", "16 MB"])
def test_ranks_spread_over_hosts_cost_what_ranks_on_hosts_of_their_own_cost(kind: str, size: str) -> None:
    """Four ranks on four hosts of four GPUs share no scale-up link, as four hosts of one GPU do not."""
    spread = _seconds(_scenario(4, "spread", kind, size, 4), "flow")
    alone = _seconds(_scenario(1, "packed", kind, size, 4), "flow")
    packed = _seconds(_scenario(4, "packed", kind, size, 4), "flow")
    assert spread == pytest.approx(alone, rel=1e-3)
    assert spread > 1.5 * packed


@pytest.mark.parametrize("placement", ["packed", "spread", "random", "rail-aware"])
@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize(("length", "longer"), [("5 m", 1.16), ("2 km", 1.3)])
def test_fidelities_agree_wherever_ranks_stand(placement: str, ranks: int, length: str, longer: float) -> None:
    """A collective alone on its links takes the same at flow and packet fidelity.

    But at packet fidelity a ring's steps pass one after another; the closed form's channels wait for cables together.
    """
    for kind, size in (("all_gather", "64 KiB"), ("all_reduce", "16 MB")):
        scenario = _scenario(4, placement, kind, size, ranks, length)
        flow, packet = _seconds(scenario, "flow"), _seconds(scenario, "packet")
        assert flow / 1.16 < packet < flow * longer, (kind, size)
