"""BBR from end to end: losses that are no sign of congestion, and what a queue pair that rests remembers."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import windtunnel

pytestmark = pytest.mark.engine

GBPS = 100
SCENARIO = """\
windtunnel: 1
name: one-switch
seed: 1
fidelity: packet
topology:
  shape: clos
  hosts: {hosts}
  tiers: [{{ports_down: {hosts}, rate: {gbps} Gbps, length: {metres} m}}]
  host: {{gpus: 1, nics: 1}}
network: {{transport: {transport}}}
jobs:
  - name: job
    workload: {{flows: {{pattern: {pattern}, bytes: {bytes} B}}}}
    iterations: {iterations}
results: {{ideal: false}}
"""
LOSS = "impairments: {{loss: [{{on: all, rate: {loss}}}]}}\n"


def utilisation(
    transport: str, *, senders: int = 1, rtt_us: int = 10, size: int = 50_000_000, iterations: int = 1, loss: float = 0
) -> float:
    """Payload and headers over what one port could carry in the time that it took."""
    text = SCENARIO.format(
        hosts=senders + 1, gbps=GBPS, metres=rtt_us * 50, transport=transport, bytes=size, iterations=iterations,
        pattern="incast" if senders > 1 else "ring",
    )  # fmt: skip
    with TemporaryDirectory() as folder:
        path = Path(folder) / "one-switch.yaml"
        path.write_text(text + (LOSS.format(loss=loss) if loss else ""))
        (job,) = windtunnel.run(path).summary["jobs"]
    wire = senders * size * 4150 / (4150 - 66)
    return float(wire * 8 / (GBPS * 1e9) / job["iteration_time_s"]["mean"])


@pytest.mark.parametrize("senders", [1, 2, 8])
def test_it_fills_a_port_alone_and_with_others(senders: int) -> None:
    assert utilisation("bbr", senders=senders) > 0.97


def test_random_losses_are_no_congestion() -> None:
    """NewReno keeps 1.22/sqrt(p) packets in flight where 300 would fill the path (Mathis et al. 1997)."""
    bbr, newreno = (utilisation(name, rtt_us=100, size=100_000_000, loss=0.01) for name in ("bbr", "newreno"))
    assert bbr > 0.7
    assert newreno < 0.1


def test_messages_after_a_pause_go_at_the_rate_that_was_found() -> None:
    """200 KB a time: a round trip and their own time, 0.62 of the rate, whatever Startup took for the first."""
    assert utilisation("bbr", size=200_000, iterations=50) > 0.6
