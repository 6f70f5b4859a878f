"""Errors of nccl-tests from 1 MiB on by number of ranks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from windtunnel.validate.asked import board_of
from windtunnel.validate.score import spearman

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results


def observe(_: Results) -> dict[str, Any]:
    """Errors by ranks, and how the two go together."""
    (score,) = board_of(["nccl-tests"]).scores
    ranks, off = [], []
    for predicted, row in zip(score.predicted, score.rows, strict=True):
        found = re.match(r"(\d+) ranks", row.groups["scale"])
        if found is not None and row.groups["size"] == ">= 1 MiB":
            ranks.append(float(found[1]))
            off.append(100 * abs(predicted / row.measured - 1))
    scales, errors = np.array(ranks), np.array(off)
    rows = [
        {"ranks": int(n), "rows": int((scales == n).sum()), "median_%": float(np.median(errors[scales == n]))}
        for n in sorted(set(ranks))
    ]
    return {"by_ranks": pl.DataFrame(rows), "correlation": abs(spearman(scales, errors) or 0.0), "rows": len(off)}


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """A point a number of ranks."""
    found = observed["by_ranks"]
    axes.plot(found["ranks"], found["median_%"], "o-")
    axes.set(xscale="log", ylabel="median error (%)", xlabel="ranks", ylim=(0, None))
