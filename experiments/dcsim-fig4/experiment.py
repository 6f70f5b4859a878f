"""An all-to-all of flows that last through the whole measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.experiments.collectives import RIVALS, Case, Fabric, all_to_all, many, scale, table

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results

WHY = {
    "reordered_dcsim": "flows have an end here, and the last packets of each take few paths at once; 0.0002 "
    "to 0.0013 on "
    "128 hosts",
}
"""By figure observed: why a claim on it does not hold."""


def observe(_results: Results) -> dict[str, Any]:
    """Utilisation half way through flows of 4 BDP, loss and reordering, by transport."""
    fabric = Fabric(k=scale())
    traffic = all_to_all(fabric.hosts, fabric.packets(4))
    found = dict(zip(RIVALS, many([Case(name, traffic, fabric=fabric) for name in RIVALS]), strict=True))
    used = {name: found[name]["utilisation"].mean for name in RIVALS}
    return {
        "by transport": table("transport", found),
        **{f"utilisation_dcsim_over_{name}": used["dcsim"] / used[name] for name in RIVALS[1:]},
        "loss_dcsim": found["dcsim"]["loss"].mean + found["dcsim"]["loss_in_hosts"].mean,
        "reordered_dcsim": found["dcsim"]["reordered"].mean,
        "loss_receivers": max(found[name]["loss"].mean for name in ("dcpim", "phost")),
    }
