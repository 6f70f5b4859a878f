"""Iteration times of mixtures of experts and a dense model over two buildings, PP 16, by the cables between them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.experiments.cuts import draw_rises, rises

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

HERE = Path(__file__).resolve().parent
MODELS = {
    "dense": {
        "jobs[0].workload.model": "dense.json", "jobs[0].parallelism.ep": 1, "jobs[0].parallelism.dp": 64,
    },
    "moe-16": {"jobs[0].workload.model": "moe-16.json"},
    "moe-128": {},
}  # fmt: skip


WHY = {
    "ratio_dense_DP-out": "of a ring over 64 replicas one edge leaves each building, so 16 rings never fill its "
    "cables: with 16 replicas an iteration takes 0.4% longer at 1:16, with 8 1.1%",
    "latency_least": "with 16 experts under DP-out gathers of parameters share the NICs with messages between stages, "
    "and those that wait for 1000 us take less of their bandwidth: without them (zero: 0) it costs 0.4%",
}
"""By figure observed: why a claim on it does not hold."""


def observe(_: Results) -> dict[str, Any]:
    """Times by case, and how they rise."""
    return rises(HERE / "scenario.yaml", MODELS)


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """Iteration time over that at the default ratio, as figure 9a."""
    draw_rises(observed["iterations"], axes)
