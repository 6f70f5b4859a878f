"""Jiang et al. 2024 (arXiv:2402.15627, NSDI 2024), table 2: a model of 175B on 256 to 12,288 A100 under Megatron-LM.

MegaScale's own rows train another network: attention beside the feed-forward block, attention in a window, and another
optimiser. MegaScale-MoE (arXiv:2505.11432, table 3) does not print its model's shape. Both are left out, by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import gpt, training_scenario
from windtunnel.validate.tables.published import records

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System

SYSTEM = "megascale-a100"
LEFT_OUT = {
    "megascale_t2_MegaScale_": "parallel blocks, attention in a window and LAMB are not modelled",
    "megascale_moe_t3_": "the paper does not print the model's shape",
}


def read(data: Path, systems: Mapping[str, System]) -> Table | None:
    """Iterations of Megatron-LM."""
    path = data / "e2e_iteration" / "published_tables.json.gz"
    if not path.is_file():
        return None
    system = systems.get(SYSTEM)
    table = Table("megascale", fitted=system.fitted if system else frozenset())
    for prefix, reason in LEFT_OUT.items():
        table.exclude(reason, sum(1 for _ in records(path, prefix, "iteration_time_s")))
    for record in records(path, "megascale_t2_Megatron-LM_", "iteration_time_s"):
        if system is None:
            table.exclude(f"no file of system `{SYSTEM}`")
        else:
            table.add(_row(record, system))
    return table


def _row(record: Mapping[str, Any], system: System) -> Row:
    model, layout, gpus = record["model"], record["parallelism"], int(record["hardware"]["gpus"])
    return Row(
        id=f"megascale/{record['id']}",
        system=system.name,
        measured=float(record["measured"]["iteration_time_s"]),
        scenario=training_scenario(
            system,
            gpus=gpus,
            workload={
                "model": "model.json",
                "sequence": model["seq"],
                "global_batch": layout["global_batch"],
                "micro_batch": 1,
            },
            parallelism={
                "tp": layout["TP"],
                "pp": layout["PP"],
                "dp": layout["DP"],
                # Its optimiser's state is sharded; the second stage of ZeRO comes with MegaScale.
                "zero": 1,
                "schedule": {"name": "interleaved", "chunks": layout["virtual_pp"]},
            },
            training={"precision": "bf16", "recompute": "selective"},
        ),
        groups={"size": f"{model['params_B']:g}B", "kind": "Megatron-LM", "scale": f"{gpus} GPUs"},
        models={
            "model.json": gpt(
                model["layers"], model["hidden"], model["heads"], model["seq"], model["vocab"], model["ffn"]
            )
        },
    )
