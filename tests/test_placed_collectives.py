"""Collectives cost what the places of their ranks make of them, wherever a placement puts these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import windtunnel

if TYPE_CHECKING:
    from pathlib import Path


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


_TIERS = [
    {"ports_down": 8, "rate": "400 Gbps", "length": "5 m"},
    {"ports_down": 8, "rate": "400 Gbps", "length": "100 m"},
]


def _buildings(kind: str, size: str, *, km: float | None, ranks: int) -> dict[str, Any]:
    """Jobs of `ranks` on 8 hosts of two GPUs a building: of two that are `km` apart, or of one that has no other.

    The first is packed, so that the second stands in the second building if it has 16 ranks.
    """
    host = {"gpus": 2, "nics": 2, "gpu": "H100-SXM", "scale_up": {"rate": "1600 Gbps", "latency": "500 ns"}}
    topology: dict[str, Any] = {"shape": "clos", "hosts": 8, "tiers": _TIERS, "host": host}
    if km is not None:
        buildings = [{"name": name, "hosts": 8, "tiers": _TIERS} for name in ("east", "west")]
        cross = [{"between": ["east", "west"], "count": 16, "rate": "400 Gbps", "length": f"{km} km"}]
        topology = {"shape": "regions", "buildings": buildings, "cross": cross, "host": host}
    job = {"workload": {"collective": {"kind": kind, "bytes": size, "ranks": ranks}}}
    names = ["first", "second"] if km is not None and ranks == 16 else ["first"]
    return {
        "windtunnel": 1,
        "name": "buildings",
        "seed": 3,
        "fidelity": "flow",
        "topology": topology,
        "network": {"transport": "none", "load_balancer": "spray"},
        "jobs": [{"name": name, **job} for name in names],
    }


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"])
@pytest.mark.parametrize("size", ["64 KiB", "16 MB"])
@pytest.mark.parametrize("fidelity", ["message", "flow", "packet"])
def test_a_group_inside_a_building_costs_what_it_costs_without_the_others(kind: str, size: str, fidelity: str) -> None:
    alone = _seconds(_buildings(kind, size, km=None, ranks=16), fidelity)
    for km in (0.1, 1000):
        jobs = windtunnel.run(_buildings(kind, size, km=km, ranks=16), fidelity=fidelity).summary["jobs"]
        found = [job["iteration_time_s"]["mean"] for job in jobs]
        # Packets are sprayed by other draws on other switches.
        assert found == pytest.approx([alone, alone], rel=1e-2 if fidelity == "packet" else 1e-9), km


@pytest.mark.parametrize("kind", ["all_gather", "all_reduce", "all_to_all"])
@pytest.mark.parametrize("size", ["64 KiB", "16 MB"])
def test_a_group_over_two_buildings_pays_its_long_ways_and_no_others(kind: str, size: str) -> None:
    """1,000 km are 5 ms.

    A ring passes two long edges, an all-to-all one. An all-reduce by rings goes round twice; by trees it goes up and
    down, with at most two long edges on the way to a leaf.
    """
    near, far = (_seconds(_buildings(kind, size, km=km, ranks=32), "flow") for km in (0.1, 1000))
    most = {"all_gather": 2, "all_reduce": 4, "all_to_all": 1}[kind]
    assert 5e-3 <= far - near + 5e-4 <= 1.1 * most * 5e-3


@pytest.mark.parametrize("kind", ["reduce_scatter", "all_to_all"])
def test_a_group_at_one_switch_of_an_imported_network_does_not_pay_a_long_cable_elsewhere(
    kind: str, tmp_path: Path
) -> None:
    """Two switches of 8 hosts apiece, joined by cables of 20 m or 200 km: 1 ms."""
    found = []
    for length in ("20 m", "200 km"):
        rows = [f"host{i},leaf{i // 8},400 Gbps,5 m,1,host,switch,0" for i in range(16)]
        rows = ["src,dst,rate,length,count,src_kind,dst_kind,dst_tier", *rows]
        file = tmp_path / f"{length.replace(' ', '')}.csv"
        file.write_text("\n".join([*rows, f"leaf0,leaf1,400 Gbps,{length},8,switch,switch,0", ""]))
        graph = _scenario(1, "packed", kind, "16 MB", 8)
        host = {"gpus": 1, "nics": 1, "gpu": "H100-SXM"}
        graph["topology"] = {"shape": "graph", "graph": {"file": str(file)}, "host": host}
        inside = _seconds(graph, "flow")
        graph["jobs"][0]["workload"]["collective"]["ranks"] = 16
        found.append((inside, _seconds(graph, "flow")))
    (near, near_both), (far, far_both) = found
    assert far == pytest.approx(near, rel=1e-2)
    assert far_both > near_both + 0.9e-3
