"""What a job gets that says nothing of its software: rows of other tables, told model, layout and precision alone.

Their own tables name the framework (mosaic-mpt, dgxc, ultrascale, torchtitan). Without it a run assumes what tuned
software does, and these rows say how far that is from what people measured. As many rows are taken of each, evenly.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables import dgxc, mosaic, torchtitan, ultrascale

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System

OF = {"mosaic-mpt": mosaic.read, "dgxc": dgxc.read, "ultrascale": ultrascale.read, "torchtitan": torchtitan.read}
ROWS = 24
"""Rows of a table at most."""
MOST_GPUS = 256
"""Larger jobs take longer to run than they tell more."""
TOLD = ("precision", "recompute", "recompute_layers", "layers_per_stage")
LAYOUT = ("order", "tp", "cp", "ep", "pp", "dp", "schedule", "zero", "replicate")


def read(data: Path, systems: Mapping[str, System]) -> Table | None:
    """Rows of the tables that are there."""
    found = [(name, table) for name, reader in OF.items() if (table := reader(data, systems)) is not None]
    if not found:
        return None
    made = Table("no-framework")
    for name, table in found:
        fit = [row for row in table.rows if _gpus(row) <= MOST_GPUS]
        step = max(1, -(-len(fit) // ROWS))
        made.exclude("jobs of more GPUs, or neighbours of rows that are taken", len(table.rows) - len(fit[::step]))
        for row in fit[::step]:
            made.add(told_nothing(row, name))
    return made


def told_nothing(row: Row, table: str) -> Row:
    """A row without what its table says of the software."""
    scenario: dict[str, Any] = copy.deepcopy(dict(row.scenario))
    job = scenario["jobs"][0]
    training, layout = job["workload"]["training"], job["parallelism"]
    job["workload"]["training"] = {key: training[key] for key in TOLD if key in training}
    job["parallelism"] = {key: layout[key] for key in LAYOUT if key in layout}
    if table not in {"dgxc", "ultrascale"}:
        # FSDP's sharding is a layout, which the framework's name implies in these tables.
        job["parallelism"].setdefault("zero", 3)
    return replace(row, id=f"no-framework/{row.id}", scenario=scenario, groups={**row.groups, "kind": table})


def _gpus(row: Row) -> int:
    layout = row.scenario["jobs"][0]["parallelism"]
    return math.prod(int(layout.get(axis, 1)) for axis in ("tp", "pp", "dp", "cp"))
