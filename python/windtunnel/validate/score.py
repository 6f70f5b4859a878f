"""How far predictions are from measurements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windtunnel.validate.rows import Excluded, Row


@dataclass(frozen=True)
class Figures:
    """Errors |predicted/measured - 1| over some rows; `bias` is the median with its sign.

    `rank_correlation` is Spearman's: whether the order is the measured one. None where it has no meaning (fewer than
    three rows, or all equal).
    """

    rows: int
    median_abs_error: float | None
    p95_abs_error: float | None
    max_abs_error: float | None
    bias: float | None
    rank_correlation: float | None

    @classmethod
    def of(cls, predicted: Sequence[float], measured: Sequence[float]) -> Figures:
        """The figures of pairs of equal units."""
        if not predicted:
            return cls(0, None, None, None, None, None)
        found, truth = np.asarray(predicted, dtype=float), np.asarray(measured, dtype=float)
        errors = found / truth - 1.0
        size = np.abs(errors)
        return cls(
            rows=len(found),
            median_abs_error=float(np.median(size)),
            p95_abs_error=float(np.percentile(size, 95)),
            max_abs_error=float(size.max()),
            bias=float(np.median(errors)),
            rank_correlation=spearman(found, truth),
        )

    def record(self) -> dict[str, Any]:
        """As `--json` has it."""
        return dict(self.__dict__)


def spearman(a: np.ndarray, b: np.ndarray) -> float | None:
    """Rank correlation with mean ranks for ties; None for fewer than three values or a constant."""
    if len(a) < 3:
        return None
    ranks = [_ranks(values) for values in (a, b)]
    if any(np.ptp(values) == 0 for values in ranks):
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts + ends - 1) / 2.0)[inverse]


@dataclass(frozen=True)
class Failed:
    """A row that has no prediction, and why."""

    row: Row
    reason: str


@dataclass(frozen=True)
class Score:
    """A table's outcome: every row with its prediction, and the figures."""

    name: str
    rows: Sequence[Row]
    predicted: Sequence[float]
    excluded: Sequence[Excluded]
    failed: Sequence[Failed] = ()
    """Rows that could not be run: in no figure, and a failure of the board."""
    facts: Mapping[str, float] = field(default_factory=dict)
    """What the table shows besides errors, by name."""

    @property
    def figures(self) -> Figures:
        """Over all rows."""
        return Figures.of(self.predicted, [row.measured for row in self.rows])

    def groups(self) -> list[dict[str, Any]]:
        """Figures by each value of each group, in order of name and value."""
        keys = sorted(
            {("system", row.system) for row in self.rows} | {g for row in self.rows for g in row.groups.items()}
        )
        found = []
        for key, value in keys:
            pairs = [
                (p, row.measured)
                for p, row in zip(self.predicted, self.rows, strict=True)
                if (row.system if key == "system" else row.groups.get(key)) == value
            ]
            figures = Figures.of([p for p, _ in pairs], [m for _, m in pairs])
            found.append({"by": {key: value}, **figures.record()})
        return found

    def record(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {
            "name": self.name,
            "rows": self.figures.rows,
            "failed": [{"row": f.row.id, "reason": f.reason} for f in self.failed],
            "excluded": [{"reason": e.reason, "rows": e.rows} for e in self.excluded],
            **{key: value for key, value in self.figures.record().items() if key != "rows"},
            **({"facts": dict(self.facts)} if self.facts else {}),
            "groups": self.groups(),
        }
