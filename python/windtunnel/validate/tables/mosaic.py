"""MPT models trained by llm-foundry on A100 and H100, as MosaicML published them: by size, scale and sequence.

Rows tell the model, the layout and the batch; everything else is the framework's (`framework: foundry`) and the
machine's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError
from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import Line, gpt, lines, training_scenario

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System

COLUMNS = (
    "model", "layers", "hidden", "heads", "vocab", "sequence", "gpus", "gpu", "micro_batch", "grad_accum",
    "global_batch", "precision", "mp_mode", "sharding", "activation_checkpointing", "iteration_s",
)  # fmt: skip
SYSTEMS = {"h100_80gb": "mosaic-h100", "a100_80gb": "mosaic-a100-80", "a100_40gb": "mosaic-a100-40"}
PRECISIONS = {"amp_bf16": "bf16", "bf16": "bf16", "amp_fp8": "fp8"}
RESHARD = {"FULL_SHARD": "per_pass", "SHARD_GRAD_OP": "never"}


def read(data: Path, systems: Mapping[str, System]) -> Table | None:
    """The published runs."""
    path = data / "e2e_iteration" / "mosaic_mpt.csv"
    if not path.is_file():
        return None
    table = Table("mosaic-mpt")
    for line in lines(path, COLUMNS):
        row = _row(line, systems)
        if isinstance(row, str):
            table.exclude(row)
            continue
        table.fitted |= systems[row.system].fitted
        table.add(row)
    return table


def _one_of(line: Line, column: str, known: Mapping[str, str]) -> str:
    found = line.text(column)
    if found not in known:
        raise InputError(f"{line.path}:{line.number}: `{column}`: expected one of {', '.join(known)}, found `{found}`")
    return known[found]


def _row(line: Line, systems: Mapping[str, System]) -> Row | str:
    name = _one_of(line, "gpu", SYSTEMS)
    system = systems.get(name)
    if system is None:
        return f"no file of system `{name}`"
    gpus, batch, micro = (line.count(column) for column in ("gpus", "global_batch", "micro_batch"))
    layers, hidden, heads, vocabulary, sequence = (
        line.count(column) for column in ("layers", "hidden", "heads", "vocab", "sequence")
    )
    if batch % (gpus * micro):
        return "the batch does not divide into micro-batches"
    if line.text("activation_cpu_offload").lower() == "true":
        return "activations kept in the host's memory are not modelled"
    precision = _one_of(line, "precision", PRECISIONS)
    recompute = _one_of(line, "activation_checkpointing", {"True": "full", "False": "none"})
    training: dict[str, Any] = {"precision": precision, "recompute": recompute}
    if line.text("mp_mode") == "PURE":
        training["gradients"] = "bf16"
    model, scale = line.text("model"), f"{gpus} GPUs"
    return Row(
        id=f"mosaic-mpt/{model}-{name}-g{gpus}-s{sequence}-m{micro}-b{batch}-{precision}-{recompute}",
        system=system.name,
        measured=line.number_in("iteration_s"),
        scenario=training_scenario(
            system,
            gpus=gpus,
            workload={"model": "model.json", "global_batch": batch, "micro_batch": micro, "sequence": sequence},
            parallelism={"dp": gpus, "reshard": _one_of(line, "sharding", RESHARD)},
            training=training,
        ),
        groups={
            "size": model,
            "kind": f"{system.section('topology')['host']['gpu']}, {precision}",
            "scale": scale,
            "sequence": str(sequence),
        },
        models={"model.json": gpt(layers, hidden, heads, sequence, vocabulary)},
    )
