"""Plans of the explorer over production's for the long-context dense job, by the cables between buildings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.experiments.cuts import STEPS, draw_speeds, speeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

SCENARIO = Path(__file__).resolve().parent / "scenario.yaml"


def observe(_: Results) -> dict[str, Any]:
    """Speeds by ratio and latency."""
    return speeds(SCENARIO, STEPS)


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """As figure 25."""
    draw_speeds(observed["plans"], ["explorer_s"], axes)
