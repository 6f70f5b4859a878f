"""Iteration times over two buildings, by what is outermost and how much of their bandwidth they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

RATIOS = (1, 4, 8, 16)


def observe(results: Results) -> dict[str, Any]:
    """Times by case, and how the paper compares them; what lacks a run is null."""
    time: dict[tuple[str, int], float] = {}
    for place, result in results:
        outermost, _, ratio = place["case"].partition(", 1:")
        time[outermost, int(ratio)] = result.summary["jobs"][0]["iteration_time_s"]["mean"]

    def over(above: tuple[str, int], below: tuple[str, int]) -> float | None:
        return time[above] / time[below] if above in time and below in time else None

    gaps = [over(("PP-out", ratio), ("DP-out", ratio)) for ratio in RATIOS]
    known = [gap for gap in gaps if gap is not None]
    saved = over(("DP-out", 16), ("PP-out", 16))
    rows = [{"outermost": outermost, "ratio": ratio, "iteration_s": s} for (outermost, ratio), s in time.items()]
    return {
        "iterations": pl.DataFrame(rows),
        **{f"pp_over_dp_{ratio}": gap for ratio, gap in zip(RATIOS, gaps, strict=True)},
        "rises": known == sorted(known) if len(known) == len(gaps) else None,
        "dp_saves_16": None if saved is None else 1.0 - saved,
        "dp_16_over_1": over(("DP-out", 16), ("DP-out", 1)),
    }


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Iteration time over the ratio, relative to none, as figure 4."""
    table: pl.DataFrame = observed["iterations"]
    for outermost, colour in (("PP-out", "#4c78a8"), ("DP-out", "#e45756")):
        part = table.filter(pl.col("outermost") == outermost).sort("ratio")
        base = part.filter(pl.col("ratio") == 1)["iteration_s"]
        if part.height > 1 and not base.is_empty():
            axes.plot(part["ratio"], part["iteration_s"] / base[0], color=colour, marker="o", label=outermost)
    axes.set_xscale("log", base=2)
    axes.set_xticks(RATIOS, [f"1:{ratio}" for ratio in RATIOS])
    axes.set(xlabel="bandwidth between buildings over that of NICs", ylabel="iteration time over that at 1:1")
    axes.legend(frameon=False)
