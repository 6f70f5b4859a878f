"""Drift of constants: a CUSUM for each, over residuals that each constant explains in its own way.

A measurement of kind q has the residual r = ln(measured/predicted), of which a step d in the logarithm of constant k
makes J[q,k] d. What a kind is off by from the start is the model's own discrepancy: the mean of its first residuals is
taken off, and is never put into a constant (Kennedy and O'Hagan 2001). Of the rest the log-likelihood ratio of a step
of `STEP` in k against none is summed, and held at zero or above (Page 1954), once for each direction. Above the
threshold h something has moved: a CUSUM of log-likelihood ratios takes at least e^h measurements to a false alarm
(Lorden 1971), so h = ln(2 K N) + 1 keeps K constants and N measurements a year below one.

Which constant it was: the one whose best step explains most of the residuals since the sum last left zero, once it is
ahead of the next by `SURE` nats, or after `PATIENCE` measurements. Constants whose columns point the same way cannot be
told apart by these measurements; they are one group and are named together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STEP = 0.03
A_YEAR = 36_500
"""Measurements of a year, of which at most one may be a false alarm."""
SURE = 3.0
PATIENCE = 60
CLIP = 3.0
"""A residual counts as at most so many standard deviations: one slow run is no drift."""
LEAST_BASELINE, MOST_BASELINE = 16, 400
FLOOR = 1e-3
"""Least noise that is believed, relative."""
SHRINK = 10.0
"""A kind's variance is its own and, as so many measurements would, that of all kinds."""
QUIET = 0.25
"""While the largest sum is below this part of the threshold, measurements go on to teach the baseline."""
WINDOW = 256
ALIKE = 0.9
"""Cosine from which two constants are one group."""
WEAK = 0.05
"""A constant that changes no kind by more than this share of its own change is not watched."""


@dataclass(frozen=True)
class Alarm:
    """A constant, or a group, that has moved."""

    name: str
    step: float
    """By how much, of its logarithm."""
    deviation: float
    """Standard deviation of `step`."""
    since: int
    """Measurements since the change, about."""
    ahead: float
    """Nats by which it explains the residuals better than the next."""


def groups(columns: Mapping[str, Sequence[float]]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Constants that can be told apart, each with its column, and those that no kind depends on.

    `columns` gives each constant's d ln t / d ln value over the kinds that are measured. A group has the names of its
    members joined by ` | ` and the column of the strongest.
    """
    weak = [name for name, column in columns.items() if not len(column) or np.abs(column).max() < WEAK]
    kept = {name: np.asarray(column, float) for name, column in columns.items() if name not in weak}
    found: list[tuple[list[str], np.ndarray]] = []
    for name, column in sorted(kept.items(), key=lambda item: -float(np.linalg.norm(item[1]))):
        for members, other in found:
            if abs(float(column @ other)) > ALIKE * float(np.linalg.norm(column) * np.linalg.norm(other)):
                members.append(name)
                break
        else:
            found.append(([name], column))
    return {" | ".join(members): column for members, column in found}, sorted(weak)


@dataclass
class Detector:
    """The state of a system's detector; plain numbers, so that it can be written down at any time."""

    kinds: dict[str, list[float]] = field(default_factory=dict)
    """Of a kind: residuals seen, their mean and their sum of squares around it, while nothing seems to move."""
    sums: dict[str, list[float]] = field(default_factory=dict)
    """Of a group: the sum upwards and downwards, and how many measurements ago each left zero."""
    window: list[list[Any]] = field(default_factory=list)
    """The latest measurements that were tested: kind, residual less the baseline, standard deviation, effects."""
    waiting: list[list[Any]] = field(default_factory=list)
    """Residuals that came while a sum was up: kind and value."""
    shifts: dict[str, float] = field(default_factory=dict)
    """Steps that were raised as alarms and are not in the set yet, by group."""
    seen: int = 0

    def record(self) -> dict[str, Any]:
        """As it is written down."""
        return dict(self.__dict__)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Detector:
        """As it was written down."""
        return cls(**record)

    def noise(self, kind: str) -> float:
        """Standard deviation of a kind's residuals."""
        spare = sum(max(0.0, n - 1) for n, _, _ in self.kinds.values())
        pooled = sum(squares for _, _, squares in self.kinds.values()) / spare if spare else 0.01**2
        count, _, squares = self.kinds.get(kind, [0.0, 0.0, 0.0])
        own = max(0.0, count - 1)
        return max(FLOOR, math.sqrt((squares + SHRINK * pooled) / (own + SHRINK)))

    def ready(self, kind: str) -> bool:
        """Whether a kind's baseline is known so well that its error is no step."""
        count = self.kinds.get(kind, [0.0])[0]
        needed = (8 * self.noise(kind) / STEP) ** 2
        return count >= min(MOST_BASELINE, max(LEAST_BASELINE, math.ceil(needed)))

    def hear(
        self, kind: str, residual: float, effects: Mapping[str, float], alarms_at: float | None = None
    ) -> Alarm | None:
        """Takes a measurement: ln(measured/predicted), and what a step in each group does to its kind.

        Returns an alarm where a group has moved; its step is taken off what comes after.
        """
        self.seen += 1
        off = residual - sum(step * effects.get(name, 0.0) for name, step in self.shifts.items())
        if not self.ready(kind):
            self._learn(kind, off)
            return None
        deviation, mean = self.noise(kind), self.kinds[kind][1]
        plain = off - mean
        self.window = [*self.window[1 - WINDOW :], [kind, plain, deviation, dict(effects)]]
        off = float(np.clip(plain, -CLIP * deviation, CLIP * deviation))
        worst = 0.0
        for name, effect in effects.items():
            sums = self.sums.setdefault(name, [0.0, 0.0, 0, 0])
            move = effect * STEP / deviation
            for at, sign in ((0, 1.0), (1, -1.0)):
                value = sums[at] + sign * move * off / deviation - move**2 / 2
                sums[at] = max(0.0, value)
                sums[2 + at] = 0 if value <= 0 else sums[2 + at] + 1
                worst = max(worst, sums[at])
        threshold = math.log(2 * max(1, len(self.sums)) * A_YEAR) + 1 if alarms_at is None else alarms_at
        # What comes while a sum is up waits: it teaches the baseline if the sum falls again, else it is of the change.
        self.waiting.append([kind, plain + mean])
        if worst < QUIET * threshold:
            for each in self.waiting:
                self._learn(*each)
            self.waiting = []
        self.waiting = self.waiting[-WINDOW:]
        return self._named(worst) if worst > threshold else None

    def _learn(self, kind: str, off: float) -> None:
        """Takes a residual into its kind's baseline (Welford 1962)."""
        count, mean, squares = self.kinds.get(kind, [0.0, 0.0, 0.0])
        before = off - mean
        mean += before / (count + 1)
        self.kinds[kind] = [count + 1, mean, squares + before * (off - mean)]

    def _named(self, worst: float) -> Alarm | None:
        since = max(int(sums[2 + at]) for sums in self.sums.values() for at in (0, 1) if sums[at] >= worst)
        latest = self.window[-max(1, since) :]
        scores = []
        for name in self.sums:
            information = sum((e.get(name, 0.0) / s) ** 2 for _, _, s, e in latest)
            if information > 0:
                step = sum(e.get(name, 0.0) * _clipped(r, s) / s**2 for _, r, s, e in latest) / information
                scores.append((step**2 * information / 2, name, step, information**-0.5))
        scores.sort(reverse=True)
        best, name, step, deviation = scores[0]
        ahead = best - scores[1][0] if len(scores) > 1 else best
        if ahead < SURE and since < PATIENCE:
            return None
        step = _typical([(r / e[name], (e[name] / s) ** 2) for _, r, s, e in latest if e.get(name)])
        self.shifts[name] = self.shifts.get(name, 0.0) + step
        self.sums, self.window, self.waiting = {}, [], []
        return Alarm(name, step, deviation, since, ahead)


def _clipped(residual: float, deviation: float) -> float:
    return max(-CLIP * deviation, min(CLIP * deviation, residual))


def _typical(pairs: Sequence[tuple[float, float]]) -> float:
    """The median of values by their weights: one slow run does not move it, and nothing is cut off of large steps."""
    ordered = sorted(pairs)
    half = sum(weight for _, weight in ordered) / 2
    passed = 0.0
    for value, weight in ordered:
        passed += weight
        if passed >= half:
            return value
    return 0.0
