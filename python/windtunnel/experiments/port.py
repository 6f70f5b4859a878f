"""Flows that meet at one port: how they share it and what waits there, for experiments on transports.

    (run,) = shared([Port("dctcp", [Flow(0, 10_000_000), Flow(1_000, 10_000_000)], network={"ecn": …})])
    run.queue_bytes(after_us=500), run.jain(after_us=500)

Every sender has a NIC of its own at one switch, and all send to the same other NIC; so the port that leads there is the
only one at which anything waits. Sizes are in bytes, times in microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from windtunnel.experiments.runs import Asked, run_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from windtunnel.results import Result

NS_PER_M = 5
"""Light in a cable, as scenarios have it."""


class Flow(NamedTuple):
    """When a sender begins and what it has to send."""

    start_us: float
    size: int


@dataclass(frozen=True)
class Port:
    """A transport with its settings, and the flows that meet: each of a sender of its own."""

    transport: str
    flows: Sequence[Flow]
    gbps: float = 100
    rtt_us: float = 8
    """There and back on cables alone, over two links each way."""
    mtu: int = 1_500
    header: int = 66
    buffer: int | None = None
    """What may wait at the port; no limit if left out."""
    network: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of `network`."""
    faster: float = 1.0
    """Rate of the senders' NICs over that of the port. A flow alone queues there if it is above 1."""
    loss: float = 0.0
    """Part of the packets to the receiver that are lost at random."""
    every: str | None = "10 us"
    """How often the queue is looked at; never if None."""
    senders_every: str = "1 ms"
    """How often the senders are, if the queue is."""

    def asked(self, seed: int = 1) -> Asked:
        """The run."""
        receiver = len(self.flows)
        network: dict[str, Any] = {
            "transport": self.transport,
            "mtu": f"{self.mtu} B",
            "header": f"{self.header} B",
            "ack_every": 1,
            **self.network,
        }
        if self.buffer is not None and "buffers" not in network:
            # A port alone may hold alpha / (1 + alpha) of the buffer.
            network["buffers"] = [{"size": f"{round(self.buffer * 1.001)} B", "alpha": 1000}]
        rows = [f"{sender},{receiver},{size},{round(start * 1e6)}" for sender, (start, size) in enumerate(self.flows)]
        results: dict[str, Any] = {"ideal": False, "flows": "all"}
        if self.every is not None:
            pairs = [{"from": f"host{sender}/nic0", "to": f"host{receiver}/nic0"} for sender in range(receiver)]
            results |= {"queues": self.every, "queue_pairs": {"every": self.senders_every, "pairs": pairs}}
        text: dict[str, Any] = {
            "windtunnel": 1,
            "name": self.transport,
            "fidelity": "packet",
            "topology": {
                "shape": "clos",
                "hosts": receiver + 1,
                "tiers": [
                    {
                        "ports_down": receiver + 1,
                        "rate": f"{self.gbps * self.faster} Gbps",
                        "length": f"{self.rtt_us * 1e3 / 4 / NS_PER_M} m",
                        "switch_latency": "0 ns",
                    }
                ],
                "host": {"gpus": 1, "nics": 1},
            },
            "network": network,
            "jobs": [{"name": "flows", "workload": {"flows": {"file": "flows.csv"}}, "iterations": 1}],
            "results": results,
        }
        port = f"leaf0 -> host{receiver}/nic0"
        if self.loss:
            text["impairments"] = {"loss": [{"on": port, "rate": self.loss}]}
        if self.faster != 1:
            slow = [{"part": port, "rate": 1 / self.faster, "at": "0 ns"}]
            text["impairments"] = {**text.get("impairments", {}), "slow": slow}
        files = {"flows.csv": "\n".join(["source,destination,bytes,start_ps", *rows]) + "\n"}
        return Asked(text, seed=seed, files=files)


@dataclass(frozen=True)
class Shared:
    """What a run of a `Port` came to."""

    port: Port
    result: Result

    @property
    def network(self) -> Mapping[str, Any]:
        """The summary's part on the network."""
        found: Mapping[str, Any] = self.result.summary["network"]
        return found

    @property
    def ends_us(self) -> NDArray[np.float64]:
        """When each flow ended, by sender."""
        rows = self.result.flows.sort("source")
        return rows["finish_ps"].cast(float).to_numpy() / 1e6

    def queue_bytes(self, after_us: float = 0.0, before_us: float = float("inf")) -> NDArray[np.float64]:
        """What the port held at each look between two instants."""
        name = f"leaf0 -> host{len(self.port.flows)}/nic0"
        rows = self.result.table("queues").filter(_between(after_us, before_us))
        held: NDArray[np.float64] = rows.filter(rows["name"] == name)["queue_bytes"].cast(float).to_numpy()
        return held

    def used(self, after_us: float, before_us: float) -> float:
        """Part of the port's rate that was in use between two instants."""
        name = f"leaf0 -> host{len(self.port.flows)}/nic0"
        # A row has the bytes since the look before it.
        rows = self.result.table("queues").filter(_between(after_us + 1e-6, before_us))
        sent = float(rows.filter(rows["name"] == name)["bytes"].sum())
        return sent * 8e-3 / self.port.gbps / (before_us - after_us)

    def rates_gbps(self, after_us: float, before_us: float) -> NDArray[np.float64]:
        """Payload of each sender that arrived between two instants, per time."""
        rows = self.result.table("queue_pairs").filter(_between(after_us, before_us)).sort("time_ps")
        groups = rows.group_by("source", maintain_order=True).agg(
            _col("delivered_bytes").last().cast(float) - _col("delivered_bytes").first().cast(float)
        )
        return groups["delivered_bytes"].to_numpy() * 8e-3 / (before_us - after_us)

    def jain(self, after_us: float, before_us: float) -> float:
        """Jain's index of these rates: 1 if all are equal."""
        return jain(self.rates_gbps(after_us, before_us))

    def round_trips_us(self, after_us: float, before_us: float) -> NDArray[np.float64]:
        """The last round trip that each sender had measured, at each look."""
        rows = self.result.table("queue_pairs").filter(_between(after_us, before_us))
        return rows["rtt_ps"].drop_nulls().cast(float).to_numpy() / 1e6

    def windows_bytes(self, after_us: float, before_us: float) -> NDArray[np.float64]:
        """Bytes that each sender might have under way, at each look."""
        rows = self.result.table("queue_pairs").filter(_between(after_us, before_us))
        return rows["window_bytes"].drop_nulls().cast(float).to_numpy()


def jain(rates: NDArray[np.float64]) -> float:
    """Jain, Chiu and Hawe's index of fairness: (sum x)^2 / (n sum x^2)."""
    return float(rates.sum() ** 2 / (len(rates) * (rates**2).sum()))


def shared(ports: Iterable[Port], seed: int = 1) -> list[Shared]:
    """Runs each of `ports`, all of them together."""
    ports = list(ports)
    results = run_all([port.asked(seed) for port in ports])
    return [Shared(port, result) for port, result in zip(ports, results, strict=True)]


def _col(name: str) -> Any:  # noqa: ANN401 (an expression of polars, which loads late)
    import polars as pl  # noqa: PLC0415

    return pl.col(name)


def _between(after_us: float, before_us: float) -> Any:  # noqa: ANN401
    time = _col("time_ps").cast(float) / 1e6
    return (time >= after_us) & (time <= before_us)
