"""A set fitted on all that a ledger holds: what its measurements determine, judged on groups left out."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.calibrate.loop.models import NCCL
from windtunnel.calibrate.methods import Answer, Interval, Problem, fit, identified
from windtunnel.calibrate.nccl import OVER
from windtunnel.engine import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windtunnel.calibrate.loop.ledger import Ledger, Set
    from windtunnel.calibrate.loop.models import Models

FACTOR = 4.0
"""Physical bounds: no constant is further than this from where it starts, and no share is above one by much."""
FLOOR = 2e-3
"""Least noise that is believed of a median."""


@dataclass(frozen=True)
class Fitted:
    """What was found."""

    proposed: Set
    answer: Answer
    intervals: Mapping[str, Interval]
    unknown: Sequence[str]
    """Constants that the measurements cannot tell: known in combination with others, or not at all."""
    before: float
    after: float
    """Median error of all kinds by the set before, and by the fitted one."""
    left_out: Mapping[str, tuple[float, float]]
    """Of each group: median error of its kinds by the set before, and by a fit that has not seen the group."""


def group_of(kind: Sequence[Any]) -> str:
    """The group of a kind that is left out as a whole: a collective's scale, a class of transfers, a job."""
    if kind[0] == "collective":
        return f"{kind[3] * kind[4]} ranks on {kind[3]}"
    return f"{kind[0]} {kind[1]}"


def problem_of(ledger: Ledger, models: Models) -> tuple[Problem, list[list[Any]]]:
    """The problem that a ledger's measurements pose, and its rows' kinds: each kind once, by its median."""
    current = ledger.current()
    times: defaultdict[str, list[float]] = defaultdict(list)
    for kind, seconds in ledger.db.execute("select kind, seconds from measurements order by id"):
        times[kind].append(seconds)
    kinds = [json.loads(kind) for kind in times]
    if current is None or not kinds:
        raise InputError(f"{ledger.folder}: no measurements to fit on")
    set_ = current
    measured = np.array([float(np.median(values)) for values in times.values()])
    spreads = [float(np.std(np.log(values))) for values in times.values() if len(values) > 1]
    usual = float(np.median(spreads)) if spreads else 0.02
    noise = np.array([max(FLOOR, usual / math.sqrt(len(values))) for values in times.values()])
    start = {name: value for name, value in set_.constants.items() if value > 0 and not name.startswith("first.")}
    high = {n: min(v * FACTOR, max(OVER, v)) if _is_share(n) else v * FACTOR for n, v in start.items()}

    def predict(sets: Sequence[Mapping[str, float]]) -> np.ndarray:
        return np.array(models.times(kinds, [{**set_.constants, **one} for one in sets]))

    low = {name: value / FACTOR for name, value in start.items()}
    return Problem(start, low, high, measured, predict, noise), kinds


def _is_share(name: str) -> bool:
    return name.startswith((f"{NCCL}share_", f"{NCCL}exchange_", "pace."))


def calibrate(ledger: Ledger, models: Models, method: str, penalty: float) -> Fitted:
    """Fits by `method` what the measurements determine, and proposes the set; nothing is adopted."""
    problem, kinds = problem_of(ledger, models)
    current = ledger.current()
    assert current is not None  # noqa: S101 - the problem has found one
    answer, intervals, unknown = identified(problem, method, penalty)
    groups = np.array([group_of(kind) for kind in kinds])
    (first,) = problem.predict([{}])
    (last,) = problem.predict([answer.values])
    left_out = {}
    if len(set(groups)) > 1:
        kept = problem.kept(list(answer.values))
        for group in sorted(set(groups)):
            inside = groups == group
            part = replace(kept, rows=np.flatnonzero(~inside))
            (unseen,) = problem.predict([fit(part, method, penalty).values])
            left_out[str(group)] = (_median(first, problem, inside), _median(unseen, problem, inside))
    every = np.ones(len(kinds), bool)
    before, after = _median(first, problem, every), _median(last, problem, every)
    count = int(ledger.one("select count(*) from measurements"))
    why = (
        f"fitted by {method} on {len(kinds)} kinds of {count} measurements: {', '.join(intervals) or 'nothing'} "
        f"determined; median error {before:.1%}, fitted {after:.1%}"
    )
    with ledger.transaction():
        proposed = ledger.add(current.system, {**current.constants, **answer.values}, why, current.id)
    return Fitted(proposed, answer, intervals, unknown, before, after, left_out)


def _median(times: np.ndarray, problem: Problem, rows: np.ndarray) -> float:
    return float(np.median(np.abs(times[rows] / problem.measured[rows] - 1)))
