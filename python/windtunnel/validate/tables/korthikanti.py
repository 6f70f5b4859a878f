"""Korthikanti et al. 2022 (arXiv:2205.05198), table 5: Megatron-LM, sequence parallelism, selective recomputation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import gpt, lines, training_scenario

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System

SYSTEM = "selene"
VOCABULARY = 51_200
COLUMNS = (
    "model",
    "recompute",
    "measured_iteration_s",
    "gpus",
    "tp",
    "pp",
    "dp",
    "micro_batch",
    "global_batch",
    "hidden",
    "feedforward",
    "seq",
    "attn_heads",
    "blocks",
)
CHUNKS = {"gpt3-175B": 3, "turing-530B": 3}
"""Interleaved stages (section 6.2: interleaving with m = 3 for 175B and 530B)."""


def read(data: Path, systems: Mapping[str, System]) -> Table | None:
    """All eight rows."""
    path = data / "e2e_iteration" / "megatron_seqsel_tab5.csv"
    if not path.is_file():
        return None
    system = systems.get(SYSTEM)
    table = Table("korthikanti", fitted=system.fitted if system else frozenset())
    for line in lines(path, COLUMNS):
        if system is None:
            table.exclude(f"no file of system `{SYSTEM}`")
            continue
        model, recompute = line.text("model"), line.text("recompute")
        both = recompute == "seqsel"
        pp = line.count("pp")
        chunks = CHUNKS.get(model, 1)
        schedule = {"name": "interleaved", "chunks": chunks} if pp > 1 and chunks > 1 else {"name": "1f1b"}
        scenario = training_scenario(
            system,
            gpus=line.count("gpus"),
            workload={
                "model": "model.json",
                "global_batch": line.count("global_batch"),
                "micro_batch": line.count("micro_batch"),
                "sequence": line.count("seq"),
            },
            parallelism={"tp": line.count("tp"), "pp": pp, "dp": line.count("dp"), "schedule": schedule},
            training={"recompute": "selective" if both else "full", "sequence_parallel": both},
        )
        table.add(
            Row(
                id=f"korthikanti/{model}-{recompute}",
                system=system.name,
                measured=line.number_in("measured_iteration_s"),
                scenario=scenario,
                groups={"size": model, "kind": recompute},
                models={
                    "model.json": gpt(
                        line.count("blocks"),
                        line.count("hidden"),
                        line.count("attn_heads"),
                        line.count("seq"),
                        VOCABULARY,
                        line.count("feedforward"),
                    )
                },
            )
        )
    return table
