"""What is fitted, what was found, how far a search may go: what all methods of `calibrate.methods` share."""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

STEP = 1e-4


@dataclass(frozen=True)
class Chosen:
    """Equation 3's lambda."""

    penalty: float
    """Lambda, of times scaled to 0..1."""
    multiple: float
    """The same in multiples of sigma."""
    values: dict[str, float] = field(default_factory=dict)
    """Where the climbs that chose it ended."""


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
    chosen: Chosen | None = None
    """Equation 3's lambda, where the method has one (`identified`)."""


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
