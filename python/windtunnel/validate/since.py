"""What moved since an earlier board: the gate of releases.

A board's folder of rows, or a file of pinned rows (`table,id,predicted`), is compared with what is predicted now.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from windtunnel.validate.board import Board
    from windtunnel.validate.rows import Row

LIMIT = 0.01
"""A prediction has moved if it changed by more than this."""
PINNED = 500
"""Rows of a file of pinned rows, evenly over the tables."""
MOST_GPUS = 64
"""Jobs of more are not pinned: the gate is to end in a minute."""


@dataclass(frozen=True)
class Moved:
    """A row whose prediction changed."""

    id: str
    before: float
    now: float
    measured: float

    @property
    def change(self) -> float:
        """Relative change of the prediction."""
        return self.now / self.before - 1

    def record(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {
            "id": self.id,
            "before": self.before,
            "now": self.now,
            "change": self.change,
            "error_before": self.before / self.measured - 1,
            "error": self.now / self.measured - 1,
        }


def before(path: Path) -> dict[str, dict[str, float]]:
    """Predictions by table and row, of a folder that `windtunnel validate --out` wrote or of a file of pinned rows.

    Raises `InputError` with file and line where a row is none, or where there are no rows.
    """
    files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    found: dict[str, dict[str, float]] = {}
    for file in files:
        for table, row, predicted in _lines(file):
            found.setdefault(table, {})[row] = predicted
    if not found:
        raise InputError(
            f"{path}: no predictions\n\nhint: `--since` takes a folder that `--out` named, or a file of pins"
        )
    return found


def _lines(file: Path) -> Iterator[tuple[str, str, float]]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: {error}") from error
    reader = csv.DictReader(io.StringIO(text, newline=""))
    missing = [name for name in ("id", "predicted") if name not in (reader.fieldnames or [])]
    if missing:
        raise InputError(f"{file}:1: column `{missing[0]}` is missing")
    for cells in reader:
        value = cells["predicted"] or ""
        if not value and cells.get("failed"):
            continue
        try:
            predicted = float(value)
        except ValueError:
            predicted = math.nan
        if not (predicted > 0 and math.isfinite(predicted)):
            place = f"{file}:{reader.line_num}"
            raise InputError(f"{place}: `predicted`: expected a positive number, found `{value}`")
        yield cells.get("table") or file.stem, str(cells["id"]), predicted


def moved(board: Board, earlier: Mapping[str, Mapping[str, float]]) -> tuple[list[Moved], list[str]]:
    """Rows that moved by more than `LIMIT`, the farthest first; and those of `earlier` that are no more."""
    changed, gone = [], []
    for score in board.scores:
        known = earlier.get(score.name, {})
        now = {row.id: (row, value) for row, value in zip(score.rows, score.predicted, strict=True)}
        gone += [name for name in known if name not in now]
        for name, value in known.items():
            if name not in now:
                continue
            row, predicted = now[name]
            if abs(predicted / value - 1) > LIMIT:
                changed.append(Moved(name, value, predicted, row.measured))
    return sorted(changed, key=lambda one: -abs(math.log(one.now / one.before))), gone


def pins(board: Board) -> str:
    """A file of `PINNED` rows of a board, as many of each table as can be, evenly over its rows."""
    light = {
        score.name: [(row, value) for row, value in zip(score.rows, score.predicted, strict=True) if _light(row)]
        for score in board.scores
    }
    kept = {name: _spread(rows, share) for (name, rows), share in zip(light.items(), _shares(light), strict=True)}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["table", "id", "predicted"])
    for name, rows in kept.items():
        writer.writerows([name, row.id, f"{value:.6g}"] for row, value in rows)
    return text.getvalue()


def _light(row: Row) -> bool:
    jobs = row.scenario.get("jobs")
    if not jobs:
        return True
    gpus = 1
    for axis in ("tp", "cp", "ep", "pp", "dp"):
        gpus *= int((jobs[0].get("parallelism") or {}).get(axis, 1))
    return gpus <= MOST_GPUS


def _shares(rows: Mapping[str, Sequence[object]]) -> list[int]:
    """How many of each table: small ones whole, the others alike."""
    left, shares = PINNED, {}
    for place, (name, found) in enumerate(sorted(rows.items(), key=lambda one: len(one[1]))):
        shares[name] = min(len(found), left // (len(rows) - place))
        left -= shares[name]
    return [shares[name] for name in rows]


def _spread(rows: Sequence[tuple[Row, float]], count: int) -> list[tuple[Row, float]]:
    return [rows[i * len(rows) // count] for i in range(count)] if count else []
