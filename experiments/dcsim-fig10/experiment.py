"""SIMs and DATA that reach host 1, in intervals of half a microsecond."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.experiments.collectives import Case, Fabric, Flow, all_to_all_v, many, scale, sizes_of, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from windtunnel.experiments.check import Results


WHY = {
    "lag_of_rtt_max": "DATA leaves RTT_max after its SIM, by the same path, and takes longer there: six serialisations "
    "and its queueing of 1.1 us are 0.07 RTT_max",
}
"""By figure observed: why a claim on it does not hold."""


def _heard(drawn: Callable[[int], list[Flow]]) -> Callable[[int], list[Flow]]:
    """The same with hosts named so that the first receiver is host 0: an exclusive or keeps pods and racks together."""

    def turned(seed: int) -> list[Flow]:
        flows = drawn(seed)
        first = flows[0][1]
        return [(source ^ first, to ^ first, packets, group) for source, to, packets, group in flows]

    return turned


def observe(_results: Results) -> dict[str, Any]:
    """The greatest correlation of SIMs with DATA that come later, and how much later."""
    fabric = Fabric(k=scale())
    traffic = _heard(all_to_all_v(fabric.hosts, (5, sizes_of(fabric)), fabric.packets(2)))
    (found,) = many([Case("dcsim", traffic, {"watched_host": 1}, fabric)])
    return {
        "host 1": table("transport", {"dcsim": found}),
        "correlation": found["watched_correlation_ppm"].mean / 1e6,
        "lag_of_rtt_max": found["watched_lag_ps"].mean / found["rtt_max_ps"].mean,
    }
