"""HPCC: how much of a link it uses, what waits, how an incast drains, and flows of published sizes beside DCQCN."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from windtunnel.experiments.loads import Load, by_load, table
from windtunnel.experiments.port import Flow, Port, shared

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results

PACKET = 1_500
TOLD: dict[str, Any] = {"telemetry": True}
LOADS = (0.3, 0.5, 0.8)
WHY = {
    "long_web": "DCQCN, as published, takes its rate to the least after a train of notifications and climbs slowly "
    "(docs/transports.md), so that its long flows wait longer than HPCC's do for the 5% that these leave free",
}
"""By figure observed: why a claim on it does not hold."""


def port(starts: list[float], size: int, **changes: Any) -> Port:  # noqa: ANN401 (fields of Port)
    """Flows into a port of 100 Gbps over 12 us, as in the paper's simulations, on a lossless fabric."""
    network = {**TOLD, "pfc": {}, "buffers": [{"size": "32 MB"}]}
    return Port("hpcc", [Flow(start, size) for start in starts], rtt_us=12, network=network, **changes)


def observe(_results: Results) -> dict[str, Any]:
    """Use, queues, shares, and slowdowns by size."""
    second = round(100e9 / 8 * 1e-3)
    ports = {
        "alone": port([0], 4 * second),
        "two": port([0, 300], 2 * second, every="5 us", senders_every="50 us"),
        "sixteen": port([0.0] * 16, second // 4, every="1 us", senders_every="50 us"),
        "staged": port([0, 5_000, 10_000, 15_000], 12 * second, every="100 us", senders_every="100 us"),
        "many": port(list(np.linspace(0, 50, 64)), second // 8, every="1 us", senders_every="100 us"),
    }
    found = dict(zip(ports, shared(ports.values()), strict=True))
    rtt = 12.5
    # A flow sends a window at once, a bandwidth-delay product: of sixteen, fifteen wait, and take 15 round trips.
    first = found["sixteen"].queue_bytes(0, 2_500)
    crowded = np.flatnonzero(first > 10 * PACKET)
    lossless: dict[str, Any] = {"pfc": {}, "buffers": [{"size": "32 MB"}]}
    base = {
        "hpcc": Load("hpcc", network={**TOLD, **lossless}, span_us=10_000),
        "dcqcn": Load("dcqcn", network={**lossless, "ecn": {"profile": "hpcc"}}, span_us=10_000),
    }
    web = by_load(base, "websearch", LOADS)
    hadoop = by_load({name: replace(one, span_us=1_500) for name, one in base.items()}, "fb-hadoop", LOADS)

    def worst(flows: dict[Any, Any], part: str, share: float) -> float:
        return max(flows["hpcc", at].at(part, share) / flows["dcqcn", at].at(part, share) for at in LOADS)

    return {
        "queue at the port": pl.DataFrame(
            [
                {
                    "flows": name,
                    "mean packets": round(float(one.queue_bytes(*span).mean()) / PACKET, 2),
                    "p99 packets": round(float(np.quantile(one.queue_bytes(*span), 0.99)) / PACKET, 1),
                    "port in use": round(one.used(*span), 4),
                    "Jain": round(one.jain(*span), 4),
                    "pauses": one.network["pfc_pauses"],
                }
                for name, span in (
                    ("alone", (100, 3_000)),
                    ("two", (500, 2_000)),
                    ("sixteen", (1_000, 3_000)),
                    ("staged", (25_000, 40_000)),
                    ("many", (4_000, 7_000)),
                )
                for one in (found[name],)
            ]
        ),
        "slowdown by load, web search": table("transport", web),
        "slowdown by load, Hadoop": table("transport", hadoop),
        "used_alone": found["alone"].used(100, 3_000),
        "used_two": found["two"].used(500, 2_000),
        "queue_two": float(found["two"].queue_bytes(500, 2_000).mean()) / PACKET,
        "queue_sixteen": float(found["sixteen"].queue_bytes(1_000, 3_000).mean()) / PACKET,
        "peak_over_windows": float(first.max()) / (15 * rtt * 100e3 / 8),
        "drained_over_least": float(crowded[-1] + 1) / (15 * rtt),
        "pauses": sum(one.network["pfc_pauses"] for one in found.values()),
        "jain_staged": found["staged"].jain(25_000, 40_000),
        "pauses_under_load": sum(one.count("pfc_pauses") for one in [web["hpcc", at] for at in LOADS]),
        "short_web": worst(web, "short", 0.95),
        "short_web_99": worst(web, "short", 0.99),
        "short_hadoop": worst(hadoop, "short", 0.95),
        "long_web": min(web["hpcc", at].at("long", 0.5) / web["dcqcn", at].at("long", 0.5) for at in (0.3, 0.5)),
    }
