"""SIMs and DATA that reach host 1, in intervals of half a microsecond."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.experiments.collectives import Case, Fabric, all_to_all_v, many, scale, sizes_of, table

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results


def observe(_results: Results) -> dict[str, Any]:
    """The greatest correlation of SIMs with DATA that come later, and how much later."""
    fabric = Fabric(k=scale())
    traffic = all_to_all_v(fabric.hosts, (5, sizes_of(fabric)), fabric.packets(2))
    (found,) = many([Case("dcsim", traffic, {"watched_host": 1}, fabric)])
    return {
        "host 1": table("transport", {"dcsim": found}),
        "correlation": found["watched_correlation_ppm"].mean / 1e6,
        "lag_of_rtt_max": found["watched_lag_ps"].mean / found["rtt_max_ps"].mean,
    }
