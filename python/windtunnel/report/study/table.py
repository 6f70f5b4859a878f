"""What the figures are drawn from: rows with varied keys, metrics and links, whoever has put them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from windtunnel.better import cost
from windtunnel.words import figure_text


@dataclass(frozen=True)
class PageRow:
    """A point of a study: its values by short name, its figures with half of their intervals, and where its run is."""

    values: dict[str, Any]
    means: dict[str, float | None]
    halves: dict[str, float | None]
    state: str
    message: str | None
    link: str | None


@dataclass(frozen=True)
class Table:
    """A study: its name, what was varied and which figures were asked for, the one to rank by first."""

    name: str
    keys: list[str]
    metrics: list[str]
    rows: list[PageRow]
    remark: str = ""
    """How it was run, for below the title."""

    def done(self, metric: str) -> list[PageRow]:
        """Rows that have `metric`."""
        return [row for row in self.rows if row.means.get(metric) is not None]

    def levels(self, key: str) -> list[Any]:
        """Values of `key`: numbers by size, all else in the order of the rows."""
        found = list(dict.fromkeys(_plain(row.values.get(key)) for row in self.rows))
        return sorted(found) if all(_is_number(value) for value in found) else found

    def best(self, metric: str) -> PageRow | None:
        """The row with the best `metric`, None if none has it."""
        return min(self.done(metric), key=lambda row: cost(metric, value_of(row, metric)), default=None)


def value_of(row: PageRow, metric: str) -> float:
    """A figure of a row that has it."""
    found = row.means[metric]
    if found is None:
        raise ValueError(metric)
    return found


def level_of(row: PageRow, key: str) -> Any:  # noqa: ANN401
    """The value of `key` as `levels` has it."""
    return _plain(row.values.get(key))


def short_metric(metric: str) -> str:
    """The name of a figure without what it shares with all others."""
    return metric.removeprefix("jobs[0].")


def said(row: PageRow, metrics: list[str]) -> str:
    """A row in one text, for those who point at it."""
    parts = [f"{key} {value}" for key, value in row.values.items()]
    for metric in metrics:
        half = row.halves.get(metric)
        spread = "" if half is None else f" ± {figure_text(metric, half)}"
        if row.means.get(metric) is not None:
            parts.append(f"{short_metric(metric)} {figure_text(metric, row.means[metric])}{spread}")
    if row.message:
        parts.append(f"{row.state}: {row.message}")
    return "\n".join(parts)


def _plain(value: object) -> Any:  # noqa: ANN401
    return value if _is_number(value) else "–" if value is None else str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
