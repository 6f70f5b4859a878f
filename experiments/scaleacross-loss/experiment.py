"""Iteration times over two buildings, by loss rate and latency of the cables between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

LATENCIES = (10, 50, 100, 1000)


def observe(results: Results) -> dict[str, Any]:
    """Means over the seeds, and how the paper compares them; what lacks a run is null."""
    rows = []
    for place, result in results:
        outermost, latency, loss = place["case"].split(", ")
        job, network = result.summary["jobs"][0], result.summary["network"]
        rows.append(
            {
                "outermost": outermost,
                "latency_us": int(latency.removesuffix(" us")),
                "loss_%": 0.0 if loss == "no loss" else float(loss.removesuffix(" %")),
                "iteration_ms": 1e3 * job["iteration_time_s"]["mean"],
                "lost": network["packets_dropped"],
                "sent_again": network["retransmissions"],
            }
        )
    table = pl.DataFrame(rows).group_by("outermost", "latency_us", "loss_%", maintain_order=True).mean()
    time = {(o, latency, loss): t for o, latency, loss, t in table.select(table.columns[:4]).iter_rows()}

    def ratio(outermost: str, over: tuple[int, float], under: tuple[int, float]) -> float | None:
        above, below = time.get((outermost, *over)), time.get((outermost, *under))
        return above / below if above and below else None

    pp_loss, dp_loss = (ratio(o, (50, 0.2), (50, 0.002)) for o in ("PP-out", "DP-out"))
    pp, dp = (ratio(o, (1000, 0.02), (50, 0.02)) for o in ("PP-out", "DP-out"))
    pp_clean, dp_clean = (ratio(o, (1000, 0.0), (50, 0.0)) for o in ("PP-out", "DP-out"))
    steps = [time.get(("PP-out", 50, loss)) for loss in (0.002, 0.02, 0.2)]
    return {
        "iterations": table.with_columns(pl.col("iteration_ms").round(2)),
        "sensitivity_to_loss": pp_loss / dp_loss if pp_loss and dp_loss else None,
        "sensitivity_to_latency": pp / dp if pp and dp else None,
        "pp_rises_with_loss": None if None in steps else steps == sorted(steps),
        "pp_lossy_1000_over_50": ratio("PP-out", (1000, 0.16), (50, 0.16)),
        "dp_lossy_1000_over_50": dp,
        "pp_lossless_1000_over_50": pp_clean,
        "dp_lossless_1000_over_50": dp_clean,
        "pp_amplification": (pp - 1) / (pp_clean - 1) if pp and pp_clean else None,
        "dp_amplification": (dp - 1) / (dp_clean - 1) if dp and dp_clean else None,
    }


def draw(_results: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Iteration time over latency at 0.02 %, as figure 18b, relative to 50 us; losses per message kept, dotted."""
    table: pl.DataFrame = observed["iterations"]
    for outermost, colour in (("PP-out", "#4c78a8"), ("DP-out", "#e45756")):
        for loss, line in ((0.02, "-"), (0.16, ":"), (0.0, "--")):
            part = table.filter(pl.col("outermost") == outermost, pl.col("loss_%") == loss).sort("latency_us")
            base = part.filter(pl.col("latency_us") == 50)["iteration_ms"]
            if part.height < 2 or base.is_empty():
                continue
            label = f"{outermost}, {loss:g} % lost"
            axes.plot(part["latency_us"], part["iteration_ms"] / base[0], line, color=colour, marker="o", label=label)
    axes.set_xscale("log")
    axes.set_xticks(LATENCIES, [str(latency) for latency in LATENCIES])
    axes.set(xlabel="latency between buildings (us)", ylabel="iteration time over that at 50 us")
    axes.legend(frameon=False)
