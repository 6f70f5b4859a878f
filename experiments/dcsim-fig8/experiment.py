"""Every second core switch at 1% of its rate, both ways, while all are used (reading A)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.experiments.collectives import RIVALS, Fabric, all_to_all_v, by_size, ratio, scale, sizes_of

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results


SIZES = (0.5, 2)

WHY = {
    "dcsim_over_best": "pHost, which loses a third of what it sends, is faster at half a BDP",
    "dcsim_over_others": "pHost again, over which it is 1.16; over dcPIM it is 0.70, over pFabric 0.09",
    "loss_least_of_others": "pFabric also drops a third in its hosts, before the network",
}
"""By figure observed: why a claim on it does not hold."""


def observe(_results: Results) -> dict[str, Any]:
    """Ratios of mean CCTs, and losses."""
    fabric = Fabric(k=scale(), slow_cores=0.01)
    found, frame = by_size(fabric, SIZES, lambda packets: all_to_all_v(fabric.hosts, (5, sizes_of(fabric)), packets))
    ratios = [ratio(found, "dcsim", name, SIZES) for name in RIVALS[1:]]
    return {
        "by size": frame,
        "dcsim_over_best": max(ratios),
        "dcsim_over_others": sum(ratios) / len(ratios),
        "loss_dcsim": sum(found["dcsim", x]["loss"].mean for x in SIZES),
        "loss_least_of_others": min(found[name, x]["loss"].mean for x in SIZES for name in RIVALS[1:]),
    }
