"""Whether a claim holds: what was observed against what is expected."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windtunnel.experiments.spec import Claim, Point
    from windtunnel.results import Result


@dataclass(frozen=True)
class Verdict:
    """A claim and what became of it."""

    claim: str
    source: str
    expected: Any
    observed: Any
    holds: bool

    def record(self) -> dict[str, Any]:
        """As `experiments run --json` prints it."""
        return {
            "claim": self.claim,
            "source": self.source,
            "expected": self.expected,
            "observed": self.observed,
            "holds": self.holds,
        }


class Results:
    """The runs of an experiment, found by where they lie: `results.at(algorithm="ring", case="small")`."""

    def __init__(self, runs: list[tuple[Point, Result]]) -> None:
        self._runs = runs

    def __iter__(self) -> Any:  # noqa: ANN401
        """Pairs of place (scenario, case, values of axes) and result, in the order they were run."""
        return iter([(point.place, result) for point, result in self._runs])

    def at(self, **place: Any) -> Result:  # noqa: ANN401
        """The one run at `place`. Raises `InputError` if there is none or more than one."""
        found = [result for point, result in self._runs if place.items() <= point.place.items()]
        if len(found) != 1:
            places = "; ".join(_place_text(point.place) for point, _ in self._runs)
            where = _place_text(place) or "no given place"
            raise InputError(f"{len(found)} runs at {where}, expected one\n\nhint: there are {places}")
        return found[0]

    def figure(self, path: str, place: Mapping[str, Any]) -> float | None:
        """The figure at `path` of the summary of the run at `place`."""
        value = lookup(self.at(**place).summary, path)
        if value is not None and not isinstance(value, (int, float, str)):
            raise InputError(f"`{path}` is not one figure but `{type(value).__name__}`")
        return value  # type: ignore[return-value]


def lookup(summary: Any, path: str) -> Any:  # noqa: ANN401
    """The value at a path such as `jobs[0].exposed_s.dp`."""
    value = summary
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        try:
            value = value[int(index)] if index else value[name]
        except (KeyError, IndexError, TypeError):
            known = ", ".join(f"`{k}`" for k in value) if isinstance(value, dict) else "no such place"
            raise InputError(f"the summary has no `{path}`: `{name or index}` is not there\n\nhint: {known}") from None
    return value


def judge(claim: Claim, results: Results, observed: Mapping[str, Any]) -> Verdict:
    """Checks `claim`; `observed` holds what `observe()` returned."""

    def value(place: Mapping[str, Any]) -> Any:  # noqa: ANN401
        if claim.observe in observed:
            return observed[claim.observe]
        return results.figure(claim.observe, place)

    expected = claim.expected
    if isinstance(expected, dict) and "order" in expected:
        figures = [value({**claim.at, **place}) for place in expected["order"]]
        slack = [_slack(claim, a) for a in figures[:-1]]
        known = all(f is not None for f in figures)
        holds = known and all(a < b + s for a, b, s in zip(figures, figures[1:], slack, strict=False))
        order = " < ".join(_place_text(place) for place in expected["order"])
        return Verdict(claim.claim, claim.source, order, figures, holds)
    found = value(claim.at)
    if claim.over is not None and found is not None:
        below = value({**claim.at, **claim.over})
        found = found / below if below else None
    return Verdict(claim.claim, claim.source, expected, found, _fits(claim, found))


def _fits(claim: Claim, found: Any) -> bool:  # noqa: ANN401
    expected = claim.expected
    if found is None:
        return False
    if isinstance(expected, dict):
        low, high = expected.get("min"), expected.get("max")
        above = low is None or found >= low - _slack(claim, low)
        return above and (high is None or found <= high + _slack(claim, high))
    if isinstance(expected, (int, float)) and not isinstance(expected, bool):
        return bool(abs(found - expected) <= _slack(claim, expected))
    return bool(found == expected)


def _slack(claim: Claim, of: float | None) -> float:
    return claim.tolerance * abs(of or 0.0) if claim.relative else claim.tolerance


def _place_text(place: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in place.items() if value not in ("", "scenario"))
