"""What a study gives: a row per combination, with its metrics over the seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from windtunnel.better import cost
from windtunnel.engine import InputError, nearest
from windtunnel.student import quantile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windtunnel.studies.point import Outcome, Point

DEFAULT_METRICS = ("jobs[0].iteration_time_s.mean",)


@dataclass(frozen=True)
class Row:
    """A combination: values of the varied keys, state, and each metric's mean and interval over the seeds."""

    varied: dict[str, Any]
    state: str
    """`done` if any seed was, else what the first one was."""
    message: str | None
    runs: int
    """Seeds that were done."""
    means: dict[str, float | None]
    halves: dict[str, float | None]
    """Half of the 95% interval by Student's t; None of fewer than two runs."""
    folder: str | None
    """Of the first seed."""


def metric(summary: dict[str, Any], path: str) -> float | None:
    """A figure of a summary by its path, such as `jobs[0].iteration_time_s.mean`.

    Raises `InputError` with the nearest path if there is none of that name.
    """
    names = dict(figures(summary))
    if path in names:
        return names[path]
    near = nearest(path, list(names))
    hint = f"\n\nhint: did you mean `{near}`?" if near else ""
    raise InputError(f"no figure of the summary is called `{path}`{hint}")


def figures(value: object, path: str = "") -> Iterator[tuple[str, float | None]]:
    """All numbers of a summary with their paths; nulls too."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from figures(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from figures(inner, f"{path}[{i}]")
    elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        yield path, None if value is None else float(value)


def are_alike(a: Point, b: Point) -> bool:
    """Whether two points differ in their seeds alone: by texts, as 1 and true are equal to Python."""
    return a.overrides == b.overrides and a.varied == b.varied


def rows(points: Sequence[Point], outcomes: Sequence[Outcome], metrics: Sequence[str]) -> list[Row]:
    """Rows in the order of the points; neighbours of one combination are one."""
    found: list[Row] = []
    start = 0
    for i in range(1, len(points) + 1):
        if i == len(points) or not are_alike(points[i], points[start]):
            found.append(_row(points[start], outcomes[start:i], metrics))
            start = i
    return found


def _row(point: Point, outcomes: Sequence[Outcome], metrics: Sequence[str]) -> Row:
    done = [outcome for outcome in outcomes if outcome.summary is not None]
    first = done[0] if done else outcomes[0]
    means: dict[str, float | None] = {}
    halves: dict[str, float | None] = {}
    for path in metrics:
        values = [metric(outcome.summary, path) for outcome in done if outcome.summary is not None]
        known = [value for value in values if value is not None]
        means[path] = fmean(known) if known else None
        halves[path] = (
            quantile(0.975, len(known) - 1) * stdev(known) / math.sqrt(len(known)) if len(known) > 1 else None
        )
    folder = None if first.folder is None else str(first.folder)
    return Row(point.varied, first.state, first.message, len(done), means, halves, folder)


def ranked(found: Sequence[Row], path: str) -> list[int]:
    """Indices of the rows that were done, the best by `path` first, those without it last."""

    def order(i: int) -> tuple[bool, float, int]:
        value = found[i].means.get(path)
        return value is None, cost(path, value or 0.0), i

    return sorted((i for i, row in enumerate(found) if row.state == "done"), key=order)


def best(found: Sequence[Row], path: str) -> int | None:
    """Index of the row with the best `path`, None if none has it."""
    first = next(iter(ranked(found, path)), None)
    return None if first is None or found[first].means.get(path) is None else first
