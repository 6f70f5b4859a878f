"""Five all-to-all-v of 2 BDP where ports hold B_DATA for B = 12."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.experiments.collectives import Case, Fabric, all_to_all_v, many, scale, sizes_of, table

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results


RATIOS = (0.5, 1, 1.5, 2, 3)

WHY = {
    "loss_at_2": "the bucket is full at first (depth B), so a port lets B SIMs pass at once while B wait: 2 B DATA "
    "follow, and more where two such bursts meet behind it",
    "loss_at_3": "the bucket is full at first (depth B), so a port lets B SIMs pass at once while B wait: 2 B DATA "
    "follow, and more where two such bursts meet behind it",
}
"""By figure observed: why a claim on it does not hold."""


def observe(_results: Results) -> dict[str, Any]:
    """Loss by B_DATA / B."""
    fabric = Fabric(k=scale())
    traffic = all_to_all_v(fabric.hosts, (5, sizes_of(fabric)), fabric.packets(2))
    cases = [Case("dcsim", traffic, {"data_buffer": round(12 * ratio), "sim_buffer": 12}, fabric) for ratio in RATIOS]
    found = dict(zip(RATIOS, many(cases), strict=True))
    return {
        "by room": table("B_DATA / B", {str(ratio): each for ratio, each in found.items()}),
        "loss_at_half_or_1": found[0.5]["loss"].mean + found[1]["loss"].mean,
        "loss_at_2": found[2]["loss"].mean,
        "loss_at_3": found[3]["loss"].mean,
    }
