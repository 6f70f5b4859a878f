"""Hosts of one GPU on an ideal fabric, where closed forms hold: what tests of collectives and messages share."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import windtunnel
from windtunnel import engine

if TYPE_CHECKING:
    from windtunnel import Result

RATE = 100e9
"""bit/s of every link."""

MTU, HEADER = 4096, 96
PAYLOAD = MTU - HEADER

LOGGOPS = {"L": "1 us", "o": "200 ns", "g": "50 ns", "G": 0.08, "S": "1 GB"}
LATENCY_PS, OVERHEAD_PS, GAP_PS, PS_PER_BYTE = 1_000_000, 200_000, 50_000, 80


def scenario(hosts: int, workload: dict[str, Any], **keys: Any) -> dict[str, Any]:  # noqa: ANN401
    """One job on `hosts` hosts of one GPU and one NIC below one switch, without any host constant."""
    return {
        "windtunnel": 1,
        "name": "ideal",
        "fidelity": "flow",
        "topology": {
            "shape": "clos",
            "hosts": hosts,
            "tiers": [{"ports_down": hosts, "rate": "100 Gbps", "length": "10 m"}],
            "host": {"gpus": 1, "nics": 1},
        },
        "network": {"mtu": f"{MTU} B", "header": f"{HEADER} B", "load_balancer": "ideal", "loggops": LOGGOPS},
        "jobs": [{"name": "job", "workload": workload}],
        "results": {"ideal": False},
        **keys,
    }


@cache
def latency_ps(hosts: int) -> int:
    """Latency between two hosts, as `windtunnel topology` says."""
    text = json.dumps(scenario(hosts, {})["topology"])
    return int(json.loads(engine.topology(text, "ideal", "."))["diameter_latency_ps"])


def iteration_ps(result: Result) -> int:
    """Length of the only iteration."""
    (row,) = result.iterations.to_dicts()
    return int(row["finish_ps"]) - int(row["start_ps"])


def run_ps(hosts: int, workload: dict[str, Any], fidelity: str) -> int:
    """Runs a workload and returns its time."""
    return iteration_ps(windtunnel.run(scenario(hosts, workload), fidelity=fidelity))


def collective(kind: str, algorithm: str, size: int, form: str = "steps", **keys: Any) -> dict[str, Any]:  # noqa: ANN401
    """A collective as a workload."""
    return {"collective": {"kind": kind, "algorithm": algorithm, "bytes": f"{size} B", "form": form, **keys}}


def wire_ps(payload: float) -> float:
    """Picoseconds that `payload` bytes with the headers of their packets take on a link."""
    packets = -(-payload // PAYLOAD)
    return (payload + packets * HEADER) * 8e12 / RATE


def flow_step_ps(hosts: int, payload: float) -> float:
    """A message alone on its links at flow fidelity."""
    return latency_ps(hosts) + wire_ps(payload)


def message_step_ps(payload: int) -> int:
    """A step of a LogGOPS chain: o, L, o and (s-1) G."""
    return OVERHEAD_PS + LATENCY_PS + OVERHEAD_PS + (payload - 1) * PS_PER_BYTE
