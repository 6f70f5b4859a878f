"""Regret of a choice among measured layouts, by hand and on the measured tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from windtunnel.validate import Row, Score
from windtunnel.validate.regret import PAIR, cells

if TYPE_CHECKING:
    from collections.abc import Mapping


def row(name: str, measured: float, layout: Mapping[str, int], **workload: Any) -> Row:  # noqa: ANN401
    told = {"model": "m", "global_batch": 64, "sequence": 2048, "micro_batch": 1, "training": {"precision": "bf16"}}
    jobs = [{"workload": told | workload, "parallelism": dict(layout)}]
    return Row(f"t/{name}", "s", measured, {"jobs": jobs}, {"size": "1B", "scale": "8 GPUs"})


def test_regret_by_hand() -> None:
    # By prediction c is best, then a, d, b; by measurement b, a, c, d.
    rows = [
        row("a", 1.25, {"dp": 8}),
        row("b", 1.0, {"dp": 4, "tp": 2}),
        row("c", 1.6, {"dp": 2, "tp": 4}, micro_batch=2),
        row("d", 2.0, {"dp": 1, "tp": 8}),
        # Of its own cell, and too few there: another batch, other software, other GPUs.
        row("e", 0.1, {"dp": 8}, global_batch=128),
        row("f", 0.1, {"dp": 8}, training={"precision": "fp8"}),
        row("g", 0.1, {"dp": 16}),
    ]
    (cell,) = cells(Score("t", rows, [1.1, 1.4, 1.0, 1.2, 0.1, 0.1, 0.1], [], []))
    assert (cell.rows, cell.name) == (4, "1B, 8 GPUs, batch 64 x 2048")
    assert cell.picked == pytest.approx(1 / 1.6)
    assert cell.best_of_three == pytest.approx(1 / 1.25)
    assert cell.rank_correlation == pytest.approx(1 - 6 * (0 + 9 + 4 + 1) / (4 * 15))
    (all_of_them,) = cells(Score("t", rows, [1.1, 1.4, 1.0, 1.2, 0.1, 0.1, 0.1], [], []), by=("size", "scale"))
    assert (all_of_them.rows, all_of_them.name, all_of_them.picked) == (7, "1B, 8 GPUs", 1.0)


def test_a_pair_is_judged_as_a_pair() -> None:
    """Which of two is faster; what was measured twice is one layout, and no pair with itself."""
    rows = [row("a", 1.25, {"dp": 8}), row("b", 1.0, {"dp": 4, "tp": 2}), row("a-2", 1.35, {"dp": 8})]
    (right,) = cells(Score("t", rows, [1.2, 1.1, 1.2], [], []), least=PAIR)
    assert (right.rows, right.picked, right.rank_correlation) == (2, 1.0, 1.0)
    (wrong,) = cells(Score("t", rows, [1.0, 1.1, 1.0], [], []), least=PAIR)
    assert wrong.picked == pytest.approx(1 / 1.3)
    assert wrong.rank_correlation == -1.0
    same = [rows[0], rows[2]]
    assert cells(Score("t", same, [1.0, 1.0], [], []), least=PAIR) == []
    assert cells(Score("t", rows[:2], [1.2, 1.1], [], [])) == []
