"""Concurrent collectives as sets of flows on a fat tree, and what their runs came to: for experiments on transports.

    runs = many([Case("dcsim", all_to_all(16, 87)), Case("dcpim", all_to_all(16, 87), {"strict": True})], seeds=20)
    runs[0]["cct_us"].mean, runs[0]["cct_us"].error

The setting is that of DCSIM (Straussman et al., NINeS 2026, section 4.1): a three-level fat tree of 800 Gbps, packets
of 9,000 B, 650 ns a link (7.8 us there and back), 500 KB a port. A collective is a set of flows that begin together;
its completion time (CCT) is when its last packet arrives, and of several collectives the mean of theirs. Utilisation
is what part of all hosts' line rate brought bytes that had not arrived before, from the start to the last arrival; of
flows without end (`Case.until_us`) from the middle to the end of what is seen of them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from math import sqrt
from random import Random
from typing import TYPE_CHECKING, Any

from windtunnel.experiments.runs import Asked, run_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import polars as pl

    from windtunnel.results import Result

BDP = 87
"""Packets of 9,000 B in 7.8 us at 800 Gbps."""

CLASSES = ("tp", "cp", "ep", "pp", "dp", "other")
"""Traffic classes, of which each collective of a set has one."""

RIVALS = ("dcsim", "dcpim", "phost", "pfabric")
"""The transports of the paper."""

STRICT = ("dcpim", "phost")
"""Those that send flows of up to a BDP at once, which the paper takes for less than one."""

DRAWN = 1_000_003
"""Sets the draws of traffic apart from those of the run."""

Flow = tuple[int, int, int, int]
"""Sender, receiver, packets, collective."""


@dataclass(frozen=True)
class Fabric:
    """A fat tree of switches with `k` ports, and how it is changed."""

    k: int = 4
    rate_gbps: int = 800
    mtu: int = 9_000
    header: int = 40
    buffer: int | None = None
    oversubscription: float = 1.0
    slow_cores: float | None = None
    """Rate of every second core switch, as a part of the others'."""
    failed: tuple[str, ...] = ()

    @property
    def hosts(self) -> int:
        """Hosts: k pods of (k/2)^2."""
        return self.k**3 // 4

    def packets(self, bdps: float) -> int:
        """Packets that have as many bytes as `bdps` times 87 packets of 9,000 B, at this rate."""
        return max(1, round(bdps * BDP * 9_000 / self.mtu * self.rate_gbps / 800))


@dataclass(frozen=True)
class Case:
    """A transport with its parameters under a traffic drawn by seed."""

    transport: str
    traffic: Callable[[int], list[Flow]]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    fabric: Fabric = field(default_factory=Fabric)
    until_us: int | None = None
    """When flows that are still under way are given up; they are all waited for if left out."""
    network: Mapping[str, Any] = field(default_factory=dict)
    """Keys of `network` in place of the setting's."""


@dataclass(frozen=True)
class Mean:
    """A mean over seeds with its standard error."""

    mean: float
    error: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        """Of one value or more; the error of one is 0."""
        mean = sum(values) / len(values)
        spread = sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1)
        return cls(mean, sqrt(spread / len(values)), len(values))


def _random(seed: int) -> Random:
    return Random(seed * DRAWN)  # noqa: S311 (traffic, not secrets)


def permutation(hosts: int, packets: int) -> Callable[[int], list[Flow]]:
    """Each host sends to one other, each hears from one other, in one cycle drawn by seed."""

    def drawn(seed: int) -> list[Flow]:
        order = list(range(hosts))
        _random(seed).shuffle(order)
        return [(a, b, packets, 0) for a, b in zip(order, order[1:] + order[:1], strict=True)]

    return drawn


def all_to_all(hosts: int, packets: int) -> Callable[[int], list[Flow]]:
    """Each host sends as much to every other, in an order drawn by seed."""

    def drawn(seed: int) -> list[Flow]:
        flows = [(a, b, packets, 0) for a in range(hosts) for b in range(hosts) if a != b]
        _random(seed).shuffle(flows)
        return flows

    return drawn


def endless(fabric: Fabric, until_us: int) -> int:
    """Packets of a flow that cannot end by then: more than line rate sends."""
    return int(until_us * 1e-6 * fabric.rate_gbps * 1e9 / 8 / fabric.mtu) + 100


def all_to_all_v(
    hosts: int, sizes: Sequence[int] | tuple[int, Sequence[int]], packets: int
) -> Callable[[int], list[Flow]]:
    """Collectives whose members are drawn among `hosts`: each packet of a member goes to one of the others, drawn.

    `sizes` are those of the collectives, or how many there are and what their sizes are drawn from.
    """

    def drawn(seed: int) -> list[Flow]:
        random = _random(seed)
        if isinstance(sizes, tuple) and len(sizes) == 2 and not isinstance(sizes[1], int):
            chosen = [random.choice(list(sizes[1])) for _ in range(int(sizes[0]))]
        else:
            chosen = [int(size) for size in sizes if isinstance(size, int)]
        flows = []
        for collective, size in enumerate(chosen):
            members = random.sample(range(hosts), size)
            for member in members:
                others = [other for other in members if other != member]
                counts = dict.fromkeys(others, 0)
                for other in random.choices(others, k=packets * len(others)):
                    counts[other] += 1
                flows += [(member, other, count, collective) for other, count in counts.items() if count]
        random.shuffle(flows)
        return flows

    return drawn


def scenario(case: Case, flows: Sequence[Flow]) -> tuple[dict[str, Any], dict[str, str]]:
    """The scenario of `case` with its `flows`, and the file that it reads."""
    fabric, half = case.fabric, case.fabric.k // 2
    tier = {"rate": f"{fabric.rate_gbps} Gbps", "length": "130 m", "switch_latency": "0 ns"}
    tiers: list[dict[str, Any]] = [
        {"ports_down": half, **tier},
        {"ports_down": half, "oversubscription": fabric.oversubscription, **tier},
        {"ports_down": fabric.k, **tier},
    ]
    payload = fabric.mtu - fabric.header
    rows = [f"{a},{b},{count * payload},{CLASSES[group % len(CLASSES)]}" for a, b, count, group in flows]
    parameters = dict(case.parameters)
    if fabric.buffer is not None:
        parameters["port_buffer"] = fabric.buffer
    topology: dict[str, Any] = {"shape": "clos", "hosts": fabric.hosts, "tiers": tiers, "host": {"gpus": 1, "nics": 1}}
    if fabric.failed:
        topology["failed"] = list(fabric.failed)
    text: dict[str, Any] = {
        "windtunnel": 1,
        "name": case.transport,
        "fidelity": "packet",
        "topology": topology,
        "network": {
            "transport": case.transport,
            "parameters": parameters,
            "load_balancer": "spray",
            "paths": 4096,
            "mtu": f"{fabric.mtu} B",
            "header": f"{fabric.header} B",
            "control": "64 B",
            **case.network,
        },
        "jobs": [{"name": "collectives", "workload": {"flows": {"file": "flows.csv"}}, "iterations": 1}],
        "results": {"ideal": False, "flows": "all"},
    }
    if case.until_us is not None:
        text["jobs"][0]["workload"]["flows"]["until"] = f"{case.until_us} us"
    if fabric.slow_cores is not None:
        cores = (fabric.k // 2) ** 2
        slow = [{"part": f"spine{core}", "rate": fabric.slow_cores, "at": "0 ns"} for core in range(0, cores, 2)]
        text["impairments"] = {"slow": slow}
    return text, {"flows.csv": "\n".join(["source,destination,bytes,class", *rows]) + "\n"}


def measured(case: Case, result: Result, flows: Sequence[Flow]) -> dict[str, float]:
    """What a run came to: times in us of what arrived, shares of data packets, and the transport's figures by name."""
    summary = result.summary
    network = summary["network"]["transport"] or {"figures": {}, "deliveries": []}
    figures: dict[str, int] = network["figures"]
    groups = sorted({CLASSES[group % len(CLASSES)] for *_, group in flows})
    if len(groups) > 1:
        ends = dict(result.flows.group_by("dimension").agg(pl_max("finish_ps")).iter_rows())
        cct, last = sum(ends[group] for group in groups) / len(groups) / 1e6, max(ends.values()) / 1e6
    else:
        cct = last = 1e6 * summary["jobs"][0]["iteration_time_s"]["mean"]
    sent, arrived = figures.get("data_packets_sent", 0), max(1, figures.get("data_packets_arrived", 0))
    host = figures.get("data_lost_in_hosts", 0)
    capacity = case.fabric.hosts * case.fabric.rate_gbps * 1e3 / 8
    sims = figures.get("sims_sent", 0)
    return {
        "cct_us": cct,
        "loss": figures.get("data_lost_in_network", 0) / max(1, sent),
        "loss_in_hosts": host / max(1, sent + host),
        "one_way_us": figures.get("one_way_delay_ps", 0) / arrived / 1e6,
        "queueing_us": figures.get("queueing_ps", 0) / arrived / 1e6,
        "reordered": figures.get("arrived_late", 0) / arrived,
        "reorder_bytes": float((summary["network"]["reorder_buffers"] or {"max_bytes": 0})["max_bytes"]),
        "sim_loss": 1 - figures.get("sims_arrived", 0) / sims if sims else 0.0,
        "utilisation": figures.get("data_bytes_arrived", 0) / (capacity * last),
        **_steady(case, network["deliveries"], capacity),
        **{name: float(value) for name, value in figures.items()},
    }


def _steady(case: Case, deliveries: Sequence[Sequence[int]], capacity: float) -> dict[str, float]:
    """Of flows without end, utilisation from the middle to the end, by intervals of 10 us; capacity in bytes a us."""
    if case.until_us is None:
        return {}
    last = case.until_us // 10
    steady = deliveries[last // 2 : last]
    return {"steady_utilisation": sum(row[0] for row in steady) / (capacity * 10 * (last - last // 2))}


def sizes_of(fabric: Fabric) -> list[int]:
    """What sizes of collectives are drawn from: {8, 16, 32, 64} of 128 hosts, and as large parts of others."""
    return [max(2, fabric.hosts * part // 16) for part in (1, 2, 4, 8)]


def by_size(
    fabric: Fabric, sizes: Sequence[float], traffic: Callable[[int], Callable[[int], list[Flow]]]
) -> tuple[dict[tuple[str, float], dict[str, Mean]], pl.DataFrame]:
    """Every transport under flows of each size in BDP; dcPIM and pHost take flows of just one BDP for long ones."""
    cases = {
        (name, size): Case(name, traffic(fabric.packets(size)), {"strict": True} if name in STRICT else {}, fabric)
        for size in sizes
        for name in RIVALS
    }
    found = dict(zip(cases, many(cases.values()), strict=True))
    return found, table("transport, BDP", {f"{name}, {size}": each for (name, size), each in found.items()})


def against_rivals(
    fabric: Fabric, sizes: Sequence[float], traffic: Callable[[int], Callable[[int], list[Flow]]]
) -> dict[str, Any]:
    """DCSIM over the others under flows of each size in BDP: ratios of mean CCTs, loss, reordering, queueing."""
    found, frame = by_size(fabric, sizes, traffic)
    own = [found["dcsim", size] for size in sizes]
    return {
        "by size": frame,
        "dcsim_over_best_worst": max(ratio(found, "dcsim", name, [x]) for x in sizes for name in RIVALS[1:]),
        "dcsim_over_others": sum(ratio(found, "dcsim", name, sizes) for name in RIVALS[1:]) / 3,
        "loss_dcsim": sum(each["loss"].mean for each in own),
        "reordered_dcsim": max(each["reordered"].mean for each in own),
        "queueing_phost_over_dcsim": sum(found["phost", x]["queueing_us"].mean for x in sizes)
        / sum(each["queueing_us"].mean for each in own),
    }


def ratio(found: Mapping[tuple[str, float], Mapping[str, Mean]], one: str, other: str, sizes: Sequence[float]) -> float:
    """Mean over `sizes` of the CCT of `one` over that of `other`."""
    return sum(found[one, size]["cct_us"].mean / found[other, size]["cct_us"].mean for size in sizes) / len(sizes)


def table(first: str, found: Mapping[str, Mapping[str, Mean]]) -> pl.DataFrame:
    """Means with their standard errors, a row each."""
    import polars as pl  # noqa: PLC0415

    rows = [
        {
            first: name,
            "CCT us": f"{each['cct_us'].mean:.1f} ± {each['cct_us'].error:.1f}",
            "loss": f"{each['loss'].mean:.4f}",
            "loss in hosts": f"{each['loss_in_hosts'].mean:.4f}",
            "one-way us": f"{each['one_way_us'].mean:.2f}",
            "queueing us": f"{each['queueing_us'].mean:.2f}",
            "reordered": f"{each['reordered'].mean:.4f}",
            "mean utilisation": f"{each['utilisation'].mean:.3f}",
            **(
                {"steady utilisation": f"{each['steady_utilisation'].mean:.3f}"} if "steady_utilisation" in each else {}
            ),
            "SIM loss": f"{each['sim_loss'].mean:.3f}",
            "seeds": each["cct_us"].count,
        }
        for name, each in found.items()
    ]
    return pl.DataFrame(rows)


def pl_max(column: str) -> Any:  # noqa: ANN401 (an expression of polars, which loads late)
    """The greatest of a column."""
    import polars as pl  # noqa: PLC0415

    return pl.col(column).max()


def seeds(default: int = 20) -> int:
    """Seeds of each point: WINDTUNNEL_SEEDS, else the paper's 20."""
    return int(os.environ.get("WINDTUNNEL_SEEDS", default))


def scale() -> int:
    """Ports of the fat tree's switches: WINDTUNNEL_FAT_TREE, else 4 (16 hosts); the paper has 8 (128 hosts)."""
    return int(os.environ.get("WINDTUNNEL_FAT_TREE", "4"))


def many(cases: Iterable[Case], count: int | None = None) -> list[dict[str, Mean]]:
    """Runs each case with as many seeds, all of them together; means of what they came to."""
    cases, count = list(cases), seeds() if count is None else count
    asked, drawn = [], []
    for case in cases:
        for seed in range(1, count + 1):
            flows = case.traffic(seed)
            text, files = scenario(case, flows)
            asked.append(Asked(text, seed=seed, files=files))
            drawn.append((case, flows))
    results = run_all(asked)
    found = [measured(case, result, flows) for (case, flows), result in zip(drawn, results, strict=True)]
    means = []
    for first in range(0, len(found), count):
        part = found[first : first + count]
        means.append({name: Mean.of([one.get(name, 0.0) for one in part]) for name in part[0]})
    return means


def with_fabric(case: Case, **changes: Any) -> Case:  # noqa: ANN401 (fields of Fabric)
    """`case` on a fabric with other fields."""
    return replace(case, fabric=replace(case.fabric, **changes))
