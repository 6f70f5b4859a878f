"""DATA leaves a fraction of RTT_max after its SIM, or with its SIM-ACK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.experiments.collectives import Case, Fabric, all_to_all_v, many, scale, sizes_of, table

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results


FRACTIONS = (1.0, 0.85, 0.7, 0.5, 0.25)

WHY = {
    "reordered_025_over_whole": "as with Async: packets leave in the order in which they were bound",
}
"""By figure observed: why a claim on it does not hold."""


def observe(_results: Results) -> dict[str, Any]:
    """CCT, delay and reordering by fraction."""
    fabric = Fabric(k=scale())
    traffic = all_to_all_v(fabric.hosts, (5, sizes_of(fabric)), fabric.packets(2))
    cases = {str(fraction): Case("dcsim", traffic, {"fraction": fraction}, fabric) for fraction in FRACTIONS}
    cases["async"] = Case("dcsim", traffic, {"asynchronous": True}, fabric)
    found = dict(zip(cases, many(cases.values()), strict=True))
    whole = found["1.0"]
    return {
        "by fraction": table("fraction", found),
        "cct_half_over_whole": found["0.5"]["cct_us"].mean / whole["cct_us"].mean,
        "loss": sum(each["loss"].mean for each in found.values()),
        "delay_085_over_whole": found["0.85"]["one_way_us"].mean / whole["one_way_us"].mean,
        "delay_025_over_async": found["0.25"]["one_way_us"].mean / found["async"]["one_way_us"].mean,
        "reordered_025_over_whole": found["0.25"]["reordered"].mean / max(whole["reordered"].mean, 1e-9),
    }
