"""Measured rows and what becomes of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True)
class Row:
    """A measurement and the scenario that predicts it.

    `measured` is in seconds, or in bytes for tables of memory. `models` are files that the scenario names, by file
    name: a `config.json`, or the text of another. `groups` is what the row is shown by, such as `{"size": "3.6B"}`.
    """

    id: str
    system: str
    measured: float
    scenario: Mapping[str, Any]
    groups: Mapping[str, str]
    models: Mapping[str, Mapping[str, Any] | str] = field(default_factory=dict)
    quantity: str = "time"
    """`time`, `smallest` and `largest` (when the first and the last flow of a run end), `memory` (bytes of the fullest
    GPU), `first` (of a GPU of the first pipeline stage) or `activations` (those among the bytes of the fullest)."""


@dataclass(frozen=True)
class Excluded:
    """Rows left out for one reason."""

    reason: str
    rows: int


@dataclass
class Table:
    """The rows of a table that are predicted, and those that are not."""

    name: str
    rows: list[Row] = field(default_factory=list)
    fitted: frozenset[str] = frozenset()
    """Rows that a constant was fitted on, by id: excluded from every figure."""
    left_out: list[Row] = field(default_factory=list)
    """The fitted rows themselves, for calibration."""
    beside: list[Row] = field(default_factory=list)
    """Rows that are predicted for `facts` alone: what is known of them is no figure, such as that they ran at all."""
    facts: Callable[[Sequence[tuple[Row, float]], Sequence[tuple[Row, float]]], Mapping[str, float]] | None = None
    """What a table shows besides errors, by name, from its rows and those of `beside` with their predictions."""
    _excluded: Counter[str] = field(default_factory=Counter)

    def exclude(self, reason: str, rows: int = 1) -> None:
        """Leaves `rows` rows out."""
        self._excluded[reason] += rows

    def add(self, row: Row) -> None:
        """Takes a row in, unless a constant was fitted on it."""
        if row.id in self.fitted:
            self.exclude("used to fit a constant")
            self.left_out.append(row)
        else:
            self.rows.append(row)

    @property
    def excluded(self) -> list[Excluded]:
        """What was left out, by reason."""
        return [Excluded(reason, rows) for reason, rows in sorted(self._excluded.items())]
