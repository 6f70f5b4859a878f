"""Ways to fit constants: least squares, equation 3 by hill climbing, CMA-ES, and Bayes with a model's own discrepancy.

All work on logarithms of positive constants within their bounds, and on a `predict` that gives seconds for many sets at
once: a closed form, or runs of a scenario through the runner of studies (`by_runs`). What the rows cannot tell is found
by `profile` and is not fitted (`identified`).

Sources: Arcadia (NSDI'26), section 7.1 (`Alignment`), equation 3 and section 7.2 (`hill_climb`), section C.1 (`sweep`);
Hansen 2016 for CMA-ES; Kennedy and O'Hagan 2001 for the discrepancy; Raue et al. 2009 for profile likelihoods.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import least_squares as scipy_least_squares

from windtunnel.engine import InputError
from windtunnel.source import override_text
from windtunnel.studies.ask import opened, summaries
from windtunnel.studies.point import Point
from windtunnel.studies.rows import metric as figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike

    from windtunnel.source import Source
    from windtunnel.studies.runner import Limits
    from windtunnel.studies.store import Store

METHODS = ("least-squares", "hill", "cma", "bayes")
STEP = 1e-4
LOOSE = 0.1
"""Residuals beyond this count less than their square (soft l1)."""
PASSES = 8
LIKELY = 3.84
"""Rise of chi-square at the ends of a 95% interval."""
WIDE = math.log(1.1)
"""A constant whose interval reaches further than this factor to either side is not determined by the rows."""
BELIEF = math.log(2.0)
"""Standard deviation of a constant's logarithm around where it starts: what rows cannot tell stays there."""
LAMBDAS = (0.0, 0.1, 0.3, 0.5, 1.0, 2.0, 5.0)
"""Multiples of sigma that section C.1 sweeps."""


@dataclass(frozen=True)
class Problem:
    """Constants with where they start and their bounds, and what was measured, seconds."""

    start: Mapping[str, float]
    low: Mapping[str, float]
    high: Mapping[str, float]
    measured: np.ndarray
    predict: Callable[[Sequence[Mapping[str, float]]], np.ndarray]
    """Seconds by set and row."""
    noise: np.ndarray
    """Standard deviation of ln(measured), by row."""
    rows: np.ndarray | None = None
    """Rows that are fitted on; all if None."""
    step: float = STEP
    """Step of logarithms for slopes: runs tell times to the nanosecond, and want a larger one."""

    @property
    def names(self) -> list[str]:
        """The constants."""
        return list(self.start)

    def kept(self, names: Sequence[str]) -> Problem:
        """The same with some constants only: the others stay where they start."""
        fixed = {name: value for name, value in self.start.items() if name not in names}

        def predict(sets: Sequence[Mapping[str, float]]) -> np.ndarray:
            return self.predict([{**fixed, **one} for one in sets])

        return replace(self, start={name: self.start[name] for name in self.start if name in names}, predict=predict)

    def x(self, values: Mapping[str, float]) -> np.ndarray:
        """Logarithms."""
        return np.array([math.log(values[name]) for name in self.names])

    def values(self, x: np.ndarray) -> dict[str, float]:
        """Constants."""
        return {name: float(math.exp(value)) for name, value in zip(self.names, x, strict=True)}

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of the bounds."""
        return self.x(self.low), self.x(self.high)

    def times(self, points: Sequence[np.ndarray]) -> np.ndarray:
        """Seconds by point and fitted row."""
        found = self.predict([self.values(point) for point in points])
        return found if self.rows is None else found[:, self.rows]

    def truth(self) -> np.ndarray:
        """What was measured of the fitted rows."""
        return self.measured if self.rows is None else self.measured[self.rows]

    def deviations(self) -> np.ndarray:
        """The noise of the fitted rows."""
        return self.noise if self.rows is None else self.noise[self.rows]

    def residuals(self, x: np.ndarray) -> np.ndarray:
        """ln(predicted/measured)."""
        found: np.ndarray = np.log(self.times([x])[0] / self.truth())
        return found

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        """Of the residuals, by row and constant."""
        times = np.log(self.times([x, *(x + self.step * unit for unit in np.eye(len(x)))]))
        found: np.ndarray = ((times[1:] - times[0]) / self.step).T
        return found


@dataclass(frozen=True)
class Answer:
    """What was fitted."""

    values: dict[str, float]
    residuals: np.ndarray
    """ln(predicted/measured) of the fitted rows."""
    deviations: dict[str, float]
    """Standard deviation of each constant's logarithm, where the method knows it."""
    discrepancy: float = 0.0
    """Relative error of the model that no constant was made to explain (Bayes)."""
    reached: str | None = None
    """Where a search stood when its budget was spent; None where it came to its end."""


@dataclass
class Search:
    """How many sets a search (`hill`, `cma`) may have predicted, and what it goes on from if it is broken off."""

    evaluations: int | None = None
    kept: MutableMapping[str, Any] = field(default_factory=dict)
    """Plain values by the step of the work; a mapping that writes them down makes a fit go on after a kill."""

    def part(self, name: str) -> Search:
        """The same for one of several fits."""
        return Search(self.evaluations, _Part(self.kept, name))

    def left(self, spent: int) -> bool:
        """Whether the budget allows for more."""
        return self.evaluations is None or spent < self.evaluations


class _Part(MutableMapping[str, Any]):
    """Values of one fit in a mapping that several share."""

    def __init__(self, whole: MutableMapping[str, Any], name: str) -> None:
        self._whole, self._name = whole, f"{name}: "

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401
        return self._whole[self._name + key]

    def __setitem__(self, key: str, value: object) -> None:
        self._whole[self._name + key] = value

    def __delitem__(self, key: str) -> None:
        del self._whole[self._name + key]

    def __iter__(self) -> Iterator[str]:
        return (key.removeprefix(self._name) for key in self._whole if key.startswith(self._name))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def fit(problem: Problem, method: str, penalty: float = 0.0, search: Search | None = None) -> Answer:
    """Fits by one of `METHODS`. `penalty` is equation 3's lambda, in multiples of sigma (`hill`)."""
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
        noise = np.hypot(problem.deviations(), _spread(problem.residuals(x)))
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


def _spread(residuals: np.ndarray) -> float:
    """A robust standard deviation (median absolute deviation)."""
    return float(1.4826 * np.median(np.abs(residuals - np.median(residuals)))) if len(residuals) else 0.0


def equation_3(problem: Problem, times: np.ndarray, penalty: float) -> float:
    """Equation 3: squared errors of times scaled to 0..1, and lambda times the reversals of their order.

    `penalty` is lambda over sigma, the standard deviation of the scaled measured times.
    """
    truth = problem.truth()
    least, span = truth.min(), max(float(np.ptp(truth)), 1e-30)
    a, b = (times - least) / span, (truth - least) / span
    error = float(((a - b) ** 2).sum())
    if penalty == 0.0:
        return error
    order = np.argsort(b, kind="stable")
    a, b = a[order], b[order]
    reversed_ = np.maximum(0.0, a[:, None] - a[None, :])
    return error + penalty * float(b.std()) * float(reversed_[b[:, None] < b[None, :]].sum())


def hill_climb(problem: Problem, penalty: float, search: Search | None = None) -> Answer:
    """Equation 3 by steepest hill climbing: of all steps of one constant up or down the best; else half the step."""
    search = search or Search()
    low, high = problem.bounds()
    x, step, spent = problem.x(problem.start), 0.3, 1
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
    def known(self) -> bool:
        """Whether both ends are near enough."""
        return self.low > math.exp(-WIDE) and self.high < math.exp(WIDE)


def profile(problem: Problem, answer: Answer, search: Search | None = None) -> dict[str, Interval]:
    """Intervals: each constant is moved away in steps while all others are fitted anew, until chi-square has risen."""
    kept = (search or Search()).kept
    noise = np.hypot(problem.deviations(), max(_spread(answer.residuals), answer.discrepancy))
    best = problem.x(answer.values)
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
                if rise > LIKELY:
                    share = (math.sqrt(LIKELY) - math.sqrt(before[1])) / (math.sqrt(rise) - math.sqrt(before[1]))
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
    problem: Problem, method: str, penalty: float = 0.0, search: Search | None = None
) -> tuple[Answer, dict[str, Interval], list[str]]:
    """Fits all constants that the rows depend on, and says by their profiles which the rows determine.

    Returns the answer, the intervals of what the rows determine, and the names of what they do not: of these some are
    known in combination with others (they are in the answer, near where they started), the others stay as they were.
    """
    jacobian = problem.jacobian(problem.x(problem.start))
    strength = np.sqrt(((jacobian / problem.deviations()[:, None]) ** 2).sum(axis=0))
    names = [n for n, size in zip(problem.names, strength, strict=True) if size * BELIEF > math.sqrt(LIKELY)]
    kept = problem.kept(names)
    search = search or Search()
    answer = fit(kept, method, penalty, search)
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
class Sweep:
    """Equation 3 at one lambda: errors of rows fitted on and of the groups left out, and pairs out of order."""

    multiple: float
    fitted: float
    left_out: float
    reversed_: float


def sweep(problem: Problem, groups: Sequence[str]) -> list[Sweep]:
    """Section C.1: lambda in multiples of sigma, each judged on whole groups that it was not fitted on."""
    found = []
    labels = np.array(groups)
    for multiple in LAMBDAS:
        inside, outside, turned = [], [], []
        for label in sorted(set(groups)):
            part = replace(problem, rows=np.flatnonzero(labels != label))
            values = hill_climb(part, multiple).values
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
