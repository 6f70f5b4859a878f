"""SIRD beside the rivals of its paper, over as many hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.experiments.loads import Load, slowdowns
from windtunnel.experiments.runs import run_all

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results
    from windtunnel.results import Result

UNLIMITED = 100_000_000
"""Bytes of a port: queues have no limit in the paper's simulations."""
RIVALS = ("homa", "dcpim", "expresspass", "dctcp", "swift")
LOADS = (0.5, 0.9)
SETTING = "not isolated; the settings that differ from the paper's stand in docs/transports/sird.md"
WHY = {
    "queue_over_homa": SETTING,
    "queue_over_dcpim": "what waits is mostly what both send unasked, a bandwidth-delay product a message; " + SETTING,
    "tail_over_dcpim": SETTING,
    "tail_over_expresspass": SETTING,
    "through_over_dcpim": SETTING,
}
"""By figure observed: why a claim on it does not hold."""


def load_of(transport: str) -> Load:
    """144 hosts of 100 Gbps in nine racks, packets of 1,500 B, a round trip of 7.5 us, and flows of a web search."""
    network: dict[str, Any] = {"load_balancer": "ecmp" if transport in {"expresspass", "dctcp", "swift"} else "spray"}
    if transport in {"dctcp", "swift"}:
        # The paper's K for DCTCP is 1.25 bandwidth-delay products.
        network |= {"ecn": {"rate": "100 Gbps", "kmin": "125000 B", "kmax": "125001 B", "pmax": 1}}
    else:
        network |= {"parameters": {"port_buffer": UNLIMITED}, "control": "64 B"}
    return Load(transport, network, hosts=144, per_leaf=16, metres=170, span_us=5_000)


def peak_kb(result: Result) -> float:
    """The longest queue of a port of the racks' switches."""
    links = result.table("links")
    below = links.filter(links["name"].cast(str).str.starts_with("leaf"))
    return float(below["queue_max_bytes"].max()) / 1e3


def finished(load: Load, result: Result) -> float:
    """Part of the bytes begun that had arrived when flows began no more."""
    flows, end = result.flows, load.span_us * 1e6
    arrived = flows.filter(flows["finish_ps"].cast(float) <= end)["bytes"].cast(float).sum()
    return float(arrived / flows["bytes"].cast(float).sum())


def observe(_results: Results) -> dict[str, Any]:
    """Queues, tails and what got through."""
    places = [(name, at) for at in LOADS for name in ("sird", *RIVALS)]
    loads = [replace(load_of(name), load=at) for name, at in places]
    found = dict(zip(places, run_all([load.asked() for load in loads]), strict=True))
    slow = {place: slowdowns(load, [found[place]]) for place, load in zip(places, loads, strict=True)}
    peak = {place: peak_kb(result) for place, result in found.items()}
    done = {place: finished(load, found[place]) for place, load in zip(places, loads, strict=True)}

    def over(name: str, figure: dict[tuple[str, float], float], at: float) -> float:
        return figure["sird", at] / figure[name, at]

    tail = {place: each.at("all", 0.99) for place, each in slow.items()}
    return {
        "144 hosts": pl.DataFrame(
            [
                {
                    "load": at,
                    "transport": name,
                    **{
                        f"{part}, p50 / p99": " / ".join(
                            f"{slow[name, at].at(part, share):.2f}" for share in (0.5, 0.99)
                        )
                        for part in ("short", "long")
                    },
                    "all, p99": round(tail[name, at], 2),
                    "longest queue, KB": round(peak[name, at]),
                    "arrived in time": round(done[name, at], 3),
                    "flows": len(slow[name, at].sizes),
                }
                for name, at in places
            ]
        ),
        "queue_over_homa": over("homa", peak, 0.5),
        "queue_over_dcpim": over("dcpim", peak, 0.5),
        "queue_over_dctcp": over("dctcp", peak, 0.5),
        "tail_over_dcpim": over("dcpim", tail, 0.5),
        "tail_over_expresspass": over("expresspass", tail, 0.5),
        "short": slow["sird", 0.5].at("short", 0.99),
        "through_over_dcpim": over("dcpim", done, 0.9),
        "through_over_expresspass": over("expresspass", done, 0.9),
    }
