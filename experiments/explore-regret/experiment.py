"""Cells of measured layouts, and what the explorer's cost model picks in each."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.validate.regret import PAIR, cells, estimated

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

OTHERS = ("vtrain-multi", "sailor", "megatron-bridge")
THREE = 3
"""Rows that the best of three is no choice among."""
MANY = 10
"""Rows of a cell from which a rank correlation says something."""
LEFT_OUT = "512 GPUs"
SINGLE = "vtrain-single"
"""vTrain's rows of one host, whose iterations take 0.1 to 2 s, with micro-batches of one sequence to eight."""
WHY = {
    "three_worst": "3.57B on 256 GPUs: the best row has four tensor-parallel ranks and sums gradients after the pass "
    "(ZeRO 0). Rows like it are predicted 17% to 29% slower than they were, those with eight 7% to 27% faster",
    "rank_lowest": "8.86B on 128 GPUs: 19 of 39 rows lie within a third of the fastest. Of these, rows with eight "
    "tensor-parallel ranks are predicted 4% to 19% faster than they were, ZeRO 0 with four 24% slower, others within "
    "6%",
    "others_rank_lowest": "vTrain's hidden size 8192: seven of its 20 rows, with four or two tensor-parallel ranks, "
    "are predicted 14% to 38% faster than they were. No cause was found: layouts that differ in micro-batches alone "
    "have such rows and others (four ranks, eight stages: 16.1, 17.6, 16.1 and 20.6 s with 2, 3, 6 and 12 sequences, "
    "predicted as 13.6, 14.3, 16.4 and 21.0). The other 13 rows have 0.96",
    "pairs_in_order": "five of 18 pairs, all of Llama-3-405B on 256 GB200, by release: eight chunks of a layer are "
    "predicted 0.4% faster than four of two, and were 1% to 8% slower. Why is not published",
    "single_worst": "six of 107 cells: micro-batches of two and four sequences beside those of one and eight are "
    "predicted up to 26% faster than they were. No cause was found",
    "single_three_worst": "one of 62 cells, the worst of those above",
}
"""By figure observed: why a claim on it does not hold."""


def observe(_: Results) -> dict[str, Any]:
    """The cells as a table, and the figures of the claims."""
    began = perf_counter()
    scores = {score.name: score for score in estimated(["ultrascale", *OTHERS, SINGLE])}
    seconds = perf_counter() - began
    first = [cell for cell in cells(scores["ultrascale"], by=("size", "scale")) if LEFT_OUT not in cell.name]
    others = [cell for name in OTHERS for cell in cells(scores[name], least=PAIR)]
    pairs = [cell for cell in others if cell.rows == PAIR]
    single = cells(scores[SINGLE])
    facts = scores["ultrascale"].facts
    return {
        "cells": pl.DataFrame([cell.record() for cell in [*first, *others, *single]]),
        "picked_median": median(cell.picked for cell in first),
        "picked_worst": min(cell.picked for cell in first),
        "three_worst": min(cell.best_of_three for cell in first),
        "rank_lowest": min(cell.rank_correlation for cell in first if cell.rows >= MANY),
        "fit_precision": facts["fit, precision"],
        "fit_recall": facts["fit, recall"],
        "seconds": seconds,
        "others_median": median(cell.picked for cell in others),
        "others_worst": min(cell.picked for cell in others),
        "others_three_worst": min(cell.best_of_three for cell in others if cell.rows > THREE),
        "others_rank_lowest": min(cell.rank_correlation for cell in others if cell.rows >= MANY),
        "pairs_in_order": sum(cell.rank_correlation > 0 for cell in pairs) / len(pairs),
        "single_median": median(cell.picked for cell in single),
        "single_worst": min(cell.picked for cell in single),
        "single_three_worst": min(cell.best_of_three for cell in single if cell.rows > THREE),
    }


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """A bar a cell: the picked layout, and the best of three, over the best."""
    found = observed["cells"].filter(pl.col("table") != SINGLE).sort("picked")
    places = range(len(found))
    axes.barh(places, found["best_of_three"], color="tab:gray", alpha=0.4, label="best of three")
    axes.barh(places, found["picked"], height=0.5, label="picked")
    axes.set_yticks(places, [f"{table}: {cell}" for table, cell in zip(found["table"], found["cell"], strict=True)])
    axes.set_xlim(0.7, 1.0)
    axes.set_xlabel("speed over that of the best measured layout")
    axes.legend(loc="lower left")
