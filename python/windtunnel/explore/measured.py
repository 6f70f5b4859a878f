"""What the cost model says of rows of measured tables."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.layout.job import DIMENSIONS
from windtunnel.layout.priced import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.validate.rows import Row

CHOSEN = ("parallelism", "training", "micro_batch", "global_batch")
"""What a row of a measured table may have different from others of its group."""


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
        # So many GPUs as there are, the slowest sets the pace: layouts share their kernels on equal numbers alone.
        gpus = math.prod(int((row.scenario["jobs"][0].get("parallelism") or {}).get(axis, 1)) for axis in DIMENSIONS)
        key = json.dumps([base, row.models, gpus], sort_keys=True)
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
