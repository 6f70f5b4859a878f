"""Captured packets where cables fail: lost on them, led around them, and of pairs over several planes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import windtunnel
from windtunnel.trace.pcapng import write_pcapng

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

HOSTS = 8
PAYLOAD = 4084
"""Bytes of a message that a full packet of 4,150 carries."""
DOWN_PS = 10_000_000
CABLE = "leaf0 -> spine0"


def scenario(transport: str, **changes: object) -> dict[str, Any]:
    """Each host sends 400 KB to one of another leaf; all packets are captured, and all queue pairs looked at."""
    return {
        "windtunnel": 1,
        "name": "failures",
        "seed": 3,
        "fidelity": "packet",
        "topology": {
            "shape": "clos",
            "hosts": HOSTS,
            "tiers": [{"ports_down": 4, "rate": "100 Gbps", "length": "10 m"}, {"ports_down": 2, "rate": "100 Gbps"}],
            "host": {"gpus": 1, "nics": 1, "nic": "ConnectX-7"},
        },
        "network": {"transport": transport, "load_balancer": "spray", "timeout": "200 us"},
        "impairments": {"down": [{"part": CABLE, "at": "10 us", "until": "300 us"}], "convergence": "50 us"},
        "jobs": [{"name": "all", "workload": {"flows": {"pattern": "permutation", "bytes": "400 KB"}}}],
        "results": {
            "ideal": False,
            "packets": {"pairs": pairs(), "limit": 1_000_000},
            "queue_pairs": {"every": "5 us", "pairs": pairs()},
        },
        **changes,
    }


def pairs() -> list[dict[str, str]]:
    return [{"from": f"host{i}/nic0", "to": f"host{j}/nic0"} for i in range(HOSTS) for j in range(HOSTS) if i != j]


@pytest.mark.parametrize("transport", ["uec", "dctcp", "newreno"])
def test_packets_lost_on_a_cable_are_captured_as_dropped(transport: str, tmp_path: Path) -> None:
    result = windtunnel.run(scenario(transport), out=tmp_path / "run")
    rows = result.scan("packets").collect()
    network = result.summary["network"]
    lost = rows.filter(pl.col("fate") == "dropped")
    assert network["packets_dropped"] > 0
    assert lost.height == network["packets_dropped"]
    # Nothing is handed on at the far end of the cable while it is down, either way; other cables carry meanwhile.
    meanwhile = rows.filter(pl.col("time_ps").is_between(DOWN_PS, 300_000_000) & (pl.col("fate") == "passed"))
    assert meanwhile.filter(pl.col("name").is_in([CABLE, "spine0 -> leaf0"])).is_empty()
    assert meanwhile.filter(pl.col("name") == "leaf0 -> spine1").height > 10
    # Each byte arrives: every packet of a message passes its last link at least once.
    arrived = rows.filter(
        (pl.col("kind") == "data") & (pl.col("fate") == "passed") & pl.col("name").str.ends_with(pl.col("destination"))
    )
    every = arrived.group_by("source").agg(pl.col("sequence").n_unique())["sequence"]
    assert every.to_list() == [-(-400_000 // PAYLOAD)] * HOSTS
    assert len(write_pcapng(result, tmp_path / "all.pcapng").read_bytes()) > 50 * rows.height


def test_tables_of_failures_are_the_same_for_any_number_of_threads(tmp_path: Path) -> None:
    runs = [windtunnel.run(scenario("uec"), out=tmp_path / f"run{threads}", threads=threads) for threads in (1, 2, 4)]
    for table in ("queue_pairs", "packets"):
        one, *others = (run.scan(table).collect() for run in runs)
        assert one.height > 50
        assert all(one.equals(other) for other in others)


def test_a_pair_over_planes_is_captured_on_each_that_is_left(tmp_path: Path) -> None:
    asked = scenario("mrc", impairments={})
    asked["topology"] |= {"planes": 4, "failed": ["host1/nic0 -> plane2/leaf0"]}
    asked["network"] = {"transport": "mrc", "load_balancer": "source"}
    result = windtunnel.run(asked, out=tmp_path / "run")
    rows = result.scan("packets").collect()
    first = rows.filter((pl.col("kind") == "data") & pl.col("name").str.starts_with(pl.col("source") + " -> "))
    planes = (
        first.with_columns(plane=pl.col("name").str.extract(r"-> (plane\d+)/"))
        .group_by("source")
        .agg(pl.col("plane").unique().sort())
    )
    used = dict(planes.iter_rows())
    assert len(used) == HOSTS
    for source, over in used.items():
        left = ["plane0", "plane1", "plane3"] if source == "host1/nic0" else ["plane0", "plane1", "plane2", "plane3"]
        assert set(over) <= set(left), source
    assert used["host1/nic0"] == ["plane0", "plane1", "plane3"]
    # What the table of links has carried there is what was captured there.
    links = result.scan("links").collect()
    for name in ("host1/nic0 -> plane0/leaf0", "host3/nic0 -> plane2/leaf0"):
        (carried,) = links.filter(pl.col("name") == name)["bytes"]
        assert carried == rows.filter((pl.col("name") == name) & (pl.col("fate") == "passed"))["bytes"].sum() > 0
