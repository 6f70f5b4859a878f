"""An all-to-all of flows without end, seen for 300 us."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.experiments.collectives import RIVALS, Case, Fabric, all_to_all, endless, many, scale, table

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results

UNTIL_US = 300

NEAR = (
    "what is nearest to its end goes first, so of flows without end hosts keep to one of a rack mate's, over two links "
    "(one-way 1.5 us); the public simulator of both has 95% of 128 hosts too"
)

WHY = {
    "utilisation_dcsim_over_dcpim": "10%; 12% on 128 hosts",
    "utilisation_dcsim_over_phost": NEAR,
    "utilisation_dcsim_over_pfabric": NEAR,
    "reordered_dcsim": "few flows share a host of 16, so each sends by many paths at once; 0.0000 on 128 hosts",
}
"""By figure observed: why a claim on it does not hold."""


def observe(_results: Results) -> dict[str, Any]:
    """Utilisation from 150 to 300 us, loss and reordering, by transport."""
    fabric = Fabric(k=scale())
    traffic = all_to_all(fabric.hosts, endless(fabric, UNTIL_US))
    cases = [Case(name, traffic, fabric=fabric, until_us=UNTIL_US) for name in RIVALS]
    found = dict(zip(RIVALS, many(cases), strict=True))
    used = {name: found[name]["steady_utilisation"].mean for name in RIVALS}
    return {
        "by transport": table("transport", found),
        **{f"utilisation_dcsim_over_{name}": used["dcsim"] / used[name] for name in RIVALS[1:]},
        "loss_dcsim": found["dcsim"]["loss"].mean + found["dcsim"]["loss_in_hosts"].mean,
        "reordered_dcsim": found["dcsim"]["reordered"].mean,
        "loss_receivers": max(found[name]["loss"].mean for name in ("dcpim", "phost")),
    }
