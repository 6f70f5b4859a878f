"""Which transport should one choose where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.experiments.matrix import (
    ASKS,
    FABRICS,
    GBPS,
    HEADER,
    MTU,
    TRANSPORTS,
    WORKLOADS,
    best_of,
    mean_over,
    measure,
    part,
    seeds,
)

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results

ONE_PATH = ("dcqcn", "hpcc", "dctcp", "swift", "newreno", "cubic", "bbr")
SPRAYED = ("mprdma", "uec", "rccc", "eqds", "ndp", "mrc")


def observe(_results: Results) -> dict[str, Any]:
    """Times over the best of each cell, and who comes near."""
    divided = part()
    cells = measure(TRANSPORTS, FABRICS, WORKLOADS, seeds(), divided)

    def least(transports: tuple[str, ...], fabric: str, workload: str) -> float:
        return min(cells[name, fabric, workload].time for name in transports)

    def order(name: str) -> float:
        return mean_over(cells, name, None, None)

    ranked = sorted(TRANSPORTS, key=order)
    wire = 31 * (1_000_000 // divided) * MTU / (MTU - HEADER) * 8e-3 / GBPS
    near = {(f, w): best_of(cells, f, w) for f in FABRICS for w in WORKLOADS}
    return {
        "within 10% of the best, the fastest first": pl.DataFrame(
            [
                {
                    "fabric": f,
                    **{w: ", ".join(near[f, w][:4]) + (" …" if len(near[f, w]) > 4 else "") for w in WORKLOADS},
                }
                for f in FABRICS
            ]
        ),
        "time over the best, geometric means over the workloads, by fabric": pl.DataFrame(
            [
                {
                    "transport": name,
                    "all": round(order(name), 2),
                    **{fabric: round(mean_over(cells, name, fabric, None), 2) for fabric in FABRICS},
                    "asks of switches": ASKS[name],
                }
                for name in ranked
            ]
        ),
        "time over the best, geometric means over the fabrics, by workload": pl.DataFrame(
            [
                {
                    "transport": name,
                    **{workload: round(mean_over(cells, name, None, workload), 2) for workload in WORKLOADS},
                    "data lost": sum(cell.dropped for (t, _, _), cell in cells.items() if t == name),
                    "pauses": sum(cell.pauses for (t, _, _), cell in cells.items() if t == name),
                }
                for name in ranked
            ]
        ),
        "the best time of each cell, us (web search: 99th percentile of slowdowns)": pl.DataFrame(
            [
                {"fabric": f, **{w: round(min(cells[t, f, w].time for t in TRANSPORTS), 1) for w in WORKLOADS}}
                for f in FABRICS
            ]
        ),
        "one_path_over_sprayed": least(ONE_PATH, "full", "permutation") / least(SPRAYED, "full", "permutation"),
        "ndp_incast": cells["ndp", "shallow", "incast"].time / wire,
        "tcp_incast": least(("newreno", "cubic"), "shallow", "incast") / cells["ndp", "shallow", "incast"].time,
        "ordered_over_others": least(("phost", "pfabric", "homa", "sird"), "full", "web search")
        / least(("dctcp", "swift", "newreno", "cubic", "dcqcn"), "full", "web search"),
        "leaving_over_blind": least(("uec", "rccc", "mrc"), "slow spine", "permutation")
        / least(("mprdma", "ndp"), "slow spine", "permutation"),
        "lost_under_pfc": sum(cell.dropped for (t, _, _), cell in cells.items() if t in {"dcqcn", "hpcc"}),
        "best_everywhere": sum(all(name in found for found in near.values()) for name in TRANSPORTS),
    }
