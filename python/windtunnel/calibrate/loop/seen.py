"""What a stream of measurements can show of a step in a constant, and how many it takes.

A step of `STEP` in a constant moves the rows of n logs by z = sqrt(n I) standard deviations, where I is the information
of a log on it (`Detector.told`). The most powerful test of such a step, by somebody who knows which constant moved, how
far and when, finds it with probability Phi(z - z_a) where it may be wrong once in 1/a windows (Neyman and Pearson
1933). One false alarm in `A_YEAR` logs leaves a window of n logs a = n / `A_YEAR`. So no detector at that rate of false
alarms finds more, whatever it does: where the bound is below one half, the plan of measurements has to change.

The watch's detector knows none of the three. It has found a step once its sum, which has the mean z^2/2 and the
deviation z, has reached its threshold h.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from windtunnel.calibrate.loop.drift import A_YEAR

if TYPE_CHECKING:
    from collections.abc import Collection

    from windtunnel.calibrate.loop.drift import Detector

WITHIN = 20
"""Logs and single measurements within which a step should be found."""
MOSTLY = 0.9
"""Share of steps that are found where one is said to be."""
NORMAL = NormalDist()


def bound(deviations: float, count: int = WITHIN) -> float:
    """Probability that the best possible detector finds a step within `count` logs that moves them by `deviations`."""
    return NORMAL.cdf(deviations + NORMAL.inv_cdf(count / A_YEAR))


@dataclass(frozen=True)
class Seen:
    """What a stream shows of a group of constants."""

    name: str
    information: float
    """Of a log, in squared standard deviations that a step of `STEP` makes."""
    within: float
    """The bound: the probability that any detector finds a step within `WITHIN` logs."""
    needs: float
    """Logs until the detector has found nine in ten steps; infinite where nothing shows them."""
    least: float
    """The same of the best possible detector."""


def seen(detector: Detector, groups: Collection[str]) -> list[Seen]:
    """What the measurements so far show of each group, the clearest first; none where nothing was tested yet."""
    if not detector.logs:
        return []
    # The root of z^2 / 2 - z_m z = h: nine sums in ten are above the threshold.
    mostly = NORMAL.inv_cdf(MOSTLY)
    enough = mostly + math.sqrt(mostly**2 + 2 * detector.threshold())
    found = []
    for name in groups:
        total, before = detector.told.get(name, [0.0, 0.0])
        information = total / max(1.0, detector.logs - before)
        needs = enough**2 / information if information > 0 else math.inf
        deviations = math.sqrt(WITHIN * information)
        found.append(Seen(name, information, bound(deviations), needs, _least(information)))
    return sorted(found, key=lambda one: (-one.information, one.name))


def _least(information: float) -> float:
    """Logs after which the best possible detector has found nine in ten steps."""
    if information <= 0:
        return math.inf
    low, high = 0.0, 1.0
    while high < A_YEAR / 2 and bound(math.sqrt(high * information), max(1, int(high))) < MOSTLY:
        low, high = high, 2 * high
    if high >= A_YEAR / 2:
        return math.inf
    for _ in range(40):
        middle = (low + high) / 2
        if bound(math.sqrt(middle * information), max(1, math.ceil(middle))) < MOSTLY:
            low = middle
        else:
            high = middle
    return high


def shown(logs: float) -> str:
    """A number of logs in words of a table."""
    return f"{math.ceil(logs):,}" if logs < A_YEAR else "more than a year's"
