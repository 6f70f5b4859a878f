"""What a cable of one plane costs a NIC, and what planes save of switches and optics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import windtunnel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

HOST = 7
"""The host whose cable fails."""
FOLDER = Path(__file__).parent


def times(result: windtunnel.Result) -> tuple[float, float]:
    """Longest completion time in microseconds of the messages from and to `HOST`, and of all others."""
    flows = result.flows.with_columns(
        ((pl.col("finish_ps").cast(pl.Int64) - pl.col("start_ps").cast(pl.Int64)) / 1e6).alias("us"),
        ((pl.col("source") == HOST) | (pl.col("destination") == HOST)).alias("hit"),
    )
    longest = dict(flows.group_by("hit").agg(pl.col("us").max()).iter_rows())
    return float(longest.get(True, 0.0)), float(longest.get(False, 0.0))


def fabric(name: str) -> tuple[float, float, float]:
    """Switches, Gbps of optical ports and Gbps across the middle, each for a GPU."""
    found = windtunnel.topology(FOLDER / f"{name}.yaml")
    gpus = found["hosts"]
    # A link is one direction of a cable, which has a port at either end.
    optics = sum(tier["links"] * tier["rate_down_bps"] / 1e9 for tier in found["tiers"])
    return found["switches"] / gpus, optics / gpus, found["bisection_bps"] / 1e9 / gpus


def observe(results: Results) -> dict[str, Any]:
    """Bandwidth that the NIC kept, how others fared, and ratios of the fabrics."""
    longest, rows, arrived = {}, [], True
    for place, result in results:
        longest[place["case"]] = times(result)
        network = result.summary["network"]
        arrived &= result.summary["jobs"][0]["state"] == "finished"
        hit, others = longest[place["case"]]
        rows.append((place["case"], round(hit, 1), round(others, 1), network["packets_dropped"]))
    columns = ["case", "of that NIC, us", "of others, us", "packets dropped"]

    def ratio(above: str, below: str, which: int) -> float | None:
        if above not in longest or below not in longest:
            return None
        return longest[above][which] / longest[below][which]

    def over(above: str, below: str) -> float | None:
        if above not in longest or below not in longest:
            return None
        return max(longest[above]) / max(longest[below])

    two, three = fabric("two-tiers"), fabric("three-tiers")
    return {
        "longest messages": pl.DataFrame(rows, schema=columns, orient="row"),
        "kept_flapping": ratio("healthy", "flapping", 0),
        "kept_down": ratio("healthy", "down", 0),
        "all_arrive": arrived,
        "others_flapping": ratio("flapping", "healthy", 1),
        "dead_over_healthy": over("way down dead", "healthy"),
        "ecmp_over_healthy": over("ecmp, way down dead", "ecmp, healthy"),
        "switches_ratio": two[0] / three[0],
        "optics_ratio": two[1] / three[1],
        "bisection_ratio": two[2] / three[2],
    }


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Longest completion time of the NIC's messages, case by case."""
    table: pl.DataFrame = observed["longest messages"]
    axes.barh(table["case"].to_list(), table["of that NIC, us"].to_list())
    axes.set_xscale("log")
    axes.set(xlabel="longest message of the NIC whose cable fails (us)")
