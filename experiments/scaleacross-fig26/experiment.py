"""Plans of the explorer and of Sailor over production's for the long-context dense job, by the cables between."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.experiments.cuts import STEPS, draw_speeds, speeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

SCENARIO = Path(__file__).resolve().parents[1] / "scaleacross-fig25" / "scenario.yaml"


TENSOR = (
    "it is the tensor-parallel ranks over hosts that make it slow: 32 of them here, over four hosts, for a third of "
    "its time. How long production's sequences are is not published; with 128K tokens for 64K it needs 64, and takes "
    "1.80 times as long as the explorer's by the cost model"
)
WHY = {"sailor_least_behind_written": TENSOR, "sailor_behind_explorer": TENSOR}
"""By figure observed: why a claim on it does not hold."""


def observe(_: Results) -> dict[str, Any]:
    """Speeds by ratio and latency."""
    return speeds(SCENARIO, STEPS)


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """As figure 26."""
    draw_speeds(observed["plans"], ["explorer_s", "sailor_s"], axes)
