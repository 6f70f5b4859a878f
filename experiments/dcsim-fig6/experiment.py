"""One all-to-all-v by the mean size of flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.experiments.collectives import RIVALS, Fabric, all_to_all_v, by_size, ratio, scale

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results


SIZES = (0.5, 1, 2)


def observe(_results: Results) -> dict[str, Any]:
    """Ratios of mean CCTs by mean size of flows in BDP."""
    fabric = Fabric(k=scale())
    found, frame = by_size(fabric, SIZES, lambda packets: all_to_all_v(fabric.hosts, [fabric.hosts], packets))
    own = [found["dcsim", size] for size in SIZES]
    return {
        "by size": frame,
        "dcsim_over_best_worst": max(ratio(found, "dcsim", name, [x]) for x in SIZES for name in RIVALS[1:]),
        "dcsim_over_others": sum(ratio(found, "dcsim", name, SIZES) for name in RIVALS[1:]) / 3,
        "loss_dcsim": sum(each["loss"].mean for each in own),
        "reordered_dcsim": max(each["reordered"].mean for each in own),
        "queueing_phost_over_dcsim": sum(found["phost", x]["queueing_us"].mean for x in SIZES)
        / sum(each["queueing_us"].mean for each in own),
    }
