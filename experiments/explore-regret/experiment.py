"""Cells of measured layouts, and what the explorer's cost model picks in each."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.validate.regret import cells, estimated

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

OTHERS = ("vtrain-multi", "sailor", "megatron-bridge")
MANY = 10
"""Rows of a cell from which a rank correlation says something."""
LEFT_OUT = "512 GPUs"


def observe(_: Results) -> dict[str, Any]:
    """The cells as a table, and the figures of the claims."""
    began = perf_counter()
    scores = {score.name: score for score in estimated(["ultrascale", *OTHERS])}
    seconds = perf_counter() - began
    first = [cell for cell in cells(scores["ultrascale"], by=("size", "scale")) if LEFT_OUT not in cell.name]
    others = [cell for name in OTHERS for cell in cells(scores[name])]
    facts = scores["ultrascale"].facts
    return {
        "cells": pl.DataFrame([cell.record() for cell in [*first, *others]]),
        "picked_median": median(cell.picked for cell in first),
        "picked_worst": min(cell.picked for cell in first),
        "three_worst": min(cell.best_of_three for cell in first),
        "rank_lowest": min(cell.rank_correlation for cell in first if cell.rows >= MANY),
        "fit_precision": facts["fit, precision"],
        "fit_recall": facts["fit, recall"],
        "seconds": seconds,
        "others_median": median(cell.picked for cell in others),
        "others_worst": min(cell.picked for cell in others),
    }


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """A bar a cell: the picked layout, and the best of three, over the best."""
    found = observed["cells"].sort("picked")
    places = range(len(found))
    axes.barh(places, found["best_of_three"], color="tab:gray", alpha=0.4, label="best of three")
    axes.barh(places, found["picked"], height=0.5, label="picked")
    axes.set_yticks(places, [f"{table}: {cell}" for table, cell in zip(found["table"], found["cell"], strict=True)])
    axes.set_xlim(0.7, 1.0)
    axes.set_xlabel("speed over that of the best measured layout")
    axes.legend(loc="lower left")
