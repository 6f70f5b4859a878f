"""Tables as folders of Parquet part files, written while the run goes.

A part holds at most `PART_ROWS` rows. Where one part ends and the next begins depends on the rows alone, so the same
run leaves the same files. Memory is bounded by one part per table.
"""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING, Self

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel._engine import Columns

PART_ROWS = 1 << 20
"""Most rows of a part file."""

PART_BYTES = 256 << 20
"""Size in memory from which a part is written although it has fewer rows (tables with list columns)."""


def to_frame(columns: Columns) -> pl.DataFrame:
    """Columns of equal length as a frame; a 2-D array becomes a list column, NaN becomes null, coded texts are text."""
    series = []
    for name, values in columns.items():
        if isinstance(values, tuple):
            column = _of_pair(name, *values)
        elif isinstance(values, np.ndarray) and values.ndim == 2:
            column = pl.Series(name, values).arr.to_list()
        elif isinstance(values, list):
            # No texts at all are texts too, not nulls.
            column = pl.Series(name, values, dtype=pl.String)
        else:
            column = pl.Series(name, values)
            if column.dtype.is_float():
                column = column.fill_nan(None)
        series.append(column)
    return pl.DataFrame(series)


def _of_pair(name: str, first: list[str | None] | np.ndarray, second: np.ndarray) -> pl.Series:
    """Texts and their codes, or numbers and whether each is known."""
    if isinstance(first, np.ndarray):
        known = pl.Series(name, second)
        return pl.select(pl.when(known).then(pl.Series(name, first)).alias(name)).to_series()
    return pl.Series(name, first, dtype=pl.String).gather(second)


class _Pending:
    """Rows that wait to be written, and how many they are: counted as they come, since there may be many batches."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.frames: list[pl.DataFrame] = []
        self.rows = 0
        self.bytes = 0

    def add(self, frame: pl.DataFrame) -> None:
        self.frames.append(frame)
        self.rows += frame.height
        self.bytes += int(frame.estimated_size())


class TableWriter:
    """Collects batches of rows per table and writes them below `folder` as `TABLE/part-00000.parquet`, ….

    Use as a context manager or call `close`; rows still held are written then.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pending: dict[str, _Pending] = {}
        self._parts: dict[str, int] = {}
        self.rows: dict[str, int] = {}
        """Rows given so far, per table in order of first appearance."""

    def sink(self, table: str, columns: Columns) -> None:
        """Takes a batch of rows of `table`."""
        frame = to_frame(columns)
        self.rows[table] = self.rows.get(table, 0) + frame.height
        pending = self._pending.setdefault(table, _Pending())
        pending.add(frame)
        while pending.rows >= PART_ROWS:
            whole = pl.concat(pending.frames)
            self._write(table, whole.head(PART_ROWS))
            pending.clear()
            rest = whole.slice(PART_ROWS)
            if rest.height:
                pending.add(rest)
        if pending.bytes >= PART_BYTES:
            self._write(table, pl.concat(pending.frames))
            pending.clear()

    def close(self) -> None:
        """Writes the rows still held; a table that never had a row gets one empty part, for its columns."""
        for table, pending in self._pending.items():
            whole = pl.concat(pending.frames) if pending.frames else None
            if whole is not None and (whole.height or table not in self._parts):
                self._write(table, whole)
            pending.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        # What failed leaves no folder; writing more could only fail again and hide why.
        if error is None:
            self.close()

    def _write(self, table: str, frame: pl.DataFrame) -> None:
        part = self._parts.get(table, 0)
        self._parts[table] = part + 1
        path = self._folder / table / f"part-{part:05d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            frame.rechunk().write_parquet(path, compression="zstd")
        except pl.exceptions.ComputeError:
            # What the system said is not told: whether there is room for a part tells a full disk from other trouble.
            if shutil.disk_usage(self._folder).free < max(frame.estimated_size(), 1 << 20):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._folder.parent)) from None
            raise
