"""DCTCP against its equations, and against TCP with buffers that overflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from windtunnel.experiments.loads import Load, by_load, table
from windtunnel.experiments.port import Flow, Port, shared

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results

PACKET = 1_500
DELAYED = {"ack_every": 2}
"""Of receivers that acknowledge every second packet, as the paper's hosts do. Queues are looked at with every one."""
LOADS = (0.3, 0.5, 0.8)
BUFFER = 700_000
"""What TCP may queue at a port in figure 1; of the leaf–spine, a port's share of shallow switches at 100 Gbps."""


WHY = {
    "swing_40": "windows are of three whole packets, and all flows meet the same full queue: they are cut in the same "
    "round trips, by more than the small part that equation 8 takes for granted",
    "long_over_tcp": "slow start ends at the first mark, and from there a window grows by a packet a round trip; with "
    "K of 250 packets it is 1.10 at a load of 0.3, and flows up to 10 KB take 2.2 times as long for it",
}
"""By figure observed: why a claim on it does not hold."""


def marks(packets: int, gbps: float) -> dict[str, Any]:
    """Marks of all packets that find more than so many of 1,500 B waiting."""
    edge = packets * PACKET
    return {"ecn": {"rate": f"{gbps} Gbps", "kmin": f"{edge} B", "kmax": f"{edge + 1} B", "pmax": 1}}


def port(count: int, packets: int, **changes: Any) -> Port:  # noqa: ANN401 (fields of Port)
    """`count` flows at 10 Gbps over 100 us with K = `packets`, for 250 ms together."""
    size = round(250e-3 * 10e9 / 8 * 1434 / PACKET / count)
    # They begin within 2 ms, not at once, lest they stay in step. What two packets and an acknowledgement take on
    # their wires belongs to the round trip.
    flows = [Flow(start, size) for start in np.random.default_rng(1).uniform(0, 2_000, count)]
    return Port("dctcp", flows, gbps=10, rtt_us=97.5, network=marks(packets, 10), **changes)


def slow(transport: str, **network: Any) -> Port:  # noqa: ANN401 (keys of network)
    """Two flows at 1 Gbps for 200 ms."""
    flows = [Flow(0, round(200e-3 * 1e9 / 8 * 1434 / PACKET / 2))] * 2
    return Port(transport, flows, gbps=1, rtt_us=80, buffer=BUFFER, network=network, every="100 us")


def incast(transport: str, senders: int) -> Port:
    """1 MB of as many senders; TCP's time-out is 10 ms, as the paper's, and the first window is two packets."""
    window = {"initial_packets": 2} if transport == "newreno" else {"initial_window": 0.25}
    # Neither probes for a lost tail, which came to TCP ten years later (RFC 8985).
    more: dict[str, Any] = {"timeout": "10 ms", "parameters": window, "recovery": {"selective": {"reorder": 3}}}
    more |= marks(20, 1) if transport == "dctcp" else {"ecn": {"kmin": "1 GB", "kmax": "2 GB"}}
    flows = [Flow(0, 1_000_000 // senders)] * senders
    return Port(transport, flows, gbps=1, rtt_us=80, buffer=100 * PACKET, network=more, every=None)


def observe(_results: Results) -> dict[str, Any]:
    """Queues, use, shares, time-outs and slowdowns."""
    few = {(count, packets): port(count, packets) for count, packets in ((2, 40), (10, 40), (40, 40), (2, 2))}
    never = {"kmin": "1 GB", "kmax": "2 GB"}
    apart = 50_000
    staged = [Flow(apart * turn, 400_000_000) for turn in range(5)]
    ports = {
        **few,
        "own": slow("dctcp", **marks(20, 1)),
        "tcp": slow("newreno", parameters={"max_window": 200}, ecn=never),
        "staged": Port("dctcp", staged, gbps=10, rtt_us=97.5, network=DELAYED | marks(40, 10), every="1 ms"),
        35: incast("dctcp", 35),
        100: incast("dctcp", 100),
        "tcp of 35": incast("newreno", 35),
    }
    found = dict(zip(ports, shared(ports.values()), strict=True))
    steady = (100_000, 150_000)
    queues = {key: found[key].queue_bytes(*steady) / PACKET for key in few}
    waiting = {key: float(found[key].queue_bytes(50_000, 180_000).mean()) for key in ("own", "tcp")}
    use = {key: found[key].used(50_000, 180_000) for key in ("own", "tcp")}
    # Both begin with ten packets and mend losses alike, as one kernel does. K is the bandwidth-delay product of the
    # idle path.
    same: dict[str, Any] = {"buffers": [{"size": "4 MB"}], "recovery": "rack", **DELAYED}
    own = same | marks(67, 100) | {"parameters": {"initial_window": 0.15}}
    flows = by_load(
        {
            "dctcp": Load("dctcp", network=own, span_us=15_000),
            "newreno": Load("newreno", network=same | {"ecn": never}, span_us=15_000),
        },
        "websearch",
        LOADS,
    )
    return {
        "queue at the port": pl.DataFrame(
            [
                {
                    "flows": count,
                    "K": packets,
                    "least": float(queue.min()),
                    "mean": round(float(queue.mean()), 1),
                    "peak": float(queue.max()),
                    "port in use": round(found[count, packets].used(*steady), 4),
                }
                for (count, packets), queue in queues.items()
            ]
        ),
        "slowdown by load": table("transport", flows),
        "peak_2": float(queues[2, 40].max()),
        "peak_10": float(queues[10, 40].max()),
        "swing_2": float(np.ptp(queues[2, 40])),
        "swing_40": float(np.ptp(queues[40, 40])),
        "used_40": found[2, 40].used(*steady),
        "used_2": found[2, 2].used(*steady),
        "queue_over_tcp": waiting["own"] / waiting["tcp"],
        "throughput_over_tcp": use["own"] / use["tcp"],
        "jain": found["staged"].jain(6 * apart, 16 * apart),
        "timeouts_35": found[35].network["timeouts"],
        "timeouts_100": found[100].network["timeouts"],
        "timeouts_tcp": found["tcp of 35"].network["timeouts"],
        "short_over_tcp": max(flows["dctcp", at].p95("short") / flows["newreno", at].p95("short") for at in LOADS),
        "long_over_tcp": max(flows["dctcp", at].mean("long") / flows["newreno", at].mean("long") for at in LOADS),
    }
