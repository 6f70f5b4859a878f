"""Marin's mixtures of experts on racks of GB200 (github.com/marin-community/marin, the issue of each row).

The runs of Megatron are eager, with routing balanced by force and Adam; those of levanter are compiled whole by XLA and
step by Muon. A row whose issue does not restate heads or widths, or how wide its experts were spread, has no scenario.
Some have a window of attention, in layers that their issues do not name: all layers see everything here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import Line, lines, racks, training_scenario

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System

COLUMNS = (
    "id", "issue", "date", "gpu", "gpus", "framework", "hidden", "layers", "heads", "kv_heads", "experts", "topk",
    "expert_ffn", "shared_ffn", "seq", "global_batch", "fsdp", "ep", "transport", "recompute", "capacity_factor",
    "step_s", "complete_shape", "note",
)  # fmt: skip
SYSTEM = "gb200-nvl72"
FRAMEWORKS = {"megatron": "nemo", "levanter-grug": "levanter"}
SCATTERED = 31.9
"""Bytes a copy and feature that levanter moved besides, forward, before it put tokens in order by gathers with a
gradient written by hand: that made steps of 5,120 features, 48 layers and 8 of 256 experts on 64 GB200 10.7823 s where
they had been 13.3153 s (issue 7201, rows m08 and m10, which have no scenario). 65,536 tokens a GPU pass the experts
twice forward and once backward, which takes twice as long, at the GPU's bandwidth."""
GATHERED = "2026-08-02"
"""The date of that change."""
VOCABULARY = 128_256
"""The tokenizer is Llama 3's."""


def read(data: Path, systems: Mapping[str, System]) -> Table | None:
    """Steps whose model and layout are stated."""
    path = data / "e2e_iteration" / "marin_moe.csv"
    if not path.is_file():
        return None
    system = systems.get(SYSTEM)
    table = Table("marin", fitted=system.fitted if system else frozenset())
    for line in lines(path, COLUMNS):
        refused = _refused(line) if system else f"no file of system `{SYSTEM}`"
        if refused or system is None:
            table.exclude(refused or "")
        else:
            table.add(_row(line, system))
    return table


def _refused(line: Line) -> str | None:
    """Why a row is left out."""
    if line.text("gpu") != "GB200":
        return f"no system of `{line.text('gpu')}`"
    if line.text("framework") not in FRAMEWORKS:
        return f"no sheet of framework `{line.text('framework')}`"
    if line.text("complete_shape") != "1" or not line.text("expert_ffn"):
        return "the issue does not restate the model's shape"
    if not line.text("ep"):
        return "how wide experts are spread is not stated"
    if "artefact" in line.text("note"):
        return "an artefact of the compiler's flags by the issue's own note"
    return None


def _row(line: Line, system: System) -> Row:
    gpus, ep = line.count("gpus"), line.count("ep")
    framework = FRAMEWORKS[line.text("framework")]
    training: dict[str, Any] = {"framework": framework, "precision": "bf16"}
    if framework == "levanter":
        training["optimizer"] = "muon"
        if line.text("date") < GATHERED:
            training["permute_traffic"] = SCATTERED
    # HybridEP is DeepEP's twin; how many SMs it had stands behind its name.
    dispatcher = re.match(r"(?:HybridEP|DeepEP)\D*(\d+)?", line.text("transport"))
    if dispatcher:
        training |= {"dispatcher": "deepep", "dispatcher_sms": int(dispatcher[1] or 32)}
    if line.text("recompute") == "all":
        training["recompute"] = "full"
    parallelism: dict[str, Any] = {"ep": ep, "dp": gpus // ep}
    copies = line.text("fsdp").partition("-GPU")[0]
    if copies.isdigit():
        parallelism |= {"zero": 3, "replicate": gpus // int(copies)}
    # Levanter adds up no gradients unless told to: its step is one pass over a GPU's whole share of the batch.
    micro = 1 if framework == "nemo" else line.count("global_batch") // gpus
    scenario = training_scenario(
        system,
        gpus=gpus,
        workload={
            "model": "model.json",
            "sequence": line.count("seq"),
            "global_batch": line.count("global_batch"),
            "micro_batch": micro,
        },
        parallelism=parallelism,
        training=training,
    )
    racks(scenario, gpus)
    return Row(
        id=f"marin/{line.text('id')}",
        system=system.name,
        measured=line.number_in("step_s"),
        scenario=scenario,
        groups={"kind": line.text("framework"), "scale": f"{gpus} GPUs", "size": f"{line.text('experts')} experts"},
        models={"model.json": _model(line)},
    )


def _model(line: Line) -> dict[str, Any]:
    """A `config.json` of the row's shape."""
    heads, hidden = line.count("heads"), line.count("hidden")
    return {
        "model_type": "qwen2_moe",
        "hidden_size": hidden,
        "num_hidden_layers": line.count("layers"),
        "num_attention_heads": heads,
        "num_key_value_heads": line.count("kv_heads"),
        "head_dim": hidden // heads,
        "moe_intermediate_size": line.count("expert_ffn"),
        "num_experts": line.count("experts"),
        "num_experts_per_tok": line.count("topk"),
        "intermediate_size": line.count("shared_ffn"),
        "shared_expert_intermediate_size": line.count("shared_ffn"),
        "vocab_size": VOCABULARY,
    }
