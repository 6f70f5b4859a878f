"""Equation 3 of Arcadia (NSDI'26): squared errors of times and a penalty on reversed orders, by hill climbing.

Section 7.2 has the equation and the climb, section C.1 the sweep of lambda, by which `choose` takes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from windtunnel.calibrate.problem import Answer, Chosen, Search

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windtunnel.calibrate.problem import Problem

NOTICEABLE = 0.02
"""Rise of the mean or the median relative error, of itself, that is noticed."""
NEAR = 0.05
"""First step of a climb that begins where another has ended."""
LAMBDAS = (0.0, 0.1, 0.3, 0.5, 1.0, 2.0, 5.0)
"""Multiples of sigma that section C.1 sweeps."""


def equation_3(problem: Problem, times: np.ndarray, penalty: float) -> float:
    """Equation 3: squared errors of times scaled to 0..1, and `penalty`, lambda, times the reversals of their order."""
    a, b = _scaled(problem, times)
    error = float(((a - b) ** 2).sum())
    if penalty == 0.0:
        return error
    order = np.argsort(b, kind="stable")
    a, b = a[order], b[order]
    reversed_ = np.maximum(0.0, a[:, None] - a[None, :])
    return error + penalty * float(reversed_[b[:, None] < b[None, :]].sum())


def _scaled(problem: Problem, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Predicted and measured times of the fitted rows, scaled so that the measured ones are 0 to 1."""
    truth = problem.truth()
    least, span = truth.min(), max(float(np.ptp(truth)), 1e-30)
    return (times - least) / span, (truth - least) / span


def sigma(problem: Problem, values: Mapping[str, float]) -> float:
    """Section C.1's sigma: the standard deviation of the residuals of scaled times at `values`, best without lambda."""
    a, b = _scaled(problem, problem.times([problem.x(values)])[0])
    return float((a - b).std())


def choose(problem: Problem, multiple: float | None = None, search: Search | None = None) -> Chosen:
    """Lambda by section C.1: the largest of `LAMBDAS` whose error is not noticeably above that without it.

    With `multiple` that multiple of sigma. Each climb begins where that of the lambda before has ended.
    """
    if not problem.start or multiple == 0.0:
        return Chosen(0.0, 0.0)
    search = search or Search()
    # The first climb has the way to go; the others begin near their end.
    half = None if search.evaluations is None else max(1, search.evaluations // 2)
    each = None if half is None else max(1, half // (len(LAMBDAS) - 1))
    free = hill_climb(problem, 0.0, replace(search.part("lambda 0"), evaluations=half))
    own = sigma(problem, free.values)
    if multiple is not None:
        return Chosen(multiple * own, multiple, free.values)
    least, best, start = _errors(free), 0.0, free.values
    values = free.values
    for tried in LAMBDAS[1:]:
        one = hill_climb(
            replace(problem, start=start),
            tried * own,
            replace(search.part(f"lambda {tried:g}"), evaluations=each),
            NEAR,
        )
        if (_errors(one) <= least * (1 + NOTICEABLE)).all():
            best, values = tried, one.values
        start = one.values
    return Chosen(best * own, best, values)


def _errors(answer: Answer) -> np.ndarray:
    """The mean relative error, which the paper goes by, and the median, which no few rows make."""
    off = np.abs(np.expm1(answer.residuals))
    return np.array([off.mean(), np.median(off)])


def hill_climb(problem: Problem, penalty: float, search: Search | None = None, first: float = 0.3) -> Answer:
    """Equation 3 by steepest hill climbing: of all steps of one constant up or down the best; else half the step.

    `first` is the first step, of a constant's logarithm.
    """
    search = search or Search()
    low, high = problem.bounds()
    x, step, spent = problem.x(problem.start), first, 1
    if "hill" in search.kept:
        values, step, spent = search.kept["hill"]
        x = np.array(values)
    best = equation_3(problem, problem.times([x])[0], penalty)
    while step > 1e-3 and search.left(spent):
        moves = [np.clip(x + sign * step * unit, low, high) for unit in np.eye(len(x)) for sign in (1.0, -1.0)]
        losses = [equation_3(problem, times, penalty) for times in problem.times(moves)]
        spent += len(moves)
        at = int(np.argmin(losses))
        if losses[at] < best * (1 - 1e-6):
            x, best = moves[at], losses[at]
        else:
            step /= 2
        search.kept["hill"] = [x.tolist(), step, spent]
    reached = f"{spent:,} evaluations, and still moving by steps of {step:.1%}" if step > 1e-3 else None
    return Answer(problem.values(x), problem.residuals(x), {}, reached=reached)


@dataclass(frozen=True)
class Sweep:
    """Equation 3 at one lambda: errors of rows fitted on and of the groups left out, and pairs out of order."""

    multiple: float
    fitted: float
    left_out: float
    reversed_: float


def sweep(problem: Problem, groups: Sequence[str]) -> list[Sweep]:
    """Section C.1: lambda in multiples of sigma, each judged on whole groups that it was not fitted on."""
    found = []
    free: dict[str, dict[str, float]] = {}
    labels = np.array(groups)
    for multiple in LAMBDAS:
        inside, outside, turned = [], [], []
        for label in sorted(set(groups)):
            part = replace(problem, rows=np.flatnonzero(labels != label))
            if label not in free:
                free[label] = hill_climb(part, 0.0).values
            penalty = multiple * sigma(part, free[label])
            values = (
                hill_climb(replace(part, start=free[label]), penalty, first=NEAR).values if penalty else free[label]
            )
            times = problem.predict([values])[0]
            off = np.abs(times / problem.measured - 1)
            inside.append(float(np.median(off[labels != label])))
            outside += off[labels == label].tolist()
            turned.append(reversals(times, problem.measured))
        found.append(Sweep(multiple, float(np.mean(inside)), float(np.median(outside)), float(np.mean(turned))))
    return found


def reversals(times: np.ndarray, measured: np.ndarray) -> float:
    """Share of pairs of rows that are predicted in the other order than they were measured."""
    below = measured[:, None] < measured[None, :]
    return float((times[:, None] > times[None, :])[below].mean()) if below.any() else 0.0
