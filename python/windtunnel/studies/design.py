"""Designs: which combinations of values are run.

An axis has values; a grid takes every combination, a list the cases as they stand, and `random`, `sobol` and
`latin-hypercube` draw a number of points that fill the space evenly. The order of the points is a function of the
design alone.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from windtunnel.engine import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LARGEST = 1_000_000
"""Points of a design, at most."""

Kind = Literal["grid", "list", "random", "sobol", "latin-hypercube"]

KINDS: tuple[Kind, ...] = ("grid", "list", "random", "sobol", "latin-hypercube")

DRAWING: tuple[Kind, ...] = ("random", "sobol", "latin-hypercube")
"""Those that draw a number of points, of which some may be equal."""

Values = dict[str, Any]
"""Key of the scenario → its value at a point."""

_QUANTITY = re.compile(r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*([^\s\d.].*?)?\s*")
"""A number and its unit, if it has one."""


@dataclass(frozen=True)
class Span:
    """A range: from `low` to `high` in `unit`, evenly or by equal factors."""

    low: float
    high: float
    unit: str | None
    log: bool
    whole: bool

    def at(self, share: float) -> Any:  # noqa: ANN401
        """The value so far along, from 0 to 1."""
        if self.log:
            value = self.low * (self.high / self.low) ** share
        else:
            value = self.low + (self.high - self.low) * share
        number: float = round(value) if self.whole else float(f"{value:.12g}")
        return number if self.unit is None else f"{number:g} {self.unit}"


@dataclass(frozen=True)
class Axis:
    """A key of the scenario and the values it takes; keys that are zipped share an axis."""

    keys: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    """A row per value: one entry for each of `keys`."""
    span: Span | None = None
    """Where the values are a range, which designs that draw may also take between them."""


def axis(key: str, given: object, where: str) -> Axis:
    """An axis from what a study says of `key`: a list, or `{from, to, scale, points}`."""
    if isinstance(given, list):
        if not given:
            raise InputError(f"{where}: expected one value or more, found none")
        _check_values(given, where)
        return Axis((key,), tuple((value,) for value in given))
    if isinstance(given, dict):
        return _range_axis(key, given, where)
    raise InputError(f"{where}: expected a list of values or `{{from, to, scale, points}}`, found `{given}`")


def _check_values(given: list[Any], where: str) -> None:
    """Refuses what is no number, and a value that is there twice: its runs would count as further seeds."""
    seen: set[str] = set()
    for value in given:
        check_finite(value, where)
        text = text_of(value)
        if text in seen:
            hint = "`--seeds N` runs each point with more seeds"
            raise InputError(f"{where}: `{value}` is named twice\n\nhint: {hint}")
        seen.add(text)


def check_finite(value: object, where: str) -> None:
    """Refuses `inf` and `nan`, in lists and records too."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where}: expected finite values, found `{value}`")
    if isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            check_finite(inner, where)


def text_of(value: object) -> str:
    """A value as the scenario gets it: those with one text are one value."""
    return value.strip() if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def different(combinations: Iterable[Values]) -> list[Values]:
    """Combinations in their order, without those that were there before."""
    found: dict[tuple[tuple[str, str], ...], Values] = {}
    for values in combinations:
        found.setdefault(tuple((key, text_of(value)) for key, value in values.items()), values)
    return list(found.values())


def _range_axis(key: str, given: dict[str, Any], where: str) -> Axis:
    unknown = sorted(set(given) - {"from", "to", "scale", "points"})
    if unknown or not {"from", "to"} <= set(given):
        said = f"unknown key `{unknown[0]}`" if unknown else "`from` or `to` is missing"
        raise InputError(f"{where}: {said}, expected `{{from, to, scale, points}}`")
    scale = given.get("scale", "linear")
    if scale not in ("linear", "log"):
        raise InputError(f"{where}.scale: expected `linear` or `log`, found `{scale}`")
    span = _span(given["from"], given["to"], scale == "log", where)
    points = given.get("points")
    if points is None:
        points = _natural_points(span)
    if not isinstance(points, int) or isinstance(points, bool) or not 1 <= points <= LARGEST:
        raise InputError(f"{where}.points: expected a whole number from 1 to {LARGEST}, found `{points}`")
    shares = [i / (points - 1) for i in range(points)] if points > 1 else [0.0]
    values = list(dict.fromkeys(span.at(share) for share in shares))
    return Axis((key,), tuple((value,) for value in values), span)


def _natural_points(span: Span) -> int:
    """Every whole number, or a point for each doubling, or five."""
    if span.log:
        return round(math.log2(span.high / span.low)) + 1 if span.high > span.low else 1
    return int(span.high - span.low) + 1 if span.whole and span.unit is None else 5


def _span(low: object, high: object, log: bool, where: str) -> Span:
    ends = []
    for name, end in (("from", low), ("to", high)):
        if isinstance(end, bool) or not isinstance(end, int | float | str):
            raise InputError(f"{where}.{name}: expected a number or a quantity, found `{end}`")
        match = _QUANTITY.fullmatch(str(end))
        if match is None or not math.isfinite(float(match[1])):
            raise InputError(f"{where}.{name}: expected a number or a quantity such as `100 Gbps`, found `{end}`")
        ends.append((float(match[1]), match[2]))
    (first, unit), (last, other) = ends
    if unit != other:
        raise InputError(f"{where}: expected one unit at both ends, found `{low}` and `{high}`")
    if log and first <= 0:
        raise InputError(f"{where}: a logarithmic axis begins above 0, found `{low}`")
    if first > last:
        raise InputError(f"{where}: expected `from` at or below `to`, found `{low}` and `{high}`")
    if not math.isfinite(last / first if log else last - first):
        raise InputError(f"{where}: expected ends that are less far apart, found `{low}` and `{high}`")
    whole = first.is_integer() and last.is_integer() and "." not in f"{low}{high}"
    return Span(first, last, unit, log, whole)


def zipped(axes: Sequence[Axis], where: str) -> Axis:
    """One axis whose keys change together. All must have as many values."""
    counts = {len(a.values) for a in axes}
    if len(counts) != 1:
        said = ", ".join(f"{a.keys[0]} {len(a.values)}" for a in axes)
        raise InputError(f"{where}: zipped axes have equally many values, found {said}")
    rows = zip(*(a.values for a in axes), strict=True)
    return Axis(
        tuple(key for a in axes for key in a.keys), tuple(tuple(v for part in row for v in part) for row in rows)
    )


def points(kind: Kind, axes: Sequence[Axis], cases: Sequence[Values], count: int | None, seed: int) -> Iterator[Values]:
    """The points of a design, in order. Each of `cases` meets every point of the axes."""
    for case in cases or [{}]:
        for values in _of_axes(kind, axes, count, seed):
            yield {**case, **values}


def size(kind: Kind, axes: Sequence[Axis], cases: Sequence[Values], count: int | None) -> int:
    """How many points there will be."""
    each = math.prod(len(a.values) for a in axes) if kind in ("grid", "list") else (count or 0)
    return each * max(1, len(cases))


def _of_axes(kind: Kind, axes: Sequence[Axis], count: int | None, seed: int) -> Iterator[Values]:
    if kind in ("grid", "list") or not axes:
        for rows in itertools.product(*(a.values for a in axes)):
            yield _joined(axes, rows)
        return
    for shares in _drawn(kind, len(axes), count or 0, seed):
        yield _joined(axes, [_along(a, share) for a, share in zip(axes, shares, strict=True)])


def _joined(axes: Sequence[Axis], rows: Sequence[tuple[Any, ...]]) -> Values:
    return {key: value for a, row in zip(axes, rows, strict=True) for key, value in zip(a.keys, row, strict=True)}


def _along(a: Axis, share: float) -> tuple[Any, ...]:
    if a.span is not None:
        return (a.span.at(share),)
    return a.values[min(int(share * len(a.values)), len(a.values) - 1)]


def _drawn(kind: Kind, dimensions: int, count: int, seed: int) -> Iterator[Sequence[float]]:
    """Points of the unit cube."""
    if kind == "random":
        rng = random.Random(seed)  # noqa: S311
        for _ in range(count):
            yield [rng.random() for _ in range(dimensions)]
        return
    from scipy.stats import qmc

    if kind == "latin-hypercube":
        yield from qmc.LatinHypercube(dimensions, rng=seed).random(count).tolist()
        return
    sobol = qmc.Sobol(dimensions, scramble=True, rng=seed)
    yield from sobol.random_base2(max(0, math.ceil(math.log2(max(1, count)))))[:count].tolist()
