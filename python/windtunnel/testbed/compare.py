"""The testbed's runs predicted: each flow at packet fidelity with its kernel's TCP, and at flow fidelity.

Two constants are fitted on half of the runs, for each fidelity: seconds that a flow takes besides (connections, the
answer, this machine's own time), and a factor on what the network takes. The other half is predicted by them.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.experiments.runs import Asked, run_all
from windtunnel.flows import simulate_flows
from windtunnel.testbed.fabric import MTU

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from windtunnel.testbed.fabric import Shape
    from windtunnel.testbed.flows import Done, Flow

HEADER = 66
"""Ethernet 14, IPv4 20, TCP with time stamps 32 bytes."""
TRANSPORTS = {"reno": "newreno", "cubic": "cubic", "bbr": "bbr"}
"""The kernel's names and ours."""
PARAMETERS: dict[str, dict[str, Any]] = {"bbr": {"quantum": "1 ms"}}
"""What the kernel's do beside what a NIC does: a millisecond's packets are handed over at once."""
FIDELITIES = ("packet", "flow")


@dataclass(frozen=True)
class Fit:
    """Constants of a fidelity: seconds besides, and a factor."""

    besides: float
    factor: float

    def seconds(self, simulated: np.ndarray) -> np.ndarray:
        """Predictions."""
        found: np.ndarray = self.besides + self.factor * simulated
        return found


def scenario(
    shape: Shape,
    workload: Mapping[str, Any],
    ways: Iterable[tuple[int, int, int | None]],
    congestion: str,
    header: int = HEADER,
) -> dict[str, Any]:
    """A workload over the testbed at packet fidelity, with the spine of each way from host to host (none in a leaf)."""
    routes = [
        {
            "from": f"host{source}/nic0",
            "to": f"host{to}/nic0",
            "via": [f"leaf{source // shape.hosts}", f"spine{spine}", f"leaf{to // shape.hosts}"],
        }
        for source, to, spine in ways
        if spine is not None
    ]
    rate = f"{shape.rate} bps" if shape.rate % 1_000_000 else f"{shape.rate // 1_000_000} Mbps"
    ports = max(shape.hosts + shape.spines, shape.leaves)
    return {
        "windtunnel": 1,
        "name": "testbed",
        "fidelity": "packet",
        "topology": {
            "shape": "clos",
            "hosts": shape.leaves * shape.hosts,
            "tiers": [
                {
                    "ports_down": shape.hosts,
                    "oversubscription": shape.hosts / shape.spines,
                    "rate": rate,
                    "length": "1 m",
                },
                {"ports_down": shape.leaves, "rate": rate, "length": "1 m"},
            ],
            "host": {"gpus": 1, "nics": 1, "overhead": "0 ns"},
        },
        "network": {
            "mtu": f"{MTU - HEADER + header} B",
            "header": f"{header} B",
            "control": f"{HEADER} B",
            "transport": TRANSPORTS[congestion],
            "parameters": {"max_window": 1000, **PARAMETERS.get(congestion, {})},
            "ack_every": 2,
            # RFC 6298's least, as Linux has it.
            "timeout": "200 ms",
            # Each port has its own queue: next to nothing is shared.
            "buffers": [{"size": f"{ports * shape.queue + 100} B", "alpha": 0.001, "reserve": f"{shape.queue} B"}],
            # Token buckets mark nothing.
            "ecn": {"rate": rate, "kmin": "1 GB", "kmax": "2 GB"},
            "routes": routes,
        },
        "jobs": [{"name": "flows", "workload": dict(workload)}],
        "results": {"ideal": False, "operations": "all"},
    }


def flows_scenario(shape: Shape, flows: Sequence[Flow], congestion: str) -> tuple[dict[str, Any], str]:
    """A run of flows as a scenario, and its table."""
    table = io.StringIO()
    table.write("source,destination,bytes,start_ps\n")
    for flow in flows:
        table.write(f"{flow.source},{flow.destination},{flow.bytes},{round(flow.start * 1e12)}\n")
    ways = [(flow.source, flow.destination, flow.spine) for flow in flows]
    return scenario(shape, {"flows": {"file": "flows.csv"}}, ways, congestion), table.getvalue()


def by_packets(shape: Shape, runs: Sequence[Done]) -> list[np.ndarray]:
    """Completion times of every run at packet fidelity."""
    asked = []
    for run in runs:
        text, table = flows_scenario(shape, run.flows, run.congestion)
        asked.append(Asked(text, files={"flows.csv": table}))
    found = []
    for run, result in zip(runs, run_all(asked), strict=True):
        receives = result.operations.filter(result.operations["kind"] == "receive").select("tag", "finish_ps")
        ends = dict(receives.iter_rows())
        found.append(np.array([ends[i] * 1e-12 - flow.start for i, flow in enumerate(run.flows)]))
    return found


def by_flows(shape: Shape, runs: Sequence[Done]) -> list[np.ndarray]:
    """The same at flow fidelity: max-min shares of the links that each flow took; bytes with their headers."""
    links: dict[str, tuple[float, float]] = {}
    every = range(shape.leaves * shape.hosts)
    for host in every:
        links[f"h{host} up"] = links[f"h{host} down"] = (float(shape.rate), 0.0)
    for leaf in range(shape.leaves):
        for spine in range(shape.spines):
            links[f"l{leaf} s{spine}"] = links[f"s{spine} l{leaf}"] = (float(shape.rate), 0.0)
    found = []
    for run in runs:
        flows = []
        for flow in run.flows:
            path = [f"h{flow.source} up"]
            if flow.spine is not None:
                path += [
                    f"l{flow.source // shape.hosts} s{flow.spine}",
                    f"s{flow.spine} l{flow.destination // shape.hosts}",
                ]
            path.append(f"h{flow.destination} down")
            packets = -(-flow.bytes // (MTU - HEADER))
            flows.append({"path": path, "bytes": flow.bytes + HEADER * packets, "start": flow.start})
        found.append(simulate_flows(links, flows) - np.array([flow.start for flow in run.flows]))
    return found


def fitted(simulated: np.ndarray, measured: np.ndarray) -> Fit:
    """Least absolute relative errors, by least squares with weights: TCP's flows are unfair, and tails say little."""
    rows = np.stack([np.ones_like(simulated), simulated], axis=1) / measured[:, None]
    weights = np.ones(len(measured))
    besides, factor = 0.0, 1.0
    for _ in range(30):
        (besides, factor), *_ = np.linalg.lstsq(rows * weights[:, None], weights, rcond=None)
        if besides < 0:
            besides = 0.0
            factor = float((weights**2 * rows[:, 1]).sum() / (weights**2 * rows[:, 1] ** 2).sum())
        weights = 1 / np.sqrt(np.maximum(np.abs(rows @ np.array([besides, factor]) - 1), 1e-3))
    return Fit(float(besides), float(factor))


@dataclass(frozen=True)
class Judged:
    """A fidelity on runs that it was not fitted on."""

    fidelity: str
    fit: Fit
    flows: int
    median_abs_error: float
    p95_abs_error: float
    raw: float
    """Median error without any constant fitted."""
    median_of_runs: float
    """Median over runs of the error of a run's median completion time."""
    by_pattern: Mapping[str, float]

    def record(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {**self.__dict__, "fit": dict(self.fit.__dict__), "by_pattern": dict(self.by_pattern)}


def judged(shape: Shape, runs: Sequence[Done]) -> list[Judged]:
    """Fits on every second run of each pattern and TCP, and predicts the others; host-bound ones are left out."""
    kept = [run for run in runs if not run.host_bound]
    seen: dict[tuple[str, str], int] = {}
    learnt = []
    for run in kept:
        key = (run.pattern, run.congestion)
        learnt.append(seen.get(key, 0) % 2 == 0)
        seen[key] = seen.get(key, 0) + 1
    found = []
    for fidelity in FIDELITIES:
        simulated = (by_packets if fidelity == "packet" else by_flows)(shape, kept)
        inside = [i for i, learn in enumerate(learnt) if learn]
        outside = [i for i, learn in enumerate(learnt) if not learn]
        if not inside or not outside:
            continue
        fit = fitted(
            np.concatenate([simulated[i] for i in inside]), np.concatenate([np.array(kept[i].seconds) for i in inside])
        )
        off, raw, middles = [], [], []
        patterns: dict[str, list[float]] = {}
        for i in outside:
            measured = np.array(kept[i].seconds)
            errors = np.abs(fit.seconds(simulated[i]) / measured - 1)
            off += errors.tolist()
            raw += np.abs(simulated[i] / measured - 1).tolist()
            middles.append(abs(float(np.median(fit.seconds(simulated[i])) / np.median(measured)) - 1))
            patterns.setdefault(f"{kept[i].pattern}, {kept[i].congestion}", []).extend(errors.tolist())
        found.append(
            Judged(
                fidelity,
                fit,
                len(off),
                float(np.median(off)),
                float(np.percentile(off, 95)),
                float(np.median(raw)),
                float(np.median(middles)),
                {name: float(np.median(values)) for name, values in sorted(patterns.items())},
            )
        )
    return found
