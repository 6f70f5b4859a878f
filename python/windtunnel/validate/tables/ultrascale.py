"""Hugging Face's Ultra-Scale Playbook: layouts of four Llama-like models on 8 to 512 H100: time, memory, failures.

Every row has 256 sequences of 4,096 tokens a step. Rows whose pipeline was slow for a reason that the table does not
tell (`slow`), or where slow and sound rows cannot be told apart (tensor parallelism over hosts), are left out of the
times.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError
from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import Line, lines, training_scenario

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from windtunnel.validate.systems import System

COLUMNS = (
    "model", "nodes", "gpus", "dp", "tp", "pp", "mbs", "grad_acc", "gbs", "zero", "run", "step_s", "mem_gb",
    "kv_heads", "slow", "rule",
)  # fmt: skip
SYSTEM = "ultrascale-p5"
SEQUENCE = 4096
GIB = 2**30
GPUS_PER_HOST = 8
CAPACITY = 81559 * 2**20
"""Memory of an H100 in bytes, as `data/gpus/h100-sxm.yaml` has it."""
SHAPES: dict[str, dict[str, Any]] = {
    "1.34B": {"layers": 16, "hidden": 2048, "heads": 32, "width": 8192, "tied": True},
    "3.57B": {"layers": 28, "hidden": 3072, "heads": 32, "width": 8192, "tied": True},
    "8.86B": {"layers": 32, "hidden": 4096, "heads": 32, "width": 14336, "tied": False},
    "80B": {"layers": 80, "hidden": 8192, "heads": 64, "width": 28672, "tied": False},
}
VOCABULARY = 131072


def read(data: Path, systems: Mapping[str, System]) -> Table | None:
    """Step times of sound rows; besides, whether the table's configurations fit as they did."""
    path = data / "e2e_iteration" / "ultrascale_configs.csv.gz"
    if not path.is_file():
        return None
    system = systems.get(SYSTEM)
    table = Table("ultrascale", fitted=system.fitted if system else frozenset(), facts=fits)
    times: set[str] = set()
    memories: set[str] = set()
    for line in lines(path, COLUMNS):
        if system is None:
            table.exclude(f"no file of system `{SYSTEM}`")
            continue
        row = row_of(line, system)
        if isinstance(row, str):
            table.exclude(row)
            continue
        if not line.text("rule") and row.id not in memories:
            memories.add(row.id)
            table.beside.append(replace(row, quantity="memory", measured=1.0 if line.text("step_s") else math.inf))
        refused = _refused(line)
        if refused is None and row.id in times:
            refused = "a repetition of another row"
        if refused is not None:
            table.exclude(refused)
            continue
        times.add(row.id)
        table.add(row)
    return table


def memory(data: Path, systems: Mapping[str, System]) -> Table | None:
    """What PyTorch's allocator held at most on the first GPU."""
    path = data / "e2e_iteration" / "ultrascale_configs.csv.gz"
    if not path.is_file():
        return None
    system = systems.get(SYSTEM)
    table = Table("ultrascale-memory")
    seen: set[str] = set()
    for line in lines(path, COLUMNS):
        if system is None:
            table.exclude(f"no file of system `{SYSTEM}`")
        elif line.text("rule"):
            table.exclude("breaks a rule of the benchmark itself")
        elif not line.text("mem_gb"):
            table.exclude("no memory: out of memory, a crash or a time-out")
        else:
            row = row_of(line, system, reserved="0 GB")
            if isinstance(row, str):
                table.exclude(row)
            elif row.id in seen:
                table.exclude("a repetition of another row")
            else:
                seen.add(row.id)
                table.add(
                    replace(row, id=f"memory/{row.id}", quantity="first", measured=line.number_in("mem_gb") * GIB)
                )
    return table


def fits(_: Sequence[tuple[Row, float]], beside: Sequence[tuple[Row, float]]) -> dict[str, float]:
    """Precision: of configurations that are said to fit, those that ran. Recall: of those that ran, those said to fit.

    What did not run may have failed for another reason than memory, which the table does not tell apart.
    """
    said = [(predicted <= CAPACITY, math.isfinite(row.measured)) for row, predicted in beside]
    both = sum(fit and ran for fit, ran in said)
    fitting, ran = sum(fit for fit, _ in said), sum(ran for _, ran in said)
    if not fitting or not ran:
        return {}
    return {"configurations": float(len(said)), "fit, precision": both / fitting, "fit, recall": both / ran}


def _refused(line: Line) -> str | None:
    """Why a row's time is left out."""
    if line.text("rule"):
        return "breaks a rule of the benchmark itself"
    if not line.text("step_s"):
        return "no time: out of memory, a crash or a time-out"
    if line.text("slow") == "1":
        return "a pipeline that was slower than its model explains (`slow`)"
    if line.text("slow") != "0":
        return "tensor parallelism over hosts, where `slow` is not known"
    return None


def config(model: str, kv_heads: int) -> dict[str, Any]:
    """The `config.json` of a model of the benchmark."""
    shape = SHAPES[model]
    return {
        "model_type": "llama",
        "hidden_size": shape["hidden"],
        "num_hidden_layers": shape["layers"],
        "num_attention_heads": shape["heads"],
        "num_key_value_heads": kv_heads,
        "intermediate_size": shape["width"],
        "vocab_size": VOCABULARY,
        "tie_word_embeddings": shape["tied"],
    }


def stages_of(model: str, pp: int) -> list[int]:
    """Layers of each stage: nanotron fills stage after stage up to an equal share of the cost, the head's included."""
    shape = SHAPES[model]
    hidden, layers = shape["hidden"], shape["layers"]
    layer = 4 * hidden * hidden + 3 * shape["width"] * hidden
    head = VOCABULARY * hidden
    # Blocks in order: embedding (no cost), layers, norm, head.
    blocks = [0, *([layer] * layers), 0, head]
    target = sum(blocks) / pp
    counts, stage, filled = [0] * pp, 0, 0.0
    for index, cost in enumerate(blocks):
        if 1 <= index <= layers:
            counts[stage] += 1
        filled += cost
        if filled >= target and stage < pp - 1:
            stage, filled = stage + 1, 0.0
    return counts


def row_of(line: Line, system: System, *, reserved: str | None = None) -> Row | str:
    """The row of a line, measured in no time where it has none; a text says why it cannot be run."""
    model = line.text("model")
    if model not in SHAPES:
        known = ", ".join(SHAPES)
        raise InputError(f"{line.path}:{line.number}: `model`: expected one of {known}, found `{model}`")
    gpus, dp, tp, pp, micro, batch = (line.count(column) for column in ("gpus", "dp", "tp", "pp", "mbs", "gbs"))
    if dp * tp * pp != gpus or batch % (dp * micro):
        return "the layout does not divide the GPUs or the batch"
    kv = int(float(line.text("kv_heads") or SHAPES[model]["heads"]))
    zero = int(line.text("zero"))
    parallelism: dict[str, Any] = {"tp": tp, "pp": pp, "dp": dp, "zero": zero}
    training: dict[str, Any] = {"precision": "bf16"}
    if reserved is not None:
        training["reserved"] = reserved
    if pp == 1 or gpus <= GPUS_PER_HOST:
        # Hosts are late only while exchanges between pipeline stages go through their adapters.
        training["straggle"] = "0 us"
    if zero == 1:
        parallelism["overlap_gradients"] = False
    if pp > 1:
        counts = stages_of(model, pp)
        if min(counts) < 1:
            return "a stage without a layer"
        parallelism["schedule"] = {"name": "1f1b"}
        training["layers_per_stage"] = counts
    layout = f"n{gpus // GPUS_PER_HOST}-d{dp}-t{tp}-p{pp}-m{micro}-z{zero}-k{kv}"
    return Row(
        id=f"ultrascale/{model}-{layout}",
        system=system.name,
        measured=line.number_in("step_s") if line.text("step_s") else math.inf,
        scenario=training_scenario(
            system,
            gpus=gpus,
            workload={"model": "model.json", "global_batch": batch, "micro_batch": micro, "sequence": SEQUENCE},
            parallelism=parallelism,
            training=training,
        ),
        groups={"size": model, "kind": f"zero {zero}", "scale": f"{gpus} GPUs", "layout": f"tp {tp}, pp {pp}"},
        models={"model.json": config(model, kv)},
    )
