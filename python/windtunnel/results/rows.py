"""Rows of a table as plain lists: what figures and traces are made of.

A library for tables takes longer to load than a short run takes in all. So a table of few rows is read by the engine; a
longer one, or one that another program wrote, is read by polars, which sorts out rows faster than it can be loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.engine import read_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import polars as pl

    from windtunnel.results.result import Result

FEW = 100_000
"""Rows of a table that is read without polars, at most."""


class MissingColumnError(KeyError):
    """A table does not have a column that every run writes."""

    def __str__(self) -> str:
        return f"no column `{self.args[0]}`"


class Rows:
    """Columns of equal length, by name."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = columns

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Rows:
        """Those of a frame."""
        return cls(frame.to_dict(as_series=False))

    @property
    def height(self) -> int:
        """Their number."""
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, column: str) -> list[Any]:
        try:
            return self.columns[column]
        except KeyError:
            raise MissingColumnError(column) from None

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    def take(self, indices: Sequence[int]) -> Rows:
        """The rows of these numbers, in their order."""
        return Rows({name: [values[i] for i in indices] for name, values in self.columns.items()})

    def where(self, column: str, value: object) -> Rows:
        """The rows that have this value there."""
        values = self[column]
        found = [i for i, known in enumerate(values) if known == value]
        return self if len(found) == len(values) else self.take(found)

    def order(self, keys: Iterable[str]) -> list[int]:
        """Numbers of the rows in the order of `keys`, nothing first; rows that are equal in them keep their order."""
        columns = [self[key] for key in keys]
        missing = [any(value is None for value in column) for column in columns]
        known = [
            [(value is not None, value or 0) for value in column] if gaps else column
            for column, gaps in zip(columns, missing, strict=True)
        ]
        ordered = list(zip(*known, strict=True))
        return sorted(range(self.height), key=ordered.__getitem__)

    def each(self, *columns: str) -> Iterator[tuple[Any, ...]]:
        """These columns, row by row."""
        return zip(*(self[name] for name in columns), strict=True)

    def records(self) -> Iterator[dict[str, Any]]:
        """Each row by name of column."""
        names = list(self.columns)
        return (dict(zip(names, row, strict=True)) for row in self.each(*names))


def rows_of(
    result: Result,
    table: str,
    columns: Sequence[str] | None = None,
    *,
    job: str | None = None,
    last: bool = False,
    among: tuple[str, Sequence[object]] | None = None,
) -> Rows:
    """Rows of `table`, of `job` if that is given; with `last` those of its last episode's last iteration alone.

    With `among` those whose column of that name has one of these values. Columns that the table does not have are left
    out. Raises `InputError` if the run did not write it.
    """
    few = few_rows(result, table, columns, job=job, last=last)
    if few is not None:
        if among is None:
            return few
        return few.take([i for i, value in enumerate(few[among[0]]) if value in among[1]])
    import polars as pl  # noqa: PLC0415

    found = result.scan(table)
    if columns is not None:
        there = found.collect_schema().names()
        found = found.select([name for name in there if name in _needed(columns, job, last=last)])
    if job is not None:
        found = found.filter(pl.col("job") == job)
    if among is not None:
        found = found.filter(pl.col(among[0]).is_in(list(among[1])))
    for key in ("episode", "iteration") if last else ():
        found = found.filter(pl.col(key) == pl.col(key).max())
    return Rows.of(found.collect())


def few_rows(
    result: Result, table: str, columns: Sequence[str] | None = None, *, job: str | None = None, last: bool = False
) -> Rows | None:
    """The same for a table of few rows; None for another, which polars reads."""
    if table not in result.tables:
        return None
    wanted = None if columns is None else _needed(columns, job, last=last)
    read = read_table(result.path / table, wanted, FEW)
    if read is None:
        return None
    found = Rows(read)
    if job is not None:
        found = found.where("job", job)
    for key in ("episode", "iteration") if last else ():
        found = found.where(key, max(found[key], default=None))
    return found


def _needed(columns: Sequence[str], job: str | None, *, last: bool) -> list[str]:
    return [*columns, *(["job"] if job is not None else []), *(["episode", "iteration"] if last else [])]
