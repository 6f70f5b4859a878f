"""Keys of a scenario fitted on measurements, by runs through the one runner."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from windtunnel.calibrate.methods import by_runs, fit, identified
from windtunnel.calibrate.problem import Problem
from windtunnel.engine import InputError
from windtunnel.source import read_source, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

WRITTEN = re.compile(r"(?P<key>[^=]+)=(?P<low>[0-9.eE+-]+)\.\.(?P<high>[0-9.eE+-]+)\s*(?P<unit>[A-Za-z/]*)")
NOISE = 0.01
"""Relative noise of a measurement that says none."""
STEP = 0.02
"""Runs tell times to the nanosecond: smaller steps of a key are lost in that."""


@dataclass(frozen=True)
class Fitted:
    """What was found: values in `units`, their intervals where the rows determine them, and errors."""

    values: Mapping[str, float]
    units: Mapping[str, str]
    intervals: Mapping[str, tuple[float, float]]
    rows: int
    before: float
    after: float
    left_out: Mapping[str, float]


def calibrate(scenario: Path, table: Path, constants: Sequence[str], metric: str, method: str, store: Path) -> Fitted:
    """Fits `constants` (`KEY=FROM..TO UNIT`) on the rows of `table`. Raises `InputError` with the place of an error."""
    bounds: dict[str, tuple[float, float]] = {}
    units: dict[str, str] = {}
    for text in constants:
        found = WRITTEN.fullmatch(text.strip())
        if found is None or not 0 < float(found["low"]) < float(found["high"]):
            raise InputError(
                f"--constant: expected KEY=FROM..TO UNIT with 0 < FROM < TO, found `{text}`\n\n"
                "hint: for example `topology.host.overhead=0.5..5 us`"
            )
        bounds[found["key"]] = (float(found["low"]), float(found["high"]))
        units[found["key"]] = found["unit"]
    cases, measured, groups = _rows(table)
    start = {key: math.sqrt(low * high) for key, (low, high) in bounds.items()}
    problem = Problem(
        start,
        {key: low for key, (low, _) in bounds.items()},
        {key: high for key, (_, high) in bounds.items()},
        np.array(measured),
        by_runs(read_source(scenario), cases, metric, units, store),
        np.full(len(measured), NOISE),
        step=STEP,
    )
    answer, intervals, _ = identified(problem, method)
    labels = np.array(groups)
    left_out = {}
    if len(set(groups)) > 1:
        for group in sorted(set(groups)):
            part = replace(problem, rows=np.flatnonzero(labels != group))
            left_out[group] = _median(problem, fit(part, method).values, labels == group)
    every = np.ones(len(measured), bool)
    values = {**start, **answer.values}
    return Fitted(
        values,
        units,
        {name: (values[name] * one.low, values[name] * one.high) for name, one in intervals.items()},
        len(measured),
        _median(problem, start, every),
        _median(problem, values, every),
        left_out,
    )


def _rows(table: Path) -> tuple[list[dict[str, object]], list[float], list[str]]:
    reader = csv.DictReader(io.StringIO(read_text(table)))
    if "measured" not in (reader.fieldnames or []):
        raise InputError(f"{table}:1: column `measured` is missing")
    cases: list[dict[str, object]] = []
    measured: list[float] = []
    groups: list[str] = []
    for row in reader:
        try:
            value = float(row["measured"])
        except (TypeError, ValueError):
            value = math.nan
        if not value > 0 or None in row.values():
            raise InputError(
                f"{table}:{reader.line_num}: `measured`: expected a positive number, found `{row['measured']}`"
            )
        measured.append(value)
        groups.append(str(row.get("group") or ""))
        cases.append({key: text for key, text in row.items() if key not in {"measured", "group"}})
    if not cases:
        raise InputError(f"{table}: no row is in it")
    return cases, measured, groups


def _median(problem: Problem, values: Mapping[str, float], rows: np.ndarray) -> float:
    (times,) = problem.predict([values])
    return float(np.median(np.abs(times[rows] / problem.measured[rows] - 1)))
