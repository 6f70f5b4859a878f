"""Steps in the constants of NCCL's model, in streams of nccl-tests that are made up, through the watch's detector.

    plan = Plan.of("polaris", ("all_reduce", "all_gather"), hosts=(2, 4, 8), sizes=SIZES, noise=measured)
    found = plan.steps(seeds=(1, 2, 3), trials=4, rows=False)

A measurement is a whole log, one of the plan's drawn evenly, or (`rows`) one row of them. Each kind is off by a share
of its own, as a model is, and has its own noise, of which rows of a log may have a part in common. What came of a step
is judged against two figures that know the truth: the bound of `calibrate.loop.seen`, and which constants the best test
can tell from the one that moved.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from windtunnel.calibrate.loop.drift import PATIENCE, STEP, TELLS, Detector, groups, strongest
from windtunnel.calibrate.loop.effects import band_of
from windtunnel.calibrate.loop.models import NCCL, Models
from windtunnel.calibrate.loop.seen import WITHIN, bound
from windtunnel.validate.systems import read_systems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from windtunnel.calibrate.loop.drift import Alarm

OFF = 0.1
"""Standard deviation of what a kind is off by from the start."""
LEARNT = 60
"""Measurements of each kind before a step."""
DRAWS = 2000
"""Draws of the logs of a window for the bound."""


@dataclass(frozen=True)
class Found:
    """What came of one step."""

    constant: str
    seed: int
    within: float
    """The bound: the probability that any detector finds it within `WITHIN`."""
    after: int | None
    """Measurements until it was found, be it without a name yet; none where that took more than `WITHIN`."""
    named: bool
    """Whether it was named, and beside it only what the best test cannot tell from it by `WITHIN` measurements."""
    among: bool
    """Whether it was named, alone or among others."""
    names: int
    """Constants that were named."""


class Plan:
    """Logs that are taken again and again."""

    def __init__(
        self, names: Sequence[str], effects: np.ndarray, logs: Sequence[np.ndarray], noise: np.ndarray
    ) -> None:
        self.names, self.effects, self.logs, self.noise = list(names), effects, list(logs), noise
        self.bands = [""] * len(effects)
        found, _ = groups({name: effects[:, at].tolist() for at, name in enumerate(self.names)})
        columns = {group: self.names.index(strongest(group)) for group in found}
        self.by_group = [
            {group: float(row[at]) for group, at in columns.items() if abs(row[at]) > 1e-6} for row in effects
        ]

    @classmethod
    def of(
        cls,
        system: str,
        operations: Sequence[str],
        hosts: Sequence[int],
        sizes: Sequence[int],
        noise: Callable[[int], float],
        per_host: int = 4,
    ) -> Plan:
        """Logs of each operation on each number of hosts; `noise` is relative, of a row of so many bytes."""
        models = Models(read_systems(None)[system])
        kinds = [
            ("collective", what, size, count, per_host) for what in operations for count in hosts for size in sizes
        ]
        names, effects = models.derivatives(kinds, models.first())
        logs = np.split(np.arange(len(kinds)), len(kinds) // len(sizes))
        plan = cls([name.removeprefix(NCCL) for name in names], effects, logs, np.array([noise(k[2]) for k in kinds]))
        plan.bands = [band_of(kind) for kind in kinds]
        return plan

    def moves(self) -> np.ndarray:
        """By how many standard deviations a step moves each row, by constant."""
        moves: np.ndarray = STEP * self.effects / self.noise[:, None]
        return moves

    def within(self, *, rows: bool) -> np.ndarray:
        """The bound of each constant: over draws of the measurements of a window."""
        information = self.moves() ** 2
        each = information if rows else np.array([information[log].sum(axis=0) for log in self.logs])
        draws = np.random.default_rng(0).integers(len(each), size=(DRAWS, WITHIN))
        deviations = np.sqrt(each[draws].sum(axis=1))
        return np.array([np.mean([bound(float(z)) for z in column]) for column in deviations.T])

    def alike(self, *, rows: bool) -> list[frozenset[str]]:
        """Of each constant, those that the best test cannot tell from it by `WITHIN` measurements of the mean kind."""
        moves = self.moves() * np.sqrt(WITHIN / (len(self.effects) if rows else len(self.logs)))
        products = moves.T @ moves
        own = np.diag(products)
        left = own[:, None] - products**2 / np.maximum(own[None, :], 1e-12)
        return [frozenset(n for n, d in zip(self.names, row, strict=True) if d < TELLS**2) for row in left]

    def stream(self, draws: np.random.Generator, *, rows: bool, shared: float = 0.0) -> _Stream:
        """Measurements without an end."""
        return _Stream(self, draws, rows=rows, shared=shared)

    def steps(self, seeds: Sequence[int], trials: int, *, rows: bool, shared: float = 0.0) -> list[Found]:
        """A step of `STEP` upwards and downwards in each constant in turn, `trials` times by seed."""
        bounds, alike = self.within(rows=rows), self.alike(rows=rows)
        found = []
        for seed in seeds:
            stream = self.stream(np.random.default_rng(seed), rows=rows, shared=shared)
            learnt = json.dumps(stream.learnt().record())
            for at, name in enumerate(self.names):
                for trial in range(trials):
                    if not self.effects[:, at].any():
                        found.append(Found(name, seed, float(bounds[at]), None, named=False, among=False, names=0))
                        continue
                    step = STEP if trial % 2 == 0 else -STEP
                    after, alarm = stream.until(Detector.of(json.loads(learnt)), at, step)
                    named = alarm.name.split(" | ") if alarm is not None else []
                    found.append(
                        Found(
                            name, seed, float(bounds[at]), after,
                            named=name in named and {*named} <= {name, *alike[at]}, among=name in named,
                            names=len(named),
                        )
                    )  # fmt: skip
        return found

    def false_alarms(self, seed: int, count: int, *, rows: bool, shared: float = 0.0) -> int:
        """False finds of a detector that begins with nothing, named or not, in `count` measurements."""
        stream = self.stream(np.random.default_rng(seed), rows=rows, shared=shared)
        detector = stream.learnt(16)
        found = 0
        for _ in range(count):
            suspected = bool(detector.suspects)
            alarm = stream.tell(detector)
            found += not suspected and (alarm is not None or bool(detector.suspects))
        return found


class _Stream:
    def __init__(self, plan: Plan, draws: np.random.Generator, *, rows: bool, shared: float) -> None:
        self._plan, self._draws, self._rows, self._shared = plan, draws, rows, shared
        self._base = draws.normal(0.0, OFF, len(plan.effects))
        self._told = 0

    def _measured(self, moved: np.ndarray | None) -> Iterator[tuple[int, float]]:
        plan, draws = self._plan, self._draws
        kinds = (
            [int(draws.integers(len(plan.effects)))] if self._rows else plan.logs[int(draws.integers(len(plan.logs)))]
        )
        common: dict[str, float] = {}
        for kind in kinds:
            together = common.setdefault(plan.bands[kind], draws.standard_normal())
            off = np.sqrt(self._shared) * together + np.sqrt(1 - self._shared) * draws.standard_normal()
            yield int(kind), self._base[kind] + plan.noise[kind] * off + (0.0 if moved is None else moved[kind])

    def tell(self, detector: Detector, moved: np.ndarray | None = None) -> Alarm | None:
        """Tells a detector one measurement; its first alarm."""
        detector.asks(lambda kind: (self._plan.bands[int(kind)], self._plan.by_group[int(kind)]))
        self._told += 1
        log = None if self._rows else str(self._told)
        first = None
        for kind, residual in self._measured(moved):
            alarm = detector.hear(str(kind), residual, self._plan.by_group[kind], log, self._plan.bands[kind])
            first = first or alarm
        return first or detector.end()

    def learnt(self, each: int = LEARNT) -> Detector:
        """A detector that has heard each kind about so often."""
        detector = Detector()
        for _ in range(each * len(self._plan.effects if self._rows else self._plan.logs)):
            self.tell(detector)
        return detector

    def until(self, detector: Detector, constant: int, step: float) -> tuple[int | None, Alarm | None]:
        """Measurements until a step is found, none if it is not within `WITHIN`; and the alarm that names it."""
        moved = step * self._plan.effects[:, constant]
        noticed = None
        for count in range(1, WITHIN + 2 * PATIENCE + 1):
            alarm = self.tell(detector, moved)
            if noticed is None and (alarm is not None or detector.suspects):
                noticed = count
            if alarm is not None or (noticed is None and count >= WITHIN):
                return noticed, alarm
        return noticed, None
