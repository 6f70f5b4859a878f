"""Transports on fabrics under workloads, each with what it asks of switches: which should one choose where.

    cells = measure(TRANSPORTS, FABRICS, WORKLOADS, seeds=2)
    cells["ndp", "4:1", "incast"].over_best

Every cell is the time of a workload: until the last byte of a collective has arrived, or the 99th percentile of the
slowdown of a load's flows. It is told over that of the transport that is best on this fabric under this workload.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from math import exp, log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from windtunnel.experiments.loads import NS_PER_M, Load, slowdowns
from windtunnel.experiments.runs import Asked, run_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from windtunnel.results import Result

HOSTS, PER_LEAF, GBPS = 32, 8, 400
MTU, HEADER = 4_160, 64
EDGE_M, SWITCH_NS = 20, 300
"""Cables to hosts; what a switch takes."""

LOSSLESS: dict[str, Any] = {"pfc": {}}
TRIMS: dict[str, Any] = {"trimming": {}, "load_balancer": "spray"}
SPRAYS: dict[str, Any] = {"load_balancer": "spray"}

TRANSPORTS: dict[str, dict[str, Any]] = {
    "dcqcn": {**LOSSLESS, "ecn": {"profile": "dcqcn"}},
    "hpcc": {**LOSSLESS, "telemetry": True},
    "dctcp": {},
    "swift": {},
    "newreno": {},
    "cubic": {},
    "bbr": {},
    "mprdma": SPRAYS,
    "uec": TRIMS,
    "rccc": TRIMS,
    "eqds": TRIMS,
    "ndp": TRIMS,
    "mrc": TRIMS,
    "dcsim": SPRAYS,
    "dcpim": SPRAYS,
    "phost": SPRAYS,
    "pfabric": SPRAYS,
    "homa": SPRAYS,
    "sird": SPRAYS,
    "expresspass": {},
}
"""Transport → what it asks of the network beside its name: the usual way in which it is deployed or was published."""

ASKS = {
    "dcqcn": "PFC, marks", "hpcc": "PFC, telemetry", "dctcp": "marks", "swift": "", "bbr": "",
    "newreno": "marks", "cubic": "marks",
    "mprdma": "marks, spraying", "uec": "trimming, marks, spraying", "rccc": "trimming, marks, spraying",
    "eqds": "trimming, spraying", "ndp": "trimming, spraying", "mrc": "trimming, marks, spraying",
    "dcsim": "4 priorities, token buckets, spraying", "dcpim": "priorities, spraying", "phost": "priorities, spraying",
    "pfabric": "order by what is left, spraying", "homa": "8 priorities, spraying",
    "sird": "2 priorities, marks, spraying",
    "expresspass": "credit queues, paths that are the same both ways",
}  # fmt: skip
"""What switches must be able to do for each, beside queues that drop."""


OF_PORTS = frozenset({"dcsim", "dcpim", "phost", "pfabric", "homa", "sird", "expresspass"})
"""Those that schedule a NIC's port as a whole: their switches have a buffer for each port, which is as much as a port
of the others' may hold alone, half of the switch's."""


class Fabric(NamedTuple):
    """A leaf–spine of 32 NICs, and what is the matter with it."""

    about: str
    oversubscription: float = 1.0
    buffer_mb: int = 16
    spine_m: int = 50
    failed: tuple[str, ...] = ()
    slow: str | None = None


FABRICS = {
    "full": Fabric("as many links up as down, 16 MB a switch"),
    "4:1": Fabric("a quarter as many links up", oversubscription=4),
    "failed": Fabric("two of 32 cables to spines have failed, and everybody knows",
                     failed=("leaf0 -> spine1", "leaf2 -> spine3")),
    "slow spine": Fabric("one of eight spines at a quarter of its rate", slow="spine2"),
    "shallow": Fabric("1 MB a switch", buffer_mb=1),
    "long": Fabric("10 km to the spines: round trips of 200 us", spine_m=10_000, buffer_mb=64),
}  # fmt: skip


@dataclass(frozen=True)
class Workload:
    """What is sent. Sizes are those of `scale` 1."""

    about: str
    of: Callable[[int], Mapping[str, Any]] | None = None
    load: Load | None = None


def _flows(pattern: str, size: int) -> Callable[[int], Mapping[str, Any]]:
    return lambda part: {"flows": {"pattern": pattern, "bytes": f"{size // part} B"}}


def _ring(part: int) -> Mapping[str, Any]:
    return {
        "collective": {"kind": "all_reduce", "algorithm": "ring", "form": "steps", "bytes": f"{8_000_000 // part} B"}
    }


WORKLOADS = {
    "permutation": Workload("each NIC sends 4 MB to one other", _flows("permutation", 4_000_000)),
    "all-to-all": Workload("each NIC sends 256 KB to every other", _flows("all-to-all", 256_000)),
    "incast": Workload("31 NICs send 1 MB to one", _flows("incast", 1_000_000)),
    "all-reduce": Workload("a ring over all NICs, 8 MB", _ring),
    "web search": Workload("flows of a web search at a load of 0.5; the 99th percentile of slowdowns",
                           load=Load("", load=0.5, gbps=GBPS, hosts=HOSTS, per_leaf=PER_LEAF, span_us=500,
                                     largest=5_000_000)),
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """A transport on a fabric under a workload; means over seeds."""

    time: float
    """Microseconds, or a slowdown."""
    dropped: int
    pauses: int
    over_best: float = field(default=1.0)


def asked(transport: str, fabric: Fabric, workload: Workload, seed: int, part: int) -> Asked:
    """The run; `part` divides what is sent."""
    tier = {"rate": f"{GBPS} Gbps", "switch_latency": f"{SWITCH_NS} ns"}
    leaf: dict[str, Any] = {"ports_down": PER_LEAF, "length": f"{EDGE_M} m", **tier}
    if fabric.oversubscription != 1:
        leaf["oversubscription"] = fabric.oversubscription
    text: dict[str, Any] = {
        "windtunnel": 1,
        "name": transport,
        "fidelity": "packet",
        "topology": {
            "shape": "clos",
            "hosts": HOSTS,
            "tiers": [leaf, {"ports_down": HOSTS // PER_LEAF, "length": f"{fabric.spine_m} m", **tier}],
            "host": {"gpus": 1, "nics": 1},
            "failed": list(fabric.failed),
        },
        "network": {
            "transport": transport,
            "mtu": f"{MTU} B",
            "header": f"{HEADER} B",
            "control": "64 B",
            **TRANSPORTS[transport],
            **_buffers(transport, fabric),
        },
        "results": {"ideal": False, "flows": "all", "operations": "none"},
    }
    if fabric.slow is not None:
        text["impairments"] = {"slow": [{"part": fabric.slow, "rate": 0.25, "at": "0 ns"}]}
    files: Mapping[str, str] = {}
    if workload.load is not None:
        files = replace(_load(workload.load, part), mtu=MTU, header=HEADER).asked(seed).files
        source: Mapping[str, Any] = {"flows": {"file": "flows.csv"}}
    else:
        assert workload.of is not None  # noqa: S101 (a workload is one or the other)
        source = workload.of(part)
    text["jobs"] = [{"name": "work", "workload": source, "iterations": 1}]
    return Asked(text, seed=seed, files=files)


def _buffers(transport: str, fabric: Fabric) -> dict[str, Any]:
    if transport in OF_PORTS:
        return {"parameters": {"port_buffer": fabric.buffer_mb * 500_000}}
    return {"buffers": [{"size": f"{fabric.buffer_mb} MB"}]}


def _load(load: Load, part: int) -> Load:
    return replace(load, span_us=load.span_us / part)


def time_of(result: Result, fabric: Fabric, workload: Workload, part: int) -> float:
    """The time of a run in us; of a load the 99th percentile of slowdowns."""
    if workload.load is None:
        return 1e6 * float(result.summary["jobs"][0]["iteration_time_s"]["mean"])
    edge = 2 * EDGE_M * NS_PER_M * 1e-3
    ways = {2: edge + SWITCH_NS * 1e-3, 4: edge + 2 * fabric.spine_m * NS_PER_M * 1e-3 + 3 * SWITCH_NS * 1e-3}
    load = replace(_load(workload.load, part), mtu=MTU, header=HEADER, latency_us=ways)
    return float(np.quantile(slowdowns(load, [result]).slowdowns, 0.99))


def measure(
    transports: Iterable[str], fabrics: Iterable[str], workloads: Iterable[str], seeds: int, part: int = 1
) -> dict[tuple[str, str, str], Cell]:
    """Every cell, by transport, fabric and workload."""
    places = [(t, f, w) for f in fabrics for w in workloads for t in transports]
    runs = [asked(t, FABRICS[f], WORKLOADS[w], seed, part) for t, f, w in places for seed in range(1, seeds + 1)]
    results = run_all(runs)
    cells = {}
    for turn, place in enumerate(places):
        each = results[turn * seeds : (turn + 1) * seeds]
        workload = WORKLOADS[place[2]]
        networks = [one.summary["network"] for one in each]
        cells[place] = Cell(
            sum(time_of(one, FABRICS[place[1]], workload, part) for one in each) / seeds,
            sum(_lost(network) for network in networks),
            sum(int(network["pfc_pauses"]) for network in networks),
        )
    best: dict[tuple[str, str], float] = {}
    for (_, fabric, workload_name), cell in cells.items():
        key = (fabric, workload_name)
        best[key] = min(best.get(key, float("inf")), cell.time)
    return {(t, f, w): replace(cell, over_best=cell.time / best[f, w]) for (t, f, w), cell in cells.items()}


def _lost(network: Mapping[str, Any]) -> int:
    """Data packets that switches dropped: credits, tokens and probes of those that send some are lost by design."""
    if network["transport"] is not None:
        return int(network["transport"]["figures"].get("data_lost_in_network", 0))
    return int(network["packets_dropped"])


def mean_over(
    cells: Mapping[tuple[str, str, str], Cell], transport: str, fabric: str | None, workload: str | None
) -> float:
    """Geometric mean of what a transport takes over the best, over all cells of a fabric, a workload, or all."""
    ratios = [
        cell.over_best
        for (t, f, w), cell in cells.items()
        if t == transport and fabric in (None, f) and workload in (None, w)
    ]
    return exp(sum(map(log, ratios)) / len(ratios))


def best_of(
    cells: Mapping[tuple[str, str, str], Cell], fabric: str, workload: str, within: float = 1.1
) -> Sequence[str]:
    """Transports that take at most `within` times what the best takes, the fastest first."""
    found = {t: cell.over_best for (t, f, w), cell in cells.items() if (f, w) == (fabric, workload)}
    return [name for name, over in sorted(found.items(), key=lambda item: item[1]) if over <= within]


def seeds(default: int = 2) -> int:
    """Seeds of each cell: WINDTUNNEL_SEEDS, else two."""
    return int(os.environ.get("WINDTUNNEL_SEEDS", default))


def part() -> int:
    """What the sizes are divided by: WINDTUNNEL_PART, else 1."""
    return int(os.environ.get("WINDTUNNEL_PART", "1"))
