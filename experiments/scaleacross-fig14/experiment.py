"""Iteration times of the dense job over more and smaller buildings, by the latency between them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.experiments.cuts import by_step, costs, draw_topologies, topologies

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from windtunnel.experiments.check import Results

EXPERIMENTS = Path(__file__).resolve().parents[1]
TOPOLOGIES: dict[str, tuple[Path, dict[str, Any]]] = {
    "A1": (EXPERIMENTS / "scaleacross-fig6" / "scenario.yaml", {}),
    "A4": (EXPERIMENTS / "scaleacross-fig13" / "a4.yaml", {}),
    "B1": (EXPERIMENTS / "scaleacross-fig11" / "b1.yaml", {}),
    "B4": (EXPERIMENTS / "scaleacross-fig13" / "b4.yaml", {}),
}
STEPS = ((4.0, 50.0), (4.0, 100.0), (4.0, 1000.0))


def observe(_: Results) -> dict[str, Any]:
    """Times by case, and what more buildings cost at the first step and at the last."""
    found = topologies(TOPOLOGIES, STEPS)
    return {"iterations": by_step(found, "latency_us"), **costs(found, STEPS)}


def draw(_: Results, observed: dict[str, Any], axes: Axes) -> None:
    """As figure 14."""
    draw_topologies(observed["iterations"], "latency_us", "latency between the buildings (us)", axes)
