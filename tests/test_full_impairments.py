"""With `--full` several jobs see links go down at flow fidelity, as they do in episodes."""

from __future__ import annotations

from typing import Any

import pytest

import windtunnel

HALF = {"workload": {"collective": {"kind": "all_to_all", "algorithm": "pairwise", "bytes": "64 MB", "ranks": 16}}}
SCENARIO: dict[str, Any] = {
    "windtunnel": 1,
    "name": "cut",
    "seed": 3,
    "fidelity": "flow",
    "topology": {
        "shape": "clos",
        "hosts": 16,
        "tiers": [
            {"ports_down": 8, "rate": "100 Gbps", "length": "10 m", "oversubscription": 4},
            {"ports_down": 4, "rate": "100 Gbps", "length": "50 m"},
        ],
        "host": {"gpus": 2, "nics": 2},
    },
    "network": {"load_balancer": "spray"},
    "jobs": [
        {"name": "a", "placement": "spread", "iterations": 4, **HALF},
        {"name": "b", "placement": "spread", "iterations": 4, **HALF},
    ],
}
DOWN = {"down": [{"part": "leaf0 -> spine0", "at": "0 s", "until": "100 s"}], "convergence": "1 us"}


def last_end(*, full: bool, impairments: dict[str, Any]) -> float:
    """When the last job ends, in seconds."""
    result = windtunnel.run({**SCENARIO, "impairments": impairments}, full=full)
    return float(result.summary["cluster"]["makespan_s"])


@pytest.mark.engine
def test_a_cable_that_is_down_is_down_in_full_runs() -> None:
    whole, cut = (last_end(full=True, impairments=impairments) for impairments in ({}, DOWN))
    episodes = last_end(full=False, impairments=DOWN)
    # One of two uplinks of a leaf is gone, and what crosses it shares the other one.
    assert cut > 1.9 * whole
    assert cut == pytest.approx(episodes, rel=0.03)
