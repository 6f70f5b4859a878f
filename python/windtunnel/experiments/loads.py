"""Flows of published sizes at a load, and how long they take by size, for experiments on transports.

    found = by_load({"dctcp": Load("dctcp"), "newreno": Load("newreno")}, sizes="websearch", loads=(0.3, 0.8))
    found["dctcp", 0.3].p95("short")

The traffic is that of the papers since pFabric: every NIC begins flows as a Poisson process, of sizes drawn from a
published distribution (`data/flows`), each to another NIC drawn evenly. A flow's slowdown is its completion time over
that on the idle path: its packets at line rate, one packet more at each further link, and the cables.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from windtunnel.experiments.runs import Asked, run_all
from windtunnel.shipped import data

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import polars as pl
    from numpy.typing import NDArray

    from windtunnel.results import Result

NS_PER_M = 5
"""Light in a cable, as scenarios have it."""

BINS = {"short": (0, 10_000), "medium": (10_000, 1_000_000), "long": (1_000_000, 1 << 62)}
"""Sizes in bytes from (not included) and to."""


class Message(NamedTuple):
    """A flow of the traffic."""

    source: int
    destination: int
    size: int
    start_ps: int


@dataclass(frozen=True)
class Load:
    """A transport with its settings on a leaf–spine, and a load of it."""

    transport: str
    network: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of `network`."""
    sizes: str = "websearch"
    load: float = 0.5
    hosts: int = 32
    per_leaf: int = 8
    gbps: float = 100
    metres: float = 200
    """Of each cable."""
    oversubscription: float = 1.0
    mtu: int = 1_500
    header: int = 66
    span_us: float = 3_000
    """For how long flows begin. The first fifth is not counted: queues have to fill."""
    largest: int | None = None
    """Sizes are cut to this."""
    every_header: bool = False
    """Whether the load counts the header of every packet of short flows, too; otherwise those of full packets."""
    latency_us: Mapping[int, float] | None = None
    """Of a way of so many links, where cables differ; that of `metres` a cable if None."""

    def messages(self, seed: int) -> list[Message]:
        """The traffic: it depends on the load and its sizes, and on nothing of the transport."""
        random = Random(f"{self.sizes} {self.load} {seed}")  # noqa: S311 (traffic, not secrets)
        points = np.array(published(self.sizes), dtype=float)
        if self.largest is not None:
            points[:, 0] = np.minimum(points[:, 0], self.largest)
        payload = self.mtu - self.header
        if self.every_header:
            drawn = np.interp((np.arange(1_000_000) + 0.5) / 1e6, points[:, 1], points[:, 0])
            mean = float(np.mean(drawn + np.ceil(drawn / payload) * self.header))
        else:
            mean = float(np.sum(np.diff(points[:, 1]) * (points[1:, 0] + points[:-1, 0]) / 2)) * self.mtu / payload
        gap_us = mean * 8e-3 / self.gbps / self.load
        found = []
        for source in range(self.hosts):
            now = random.expovariate(1 / gap_us)
            while now < self.span_us:
                size = max(1, round(float(np.interp(random.random(), points[:, 1], points[:, 0]))))
                other = random.randrange(self.hosts - 1)
                found.append(Message(source, other + (other >= source), size, round(now * 1e6)))
                now += random.expovariate(1 / gap_us)
        return sorted(found, key=lambda one: (one.start_ps, one.source))

    def asked(self, seed: int = 1) -> Asked:
        """The run."""
        tier = {"rate": f"{self.gbps} Gbps", "length": f"{self.metres} m", "switch_latency": "0 ns"}
        leaf: dict[str, Any] = {"ports_down": self.per_leaf, **tier}
        if self.oversubscription != 1:
            leaf["oversubscription"] = self.oversubscription
        rows = [",".join(map(str, message)) for message in self.messages(seed)]
        text: dict[str, Any] = {
            "windtunnel": 1,
            "name": self.transport,
            "fidelity": "packet",
            "topology": {
                "shape": "clos",
                "hosts": self.hosts,
                "tiers": [leaf, {"ports_down": self.hosts // self.per_leaf, **tier}],
                "host": {"gpus": 1, "nics": 1},
            },
            "network": {
                "transport": self.transport,
                "mtu": f"{self.mtu} B",
                "header": f"{self.header} B",
                **self.network,
            },
            "jobs": [{"name": "flows", "workload": {"flows": {"file": "flows.csv"}}, "iterations": 1}],
            "results": {"ideal": False, "flows": "all"},
        }
        files = {"flows.csv": "\n".join(["source,destination,bytes,start_ps", *rows]) + "\n"}
        return Asked(text, seed=seed, files=files)

    def idle_us(self, sizes: NDArray[np.float64], links: NDArray[np.float64]) -> NDArray[np.float64]:
        """How long flows of these payloads take alone over so many links."""
        payload = self.mtu - self.header
        packets = np.ceil(sizes / payload)
        last = sizes - (packets - 1) * payload + self.header
        first = np.where(packets > 1, self.mtu, last)
        wire = sizes + packets * self.header
        # The last packet waits for nobody behind the first link, unless it is shorter than what goes before it.
        behind = np.where(packets > 1, np.maximum(first, last), last)
        taken: NDArray[np.float64] = (wire + (links - 1) * behind) * 8e-3 / self.gbps
        if self.latency_us is None:
            return taken + links * self.metres * NS_PER_M * 1e-3
        ways: NDArray[np.float64] = np.array([self.latency_us[int(count)] for count in links], dtype=float)
        return taken + ways


@dataclass(frozen=True)
class Slowdowns:
    """Of the flows of runs of a `Load`."""

    sizes: NDArray[np.float64]
    slowdowns: NDArray[np.float64]
    network: Sequence[Mapping[str, Any]]
    """The summaries' parts on the network."""

    def of(self, part: str) -> NDArray[np.float64]:
        """Of the flows of a bin, or of `all`."""
        low, high = (0, 1 << 62) if part == "all" else BINS[part]
        return self.slowdowns[(self.sizes > low) & (self.sizes <= high)]

    def at(self, part: str, share: float) -> float:
        """The slowdown that so many flows of a bin do not exceed."""
        return float(np.quantile(self.of(part), share))

    def p95(self, part: str) -> float:
        """The 95th percentile of a bin."""
        return self.at(part, 0.95)

    def mean(self, part: str) -> float:
        """The mean of a bin."""
        return float(self.of(part).mean())

    def count(self, key: str) -> int:
        """A counter of the summaries, summed."""
        return sum(int(one[key]) for one in self.network)


@cache
def published(name: str) -> list[list[float]]:
    """Points (bytes, part of the flows up to there) of a sheet of `data/flows`."""
    from ruamel.yaml import YAML  # noqa: PLC0415

    points: list[list[float]] = YAML(typ="safe", pure=True).load(
        (data() / "flows" / f"{name}.yaml").read_text("utf-8")
    )["points"]
    return points


def slowdowns(load: Load, results: Iterable[Result]) -> Slowdowns:
    """Of the flows that began after the first fifth of the time."""
    sizes, found, network = [], [], []
    for result in results:
        rows = result.flows.filter(_col("start_ps").cast(float) >= load.span_us * 1e6 / 5)
        size = rows["bytes"].cast(float).to_numpy()
        taken = (rows["finish_ps"].cast(float) - rows["start_ps"].cast(float)).to_numpy() / 1e6
        sizes.append(size)
        found.append(taken / load.idle_us(size, rows["hops"].cast(float).to_numpy()))
        network.append(result.summary["network"])
    return Slowdowns(np.concatenate(sizes), np.concatenate(found), network)


def many(loads: Mapping[Any, Load], seeds: int = 1) -> dict[Any, Slowdowns]:
    """Runs each load with as many seeds, all of them together."""
    asked = [load.asked(seed) for load in loads.values() for seed in range(1, seeds + 1)]
    results = run_all(asked)
    return {
        key: slowdowns(load, results[place * seeds : (place + 1) * seeds])
        for place, (key, load) in enumerate(loads.items())
    }


def by_load(loads: Mapping[str, Load], sizes: str, at: Sequence[float], seeds: int = 1) -> dict[Any, Slowdowns]:
    """Each of `loads` under flows of `sizes` at each load, by (name, load)."""
    points = {(name, load): replace(base, sizes=sizes, load=load) for load in at for name, base in loads.items()}
    return many(points, seeds)


def table(first: str, found: Mapping[tuple[str, float], Slowdowns]) -> pl.DataFrame:
    """Median and 95th percentile of slowdowns by size, a row for each load of each."""
    import polars as pl  # noqa: PLC0415

    def row(name: str, load: float, each: Slowdowns) -> dict[str, Any]:
        figures = {part: f"{each.at(part, 0.5):.2f} / {each.p95(part):.2f}" for part in BINS if len(each.of(part))}
        return {
            "load": load,
            first: name,
            **{f"{part}, p50 / p95": figures.get(part, "") for part in BINS},
            "mean": round(each.mean("all"), 2),
            "dropped": each.count("packets_dropped"),
            "pauses": each.count("pfc_pauses"),
            "flows": len(each.sizes),
        }

    return pl.DataFrame([row(name, load, each) for (name, load), each in found.items()])


def _col(name: str) -> Any:  # noqa: ANN401 (an expression of polars, which loads late)
    import polars as pl  # noqa: PLC0415

    return pl.col(name)
