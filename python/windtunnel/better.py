"""Which way a figure of the results is better."""

from __future__ import annotations

import re

_RATE = re.compile(r"_per_(?:s|j|usd)(?:_per_gpu)?$")
"""Ends of the names of what is had for a second, a joule or a dollar: `tokens_per_s`, `samples_per_s_per_gpu`."""

LARGER_IS_BETTER = ("mfu", "goodput")
"""Names of other figures of which more is better, wherever they stand."""

LARGER_THERE = ("cluster.utilisation", "cluster.finished")
"""Paths of figures of which more is better, where elsewhere less is: a link's utilisation is its load."""


def is_rate(metric: str) -> bool:
    """Whether a figure is so much for a second, a joule or a dollar, and so none of these itself."""
    return _RATE.search(metric) is not None


def larger_is_better(metric: str) -> bool:
    """Whether more of the figure at a path of the summary is better; of all others less is.

    Figures that are neither good nor bad (`jobs[0].ranks`, `events`) count among the others.
    """
    last = metric.rpartition(".")[2]
    return last in LARGER_IS_BETTER or metric in LARGER_THERE or is_rate(metric)


def cost(metric: str, value: float) -> float:
    """A number that is the less the better `value` is, to rank by."""
    return -value if larger_is_better(metric) else value
