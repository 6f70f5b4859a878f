"""Five all-to-all-v of random sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.experiments.collectives import Fabric, against_rivals, all_to_all_v, scale, sizes_of

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results


SIZES = (0.5, 1, 2)

WHY = {
    "dcsim_over_best_worst": "at half a BDP dcPIM sends at once, and collectives of 2 and 4 of 16 hosts are short "
    "permutations; on 128 hosts DCSIM is the fastest at 0.5, 1 and 2 BDP",
    "reordered_dcsim": "few flows share a host of 16, so each sends by many paths at once; 0.0007 on 128 hosts",
}
"""By figure observed: why a claim on it does not hold."""


def observe(_results: Results) -> dict[str, Any]:
    """Ratios of mean CCTs by mean size of flows in BDP."""
    fabric = Fabric(k=scale())
    return against_rivals(fabric, SIZES, lambda packets: all_to_all_v(fabric.hosts, (5, sizes_of(fabric)), packets))
