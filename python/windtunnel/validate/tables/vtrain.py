"""vTrain's measured iteration times (Bang et al., MICRO 2024): Megatron-LM on A100, one host and 8 to 64."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import Line, gpt, lines, training_scenario

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System

SYSTEM = "vtrain-a100"
VOCABULARY = 51_200
"""Of several hosts: Megatron-LM's, padded for eight tensor-parallel ranks."""
UNPADDED = 50_257
"""Of one host: a tensor-parallel rank has its share of GPT-2's words, rounded down
(github.com/VIA-Research/vTrain@f8dda84 src/config.py, `vocab_size`, and src/model/gpt_modeling.py): with one rank the
logits' rows are odd, and as slow."""
COLUMNS = (
    "# GPUs",
    "global batch",
    "micro batch",
    "hidden size",
    "attention heads",
    "# layers",
    "sequence length",
    "tensor parallelism",
    "data parallelism",
    "pipeline parallelism",
    "iteration time (ms)",
)


def single(data: Path, systems: Mapping[str, System]) -> Table | None:
    """The rows of one host."""
    return _read("vtrain-single", data / "e2e_iteration" / "vtrain_ground_truth_single.csv", systems)


def multi(data: Path, systems: Mapping[str, System]) -> Table | None:
    """The rows of several hosts."""
    return _read("vtrain-multi", data / "e2e_iteration" / "vtrain_ground_truth_multi.csv", systems)


def _read(name: str, path: Path, systems: Mapping[str, System]) -> Table | None:
    if not path.is_file():
        return None
    system = systems.get(SYSTEM)
    table = Table(name, fitted=system.fitted if system else frozenset())
    for line in lines(path, COLUMNS):
        if system is None:
            table.exclude(f"no file of system `{SYSTEM}`")
        else:
            _row(table, system, line)
    return table


def _row(table: Table, system: System, line: Line) -> None:
    gpus, batch, micro = (line.count(column) for column in COLUMNS[:3])
    hidden, heads, layers, sequence, tp, dp, pp = (line.count(column) for column in COLUMNS[3:10])
    measured = line.number_in(COLUMNS[10]) / 1e3
    if tp * dp * pp != gpus:
        return table.exclude("tp x dp x pp is not the number of GPUs")
    if batch % (micro * dp):
        return table.exclude("the batch does not divide into micro-batches")
    vocabulary = UNPADDED // tp * tp if table.name == "vtrain-single" else VOCABULARY
    layout = f"h{hidden}-l{layers}-b{batch}-m{micro}-t{tp}-d{dp}-p{pp}"
    scenario = training_scenario(
        system,
        gpus=gpus,
        workload={"model": "model.json", "global_batch": batch, "micro_batch": micro, "sequence": sequence},
        parallelism={"tp": tp, "pp": pp, "dp": dp},
    )
    table.add(
        Row(
            id=f"{table.name}/{layout}",
            system=system.name,
            measured=measured,
            scenario=scenario,
            groups={"size": f"h={hidden}", "kind": f"tp={tp}", "scale": f"{gpus} GPUs", "micro_batch": str(micro)},
            models={"model.json": gpt(layers, hidden, heads, sequence, vocabulary)},
        )
    )
    return None
