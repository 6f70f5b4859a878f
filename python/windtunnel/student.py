"""Student's t distribution: how sure a mean of a few runs is.

The distribution function is the regularised incomplete beta function (DLMF 8.17), by its continued fraction (8.17.22,
evaluated by Lentz's method); the quantile is found by bisection.
"""

from __future__ import annotations

import math

_TERMS = 300
_TINY = 1e-300


def cdf(t: float, freedom: int) -> float:
    """Chance of a value up to `t` with `freedom` degrees of freedom."""
    tail = 0.5 * _beta(freedom / 2, 0.5, freedom / (freedom + t * t))
    return tail if t < 0 else 1 - tail


def quantile(p: float, freedom: int) -> float:
    """The value below which a share `p`, between 0 and 1, lies."""
    low, high = -1e6, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if cdf(middle, freedom) < p else (low, middle)
    return (low + high) / 2


def _beta(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    # The fraction converges quickly on one side only.
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or _TINY)
    value = d
    for m in range(1, _TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d or _TINY)
            c = 1 + term / c or _TINY
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value
