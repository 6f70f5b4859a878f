"""Two flows that meet, on round trips from 10 us to 10 ms: what marks that follow the path leave of a port."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import windtunnel

pytestmark = pytest.mark.engine

GBPS = 100
BYTES = {10: 400_000_000, 1_000: 1_000_000_000, 10_000: 1_500_000_000}
"""Of each flow, by the round trip in us."""
SCENARIO = """\
windtunnel: 1
name: two-flows
seed: 1
fidelity: packet
topology:
  shape: clos
  hosts: 3
  tiers: [{{ports_down: 3, rate: {gbps} Gbps, length: {metres} m}}]
  host: {{gpus: 1, nics: 1}}
network: {{transport: {transport}{more}}}
jobs:
  - name: two
    workload: {{flows: {{pattern: incast, bytes: {bytes} B}}}}
    iterations: 1
results: {{ideal: false}}
"""
NEEDS = {"hpcc": ", telemetry: true", "ndp": ", trimming: {queue: 100 KB}"}
LOW = ", ecn: {kmin: 150 KB, kmax: 450 KB}"


@cache
def _run(transport: str, rtt_us: int, more: str = "") -> dict[str, Any]:
    metres = rtt_us * 50
    more = NEEDS.get(transport, "") + more
    text = SCENARIO.format(gbps=GBPS, bytes=BYTES[rtt_us], metres=metres, transport=transport, more=more)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "two-flows.yaml"
        path.write_text(text)
        return dict(windtunnel.run(path).summary)


def utilisation(transport: str, rtt_us: int, more: str = "") -> float:
    """Payload and headers of both flows over what the port could carry until the last one ends."""
    (job,) = _run(transport, rtt_us, more)["jobs"]
    wire = 2 * BYTES[rtt_us] * 4150 / (4150 - 66)
    return float(wire * 8 / (GBPS * 1e9) / job["iteration_time_s"]["mean"])


def table() -> None:
    """Prints the rows of docs/transports.md."""
    names = ["dctcp", "dcqcn", "mprdma", "newreno", "cubic", "bbr", "swift", "uec", "hpcc", "rccc"]
    names += ["eqds", "ndp"]
    for rtt_us in (10, 1_000, 10_000):
        print(rtt_us, " | ".join(f"{utilisation(name, rtt_us):.2f}" for name in names), flush=True)
    print("low", " | ".join(f"{utilisation(name, 10_000, LOW):.2f}" for name in names[:5]), flush=True)


def test_tcp_fills_a_long_path_whose_marks_follow_it() -> None:
    # 0.03 with the published thresholds; a third of the time is slow start.
    assert utilisation("newreno", 10_000) > 0.6
    assert utilisation("cubic", 10_000) > 0.6


@pytest.mark.parametrize(("transport", "least"), [("dctcp", 0.33), ("dcqcn", 0.55), ("mprdma", 0.55)])
def test_so_do_the_laws_of_marks(transport: str, least: float) -> None:
    """The rows of docs/transports.md: 0.40, 0.66 and 0.67."""
    assert utilisation(transport, 10_000) > least


def test_thresholds_are_told_and_low_ones_are_warned_of() -> None:
    whole, low = _run("dctcp", 1_000), _run("dctcp", 1_000, LOW)
    assert whole["jobs"][0]["warnings"] == []
    (grown,) = (row for row in whole["evidence"] if row["constant"].startswith("ecn: "))
    assert "published ones times" in grown["source"]
    (warning,) = low["jobs"][0]["warnings"]
    assert warning.startswith(
        "network.ecn: marks count from 151500 B at 400 Gbps on, but `dctcp` fills the longest path"
    )
    assert utilisation("dctcp", 1_000) > utilisation("dctcp", 1_000, LOW)


def test_short_paths_keep_the_published_thresholds() -> None:
    found = _run("dcqcn", 10)
    assert not any(row["constant"].startswith("ecn: ") for row in found["evidence"])
    assert utilisation("dcqcn", 10) == pytest.approx(0.87, abs=0.03)


if __name__ == "__main__":
    table()
