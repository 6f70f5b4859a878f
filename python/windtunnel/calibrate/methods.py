"""Ways to fit constants: least squares, equation 3 by hill climbing, CMA-ES, and Bayes with a model's own discrepancy.

All work on logarithms of positive constants within their bounds, and on a `predict` that gives seconds for many sets at
once: a closed form, or runs of a scenario through the runner of studies (`by_runs`). What the rows cannot tell is found
by `profile` and is not fitted (`identified`).

Sources: Arcadia (NSDI'26), section 7.1 (`Alignment`), and its equation 3 (`calibrate.equation3`);
Hansen 2016 for CMA-ES; Kennedy and O'Hagan 2001 for the discrepancy; Raue et al. 2009 for profile likelihoods.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares as scipy_least_squares
from scipy.stats import t as student

from windtunnel.calibrate.equation3 import choose, equation_3, hill_climb
from windtunnel.calibrate.problem import Answer, Chosen, Problem, Search
from windtunnel.engine import InputError
from windtunnel.source import override_text
from windtunnel.studies.ask import opened, summaries
from windtunnel.studies.point import Point
from windtunnel.studies.rows import metric as figure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike

    from windtunnel.source import Source
    from windtunnel.studies.runner import Limits
    from windtunnel.studies.store import Store

METHODS = ("least-squares", "hill", "cma", "bayes")
LOOSE = 0.1
"""Residuals beyond this count less than their square (soft l1)."""
PASSES = 8
LIKELY = 3.84
"""Rise of chi-square at the ends of a 95% interval, where noise is known; where few rows tell it, Student's t."""
TIGHT = math.log(1.02)
"""A constant whose interval stays within this factor is determined: what is printed is right to 2%, 19 times in 20."""
WIDE = math.log(1.1)
"""One whose interval reaches further than this to either side is not known by itself."""
CUT = 3.0
"""Residuals count as at most so many standard deviations where noise is told from them."""
CUT_SHARE = 0.9950
"""Mean square of a standard normal figure that is cut at `CUT`."""
DECLARED = 10.0
"""Noise that the rows were said to have counts as what so many rows told, where they have less."""
BELIEF = math.log(2.0)
"""Standard deviation of a constant's logarithm around where it starts: what rows cannot tell stays there."""


def fit(problem: Problem, method: str, penalty: float = 0.0, search: Search | None = None) -> Answer:
    """Fits by one of `METHODS`. `penalty` is equation 3's lambda (`hill`, `cma`), of times scaled to 0..1."""
    if not problem.start:
        return Answer({}, np.log(problem.predict([{}])[0] / problem.measured), {})
    if method == "least-squares":
        return least_squares(problem)
    if method == "hill":
        return hill_climb(problem, penalty, search)
    if method == "cma":
        return evolve(problem, penalty, search)
    if method == "bayes":
        return bayes(problem)
    raise InputError(f"no such method: `{method}`\n\nhint: there are {', '.join(METHODS)}")


def least_squares(problem: Problem, start: np.ndarray | None = None) -> Answer:
    """Least squares of relative errors within bounds, with `BELIEF` in the start; large residuals count less.

    The first pass believes little of the rows, each further one what the last has left: the model's error counts too.
    """
    low, high = problem.bounds()
    first = problem.x(problem.start)
    x = first if start is None else start
    noise = np.maximum(problem.deviations(), LOOSE)
    for _ in range(PASSES):
        x = _descend(problem, np.clip(x, low + 1e-9, high - 1e-9), first, noise)
        before = noise
        noise = _noise(problem, x)[0]
        if float(np.abs(noise / before - 1).max()) < 0.1:
            break
    residuals = problem.residuals(x)
    scaled = problem.jacobian(x) / noise[:, None]
    covariance = np.linalg.inv(scaled.T @ scaled + np.eye(len(x)) / BELIEF**2)
    deviations = dict(zip(problem.names, np.sqrt(np.diag(covariance)).tolist(), strict=True))
    return Answer(problem.values(x), residuals, deviations)


def _descend(problem: Problem, x: np.ndarray, first: np.ndarray, noise: np.ndarray) -> np.ndarray:
    def residuals(at: np.ndarray) -> np.ndarray:
        return np.concatenate([problem.residuals(at) / noise, (at - first) / BELIEF])

    def jacobian(at: np.ndarray) -> np.ndarray:
        return np.concatenate([problem.jacobian(at) / noise[:, None], np.eye(len(at)) / BELIEF])

    bounds = problem.bounds()
    found = scipy_least_squares(residuals, x, jac=jacobian, bounds=bounds, loss="soft_l1", f_scale=3.0, max_nfev=40)
    best: np.ndarray = found.x
    return best


def _noise(problem: Problem, x: np.ndarray) -> tuple[np.ndarray, float]:
    """Standard deviation of each row's residual by what the rows show once `x` was fitted, and its degrees of freedom.

    Where residuals are larger than the noise that the rows are said to have, the model is off too: by as much, for
    every row, as makes both together what is seen. Where they are smaller, the noise is less than was said.
    """
    residuals, declared = problem.residuals(x), problem.deviations()
    scaled = problem.jacobian(x) / np.hypot(declared, _spread(residuals))[:, None]
    normal = scaled.T @ scaled
    # Constants that the rows determine took a degree of freedom each, those that belief holds took none.
    used = float(np.trace(np.linalg.solve(normal + np.eye(len(x)) / BELIEF**2, normal)))
    free = max(1.0, len(residuals) - used)

    def excess(off: float) -> float:
        return _spread(residuals / np.hypot(declared, off)) * math.sqrt(len(residuals) / free)

    seen = excess(0.0)
    if seen <= 1:
        return declared * math.sqrt((DECLARED + free * seen**2) / (DECLARED + free)), DECLARED + free
    low, high = 0.0, float(declared.max()) * seen
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 1 else (low, middle)
    return np.hypot(declared, high), DECLARED + free


def _spread(values: np.ndarray) -> float:
    """Standard deviation around zero of what is normal but for a few: large ones count as `CUT` times that."""
    if not len(values):
        return 0.0
    spread = 1.4826 * float(np.median(np.abs(values)))
    for _ in range(4):
        spread = math.sqrt(float(np.minimum(values**2, (CUT * spread) ** 2).mean()) / CUT_SHARE)
    return spread


def evolve(problem: Problem, penalty: float, search: Search | None = None) -> Answer:
    """Equation 3's form on relative errors by CMA-ES, for what is not smooth; each generation is predicted at once."""
    try:
        import cma  # noqa: PLC0415
    except ImportError as error:
        raise InputError("`cma` is not installed\n\nhint: `pip install windtunnel[fit]`") from error
    search = search or Search()
    low, high = problem.bounds()
    first = problem.x(problem.start)
    if len(first) == 1:
        # CMA-ES needs two dimensions: hill climbing does for one.
        return hill_climb(problem, penalty, search)
    # One that was broken off goes on from its mean and its width; the shape of its steps is learnt anew.
    middle, width, spent, xbest, best = search.kept.get("cma", [first.tolist(), 0.2, 0, first.tolist(), math.inf])
    most = search.evaluations or 200 * (len(low) + 3)
    options = {"bounds": [low.tolist(), high.tolist()], "seed": 1, "verbose": -9}
    strategy = cma.CMAEvolutionStrategy(np.clip(np.array(middle), low + 1e-9, high - 1e-9), width, options)
    while not strategy.stop() and spent < most:
        points = [np.asarray(point) for point in strategy.ask()]
        losses = []
        for times in problem.times(points):
            off = np.log(times / problem.truth())
            order = equation_3(problem, times, penalty) - equation_3(problem, times, 0.0) if penalty else 0.0
            losses.append(float((2 * LOOSE**2 * (np.sqrt(1 + (off / LOOSE) ** 2) - 1)).sum()) + order)
        strategy.tell([point.tolist() for point in points], losses)
        spent += len(points)
        at = int(np.argmin(losses))
        if losses[at] < best:
            best, xbest = losses[at], points[at].tolist()
        search.kept["cma"] = [strategy.mean.tolist(), float(strategy.sigma), spent, xbest, best]
    x = np.asarray(xbest)
    reached = f"{spent:,} evaluations, and still searching {strategy.sigma:.1%} around" if not strategy.stop() else None
    return Answer(problem.values(x), problem.residuals(x), {}, reached=reached)


def bayes(problem: Problem) -> Answer:
    """The most likely constants, where the model itself is off by an unknown share of each row.

    Priors are normal on logarithms, a factor of two wide around the start. The model's discrepancy is a normal error of
    each row with standard deviation tau, which is chosen by the marginal likelihood (Laplace): a bias that differs from
    row to row widens the posterior instead of moving a constant.
    """
    low, high = problem.bounds()
    prior, wide = problem.x(problem.start), BELIEF
    best: tuple[float, np.ndarray, np.ndarray, float] | None = None
    x = prior.copy()
    for tau in (0.0, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4):
        variance = problem.deviations() ** 2 + tau**2
        for _ in range(12):
            jacobian, residuals = problem.jacobian(x), problem.residuals(x)
            precision = jacobian.T @ (jacobian / variance[:, None]) + np.eye(len(x)) / wide**2
            move = np.linalg.solve(precision, -(jacobian.T @ (residuals / variance) + (x - prior) / wide**2))
            x = np.clip(x + np.clip(move, -0.5, 0.5), low, high)
            if float(np.abs(move).max()) < 1e-5:
                break
        residuals = problem.residuals(x)
        evidence = -0.5 * float(
            (residuals**2 / variance).sum()
            + np.log(variance).sum()
            + ((x - prior) ** 2).sum() / wide**2
            + np.linalg.slogdet(precision)[1]
            + 2 * len(x) * math.log(wide)
        )
        if best is None or evidence > best[0]:
            best = (evidence, x.copy(), np.linalg.inv(precision), tau)
    assert best is not None  # noqa: S101 - the grid is not empty
    _, x, covariance, tau = best
    deviations = dict(zip(problem.names, np.sqrt(np.diag(covariance)).tolist(), strict=True))
    return Answer(problem.values(x), problem.residuals(x), deviations, tau)


@dataclass(frozen=True)
class Interval:
    """A constant's 95% interval by its profile likelihood, as factors of its value; open ends are infinite."""

    low: float
    high: float

    @property
    def within(self) -> float:
        """How far the further end is from the value, as a share of it."""
        return max(1 / self.low, self.high) - 1 if self.low > 0 else math.inf

    @property
    def known(self) -> bool:
        """Whether the rows tell the constant from all others: to within its interval, which is not wide."""
        return self.within < math.expm1(WIDE)

    @property
    def determined(self) -> bool:
        """Whether they tell it to 2%."""
        return self.within < math.expm1(TIGHT)

    @property
    def words(self) -> str:
        """How well it is known."""
        return "determined" if self.determined else f"known to {self.within:.1%}"


def profile(problem: Problem, answer: Answer, search: Search | None = None) -> dict[str, Interval]:
    """Intervals: each constant is moved away in steps while all others are fitted anew, until chi-square has risen."""
    kept = (search or Search()).kept
    best = problem.x(answer.values)
    noise, freedom = _noise(problem, best)
    likely = float(student.ppf(0.975, freedom)) ** 2
    low, high = problem.bounds()
    base = _settled(problem, best, None, noise)[0]
    found = {}
    for at, name in enumerate(problem.names):
        ends = kept.get(f"profile {name}", [])
        for sign in () if ends else (-1.0, 1.0):
            end, before = math.inf, (0.0, 0.0)
            for step in (0.003, 0.01, 0.03, WIDE, 0.2):
                x = best.copy()
                x[at] += sign * step
                if not low[at] <= x[at] <= high[at]:
                    break
                rise = max(0.0, _settled(problem, x, at, noise)[0] - base)
                if rise > likely:
                    share = (math.sqrt(likely) - math.sqrt(before[1])) / (math.sqrt(rise) - math.sqrt(before[1]))
                    end = before[0] + share * (step - before[0])
                    break
                before = (step, rise)
            ends.append(end)
        kept[f"profile {name}"] = ends
        found[name] = Interval(math.exp(-ends[0]), math.exp(ends[1]))
    return found


def _settled(problem: Problem, x: np.ndarray, held: int | None, noise: np.ndarray) -> tuple[float, np.ndarray]:
    """Chi-square, belief included, once all constants but one are fitted anew (Levenberg and Marquardt)."""
    low, high = problem.bounds()
    first = problem.x(problem.start)
    free = [i for i in range(len(x)) if i != held]

    def chi(at: np.ndarray) -> tuple[float, np.ndarray]:
        residuals = problem.residuals(at)
        return float(((residuals / noise) ** 2).sum() + (((at - first) / BELIEF) ** 2).sum()), residuals

    (value, residuals), damping = chi(x), 1e-3
    for _ in range(12 if free else 0):
        scaled = problem.jacobian(x)[:, free] / noise[:, None]
        normal = scaled.T @ scaled + np.eye(len(free)) / BELIEF**2
        gradient = scaled.T @ (residuals / noise) + (x - first)[free] / BELIEF**2
        before = value
        for _ in range(6):
            tried = x.copy()
            move = -np.linalg.solve(normal + damping * np.diag(np.diag(normal)), gradient)
            tried[free] = np.clip(x[free] + np.clip(move, -0.5, 0.5), low[free], high[free])
            after, off = chi(tried)
            if after < value:
                x, value, residuals, damping = tried, after, off, damping / 10
                break
            damping *= 10
        if before - value < 1e-3 * (1 + before) * 0.1:
            break
    return value, x


def identified(
    problem: Problem, method: str, multiple: float | None = 0.0, search: Search | None = None
) -> tuple[Answer, dict[str, Interval], list[str]]:
    """Fits all constants that the rows depend on, and says by their profiles how well the rows tell each.

    Returns the answer, the intervals of what is known by itself, and the names of what is not: of these some are
    known in combination with others (they are in the answer, near where they started), the others stay as they were.
    Of what is known, some is determined (to 2%, 19 times in 20), the rest is as far off as its interval says.
    `multiple` is equation 3's lambda in multiples of sigma, and None the one that section C.1 chooses (`hill`, `cma`).
    """
    jacobian = problem.jacobian(problem.x(problem.start))
    strength = np.sqrt(((jacobian / problem.deviations()[:, None]) ** 2).sum(axis=0))
    names = [n for n, size in zip(problem.names, strength, strict=True) if size * BELIEF > math.sqrt(LIKELY)]
    kept = problem.kept(names)
    search = search or Search()
    chosen, begun, rest = Chosen(0.0, 0.0), kept, search
    if method in {"hill", "cma"} and multiple != 0.0:
        # Lambda takes half of what may be tried, and a climb goes on from where that of its lambda has ended.
        half = None if search.evaluations is None else max(1, search.evaluations // 2)
        rest = replace(search, evaluations=half)
        chosen = choose(kept, multiple, replace(search.part("lambda"), evaluations=half))
        begun = replace(kept, start=chosen.values) if method == "hill" and chosen.values else kept
    answer = replace(fit(begun, method, chosen.penalty, rest), chosen=chosen)
    # A climb ends where no step of one constant helps, which is not where the likelihood is greatest.
    best = least_squares(kept) if method == "hill" and names else answer
    intervals = profile(kept, best, search) if names else {}
    known = {}
    for name, interval in intervals.items():
        moved = best.values[name] / answer.values[name]
        own = Interval(interval.low * moved, interval.high * moved)
        if interval.known and own.low <= 1 <= own.high:
            known[name] = own
    return answer, known, [name for name in problem.names if name not in known]


@dataclass(frozen=True)
class Alignment:
    """Section 7.1: T_e = a1 N + a2 N T_i + a3 log N + a4 / N + g T_i + c, from small runs to production's scale."""

    coefficients: np.ndarray

    @classmethod
    def of(cls, gpus: ArrayLike, initial: ArrayLike, measured: ArrayLike) -> Alignment:
        """Fitted by least squares of relative errors; with fewer rows than terms the smallest coefficients that fit."""
        truth = np.asarray(measured, float)
        found, *_ = np.linalg.lstsq(_terms(gpus, initial) / truth[:, None], np.ones(len(truth)), rcond=1e-9)
        return cls(found)

    def seconds(self, gpus: ArrayLike, initial: ArrayLike) -> np.ndarray:
        """Enhanced predictions."""
        found: np.ndarray = _terms(gpus, initial) @ self.coefficients
        return found


def _terms(gpus: ArrayLike, initial: ArrayLike) -> np.ndarray:
    n, t = np.asarray(gpus, float), np.asarray(initial, float)
    return np.stack([n, n * t, np.log(n), 1 / n, t, np.ones_like(n)], axis=1)


def by_runs(
    source: Source,
    cases: Sequence[Mapping[str, object]],
    metric: str,
    units: Mapping[str, str],
    store: Path | Store,
    limits: Limits | None = None,
) -> Callable[[Sequence[Mapping[str, float]]], np.ndarray]:
    """A `predict` by runs of a scenario through the runner of studies: a row for each of `cases`, keys and values.

    Constants are keys of the scenario; `units` are written behind their values. Runs are kept in `store`.
    """

    def predict(sets: Sequence[Mapping[str, float]]) -> np.ndarray:
        points = []
        for one in sets:
            given = {key: f"{value:.9g} {units[key]}".strip() for key, value in one.items()}
            for case in cases:
                both = {**case, **given}
                overrides = tuple((key, override_text(value)) for key, value in both.items())
                points.append(Point(source, overrides, varied=dict(case)))
        found = []
        with opened(store) as kept:
            for outcome in summaries(points, kept, limits=limits):
                if outcome.summary is None:
                    raise InputError(outcome.message or outcome.state)
                value = figure(outcome.summary, metric)
                if value is None:
                    raise InputError(f"{source.name}: `{metric}` is null in a run")
                found.append(value)
        return np.array(found).reshape(len(sets), len(cases))

    return predict
