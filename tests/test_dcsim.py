"""DCSIM and its rivals through Python: what is counted, what is refused, and means over seeds."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

import windtunnel
from conftest import ROOT
from windtunnel import InputError
from windtunnel.experiments.collectives import (
    BDP,
    Case,
    Fabric,
    Mean,
    all_to_all,
    all_to_all_v,
    endless,
    many,
    permutation,
    scenario,
    sizes_of,
)

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = ROOT / "examples" / "dcsim-all-to-all.yaml"


def run(**overrides: Any) -> dict[str, Any]:  # noqa: ANN401 (values of overrides)
    return dict(
        windtunnel.run(EXAMPLE, overrides={"network." + key: value for key, value in overrides.items()}).summary
    )


@pytest.mark.engine
def test_an_all_to_all_loses_sims_and_no_data() -> None:
    found = run()
    figures = found["network"]["transport"]["figures"]
    data = 16 * 15 * BDP
    assert figures["data_bound"] == figures["data_left"] == figures["data_packets_arrived"] == data
    assert figures["data_lost_in_network"] == figures["data_lost_in_hosts"] == figures["sim_acks_late"] == 0
    assert figures["sims_given_up"] == figures["sims_sent"] - figures["sims_arrived"] > 0
    assert figures["sim_round_trip_longest_ps"] <= figures["rtt_max_ps"] == 22_041_216
    deliveries = found["network"]["transport"]["deliveries"]
    assert sum(row[0] for row in deliveries) == data * 9_000
    assert sum(row[1] for row in deliveries) == data


@pytest.mark.engine
@pytest.mark.parametrize("transport", ["phost", "pfabric", "dcpim"])
def test_rivals_finish_and_are_slower(transport: str) -> None:
    own = run()["jobs"][0]["iteration_time_s"]["mean"]
    found = run(transport=transport)
    assert found["network"]["transport"]["figures"]["data_bytes_arrived"] == 16 * 15 * BDP * 9_000
    assert found["jobs"][0]["iteration_time_s"]["mean"] > own


@pytest.mark.engine
@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"parameters": {"bucket": 0}}, "expected a whole number from 1 on, found 0"),
        ({"parameters": {"sim_buffer": 60}}, "`sim_buffer` is 60"),
        ({"parameters": {"rtt_max": "7 us"}}, "take 8.88768 us (of which the propagation is 7.8 us)"),
        ({"parameters": {"rtt_max": "8 us"}}, "`rtt_max` is 8 us, but a SIM and its SIM-ACK"),
        ({"parameters": {"watched_host": 99}}, "`watched_host` is 99, expected at most 16"),
        ({"parameters": {"asynchronous": True, "fraction": 0.5}}, "expected one of both"),
        ({"load_balancer": "ecmp"}, "`dcsim` draws a path for each packet itself, which `ecmp` would not keep to"),
        ({"load_balancer": "round_robin"}, "set `load_balancer: spray`"),
        ({"queues": [{"name": "all"}]}, "`network.queues` has 1 priorities, expected 4"),
        ({"recovery": "rack"}, "this transport mends losses by rules of its own"),
        ({"parameters": {"sim_buffers": 3}}, "did you mean `sim_buffer`?"),
    ],
)
def test_bad_settings_are_refused(overrides: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=r".*") as caught:
        run(**overrides)
    assert said in str(caught.value)


@pytest.mark.engine
def test_paths_are_drawn_around_what_has_failed_too() -> None:
    # By the default balancer all packets of a flow took the way that is laid down around failures.
    def figures(balancer: str | None) -> dict[str, Any]:
        overrides = {"topology.failed": ["spine0"], "network.load_balancer": balancer}
        found = windtunnel.run(EXAMPLE, overrides=overrides).summary
        return {**found["network"]["transport"]["figures"], "took": found["jobs"][0]["iteration_time_s"]["mean"]}

    found = figures(None)
    assert found == figures("spray")
    assert found["arrived_late"] > 0


def core_ports(folder: Path, case: Case) -> dict[str, int]:
    """Data packets by port of a core switch, without a load balancer in the scenario; those with none are left out."""
    text, files = scenario(case, case.traffic(1))
    del text["network"]["load_balancer"]
    for name, body in files.items():
        (folder / name).write_text(body, encoding="utf-8")
    path = folder / "scenario.json"
    path.write_text(json.dumps(text), encoding="utf-8")
    rows = windtunnel.run(path).links.iter_rows(named=True)
    return {row["name"]: row["data_packets"] for row in rows if row["name"].startswith("spine") and row["data_packets"]}


@pytest.mark.engine
@pytest.mark.parametrize("failed", [(), ("agg0.0 -> spine0",)])
@pytest.mark.parametrize("transport", ["dcsim", "phost", "pfabric", "dcpim", "homa", "sird"])
def test_packets_spread_over_the_core_by_default(tmp_path: Path, transport: str, failed: tuple[str, ...]) -> None:
    # Pod 0 sends to pod 3 and pod 1 to pod 2. Each took one core switch, whether a cable had failed or not.
    flows = [(0, 15, 200, 0), (4, 11, 200, 0)]
    carried = core_ports(tmp_path, Case(transport, lambda _: flows, fabric=Fabric(failed=failed)))
    expected = {f"spine{core} -> agg{pod}.{core % 2}" for core in range(4) for pod in (2, 3)}
    if failed:
        expected -= {"spine0 -> agg3.0"}
    assert set(carried) == expected
    assert min(carried.values()) > 200 / 4 / 2


@pytest.mark.engine
def test_expresspass_keeps_to_one_path_by_default(tmp_path: Path) -> None:
    assert len(core_ports(tmp_path, Case("expresspass", lambda _: [(0, 15, 200, 0)]))) == 1


@pytest.mark.engine
def test_a_short_rtt_max_that_is_allowed_ends() -> None:
    found = run(parameters={"rtt_max": "8.9 us"})
    figures = found["network"]["transport"]["figures"]
    assert figures["data_bytes_arrived"] == 16 * 15 * BDP * 9_000


@pytest.mark.engine
@pytest.mark.parametrize("transport", ["dcsim", "dcqcn"])
def test_a_transport_without_packets_is_told(transport: str) -> None:
    found = windtunnel.run(EXAMPLE, overrides={"network.transport": transport}, fidelity="flow").summary
    (warning,) = [said for said in found["jobs"][0]["warnings"] if "network.transport" in said]
    assert warning.startswith(f"network.transport: `{transport}` is not simulated at `flow` fidelity")


@pytest.mark.engine
def test_lost_sims_are_no_lost_data() -> None:
    found = run()
    network = found["network"]
    assert network["packets_dropped"] == network["control_packets_dropped"] > 0
    assert not [said for said in found["warnings"] if "collapse" in said]


@pytest.mark.engine
@pytest.mark.parametrize("transport", ["dcsim", "phost", "pfabric", "dcpim"])
def test_queueing_is_a_part_of_the_delay_of_what_arrived(transport: str) -> None:
    # 30 KB a port lose much, and what was lost had waited too.
    fabric = Fabric(buffer=30_000)
    case = Case(transport, all_to_all_v(fabric.hosts, (3, sizes_of(fabric)), 60), fabric=fabric)
    (found,) = many([case], count=1)
    assert transport == "dcsim" or found["loss"].mean + found["loss_in_hosts"].mean > 0.01
    # Beyond 3.9 us of propagation and 6 packet times only between pods: 1.3 us and two of them at least.
    assert 0 < found["queueing_us"].mean < found["one_way_us"].mean - 1.48


@pytest.mark.engine
def test_flows_without_end_are_seen_for_a_while() -> None:
    fabric = Fabric()
    packets = endless(fabric, 100)
    case = Case("dcsim", all_to_all(fabric.hosts, packets), fabric=fabric, until_us=100)
    (found,) = many([case], count=1)
    assert found["cct_us"].mean == 100
    assert found["data_bytes_arrived"].mean < fabric.hosts * packets * 9_000
    assert found["utilisation"].mean < found["steady_utilisation"].mean <= 1
    # The mean over the run is what arrived over what the ports carry in it.
    whole = found["data_bytes_arrived"].mean / (16 * 100_000 * 100)
    assert found["utilisation"].mean == pytest.approx(whole)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"fidelity": "flow"}, "needs `fidelity: packet`"),
        ({"jobs[0].iterations": 2}, "expected one job of one iteration, found 1 jobs, and 2 iterations"),
        ({"jobs[0].workload.flows.until": "0 us"}, "expected more than 0"),
    ],
)
def test_an_end_of_flows_that_cannot_be_is_refused(overrides: dict[str, Any], said: str) -> None:
    changed = {"jobs[0].workload.flows.until": "50 us"} | overrides
    with pytest.raises(InputError, match=r".*") as caught:
        windtunnel.run(EXAMPLE, overrides=changed)
    assert said in str(caught.value)


@pytest.mark.engine
@pytest.mark.parametrize("transport", ["dcsim", "phost", "pfabric", "dcpim"])
@pytest.mark.parametrize("at_ns", [2_090, 2_390, 2_990])
def test_an_acknowledgement_that_is_lost_is_sent_again(transport: str, at_ns: int) -> None:
    # Two hosts send each other ten packets, which takes 2.29 us; the cable of one is down for 2 us from then on.
    text = {
        "windtunnel": 1,
        "name": "lost-acknowledgements",
        "fidelity": "packet",
        "topology": {
            "shape": "clos",
            "hosts": 2,
            "tiers": [{"ports_down": 2, "rate": "800 Gbps", "length": "130 m", "switch_latency": "0 ns"}],
            "host": {"gpus": 1, "nics": 1},
        },
        "network": {
            "transport": transport,
            "load_balancer": "spray",
            "mtu": "9000 B",
            "header": "40 B",
            "control": "64 B",
        },
        "jobs": [{"name": "ring", "workload": {"flows": {"pattern": "ring", "bytes": "89600 B"}}, "iterations": 1}],
        "impairments": {"down": [{"part": "host1/nic0 -> leaf0", "at": f"{at_ns} ns", "until": f"{at_ns + 2_000} ns"}]},
        "results": {"ideal": False},
    }
    found = windtunnel.run(text).summary
    assert found["network"]["bytes_delivered"] == 2 * 89_600
    assert found["simulated_time_s"] < 0.01


@pytest.mark.engine
@pytest.mark.parametrize("transport", ["dcsim", "dcpim", "phost", "pfabric", "homa", "sird", "expresspass"])
def test_a_nic_whose_cable_is_down_keeps_what_it_has_to_send(tmp_path: Path, transport: str) -> None:
    # A cable of a host is down for 100 us of an all-to-all of 2 MB a rank. What waits at its NIC is not lost, of which
    # nobody would tell the sender: the run ends, a little later.
    path = tmp_path / "down.json"
    scenario = {
        "windtunnel": 1,
        "name": "nic-down",
        "seed": 1,
        "fidelity": "packet",
        "topology": {
            "shape": "clos",
            "hosts": 8,
            "tiers": [{"ports_down": 4, "rate": "400 Gbps", "length": "10 m"}, {"ports_down": 2, "rate": "400 Gbps"}],
            "host": {"gpus": 1, "nics": 1},
        },
        "network": {"mtu": "4160 B", "header": "64 B", "transport": transport},
        "jobs": [{"name": "a", "workload": {"collective": {"kind": "all_to_all", "bytes": "16 MB"}}, "iterations": 2}],
    }
    down = {"convergence": "20 us", "down": [{"part": "host0/nic0 -> leaf0", "at": "50 us", "until": "150 us"}]}
    times = []
    for impairments in ({}, down):
        path.write_text(json.dumps({**scenario, "impairments": impairments}), encoding="utf-8")
        found = windtunnel.run(path, out=tmp_path / "run").summary
        assert found["jobs"][0]["state"] == "finished"
        times.append(found["jobs"][0]["iteration_time_s"])
    healthy, broken = times
    assert broken["max"] > healthy["max"]
    # Expiry of credits, grants and time-outs are of milliseconds in some of them.
    assert broken["max"] < healthy["max"] + 20e-3
    if transport == "dcsim":
        assert broken["max"] < healthy["max"] + 200e-6


@pytest.mark.engine
def test_seeds_give_means_and_errors() -> None:
    fabric = Fabric()
    (found,) = many([Case("dcsim", all_to_all_v(fabric.hosts, (5, sizes_of(fabric)), 30))], count=2)
    assert found["loss"].mean == 0
    assert found["cct_us"].count == 2
    assert found["cct_us"].mean > found["cct_us"].error > 0


def test_traffic_is_drawn_by_seed() -> None:
    fabric = Fabric()
    flows = all_to_all_v(16, (3, [4, 8]), 20)(1)
    assert flows == all_to_all_v(16, (3, [4, 8]), 20)(1) != all_to_all_v(16, (3, [4, 8]), 20)(2)
    for collective in range(3):
        part = [flow for flow in flows if flow[3] == collective]
        members = {flow[0] for flow in part}
        assert len(members) in {4, 8}
        assert sum(flow[2] for flow in part) == 20 * len(members) * (len(members) - 1)
    assert len(all_to_all(16, 3)(1)) == 16 * 15
    assert sorted(flow[1] for flow in permutation(16, 3)(5)) == list(range(16))
    text, files = scenario(
        Case("dcsim", permutation(16, 3), fabric=dataclasses.replace(fabric, slow_cores=0.01)), flows
    )
    assert [row["part"] for row in text["impairments"]["slow"]] == ["spine0", "spine2"]
    assert files["flows.csv"].startswith("source,destination,bytes,class\n")
    assert sizes_of(Fabric(k=8)) == [8, 16, 32, 64]
    assert Mean.of([1.0, 3.0]) == Mean(2.0, 1.0, 2)
