"""Least squares on logarithms, robust against outliers, with a refusal of what the rows do not determine.

Parameters are positive; they and the times are compared by logarithm, so the residual ln(predicted/measured) is a
relative error. Residuals beyond `DELTA` count linearly (Huber 1964). A parameter a factor e off its prior counts as
`PRIOR` rows that are off by as much, so that what the rows leave open stays where it was believed to be. Steps are
Levenberg's and Marquardt's; a parameter stays within a factor e^REACH of its prior.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

DELTA = 0.25
WIDE = 2.0
"""A first descent counts nearly all residuals in full: from far away the linear ones pull too little."""
REACH = 3.0
PRIOR = 0.3
STEP = 1e-4
ROUNDS = 60
WEAK = 0.15
"""A parameter is not determined by the rows if the weighted residuals change by less than this times its own change
(root of the sum of squares)."""
BOUND = 1e-6


@dataclass(frozen=True)
class Fitted:
    """An outcome: values by name, and the names that were refused with the reason."""

    values: dict[str, float]
    refused: dict[str, str]
    residuals: np.ndarray
    """ln(predicted/measured) of every row."""


def fit(
    names: Sequence[str],
    priors: Sequence[float],
    measured: Sequence[float],
    weights: Sequence[float],
    predict: Callable[[list[dict[str, float]]], np.ndarray],
) -> Fitted:
    """Fits `names`. `predict` gives seconds for many sets of values at once, one row of the array for each set."""
    truth, weight = np.log(np.asarray(measured, float)), np.asarray(weights, float)
    prior = dict(zip(names, priors, strict=True))
    kept, refused = list(names), dict[str, str]()
    start = {name: float(np.log(value)) for name, value in prior.items()}
    while True:
        # From far away linear residuals pull too little, and full ones may pull past the near end: the better of
        # both descents is kept.
        wide, _, _ = _minimise(kept, start, prior, truth, weight, predict, WIDE)
        begins = [start, dict(zip(kept, wide.tolist(), strict=True))]
        ends = [_minimise(kept, begin, prior, truth, weight, predict, DELTA) for begin in begins]
        middle = np.array([np.log(prior[name]) for name in kept])
        x, residuals, jacobian = min(ends, key=lambda end: _loss(end[1], weight, DELTA) + _belief(end[0] - middle))
        if not kept:
            return Fitted({}, refused, residuals)
        worst = _undetermined(kept, x, jacobian, weight, prior)
        if worst is None:
            return Fitted({n: float(np.exp(v)) for n, v in zip(kept, x, strict=True)}, refused, residuals)
        name, reason = worst
        refused[name] = reason
        kept.remove(name)
        start = {n: start[n] for n in kept}


def _undetermined(
    names: list[str], x: np.ndarray, jacobian: np.ndarray, weight: np.ndarray, prior: dict[str, float]
) -> tuple[str, str] | None:
    scaled = jacobian * np.sqrt(weight)[:, None]
    strength = np.sqrt((scaled**2).sum(axis=0))
    low = np.array([value - np.log(prior[name]) < BOUND - REACH for name, value in zip(names, x, strict=True)])
    strength = np.where(low, 1.0, strength)
    if strength.min() < WEAK:
        return names[int(strength.argmin())], "the rows do not depend on it"
    # A direction in which several change together without effect: the rank of the rows is short by it.
    _, values, directions = np.linalg.svd(scaled[:, ~low] / strength[~low], full_matrices=False)
    free = [name for name, held in zip(names, low, strict=True) if not held]
    if len(values) and values[-1] < 0.03:
        direction = np.abs(directions[-1])
        moved = [i for i in np.argsort(-direction) if direction[i] > 0.2]
        # The least part of the times is left as it was believed to be.
        least = min(moved, key=lambda i: strength[~low][i])
        return free[least], f"the rows determine only a combination of {', '.join(free[i] for i in moved)}"
    for name, value in zip(names, x, strict=True):
        # At the lower end it is as good as none, which is an answer; at the upper end the model lacks something.
        if value - np.log(prior[name]) > REACH - BOUND:
            return name, f"the rows ask for a value beyond a factor {np.exp(REACH):.0f} of the prior"
    return None


def _huber_weight(residuals: np.ndarray, delta: float) -> np.ndarray:
    size = np.abs(residuals)
    return np.where(size < delta, 1.0, delta / np.maximum(size, 1e-12))


def _loss(residuals: np.ndarray, weight: np.ndarray, delta: float) -> float:
    size = np.abs(residuals)
    return float((weight * np.where(size < delta, size**2 / 2, delta * (size - delta / 2))).sum())


def _belief(moved: np.ndarray, belief: float | np.ndarray = PRIOR) -> float:
    return float((belief * moved**2).sum() / 2)


def settle(
    names: Sequence[str],
    middle: Mapping[str, float],
    measured: Sequence[float],
    weights: Sequence[float],
    predict: Callable[[list[dict[str, float]]], np.ndarray],
    beliefs: Sequence[float],
) -> dict[str, float]:
    """Fits `names` close to `middle`: a constant a factor e off it counts as so many of `beliefs` rows as far off.

    Nothing is refused: what the rows leave open stays in the middle.
    """
    truth, weight = np.log(np.asarray(measured, float)), np.asarray(weights, float)
    prior = {name: middle[name] for name in names}
    start = {name: float(np.log(value)) for name, value in prior.items()}
    belief = np.asarray(beliefs, float)
    wide, _, _ = _minimise(list(names), start, prior, truth, weight, predict, WIDE, belief)
    begins = [start, dict(zip(names, wide.tolist(), strict=True))]
    ends = [_minimise(list(names), begin, prior, truth, weight, predict, DELTA, belief) for begin in begins]
    centre = np.array([start[name] for name in names])
    x, _, _ = min(ends, key=lambda end: _loss(end[1], weight, DELTA) + _belief(end[0] - centre, belief))
    return {name: float(np.exp(value)) for name, value in zip(names, x, strict=True)}


def _minimise(
    names: list[str],
    start: dict[str, float],
    prior: dict[str, float],
    truth: np.ndarray,
    weight: np.ndarray,
    predict: Callable[[list[dict[str, float]]], np.ndarray],
    delta: float,
    belief: float | np.ndarray = PRIOR,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    middle = np.array([np.log(prior[name]) for name in names])

    def residuals_of(points: list[np.ndarray]) -> np.ndarray:
        found = predict([dict(zip(names, np.exp(point).tolist(), strict=True)) for point in points])
        difference: np.ndarray = np.log(found) - truth
        return difference

    x = np.array([start[name] for name in names])
    residuals = residuals_of([x])[0]
    best, damping = _loss(residuals, weight, delta) + _belief(x - middle, belief), 1e-2
    jacobian = np.zeros((len(truth), len(names)))
    for _ in range(ROUNDS if names else 0):
        jacobian = ((residuals_of([x + STEP * unit for unit in np.eye(len(x))]) - residuals) / STEP).T
        rowed = weight * _huber_weight(residuals, delta)
        normal = jacobian.T @ (rowed[:, None] * jacobian) + np.diag(np.broadcast_to(belief, x.shape))
        gradient = jacobian.T @ (rowed * residuals) + belief * (x - middle)
        before = best
        for _ in range(10):
            move = -np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-6), gradient)
            point = np.clip(x + np.clip(move, -0.7, 0.7), middle - REACH, middle + REACH)
            tried = residuals_of([point])[0]
            loss = _loss(tried, weight, delta) + _belief(point - middle, belief)
            if loss < best:
                x, residuals, best, damping = point, tried, loss, max(damping / 4, 1e-9)
                break
            damping *= 4
        if before - best <= 1e-6 * before:
            break
    return x, residuals, jacobian
