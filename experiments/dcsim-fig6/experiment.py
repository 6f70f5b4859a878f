"""One all-to-all-v by the mean size of flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.experiments.collectives import Fabric, against_rivals, all_to_all_v, scale

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results


SIZES = (0.5, 1, 2)

WHY = {
    "reordered_dcsim": "few flows share a host of 16, so each sends by many paths at once; 0.0007 on 128 hosts",
}
"""By figure observed: why a claim on it does not hold."""


def observe(_results: Results) -> dict[str, Any]:
    """Ratios of mean CCTs by mean size of flows in BDP."""
    fabric = Fabric(k=scale())
    return against_rivals(fabric, SIZES, lambda packets: all_to_all_v(fabric.hosts, [fabric.hosts], packets))
