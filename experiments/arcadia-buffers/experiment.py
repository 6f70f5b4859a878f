"""Completion times and pauses by buffer of a tier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

# The tier of a link that is paused, and what it belongs to.
AT = {
    "nic-up": "nic",
    "nic": "nic",
    "leaf-up": "leaf",
    "leaf-down": "aggregation",
    "tier1-up": "aggregation",
    "tier1-down": "spine",
}
UPSTREAM = ("nic-up", "leaf-up", "tier1-up")


def observe(results: Results) -> dict[str, Any]:
    """Times, pauses at each tier, and how the paper compares them; what lacks a run is null."""
    rows, pauses = [], {}
    for place, result in results:
        collective, rate, buffer = place["case"].split(", ")
        tier, size = buffer.removesuffix(" MB").rsplit(" ", 1)
        job, network = result.summary["jobs"][0], result.summary["network"]
        paused = network["pfc_pause_by_tier_s"] or {}
        pauses[place["case"]] = paused
        row = {
            "collective": collective,
            "NIC": int(rate.removesuffix(" Gbps")),
            "tier": tier,
            "MB a port": int(size),
            "time_ms": 1e3 * job["iteration_time_s"]["mean"],
            **{f"paused at {where} (us a GPU)": 0.0 for where in ("nic", "leaf", "aggregation", "spine")},
            "dropped": network["packets_dropped"],
        }
        for link, seconds in paused.items():
            row[f"paused at {AT[link]} (us a GPU)"] += 1e6 * seconds / job["ranks"]
        rows.append(row)
    table = pl.DataFrame(rows)
    time = {(c, n, t, m): ms for c, n, t, m, ms in table.select(table.columns[:5]).iter_rows()}

    def gain(key: tuple[str, int, str], small: int, large: int) -> float | None:
        above, below = time.get((*key, small)), time.get((*key, large))
        return above / below - 1 if above and below else None

    def spread(collective: str) -> float | None:
        sets = [[ms for key, ms in time.items() if key[:3] == (collective, nic, "spine")] for nic in (200, 400)]
        return max((max(times) / min(times) for times in sets if len(times) > 1), default=None)

    def steps(nic: int) -> float | None:
        first = gain(("all-to-all", nic, "aggregation"), 1, 2)
        rest = gain(("all-to-all", nic, "aggregation"), 2, 16)
        return None if first is None or rest is None else first - rest

    def directions(nic: int) -> float | None:
        paused = pauses.get(f"all-to-all, {nic} Gbps, aggregation 2 MB")
        if not paused:
            return None
        up = sum(seconds for link, seconds in paused.items() if link in UPSTREAM)
        down = sum(paused.values()) - up
        return up / down if down else float("inf")

    rings = table.filter(pl.col("collective") == "RHD", pl.col("NIC") == 400, pl.col("MB a port") == 2)
    aggregation, spine = (
        rings[f"paused at {where} (us a GPU)"][0] if rings.height else None for where in ("aggregation", "spine")
    )
    both = [gain(("all-to-all", nic, "leaf and aggregation"), 1, 16) for nic in (200, 400)]
    known = [value for value in both if value is not None]
    return {
        "times and pauses": table.with_columns(pl.col(pl.Float64).round(3)),
        **{f"spine_spread_{collective}": spread(collective) for collective in ("DBT", "RHD")},
        "aggregation_over_spine_pause": None
        if aggregation is None or spine is None
        else (aggregation / spine if spine else (float("inf") if aggregation else None)),
        "first_step_minus_rest_400": steps(400),
        "first_step_minus_rest_200": steps(200),
        "up_over_down_400": directions(400),
        "up_over_down_200": directions(200),
        "rate_16_over_1_200": None if both[0] is None else 1 + both[0],
        "largest_gain": max(known, default=None),
    }


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Time over that with 2 MB a port, by buffer of the tier that is varied."""
    table: pl.DataFrame = observed["times and pauses"]
    for (collective, nic, tier), part in table.group_by("collective", "NIC", "tier", maintain_order=True):
        base = part.filter(pl.col("MB a port") == 2)["time_ms"]
        if part.height > 1 and base.len():
            label = f"{collective}, {nic} Gbps, {tier}"
            axes.plot(part["MB a port"], part["time_ms"] / base[0], marker="o", markersize=4, label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks([1, 2, 4, 16], ["1", "2", "4", "16"])
    axes.set(xlabel="buffer per port (MB)", ylabel="time over that with 2 MB")
    axes.legend(frameon=False, fontsize=8)
