"""Mean and median errors of nccl-tests by message size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from windtunnel.validate.asked import board_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

EDGES = (0, 64 << 10, 1 << 20, 64 << 20, 1 << 62)
NAMES = ("< 64 KiB", "64 KiB – 1 MiB", "1 – 64 MiB", ">= 64 MiB")


def observe(_: Results) -> dict[str, Any]:
    """Errors by size, and the figures of the claims."""
    (score,) = board_of(["nccl-tests"]).scores
    sizes = np.array([float(row.id.rpartition("/")[2]) for row in score.rows])
    off = np.array([100 * abs(p / row.measured - 1) for p, row in zip(score.predicted, score.rows, strict=True)])
    rows = []
    for name, least, most in zip(NAMES, EDGES[:-1], EDGES[1:], strict=True):
        inside = off[(sizes >= least) & (sizes < most)]
        rows.append(
            {"size": name, "rows": len(inside), "mape_%": float(inside.mean()), "median_%": float(np.median(inside))}
        )
    return {
        "by_size": pl.DataFrame(rows),
        "large_over_small": rows[-1]["mape_%"] / rows[0]["mape_%"],  # type: ignore[operator]
        "large_median": rows[-1]["median_%"],
    }


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Bars by size."""
    found = observed["by_size"]
    axes.bar(found["size"], found["mape_%"], color="tab:gray", alpha=0.4, label="mean")
    axes.bar(found["size"], found["median_%"], width=0.5, label="median")
    axes.set(ylabel="error (%)", xlabel="message size")
    axes.legend()
