"""Swift against its own target, with windows below a packet, and beside DCTCP under load."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from scipy.optimize import brentq

from windtunnel.experiments.loads import Load, by_load, table
from windtunnel.experiments.port import Flow, Port, shared

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results

PACKET, GBPS = 1_500, 100
A_PACKET = PACKET * 8e-3 / GBPS
"""Its time on the wire in us."""
BASE = 8 + 2 * A_PACKET + 2 * 64 * 8e-3 / GBPS
"""Round trip without queues: cables, a packet on two links, its acknowledgement on as many."""
FLOWS = (2, 8, 32, 128)
LOADS = (0.3, 0.5, 0.8)
WHY = {
    "rest_128": "windows are of one packet, which an increase of a packet a round trip doubles: the delay swings about "
    "its target, and is cut by what is above it at most once a round trip",
}
"""By figure observed: why a claim on it does not hold."""


def target_us(window: float) -> float:
    """Section 3.5 with the defaults of docs/transports.md: base, 8 packets a hop, and what small windows add."""
    scale = BASE / (1 / sqrt(0.1) - 1 / sqrt(100))
    flow = min(BASE, max(0.0, scale / sqrt(window) - scale / sqrt(100)))
    return BASE + 2 * 8 * A_PACKET + flow


def at_rest_us(flows: int) -> float:
    """The round trip at which it is the target of the windows that fill it."""
    return float(brentq(lambda rtt: target_us(rtt / A_PACKET / flows) - rtt, BASE / 2, 4 * BASE))


def port(count: int, span_ms: float, parameters: dict[str, Any] | None = None, **changes: Any) -> Port:  # noqa: ANN401
    """As many flows into 100 Gbps over 8 us, which begin within 100 us."""
    size = round(span_ms * 1e-3 * GBPS * 1e9 / 8 * (PACKET - 66) / PACKET / count)
    starts = np.random.default_rng(1).uniform(0, 100, count)
    network = {"parameters": parameters or {}, "control": "64 B"}
    return Port("swift", [Flow(start, size) for start in starts], network=network, every="20 us", **changes)


def observe(_results: Results) -> dict[str, Any]:
    """Round trips, use, shares, losses of a large incast, slowdowns."""
    many, small = 1_000, {"initial_window": 0.014}
    ports = {
        **{count: port(count, 30) for count in FLOWS},
        "no flow scaling": port(128, 30, {"fs_range": 0}),
        "below a packet": port(many, 40, small, buffer=1_000_000, senders_every="5 ms"),
        "a packet at least": port(many, 40, {**small, "min_window": 1}, buffer=1_000_000, senders_every="5 ms"),
    }
    found = dict(zip(ports, shared(ports.values()), strict=True))
    span = (10_000, 25_000)
    rtt = {count: BASE + float(found[count].queue_bytes(*span).mean()) / PACKET * A_PACKET for count in FLOWS}
    lost = {
        name: found[name].network["packets_dropped"] / found[name].network["packets_delivered"]
        for name in ("below a packet", "a packet at least")
    }
    base: dict[str, Any] = {"buffers": [{"size": "4 MB"}], "recovery": "rack"}
    edge = 67 * PACKET
    marks = {"rate": f"{GBPS} Gbps", "kmin": f"{edge} B", "kmax": f"{edge + 1} B", "pmax": 1}
    loads = {
        "swift": Load("swift", network=base, span_us=15_000),
        "dctcp": Load("dctcp", network={**base, "ecn": marks}, span_us=15_000),
    }
    web = by_load(loads, "websearch", LOADS)
    return {
        "flows at a port": pl.DataFrame(
            [
                {
                    "flows": str(name),
                    "round trip us": round(BASE + float(one.queue_bytes(*span).mean()) / PACKET * A_PACKET, 2),
                    "target us": round(at_rest_us(len(one.port.flows)), 2) if isinstance(name, int) else None,
                    "port in use": round(one.used(*span), 4),
                    "Jain": round(one.jain(*span), 4),
                    "lost": one.network["packets_dropped"],
                }
                for name, one in found.items()
            ]
        ),
        "slowdown by load": table("transport", web),
        "used": min(found[count].used(*span) for count in FLOWS),
        **{f"rest_{count}": rtt[count] / at_rest_us(count) for count in FLOWS},
        "jain": min(found[count].jain(*span) for count in FLOWS),
        "jain_gained": found[128].jain(*span) - found["no flow scaling"].jain(*span),
        "lost_small": lost["below a packet"],
        "lost_over": lost["below a packet"] / lost["a packet at least"],
        "used_small": found["below a packet"].used(*span),
        "lost_under_load": sum(web["swift", at].count("packets_dropped") for at in LOADS),
        "short_over_dctcp": web["swift", 0.8].at("short", 0.99) / web["dctcp", 0.8].at("short", 0.99),
        "long_over_dctcp": web["swift", 0.8].mean("long") / web["dctcp", 0.8].mean("long"),
    }
