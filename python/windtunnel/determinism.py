"""Whether two runs found the same: every figure of the summary but those of the machine, every row of every table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from windtunnel.results import Result

MACHINE_KEYS = frozenset({"wall_time_s", "cpu_time_s", "peak_memory_bytes", "peak_rss_bytes"})
"""Keys of the summary that tell of the machine and not of the run."""


def first_difference(one: Result, other: Result) -> str | None:
    """The first difference between two runs, in words, or None. Tables come first: their rows name an instant."""
    if one.tables != other.tables:
        return f"tables {one.tables} and {other.tables}"
    for name in one.tables:
        if difference := table_difference(name, one.table(name), other.table(name)):
            return difference
    return summary_difference(one.summary, other.summary)


def table_difference(name: str, one: pl.DataFrame, other: pl.DataFrame) -> str | None:
    """The first row in which two tables differ, with the columns that do."""
    if one.schema != other.schema:
        return f"table `{name}`: columns {one.schema} and {other.schema}"
    if one.equals(other, null_equal=True):
        return None
    rows = min(one.height, other.height)
    differs = pl.Series([False] * rows)
    for column in one.columns:
        differs |= one[column].head(rows).ne_missing(other[column].head(rows))
    row = differs.arg_max() if differs.any() else rows
    if row is None or row == rows:
        return f"table `{name}`: {one.height} and {other.height} rows"
    left, right = one.row(row, named=True), other.row(row, named=True)
    pairs = [f"{key} {left[key]!r} and {right[key]!r}" for key in left if left[key] != right[key]]
    return f"table `{name}`, row {row}: {', '.join(pairs)}"


def summary_difference(one: Any, other: Any, path: str = "") -> str | None:  # noqa: ANN401
    """The first key at which two summaries differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        if list(one) != list(other):
            return f"summary{path}: keys {list(one)} and {list(other)}"
        items: list[tuple[str, Any, Any]] = [
            (f"{path}.{key}", one[key], other[key]) for key in one if path or key not in MACHINE_KEYS
        ]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        items = [(f"{path}[{i}]", a, b) for i, (a, b) in enumerate(zip(one, other, strict=True))]
    else:
        return None if one == other else f"summary{path}: {one!r} and {other!r}"
    for place, a, b in items:
        if difference := summary_difference(a, b, place):
            return difference
    return None
