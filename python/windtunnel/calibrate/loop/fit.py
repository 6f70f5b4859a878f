"""A set fitted on all that a ledger holds: what its measurements tell, judged on groups left out.

Classes that share no constant (collectives, a class of flows, a job) are fitted one after the other. What is found is
written down as it is found, so that a fit that was killed goes on.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import MutableMapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import windtunnel
from windtunnel.calibrate.loop.effects import class_of
from windtunnel.calibrate.loop.models import NCCL
from windtunnel.calibrate.methods import Interval, fit, identified
from windtunnel.calibrate.nccl import OVER
from windtunnel.calibrate.problem import Problem, Search
from windtunnel.engine import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from windtunnel.calibrate.loop.ledger import Ledger, Set
    from windtunnel.calibrate.loop.models import Models

FACTOR = 4.0
"""Physical bounds: no constant is further than this from where it starts, and no share is above one by much."""
FLOOR = 2e-3
"""Least noise that is believed of a median."""
EVALUATIONS = 40_000
"""Sets that the searches of one command may have predicted, all fits together."""


@dataclass
class Fitted:
    """What was found."""

    proposed: Set
    values: dict[str, float] = field(default_factory=dict)
    """Constants as they were fitted, those among them that the measurements cannot tell."""
    intervals: dict[str, Interval] = field(default_factory=dict)
    """Of constants that are known by themselves, determined or as far as the interval says: these are proposed."""
    unknown: list[str] = field(default_factory=list)
    """Constants that the measurements cannot tell: known in combination with others, or not at all."""
    discrepancy: float = 0.0
    reached: dict[str, str] = field(default_factory=dict)
    """Where a search stood when its budget was spent, by class."""
    multiples: dict[str, float] = field(default_factory=dict)
    """Equation 3's lambda by class, in multiples of sigma, where the method has one."""
    before: float = math.nan
    after: float = math.nan
    """Median error of all kinds by the set before, and by the proposed one."""
    together: float = math.nan
    """The same by all constants as they were fitted, also those that the proposed set leaves where they were."""
    left_out: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of each group: median error of its kinds by the set before, and by a fit that has not seen the group."""


def group_of(kind: Sequence[Any]) -> str:
    """The group of a kind that is left out as a whole: a collective's scale, a class of transfers, a job."""
    if kind[0] == "collective":
        return f"{kind[3] * kind[4]} ranks on {kind[3]}"
    return class_of(kind)


def problems_of(ledger: Ledger, models: Models) -> dict[str, tuple[Problem, list[list[Any]]]]:
    """The problem that a ledger's measurements pose of each class, and its rows' kinds: each once, by its median."""
    current = ledger.current()
    times: defaultdict[str, list[float]] = defaultdict(list)
    for kind, seconds in ledger.db.execute("select kind, seconds from measurements order by id"):
        times[kind].append(seconds)
    if current is None or not times:
        raise InputError(f"{ledger.folder}: no measurements to fit on")
    spreads = [float(np.std(np.log(values))) for values in times.values() if len(values) > 1]
    usual = float(np.median(spreads)) if spreads else 0.02
    classes: defaultdict[str, list[str]] = defaultdict(list)
    for key in times:
        classes[class_of(json.loads(key))].append(key)
    return {
        name: _problem(models, current.constants, {key: times[key] for key in keys}, usual)
        for name, keys in sorted(classes.items())
    }


def _problem(
    models: Models, constants: Mapping[str, float], times: Mapping[str, Sequence[float]], usual: float
) -> tuple[Problem, list[list[Any]]]:
    kinds = [json.loads(kind) for kind in times]
    measured = np.array([float(np.median(values)) for values in times.values()])
    noise = np.array([max(FLOOR, usual / math.sqrt(len(values))) for values in times.values()])
    start = {name: value for name, value in constants.items() if value > 0 and models.concerns(kinds[0], name)}
    high = {n: min(v * FACTOR, max(OVER, v)) if _is_share(n) else v * FACTOR for n, v in start.items()}

    def predict(sets: Sequence[Mapping[str, float]]) -> np.ndarray:
        return np.array(models.times(kinds, [{**constants, **one} for one in sets]))

    low = {name: value / FACTOR for name, value in start.items()}
    return Problem(start, low, high, measured, predict, noise), kinds


def _is_share(name: str) -> bool:
    return name.startswith((f"{NCCL}share_", f"{NCCL}exchange_", "pace."))


class _Steps(MutableMapping[str, Any]):
    """What a fit has found so far, in the ledger, under a name that says all that it depends on."""

    def __init__(self, ledger: Ledger, *of: object) -> None:
        self._db = ledger.db
        self._of = hashlib.sha256(json.dumps([windtunnel.__version__, *of]).encode()).hexdigest()[:16]

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401
        row = self._db.execute("select value from steps where key = ?", (f"{self._of} {key}",)).fetchone()
        if row is None:
            raise KeyError(key)
        return json.loads(row[0])

    def __setitem__(self, key: str, value: object) -> None:
        self._db.execute("insert or replace into steps values (?, ?)", (f"{self._of} {key}", json.dumps(value)))

    def __delitem__(self, key: str) -> None:
        self._db.execute("delete from steps where key = ?", (f"{self._of} {key}",))

    def __iter__(self) -> Iterator[str]:
        rows = self._db.execute("select key from steps where key like ?", (f"{self._of} %",)).fetchall()
        return (key.removeprefix(f"{self._of} ") for (key,) in rows)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def calibrate(
    ledger: Ledger, models: Models, method: str, multiple: float | None, evaluations: int = EVALUATIONS
) -> Fitted:
    """Fits by `method` what the measurements tell, and proposes the set; nothing is adopted.

    `multiple` is equation 3's lambda in multiples of sigma; None for the one that section C.1 chooses of each class.
    A constant that is known only in combination keeps its value in the proposed set: no figure of it was measured.
    """
    current = ledger.current()
    problems = problems_of(ledger, models)
    assert current is not None  # noqa: S101 - the problems have found one
    groups = {name: [group_of(kind) for kind in kinds] for name, (_, kinds) in problems.items()}
    fits = sum(1 + (len(set(labels)) if len(set(labels)) > 1 else 0) for labels in groups.values())
    found = Fitted(current)
    rows: list[tuple[np.ndarray, ...]] = []
    for name, (problem, kinds) in problems.items():
        of = (method, multiple, evaluations, current.id, kinds, problem.measured.tolist())
        search = Search(max(1, evaluations // fits), _Steps(ledger, *of))
        rows.append(_class(found, name, problem, groups[name], method, multiple, search))
    first, last, fitted = (np.concatenate(part) for part in zip(*rows, strict=True))
    found.before, found.after, found.together = (float(np.median(part)) for part in (first, last, fitted))
    found.unknown += [name for name in current.constants if name not in {*found.intervals, *found.unknown}]
    found.unknown = [name for name in found.unknown if not name.startswith("first.")]
    count = int(ledger.one("select count(*) from measurements"))
    told = [f"{name} {interval.words}" for name, interval in sorted(found.intervals.items())]
    why = (
        f"fitted by {method} on {len(first)} kinds of {count} measurements: {', '.join(told) or 'nothing known'}, "
        f"all else as it was; median error {found.before:.1%}, with them {found.after:.1%}"
    )
    known = {name: found.values[name] for name in found.intervals}
    with ledger.transaction():
        found.proposed = ledger.add(current.system, {**current.constants, **known}, why, current.id)
        ledger.db.execute("delete from steps")
    return found


def _class(
    found: Fitted,
    name: str,
    problem: Problem,
    labels: Sequence[str],
    method: str,
    multiple: float | None,
    search: Search,
) -> tuple[np.ndarray, ...]:
    """Fits a class into `found`. Errors of its rows: before, by what is known, and by all that was fitted."""
    answer, intervals, unknown = identified(problem, method, multiple, search.part("all"))
    penalty = 0.0
    if answer.chosen is not None and method in {"hill", "cma"}:
        penalty = answer.chosen.penalty
        found.multiples[name] = answer.chosen.multiple
    found.values |= answer.values
    found.intervals |= intervals
    found.unknown += unknown
    found.discrepancy = max(found.discrepancy, answer.discrepancy)
    if answer.reached is not None:
        found.reached[name] = answer.reached
    known = {one: answer.values[one] for one in intervals}
    off = np.abs(problem.predict([{}, known, answer.values]) / problem.measured - 1)
    groups = np.array(labels)
    if len(set(labels)) > 1:
        kept = problem.kept(list(answer.values))
        for group in sorted(set(labels)):
            inside = groups == group
            part = replace(kept, rows=np.flatnonzero(~inside))
            step = search.part(f"without {group}")
            if "values" not in step.kept:
                step.kept["values"] = fit(part, method, penalty, step).values
            # Judged as it would be adopted: what is known only in combination stays where it was.
            unseen = {one: value for one, value in step.kept["values"].items() if one in intervals}
            error = np.abs(problem.predict([unseen])[0] / problem.measured - 1)
            found.left_out[group] = (float(np.median(off[0][inside])), float(np.median(error[inside])))
    return tuple(off)
