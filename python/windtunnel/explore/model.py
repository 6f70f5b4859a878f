"""The cost model of the engine: what layouts take, many at once and without a run."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel import engine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from windtunnel.source import Source
    from windtunnel.validate.rows import Row

AT_ONCE = 2048
"""Choices that are answered together: between two lots a search can be stopped, and says where it stands."""
CHOSEN = ("parallelism", "training", "micro_batch", "global_batch")
"""What a row of a measured table may have different from others of its group."""


@dataclass(frozen=True)
class Answer:
    """What a layout takes; seconds and bytes. `refused` says why it has no time."""

    refused: str | None
    iteration_s: float | None
    compute_s: float
    inside_s: float
    """What tensor, context and expert parallelism make computations wait."""
    data_s: float
    """What gathering parameters, reducing gradients and the optimiser add."""
    pipeline_s: float
    """The pipeline's bubble, and messages between stages."""
    memory_bytes: int
    capacity_bytes: int
    micro_batches: int
    mfu: float
    tokens_per_s: float

    @property
    def fits(self) -> bool:
        """Whether the fullest GPU has room for what it holds."""
        return self.memory_bytes <= self.capacity_bytes

    def limit(self) -> str:
        """What takes most of the iteration beside computations, and its share: `layers`, `data` or `pipeline`."""
        parts = {"layers": self.inside_s, "data": self.data_s, "pipeline": self.pipeline_s}
        name, seconds = max(parts.items(), key=lambda part: part[1])
        whole = self.iteration_s or 1.0
        return "compute" if seconds < 0.02 * whole else f"{name} {seconds / whole:.0%}"


def answers(
    source: Source,
    overrides: Sequence[tuple[str, str]],
    choices: Sequence[Mapping[str, Any]],
    *,
    job: int = 0,
    ideal: bool = False,
    apart: bool = False,
    fitting: bool = False,
    budget_bytes: int | None = None,
    told: Callable[[list[Answer]], None] | None = None,
) -> list[Answer]:
    """Answers to `choices`, in their order; `told` hears them `AT_ONCE` at a time, and what it raises ends the search.

    A choice names `parallelism`, `training`, `micro_batch`, `global_batch` and `layers_per_stage` of the job; what it
    leaves out stays as the scenario has it. With `apart` exchanges inside passes meet nothing on their links, which is
    sooner, and off by up to 20% where tensor parallelism spans hosts. With `fitting` what needs more than a GPU (or
    `budget_bytes` of it) has its memory told and no time, which is sooner too.
    Raises `InputError` for what is wrong with the scenario whatever the layout.
    """
    found: list[Answer] = []

    def tell(text: str) -> None:
        batch = [Answer(**answer) for answer in json.loads(text)["answers"]]
        found.extend(batch)
        if told is not None:
            told(batch)

    asked = {
        "job": job, "ideal": ideal, "apart": apart, "fitting": fitting, "budget": budget_bytes, "at_once": AT_ONCE,
        "choices": list(choices),
    }  # fmt: skip
    engine.estimate(
        source.text, source.name, str(source.base), list(overrides), {"fidelity": "flow"}, json.dumps(asked), tell
    )
    return found


def answers_of_rows(rows: Sequence[Row]) -> list[Answer | str]:
    """What the cost model says of each measured row, or why it says nothing.

    Rows that differ in their layout alone are answered together.
    """
    groups: dict[str, list[int]] = {}
    bases: dict[str, tuple[dict[str, Any], Row]] = {}
    for i, row in enumerate(rows):
        base = json.loads(json.dumps(row.scenario))
        job = base["jobs"][0]
        job.pop("parallelism", None)
        for key in CHOSEN[1:]:
            job["workload"].pop(key, None)
        # What a base lacks, each of its choices has.
        key = json.dumps([base, row.models], sort_keys=True)
        groups.setdefault(key, []).append(i)
        bases.setdefault(key, (base, row))
    found: list[Answer | str] = [""] * len(rows)
    with tempfile.TemporaryDirectory(prefix="windtunnel-") as folder:
        asked = []
        for number, key in enumerate(groups):
            base, first = bases[key]
            place = Path(folder) / str(number)
            place.mkdir()
            for name, model in first.models.items():
                (place / name).write_text(model if isinstance(model, str) else json.dumps(model), encoding="utf-8")
            choices = [_choice(rows[i]) for i in groups[key]]
            asked.append({"text": json.dumps(base), "source": "row", "base": str(place), "choices": choices})
        replies = json.loads(engine.estimate_each(json.dumps(asked)))
    for members, reply in zip(groups.values(), replies, strict=True):
        if "refused" in reply:
            for i in members:
                found[i] = str(reply["refused"])
            continue
        for i, answer in zip(members, reply["answers"], strict=True):
            found[i] = Answer(**answer) if answer["refused"] is None else str(answer["refused"])
    return found


def _choice(row: Row) -> dict[str, Any]:
    job = row.scenario["jobs"][0]
    workload = job["workload"]
    found = {key: workload[key] for key in CHOSEN[1:] if key in workload}
    return {**found, "parallelism": job.get("parallelism") or {}, "training": workload.get("training") or {}}
