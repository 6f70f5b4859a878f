"""Following: more seeds for each combination until its interval is narrow enough."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from windtunnel.engine import InputError
from windtunnel.studies.rows import are_alike, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from windtunnel.studies.point import Outcome, Point
    from windtunnel.studies.rows import Row


def follow_width(text: str) -> float:
    """`2%` or `0.02` as a share of the mean."""
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*(%?)\s*", text)
    width = 0.0 if found is None else float(found[1]) / (100 if found[2] else 1)
    if not 0 < width < 1:
        raise InputError(f"--follow: expected a share of the mean such as `2%`, found `{text}`")
    return width


def followed(
    points: Sequence[Point],
    outcomes: Sequence[Outcome],
    metric: str,
    width: float,
    most: int,
    run: Callable[[Sequence[Point]], Iterator[Outcome]],
) -> tuple[list[Point], list[Outcome]]:
    """Points and outcomes with seeds added to combinations whose half interval is above `width` times the mean.

    Each gets half as many again as it has, until it is narrow enough or has `most`. Those that were refused or failed
    get none.
    """
    groups = _groups(points, outcomes)
    while True:
        wanted = [(group, point) for group in groups if _is_wide(group, metric, width) for point in _more(group, most)]
        if not wanted:
            break
        for (group, point), outcome in zip(wanted, run([point for _, point in wanted]), strict=True):
            group.append((point, outcome))
    every = [one for group in groups for one in group]
    return [point for point, _ in every], [outcome for _, outcome in every]


_Group = list[tuple["Point", "Outcome"]]


def _groups(points: Sequence[Point], outcomes: Sequence[Outcome]) -> list[_Group]:
    """Neighbours of one combination."""
    found: list[_Group] = []
    for point, outcome in zip(points, outcomes, strict=True):
        if found and are_alike(found[-1][0][0], point):
            found[-1].append((point, outcome))
        else:
            found.append([(point, outcome)])
    return found


def _is_wide(group: _Group, metric: str, width: float) -> bool:
    if any(outcome.summary is None for _, outcome in group):
        return False
    (row,) = rows([point for point, _ in group], [outcome for _, outcome in group], [metric])
    return is_wide(row, metric, width)


def is_wide(row: Row, metric: str, width: float) -> bool:
    """Whether half a row's interval is above `width` times its mean; of one run it has none."""
    mean, half = row.means[metric], row.halves[metric]
    return mean is not None and half is not None and half > width * abs(mean)


def _more(group: _Group, most: int) -> list[Point]:
    last = max(point.seed or 0 for point, _ in group)
    count = min(max(1, len(group) // 2), most - len(group))
    return [replace(group[0][0], seed=last + 1 + i) for i in range(count)]
