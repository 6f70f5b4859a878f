"""DCSIM and its rivals through Python: what is counted, what is refused, and means over seeds."""

from __future__ import annotations

import dataclasses
from typing import Any

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
    many,
    permutation,
    scenario,
    sizes_of,
)

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
        ({"parameters": {"rtt_max": "7 us"}}, "expected at least the propagation there and back: 7.8 us"),
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
