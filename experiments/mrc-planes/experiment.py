"""What a cable of one plane costs a NIC, and what planes save of switches and optics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

import windtunnel

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

HOST = 7
"""The host whose cable fails."""
FOLDER = Path(__file__).parent
BOX = "Tomahawk-6"
"""The only sheet of a switch that splits into 512 ports."""

WHY = {
    "switches_usd_ratio": "512 ports of 100 Gbps are 51.2 Tbps, which the sheets have with 256 ports at most. "
    "The cheapest box that splits into 512 has twice the capacity and, inferred from it, 2.2 times the price of "
    "64 ports of 800 Gbps",
}
"""By figure observed: why a claim on it does not hold."""


def times(result: windtunnel.Result) -> tuple[float, float]:
    """Longest completion time in microseconds of the messages from and to `HOST`, and of all others."""
    flows = result.flows.with_columns(
        ((pl.col("finish_ps").cast(pl.Int64) - pl.col("start_ps").cast(pl.Int64)) / 1e6).alias("us"),
        ((pl.col("source") == HOST) | (pl.col("destination") == HOST)).alias("hit"),
    )
    longest = dict(flows.group_by("hit").agg(pl.col("us").max()).iter_rows())
    return float(longest.get(True, 0.0)), float(longest.get(False, 0.0))


class Priced(NamedTuple):
    """A fabric by the product's own sheets: what a GPU needs of it."""

    switches: float
    optics_gbps: float
    """Of optical ports; a cable has one at either end."""
    switches_usd: float
    optics_usd: float
    bisection_gbps: float


def priced(name: str, box: str | None = None) -> Priced:
    """The fabric of a file, by the items of its bill; `box` names the sheet of all switches."""
    found = windtunnel.topology(FOLDER / f"{name}.yaml", overrides={"switch.model": box} if box else None)
    gpus, items = found["gpus"], found["cost"]["items"]

    def total(kind: str, figure: Callable[[dict[str, Any]], float]) -> float:
        return float(sum(figure(item) for item in items if item["kind"] == kind)) / gpus

    return Priced(
        total("switch", lambda item: item["count"] * item["each"]),
        total("cable", lambda item: 2 * item["count"] * item["each"] * item["rate_bps"] / 1e9),
        total("switch", lambda item: item["usd"]),
        total("cable", lambda item: item["usd"]),
        found["bisection_bps"] / 1e9 / gpus,
    )


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

    two, three = priced("two-tiers"), priced("three-tiers")
    alike = [priced(name, BOX).switches_usd for name in ("two-tiers", "three-tiers")]
    return {
        "longest messages": pl.DataFrame(rows, schema=columns, orient="row"),
        "kept_flapping": ratio("healthy", "flapping", 0),
        "kept_down": ratio("healthy", "down", 0),
        "all_arrive": arrived,
        "others_flapping": ratio("flapping", "healthy", 1),
        "dead_over_healthy": over("way down dead", "healthy"),
        "ecmp_over_healthy": over("ecmp, way down dead", "ecmp, healthy"),
        "switches_ratio": two.switches / three.switches,
        "optics_ratio": two.optics_gbps / three.optics_gbps,
        "switches_usd_ratio": two.switches_usd / three.switches_usd,
        "switches_usd_alike": alike[0] / alike[1],
        "optics_usd_ratio": two.optics_usd / three.optics_usd,
        "bisection_ratio": two.bisection_gbps / three.bisection_gbps,
    }


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Longest completion time of the NIC's messages, case by case."""
    table: pl.DataFrame = observed["longest messages"]
    axes.barh(table["case"].to_list(), table["of that NIC, us"].to_list())
    axes.set_xscale("log")
    axes.set(xlabel="longest message of the NIC whose cable fails (us)")
