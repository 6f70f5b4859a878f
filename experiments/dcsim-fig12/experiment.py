"""Async DCSIM beside DCSIM on five all-to-all-v."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.experiments.collectives import Case, Fabric, all_to_all_v, many, scale, sizes_of, table

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results


SIZES = (0.5, 1, 2, 4)

WHY = {
    "reordered_async_over_usual": "packets are bound in the order of SIM-ACKs and leave in the order of SIMs, which "
    "Async makes one "
    "order; `binds_late` is the other reading",
}
"""By figure observed: why a claim on it does not hold."""


def observe(_results: Results) -> dict[str, Any]:
    """Ratios over all sizes."""
    fabric = Fabric(k=scale())
    cases = {
        (kind, size): Case(
            "dcsim",
            all_to_all_v(fabric.hosts, (5, sizes_of(fabric)), fabric.packets(size)),
            {"asynchronous": kind == "async"},
            fabric,
        )
        for kind in ("usual", "async")
        for size in SIZES
    }
    found = dict(zip(cases, many(cases.values()), strict=True))

    def over(what: str) -> float:
        parts = [sum(found[kind, size][what].mean for size in SIZES) for kind in ("async", "usual")]
        return parts[0] / max(parts[1], 1e-9)

    return {
        "by size": table("kind, BDP", {f"{kind}, {size}": each for (kind, size), each in found.items()}),
        "cct_async_over_usual": over("cct_us"),
        "loss_async": sum(found["async", size]["loss"].mean for size in SIZES),
        "delay_async_over_usual": over("one_way_us"),
        "reordered_async_over_usual": over("reordered"),
    }
