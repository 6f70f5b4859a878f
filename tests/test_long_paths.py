"""Two flows that meet, on round trips from 10 us to 10 ms: what marks that follow the path leave of a port."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import windtunnel

pytestmark = pytest.mark.engine

GBPS, BYTES = 25, 750_000_000
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
network: {{transport: {transport}, mtu: 9000 B{more}}}
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
    text = SCENARIO.format(gbps=GBPS, bytes=BYTES, metres=metres, transport=transport, more=more)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "two-flows.yaml"
        path.write_text(text)
        return dict(windtunnel.run(path).summary)


def utilisation(transport: str, rtt_us: int, more: str = "") -> float:
    """Payload and headers of both flows over what the port could carry until the last one ends."""
    (job,) = _run(transport, rtt_us, more)["jobs"]
    wire = 2 * BYTES * 9000 / (9000 - 66)
    return float(wire * 8 / (GBPS * 1e9) / job["iteration_time_s"]["mean"])


def table() -> None:
    """Prints the rows of docs/transports.md."""
    names = ["dctcp", "dcqcn", "mprdma", "newreno", "cubic", "swift", "uec", "hpcc", "rccc", "eqds", "ndp"]
    for rtt_us in (10, 1_000, 10_000):
        print(rtt_us, " | ".join(f"{utilisation(name, rtt_us):.2f}" for name in names), flush=True)
    print("low", " | ".join(f"{utilisation(name, 10_000, LOW):.2f}" for name in names[:5]), flush=True)


if __name__ == "__main__":
    table()
