"""A training step, packet by packet, under transports over a fat tree that is whole, half slow, half gone or breaking.

    cells = measure({"mixtral": Path("mixtral.yaml")}, TRANSPORTS, FABRICS, seeds=1)
    cells["mixtral", "half, slow", "dcsim"].step_ms

The scenarios are a fat tree of 800 Gbps with four core switches. A port has 500 KB where a transport lays out ports
itself, and switches of four ports share 2 MB elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windtunnel.experiments.runs import Asked, run_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from windtunnel.results import Result

PAYLOAD = 8_960
"""Bytes of a packet without its header."""

SHARED: dict[str, Any] = {"buffers": [{"size": "2 MB"}]}
SPRAYS: dict[str, Any] = {"load_balancer": "spray"}


def trims(kilobytes: int, balancer: str = "spray") -> dict[str, Any]:
    """Switches that cut packets to headers beyond so much in a queue."""
    return {"trimming": {"queue": f"{kilobytes} KB"}, "load_balancer": balancer, **SHARED}


TRANSPORTS: dict[str, dict[str, Any]] = {
    "dcsim": SPRAYS,
    "dcpim": SPRAYS,
    "phost": SPRAYS,
    "pfabric": SPRAYS,
    "dcqcn": {"pfc": {}, "ecn": {"profile": "dcqcn"}, **SHARED},
    "uec": trims(500),
    "rccc": trims(500),
    "ndp": trims(72),
    "mrc": trims(500, "source"),
}
"""Transport → what it asks of the network. NDP trims at its paper's eight packets, the others at a port's 500 KB."""

PAPER = ("dcpim", "phost", "pfabric")
"""DCSIM's rivals in its paper."""

LATER = ("uec", "rccc", "ndp", "mrc")
"""Those that trim."""

FAIL_MS, ROUTED_MS = 5, 10
"""When cables fail, and for how long only the switches at their ends know."""

CABLES = ("agg0.0 -> spine0", "agg2.1 -> spine3")

FABRICS: dict[str, dict[str, Any]] = {
    "full": {},
    "half, slow": {
        "impairments.slow": [{"part": f"spine{core}", "rate": 0.01, "at": "0 ns"} for core in (0, 2)],
    },
    "half, gone": {"topology.failed": ["spine0", "spine2"]},
    "cables fail": {
        "impairments.down": [{"part": cable, "at": f"{FAIL_MS} ms"} for cable in CABLES],
        "impairments.convergence": f"{ROUTED_MS} ms",
    },
}
"""Half: every second core switch at 1% of its rate, both ways, while all are used (reading A of DCSIM), or
not there for paths (reading B)."""


@dataclass(frozen=True)
class Cell:
    """A step; means over seeds, but the largest reorder buffer of all."""

    step_ms: float
    exposed_ms: float
    """Communication that computation waits for."""
    p99_us: float
    """99th percentile of the times of messages between hosts."""
    packets: float
    """Data packets without those sent again."""
    lost: float
    """Data packets that the network lost."""
    lost_in_hosts: float
    trimmed: float
    reorder_bytes: int
    """The most that one queue pair's receiver held out of order."""

    @property
    def loss(self) -> float:
        """Share of data packets that the network lost."""
        return self.lost / (self.packets + self.lost)


def asked(scenario: Path, transport: str, network: Mapping[str, Any], fabric: Mapping[str, Any], seed: int) -> Asked:
    """The run of `scenario` under a transport."""
    overrides = {f"network.{key}": value for key, value in network.items()}
    return Asked(scenario, {"network.transport": transport, **overrides, **fabric}, seed=seed)


def _one(result: Result) -> Cell:
    import polars as pl  # noqa: PLC0415

    summary = result.summary
    job, network = summary["jobs"][0], summary["network"]
    own = (network["transport"] or {"figures": {}})["figures"]
    messages = result.flows.filter(pl.col("path") != "scale-up")
    took = (messages["finish_ps"].cast(pl.Int64) - messages["start_ps"].cast(pl.Int64)) / 1e6
    packets = int(((messages["bytes"] + (PAYLOAD - 1)) // PAYLOAD).sum())
    lost = own.get("data_lost_in_network", network["packets_dropped"] - network["control_packets_dropped"])
    return Cell(
        1e3 * job["iteration_time_s"]["mean"],
        1e3 * job["exposed_communication_s"],
        float(took.quantile(0.99) or 0.0),
        packets,
        lost,
        own.get("data_lost_in_hosts", 0),
        network["packets_trimmed"],
        (network["reorder_buffers"] or {"max_bytes": 0})["max_bytes"],
    )


def _mean(cells: Sequence[Cell]) -> Cell:
    def mean(name: str) -> float:
        return float(sum(getattr(cell, name) for cell in cells)) / len(cells)

    return Cell(
        mean("step_ms"),
        mean("exposed_ms"),
        mean("p99_us"),
        mean("packets"),
        mean("lost"),
        mean("lost_in_hosts"),
        mean("trimmed"),
        max(cell.reorder_bytes for cell in cells),
    )


Place = tuple[str, str, str]
"""Model, fabric, transport."""


def measure(
    models: Mapping[str, Path],
    settings: Mapping[str, tuple[str, Mapping[str, Any]]],
    fabrics: Iterable[str],
    seeds: int,
) -> dict[Place, Cell]:
    """Every step, by model, fabric and name of a setting, which is a transport and its keys of `network`."""
    places = [(model, fabric, name) for model in models for fabric in fabrics for name in settings]
    runs = [
        asked(models[model], *settings[name], FABRICS[fabric], seed)
        for model, fabric, name in places
        for seed in range(1, seeds + 1)
    ]
    cells = [_one(result) for result in run_all(runs)]
    return {place: _mean(cells[turn * seeds : (turn + 1) * seeds]) for turn, place in enumerate(places)}


def over(cells: Mapping[Place, Cell], model: str, fabric: str, others: Iterable[str], name: str = "dcsim") -> float:
    """The step of `name` over the shortest of `others`."""
    return cells[model, fabric, name].step_ms / min(cells[model, fabric, other].step_ms for other in others)


def table(cells: Mapping[Place, Cell], model: str, fabric: str) -> pl.DataFrame:
    """What became of the steps of a model over a fabric, a row for each transport."""
    import polars as pl  # noqa: PLC0415

    rows = [
        {
            "transport": name,
            "step ms": f"{cell.step_ms:.1f}",
            "exposed ms": f"{cell.exposed_ms:.1f}",
            "p99 of messages us": f"{cell.p99_us:,.0f}",
            "data lost": f"{cell.loss:.2%}" if cell.loss >= 5e-5 else f"{cell.lost:,.0f} packets",
            "lost in hosts": f"{cell.lost_in_hosts / (cell.packets + cell.lost_in_hosts):.2%}",
            "trimmed": f"{cell.trimmed / cell.packets:.2%}",
            "reorder buffer KB": f"{cell.reorder_bytes / 1e3:,.0f}",
        }
        for (m, f, name), cell in cells.items()
        if (m, f) == (model, fabric)
    ]
    return pl.DataFrame(rows)
