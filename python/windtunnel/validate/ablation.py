"""Rows without one mechanism of the model: what it buys is the error with it against the error without."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windtunnel.validate.bands import SOFTWARE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windtunnel.validate.rows import Row


def _training(**values: object) -> Callable[[dict[str, Any]], None]:
    def change(scenario: dict[str, Any]) -> None:
        training = scenario["jobs"][0]["workload"].setdefault("training", {})
        training.update(values)
        known = training.get("evidence")
        if known:
            training["evidence"] = {key: how for key, how in known.items() if key not in values}

    return change


def _no_framework(scenario: dict[str, Any]) -> None:
    training = scenario["jobs"][0]["workload"].get("training") or {}
    for key in ("framework", "evidence", "straggle", *SOFTWARE):
        # Measured layers are what was measured, whatever ran them.
        if key != "profile":
            training.pop(key, None)


def _by_size(scenario: dict[str, Any]) -> None:
    scenario.setdefault("network", {})["collectives"] = {"tuner": "size"}


MECHANISMS: Mapping[str, Callable[[dict[str, Any]], None]] = {
    "sustained": _training(compute_share=1.0),
    "spread": _training(speed_spread=0.0),
    "launches": _training(dispatch="0 us"),
    "straggle": _training(straggle="0 us"),
    "frameworks": _no_framework,
    "nccl": _by_size,
}
"""What can be taken away: GPUs' sustained shares, differences between GPUs, the host's launches, late ranks, what
frameworks do, and NCCL's choice and times (a rule by size stands for them)."""


def without(row: Row, mechanism: str) -> Row:
    """`row` without a mechanism; itself where it is no training job."""
    if "jobs" not in row.scenario or "model" not in row.scenario["jobs"][0]["workload"]:
        return row
    scenario: dict[str, Any] = copy.deepcopy(dict(row.scenario))
    MECHANISMS[mechanism](scenario)
    return replace(row, scenario=scenario)
