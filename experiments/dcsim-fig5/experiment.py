"""CCT of one permutation and of one all-to-all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.experiments.collectives import RIVALS, Fabric, all_to_all, by_size, permutation, ratio, scale

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results


SIZES = (0.5, 1, 2, 4, 8)
DENSE = (0.5, 1, 2)

WHY = {
    "all_to_all_half_dcpim_over_pfabric": "16 hosts; on 128 hosts dcPIM takes 1,489 us and pFabric 693",
}
"""By figure observed: why a claim on it does not hold."""


def observe(_results: Results) -> dict[str, Any]:
    """Ratios of mean CCTs; flows of just one BDP are long for dcPIM and pHost (`strict`)."""
    few, wide = Fabric(k=scale()), Fabric(k=max(8, scale()))
    sparse, sparse_table = by_size(wide, SIZES, lambda packets: permutation(wide.hosts, packets))
    dense, dense_table = by_size(few, DENSE, lambda packets: all_to_all(few.hosts, packets))
    long = SIZES[1:]
    return {
        "permutation": sparse_table,
        "all-to-all": dense_table,
        **{f"permutation_dcsim_over_{name}": ratio(sparse, "dcsim", name, long) for name in RIVALS[1:]},
        "permutation_half_dcsim_over_dcpim": ratio(sparse, "dcsim", "dcpim", [0.5]),
        "all_to_all_dcsim_over_best_worst": max(ratio(dense, "dcsim", name, [x]) for x in DENSE for name in RIVALS[1:]),
        "all_to_all_half_dcpim_over_pfabric": ratio(dense, "dcpim", "pfabric", [0.5]),
        "all_to_all_half_dcpim_over_phost": ratio(dense, "dcpim", "phost", [0.5]),
        "loss_dcsim": sum(found["loss"].mean for (name, _), found in (sparse | dense).items() if name == "dcsim"),
    }
