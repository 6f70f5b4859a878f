"""Iteration times copied from papers (`e2e_iteration/published_tables.json.gz`): Megatron-LM SC'21 and Zero Bubble."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError
from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import gpt, training_scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System

ZERO_BUBBLE = {
    "1F1B": ("1f1b", 1),
    "1F1B-I": ("interleaved", None),
    "ZB-H1": ("zb-h1", 1),
    "ZB-1p": ("zb1p", 1),
    "ZB-2p": ("zb-2p", 1),
}
"""Schedules of Qi et al. that the engine has: name and chunks."""


def megatron_sc21(data: Path, systems: Mapping[str, System]) -> Table | None:
    """Narayanan et al. 2021 (arXiv:2104.04473), table 1: ten models on 32 to 3,072 GPUs."""
    return _read("megatron-sc21", "megatron_sc21_t1_", "selene", data, systems, _megatron)


def megatron_zero(data: Path, systems: Mapping[str, System]) -> Table | None:
    """Narayanan et al. 2021 (arXiv:2104.04473), table 2: two models under PTD-P and under ZeRO-3."""
    path = data / "e2e_iteration" / "published_tables.json.gz"
    if not path.is_file():
        return None
    system = systems.get("selene")
    table = Table("megatron-zero", fitted=system.fitted if system else frozenset())
    for record in records(path, "megatron_sc21_t2_", "tflops_per_gpu"):
        if system is None:
            table.exclude("no file of system `selene`")
        else:
            table.add(_beside_zero(record, system))
    return table


def zero_bubble(data: Path, systems: Mapping[str, System]) -> Table | None:
    """Qi et al. 2024 (arXiv:2401.10241), table 4: four models under four schedules."""
    return _read("zero-bubble", "zb_t4_", "zero-bubble-a100", data, systems, _zero_bubble)


def _read(
    name: str,
    prefix: str,
    system_name: str,
    data: Path,
    systems: Mapping[str, System],
    place: Callable[[dict[str, Any]], tuple[dict[str, Any], dict[str, Any], dict[str, Any], str] | str],
) -> Table | None:
    path = data / "e2e_iteration" / "published_tables.json.gz"
    if not path.is_file():
        return None
    system = systems.get(system_name)
    table = Table(name, fitted=system.fitted if system else frozenset())
    for record in records(path, prefix, "iteration_time_s_derived"):
        if system is None:
            table.exclude(f"no file of system `{system_name}`")
            continue
        placed = place(record)
        if isinstance(placed, str):
            table.exclude(placed)
            continue
        workload, parallelism, training, kind = placed
        model, hardware = record["model"], record["hardware"]
        table.add(
            Row(
                id=f"{name}/{record['id']}",
                system=system.name,
                measured=float(record["measured"]["iteration_time_s_derived"]),
                scenario=training_scenario(
                    system,
                    gpus=int(hardware["gpus"]),
                    workload={"model": "model.json", "sequence": model["seq"], **workload},
                    parallelism=parallelism,
                    training=training,
                ),
                groups={"size": str(model.get("name") or f"{model['params_B']:g}B"), "kind": kind},
                models={
                    "model.json": gpt(
                        model["layers"], model["hidden"], model["heads"], model["seq"], model["vocab"], model["ffn"]
                    )
                },
            )
        )
    return table


def _beside_zero(record: Mapping[str, Any], system: System) -> Row:
    """A row of table 2, whose time follows from its rate and the paper's equation 3 for the FLOPs of an iteration."""
    model, layout, gpus = record["model"], record["parallelism"], int(record["hardware"]["gpus"])
    layers, hidden, sequence, vocabulary = (int(model[key]) for key in ("layers", "hidden", "seq", "vocab"))
    tp, pp, batch = (int(layout[key]) for key in ("TP", "PP", "global_batch"))
    sharded = layout["scheme"] == "ZeRO-3"
    share = 1 + sequence / (6 * hidden) + vocabulary / (16 * layers * hidden)
    flops = 96 * batch * sequence * layers * hidden**2 * share
    return Row(
        id=f"megatron-sc21/{record['id']}",
        system=system.name,
        measured=flops / (gpus * float(record["measured"]["tflops_per_gpu"]) * 1e12),
        scenario=training_scenario(
            system,
            gpus=gpus,
            workload={
                "model": "model.json",
                "sequence": sequence,
                "global_batch": batch,
                "micro_batch": layout["micro_batch"],
            },
            parallelism={
                "tp": tp,
                "pp": pp,
                "dp": gpus // (tp * pp),
                # DeepSpeed reduces and gathers beside the computation, layer by layer.
                **({"zero": 3, "reshard": "per_pass", "overlap_gradients": True} if sharded else {}),
                "schedule": {"name": "1f1b"},
            },
            training={"recompute": "full", "sequence_parallel": False, "overlap_backward": False},
        ),
        groups={"size": f"{model['params_B']:g}B", "kind": str(layout["scheme"]), "scale": f"{gpus} GPUs"},
        models={"model.json": gpt(layers, hidden, model["heads"], sequence, vocabulary, model["ffn"])},
    )


def zero_bubble_memory(data: Path, systems: Mapping[str, System]) -> Iterator[Row | str]:
    """Peak memory of Qi et al. 2024, table 4, on its fullest GPU."""
    path = data / "e2e_iteration" / "published_tables.json.gz"
    system = systems.get("zero-bubble-a100")
    for record in records(path, "zb_t4_", "memory_GB") if path.is_file() else ():
        if system is None:
            yield "no file of system `zero-bubble-a100`"
            continue
        placed = _zero_bubble(record)
        if isinstance(placed, str):
            yield placed
            continue
        workload, parallelism, training, kind = placed
        model = record["model"]
        shape = gpt(model["layers"], model["hidden"], model["heads"], model["seq"], model["vocab"], model["ffn"])
        yield Row(
            id=f"memory/{record['id']}",
            system=system.name,
            # Its figures fit GPUs of 80 GB that PyTorch counts in GiB.
            measured=float(record["measured"]["memory_GB"]) * 2**30,
            scenario=training_scenario(
                system,
                gpus=int(record["hardware"]["gpus"]),
                workload={"model": "model.json", "sequence": model["seq"], **workload},
                parallelism=parallelism,
                training=training,
            ),
            groups={"size": str(model["name"]), "kind": f"Zero Bubble, {kind}"},
            models={"model.json": shape},
            quantity="memory",
        )


def rows_of_memory(data: Path, systems: Mapping[str, System]) -> Iterator[Row | str]:
    """Activations of the fullest GPU in Korthikanti et al. 2022, figure 1: nothing recomputed, and both techniques."""
    path = data / "e2e_iteration" / "published_tables.json.gz"
    if not path.is_file():
        return
    system = systems.get("selene")
    for record in records(path, "korthikanti_f1_mem_"):
        if system is None:
            yield "no file of system `selene`"
            continue
        layout, model = record["parallelism"], record["model"]
        pp, chunks = int(layout["PP"]), int(layout["virtual_pp"] or 1)
        schedule = {"name": "interleaved", "chunks": chunks} if chunks > 1 else {"name": "1f1b"}
        for key, both in (("act_GiB_no_recompute_TPonly", False), ("act_GiB_seqpar_selective", True)):
            micro = int(layout["micro_batch"])
            yield Row(
                id=f"memory/{record['id']}-{'both' if both else 'none'}",
                system=system.name,
                measured=float(record["measured"][key]) * 2**30,
                scenario=training_scenario(
                    system,
                    gpus=layout["TP"] * pp,
                    workload={
                        "model": "model.json",
                        "sequence": model["seq"],
                        "micro_batch": micro,
                        # As many micro-batches as fill the pipeline.
                        "global_batch": micro * max(2 * pp, 1),
                    },
                    parallelism={"tp": layout["TP"], "pp": pp, "dp": 1, "schedule": schedule},
                    training={"recompute": "selective" if both else "none", "sequence_parallel": both},
                ),
                groups={"size": str(record["id"]).rpartition("_")[2], "kind": "Korthikanti, activations"},
                models={
                    "model.json": gpt(
                        model["layers"], model["hidden"], model["heads"], model["seq"], model.get("vocab", 51_200)
                    )
                },
                quantity="activations",
            )


def records(path: Path, prefix: str, measured: str | None = None) -> Iterator[dict[str, Any]]:
    """The rows whose ids begin with `prefix`, each with the figure `measured`; `InputError` has a row's place."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            rows = json.load(file)["rows"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a table of published rows: {error}") from error
    for i, record in enumerate(rows):
        try:
            wanted = str(record["id"]).startswith(prefix)
            if wanted and measured is not None:
                float(record["measured"][measured])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: rows[{i}]: {error} is missing or no number") from error
        if wanted:
            yield record


def _megatron(record: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]:
    layout = record["parallelism"]
    chunks = int(layout["virtual_pp"] or 1)
    schedule = {"name": "interleaved", "chunks": chunks} if chunks > 1 else {"name": "1f1b"}
    return (
        {"global_batch": layout["global_batch"], "micro_batch": layout["micro_batch"]},
        {"tp": layout["TP"], "pp": layout["PP"], "dp": layout["DP"], "schedule": schedule},
        {"recompute": "full", "sequence_parallel": False, "overlap_backward": False},
        str(schedule["name"]),
    )


def _zero_bubble(
    record: dict[str, Any],
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], str] | str:
    layout, model = record["parallelism"], record["model"]
    name = str(layout["schedule"])
    if name not in ZERO_BUBBLE:
        return f"schedule `{name}` is not modelled"
    schedule, chunks = ZERO_BUBBLE[name]
    pp, micro = int(layout["PP"]), int(layout["micro_batch"])
    # Section 5: interleaving with the most chunks that the layers allow, one layer each; the first and the last stage
    # hold one layer less beside embedding and head.
    chunks = chunks or -(-int(model["layers"]) // pp)
    return (
        {"global_batch": micro * int(layout["num_microbatches"]), "micro_batch": micro},
        {
            "pp": pp,
            "schedule": {"name": schedule, "chunks": chunks} if schedule == "interleaved" else {"name": schedule},
        },
        {},
        name,
    )
