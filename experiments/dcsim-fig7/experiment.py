"""Five all-to-all-v of random sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.experiments.collectives import Fabric, against_rivals, all_to_all_v, scale, sizes_of

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results


SIZES = (0.5, 1, 2)


def observe(_results: Results) -> dict[str, Any]:
    """Ratios of mean CCTs by mean size of flows in BDP."""
    fabric = Fabric(k=scale())
    return against_rivals(fabric, SIZES, lambda packets: all_to_all_v(fabric.hosts, (5, sizes_of(fabric)), packets))
