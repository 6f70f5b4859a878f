"""What the figures are drawn from: rows with varied keys, metrics and links, whoever has put them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from windtunnel.text import UNKNOWN, count, duration, percent, size

LARGER_IS_BETTER = ("tokens_per_s", "samples_per_s", "mfu", "goodput", "samples_per_s_per_gpu")
"""Last parts of the figures of which more is better; of all others less is."""

SHARES = ("mfu", "goodput", "utilisation", "loss_rate")


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

    def done(self, metric: str) -> list[PageRow]:
        """Rows that have `metric`."""
        return [row for row in self.rows if row.means.get(metric) is not None]

    def levels(self, key: str) -> list[Any]:
        """Values of `key`: numbers by size, all else in the order of the rows."""
        found = list(dict.fromkeys(_plain(row.values.get(key)) for row in self.rows))
        return sorted(found) if all(_is_number(value) for value in found) else found

    def best(self, metric: str) -> PageRow | None:
        """The row with the best `metric`, None if none has it."""
        sign = -1.0 if larger_is_better(metric) else 1.0
        return min(self.done(metric), key=lambda row: sign * value_of(row, metric), default=None)


def value_of(row: PageRow, metric: str) -> float:
    """A figure of a row that has it."""
    found = row.means[metric]
    if found is None:
        raise ValueError(metric)
    return found


def level_of(row: PageRow, key: str) -> Any:  # noqa: ANN401
    """The value of `key` as `levels` has it."""
    return _plain(row.values.get(key))


def larger_is_better(metric: str) -> bool:
    """Whether more of `metric` is better."""
    return metric.rpartition(".")[2] in LARGER_IS_BETTER


def short_metric(metric: str) -> str:
    """The name of a figure without what it shares with all others."""
    return metric.removeprefix("jobs[0].")


def shown(metric: str, value: float | None) -> str:
    """A figure in the unit that its name says."""
    if value is None:
        return UNKNOWN
    last = metric.rpartition(".")[2]
    if "bytes" in metric:
        return size(value)
    if last in SHARES:
        return percent(value)
    if last.endswith("_per_s") or "_per_s_" in last:
        return count(value)
    return duration(value) if "_s" in metric.replace("_s_", "_s ") and "usd" not in metric else count(value)


def said(row: PageRow, metrics: list[str]) -> str:
    """A row in one text, for those who point at it."""
    parts = [f"{key} {value}" for key, value in row.values.items()]
    for metric in metrics:
        half = row.halves.get(metric)
        spread = "" if half is None else f" ± {shown(metric, half)}"
        if row.means.get(metric) is not None:
            parts.append(f"{short_metric(metric)} {shown(metric, row.means[metric])}{spread}")
    if row.message:
        parts.append(f"{row.state}: {row.message}")
    return "\n".join(parts)


def _plain(value: object) -> Any:  # noqa: ANN401
    return value if _is_number(value) else "–" if value is None else str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
