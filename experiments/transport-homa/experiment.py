"""Homa beside the rivals of its paper: short messages of its workloads at a load of 0.8."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from windtunnel.experiments.loads import Load, many, published

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results
    from windtunnel.experiments.loads import Slowdowns

SPANS_US = {"homa-w1": 50, "homa-w2": 100, "homa-w3": 400, "homa-w4": 10_000, "websearch": 30_000}
"""For how long flows of each workload begin: some thousands of each."""
LEVELS = {"homa-w1": 7, "homa-w2": 7, "homa-w3": 4, "homa-w4": 1, "websearch": 1}
"""Priorities of what is sent unasked, of eight, as the paper has them for each workload (section 5.2)."""
LEARNED = "homa, levels learned"
WHY = {
    "learned_over_given": "a sender hears of a receiver's levels with that receiver's first answer, and has one level "
    "for all until then; of 144 hosts it meets each about once in this time",
}
"""By figure observed: why a claim on it does not hold."""
TRANSPORTS: dict[str, dict[str, Any]] = {
    "homa": {"load_balancer": "spray", "control": "64 B"},
    LEARNED: {"load_balancer": "spray", "control": "64 B"},
    "pfabric": {"load_balancer": "spray", "control": "64 B"},
    "phost": {"load_balancer": "spray", "control": "64 B"},
    "ndp": {"load_balancer": "spray", "control": "64 B", "trimming": {"queue": "12 KB"}},
}


def load_of(transport: str, sizes: str) -> Load:
    """144 hosts of 10 Gbps in nine racks, packets of 1,500 B, cables of 250 ns."""
    given = {"parameters": {"unscheduled_levels": LEVELS[sizes]}} if transport == "homa" else {}
    return Load(
        transport.partition(",")[0],
        {**TRANSPORTS[transport], **given},
        sizes,
        load=0.8,
        hosts=144,
        per_leaf=16,
        gbps=10,
        metres=50,
        span_us=SPANS_US[sizes],
        every_header=True,
    )


def halves(sizes: str, found: Slowdowns) -> tuple[float, float]:
    """99th percentiles of slowdowns of the shorter half of the messages, and of the longest tenth."""
    points = np.array(published(sizes), dtype=float)
    half, tenth = (float(np.interp(share, points[:, 1], points[:, 0])) for share in (0.5, 0.9))
    short, long = found.slowdowns[found.sizes <= half], found.slowdowns[found.sizes >= tenth]
    return float(np.quantile(short, 0.99)), float(np.quantile(long, 0.99))


def observe(_results: Results) -> dict[str, Any]:
    """Tails of short and of long messages."""
    places = [(name, sizes) for sizes in SPANS_US for name in TRANSPORTS]
    found = many({(name, sizes): load_of(name, sizes) for name, sizes in places})
    tails = {(name, sizes): halves(sizes, found[name, sizes]) for name, sizes in places}

    def over(name: str, which: int = 0) -> list[float]:
        return [tails["homa", sizes][which] / tails[name, sizes][which] for sizes in SPANS_US]

    return {
        "99th percentile of slowdowns at a load of 0.8": pl.DataFrame(
            [
                {
                    "workload": sizes,
                    "transport": name,
                    "shorter half": round(tails[name, sizes][0], 2),
                    "longest tenth": round(tails[name, sizes][1], 2),
                    "mean of all": round(found[name, sizes].mean("all"), 2),
                    "messages": len(found[name, sizes].sizes),
                }
                for name, sizes in places
            ]
        ),
        "learned_over_given": max(1 / ratio for ratio in over(LEARNED)),
        "over_pfabric": max(over("pfabric")),
        "over_phost": max(over("phost")),
        "over_ndp": max(over("ndp")),
        "long_over_pfabric": max(over("pfabric", 1)),
    }
