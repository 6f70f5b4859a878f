"""Three plans of a mixture of experts over two buildings, by the bandwidth between these."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.experiments.buildings import compared, draw_plans

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

SCENARIO = Path(__file__).resolve().parents[1] / "scaleacross-fig8" / "scenario.yaml"
NICS, CABLES = 64, (48, 16, 8, 4)
DP_OUT = {"jobs[0].parallelism.order": ["tp", "cp", "ep", "pp", "dp"]}

WHY = {
    "over_production": "the layout of table 2 waits longer here than on the testbed: 0.16 s of its 0.63 s at 1:1.33 "
    "are tensor-parallel exchanges, which plans with one or two tensor-parallel ranks do without; the model's "
    "shape is not published",
    "sailor_at_4": "for the same reason a plan with fewer tensor-parallel ranks is faster than that layout where the "
    "buildings are well connected, and Sailor may choose one",
}
"""By figure observed: why a claim on it does not hold."""


def observe(_: Results) -> dict[str, Any]:
    """Speeds by ratio."""
    return compared(SCENARIO, DP_OUT, NICS, CABLES)


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """As figure 23."""
    draw_plans(observed["plans"], axes)
