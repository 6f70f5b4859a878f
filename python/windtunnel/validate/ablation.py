"""Rows without one mechanism of the model: what it buys is the error with it against the error without.

`bought` asks that of a sample of every table of training jobs, for docs/validation.md.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windtunnel.text import UNKNOWN, percent
from windtunnel.validate.bands import SOFTWARE, gpus_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from windtunnel.validate.rows import Row
    from windtunnel.validate.score import Figures, Score

EVERY = "all"
"""Asks for each mechanism in turn."""
TABLES = (
    "vtrain-single", "vtrain-multi", "megatron-sc21", "korthikanti", "megatron-zero", "megascale", "zero-bubble",
    "sailor", "torchtitan", "megatron-bridge", "mlperf", "mosaic-mpt", "dgxc", "ultrascale", "marin",
)  # fmt: skip
"""Tables of training jobs, in the board's order."""
SAMPLE = 12
"""Rows of each, evenly over the table."""
MOST_GPUS = 256
"""Rows of more GPUs are not in the sample: seven times a board is to end in minutes."""


def _training(**values: object) -> Callable[[dict[str, Any]], None]:
    def change(scenario: dict[str, Any]) -> None:
        training = scenario["jobs"][0]["workload"].setdefault("training", {})
        training.update(values)
        known = training.get("evidence")
        if known:
            training["evidence"] = {key: how for key, how in known.items() if key not in values}

    return change


def _no_framework(scenario: dict[str, Any]) -> None:
    training = scenario["jobs"][0]["workload"].setdefault("training", {})
    for key in ("evidence", "straggle", *SOFTWARE):
        # Measured layers are what was measured, whatever ran them.
        if key != "profile":
            training.pop(key, None)
    training["framework"] = "none"


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


def sample(rows: Sequence[Row]) -> list[Row]:
    """Up to `SAMPLE` rows of a table, evenly over those of at most `MOST_GPUS` GPUs."""
    light = [row for row in rows if gpus_of(row) <= MOST_GPUS]
    count = min(SAMPLE, len(light))
    return [light[i * len(light) // count] for i in range(count)]


def table(whole: Sequence[Score], without_each: Mapping[str, Sequence[Score]]) -> str:
    """Markdown: a line for each table, its median error and bias with the whole model, and without each mechanism.

    `-` stands where a mechanism changed no row.
    """
    head = ["table", "rows", "the whole model", *(f"without `{name}`" for name in without_each)]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    for score in whole:
        if not score.rows:
            continue
        twins = [next((s for s in scores if s.name == score.name), None) for scores in without_each.values()]
        cells = [
            UNKNOWN if twin is None else "-" if list(twin.predicted) == list(score.predicted) else _cell(twin.figures)
            for twin in twins
        ]
        lines.append(f"| `{score.name}` | {len(score.rows)} | {_cell(score.figures)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(figures: Figures) -> str:
    return f"{percent(figures.median_abs_error)} ({percent(figures.bias, signed=True)})"
