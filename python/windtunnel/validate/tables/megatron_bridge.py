"""NVIDIA's published throughputs of Megatron-Bridge on DGX H100, B200, B300, GB200 and GB300.

A cell such as `1614 (1540)` holds two runs: FP8 with a scale a tensor, and MXFP8 in brackets; so do its layout's cells.
Recomputation is that of the repository's recipes (`src/megatron/bridge/perf_recipes`), which is none but where
`RECOMPUTE` says otherwise. Experts are balanced by force and no token is dropped (the page's note on MoE).
What the host launches kernel by kernel, how experts are computed and which all-to-alls hide behind another micro-batch
is what the recipes say at the tag of a container (v0.1.0rc4 is 25.09, v0.2.0 25.11, v0.3.0 26.02, v0.4.2 26.04 and
v0.5.1 26.06):
`cuda_graph_scope`, `cutedsl_fused_grouped_mlp`, `moe_a2a_overlap`, `moe_flex_dispatcher_backend` and, for 25.09,
`use_tokendrop`. Of dense models the products next to tensor-parallel collectives are split so that both overlap, but in
NVFP4 (`tp_comm_overlap` of `scripts/performance/configs/llama`, with its user buffers).
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from windtunnel.engine import InputError
from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import Line, lines, racks, training_scenario
from windtunnel.validate.tables.torchtitan import even

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System

COLUMNS = ("section", "system", "gpus", "precision", "seq", "tokens_per_s_per_gpu", "raw_json")

SYSTEMS = {
    "H100": "eos",
    "H200": "hgx-h200",
    "B200": "dgx-b200",
    "B300": "dgx-b300",
    "GB200": "gb200-nvl72",
    "GB300": "gb300-nvl72",
}


class Model(NamedTuple):
    """A model's sheet and its layers."""

    sheet: str
    layers: int
    experts: bool


MODELS = {
    "LLAMA3_8B": Model("llama3-8b", 32, experts=False),
    "LLAMA3_70B": Model("llama3-70b", 80, experts=False),
    "LLAMA3.1_405B": Model("llama3-405b", 126, experts=False),
    "DEEPSEEKV3": Model("deepseek-v3", 61, experts=True),
    "QWEN3_30B_A3B": Model("qwen3-30b-a3b", 48, experts=True),
    "QWEN3_235B_A22B": Model("qwen3-235b-a22b", 94, experts=True),
    "GPT OSS 120B": Model("gpt-oss-120b", 36, experts=True),
    "KIMI_K2": Model("kimi-k2", 61, experts=True),
}
PRECISIONS = {
    "BF16": "bf16",
    "FP8": "fp8",
    "FP8-CS": "fp8",
    "FP8-DS": "fp8",
    "MXFP8": "fp8",
    "FP8-MX": "fp8",
    "NVFP4": "fp4",
}
RECOMPUTE: dict[tuple[str, str, str], dict[str, Any]] = {
    ("LLAMA3_8B", "H100", "fp8"): {"recompute": "full", "recompute_layers": 5},
}
"""(model, chip, format) → recomputation where the recipe of the repository has one of whole layers."""
QWENS = ("QWEN3_30B_A3B", "QWEN3_235B_A22B")
WHOLE = {
    *((model, chip) for model in QWENS for chip in ("B200", "B300", "GB200", "GB300")),
    *(("GPT OSS 120B", chip) for chip in ("GB200", "GB300")),
}
"""(model, chip) whose MXFP8 recipes capture whole iterations from 26.06 on, with fused experts, hidden all-to-alls."""
LAYERS = {
    ("QWEN3_235B_A22B", "GB200"): "25.11",
    ("QWEN3_235B_A22B", "GB300"): "26.02",
    ("QWEN3_30B_A3B", "B200"): "26.04",
    ("GPT OSS 120B", "GB300"): "25.11",
    ("GPT OSS 120B", "B300"): "25.11",
    ("DEEPSEEKV3", "GB300"): "25.11",
}
"""(model, chip) → container from which attention and routing are captured, the experts not."""
HIDDEN = {
    **{(model, "H100"): "25.11" for model in QWENS},
    ("DEEPSEEKV3", "H100"): "25.09",
    ("QWEN3_235B_A22B", "B200"): "25.11",
    ("QWEN3_235B_A22B", "B300"): "26.02",
    ("GPT OSS 120B", "GB200"): "26.04",
}
"""(model, chip) → container whose recipe hides all-to-alls; B200 and B300 dropped it in the next."""
DROPPED = {("QWEN3_235B_A22B", "B200"): "26.02", ("QWEN3_235B_A22B", "B300"): "26.04"}
PADDED = {
    **{("DEEPSEEKV3", chip): "26.02" for chip in ("H100", "B200", "B300", "GB200", "GB300")},
    **{("QWEN3_30B_A3B", chip): "26.02" for chip in ("B300", "GB200", "GB300")},
    **{("QWEN3_30B_A3B", chip): "26.04" for chip in ("H100", "B200")},
    **{("QWEN3_235B_A22B", chip): "26.02" for chip in ("GB200", "GB300")},
    ("QWEN3_235B_A22B", "B300"): "26.04",
    ("KIMI_K2", "GB300"): "26.04",
}
"""(model, chip) → container from which the dispatcher (HybridEP) pads experts' tokens for 8 bits: before, and with
other dispatchers, they are copied (Megatron-Core 0.15, `Fp8Padding`)."""
DISPATCHED = {
    ("DEEPSEEKV3", "H100"): "25.09",
    **{("DEEPSEEKV3", chip): "25.11" for chip in ("GB200", "GB300")},
    **{("DEEPSEEKV3", chip): "26.02" for chip in ("B200", "B300")},
    **{(model, chip): "25.11" for model in QWENS for chip in ("GB200", "GB300")},
    **{("QWEN3_30B_A3B", chip): "26.02" for chip in ("H100", "B300")},
    ("QWEN3_30B_A3B", "B200"): "26.04",
    ("QWEN3_235B_A22B", "B300"): "26.04",
    ("GPT OSS 120B", "B300"): "26.04",
    **{("GPT OSS 120B", chip): "26.06" for chip in ("GB200", "GB300")},
    ("KIMI_K2", "GB300"): "26.02",
}
"""(model, chip) → container from which DeepEP or HybridEP takes tokens to experts (`moe_flex_dispatcher_backend`)."""
SMS = 32
"""SMs of HybridEP (`moe_hybridep_num_sms`)."""
HIDDEN_SHARE = 0.37
"""Share of the exchange that Megatron-Core hides, measured on 16 H100 with Qwen3-30B-A3B: `skills/
nemo-mbridge-perf-moe-comm-overlap` of the repository, communication hidden by compute 36.55%."""
HIDDEN_IN_DOMAIN = 0.65
"""The same inside one scale-up domain where whole iterations are captured: fitted on `FITTED`, which is not scored."""
FITTED = frozenset({"megatron-bridge/26.06-QWEN3_30B_A3B-GB200-fp8-g8-b512-m4-s4096-t1-p1-c1-v1-e8"})
NEW = {"B300", "GB300", "H200"}
"""Chips of which no kernel and no end-to-end figure was fitted: shown as inferred."""


def read(data: Path, systems: Mapping[str, System]) -> Table | None:
    """Step times from tokens per second and GPU."""
    path = data / "e2e_iteration" / "megatron_bridge_measured_throughput.csv"
    if not path.is_file():
        return None
    table = Table("megatron-bridge", fitted=FITTED)
    seen: dict[str, int] = {}
    for line in lines(path, COLUMNS):
        for run in _runs(line):
            row = run if isinstance(run, str) else _row(run, systems)
            if isinstance(row, str):
                table.exclude(row)
                continue
            table.fitted |= systems[row.system].fitted
            # The same configuration in another container is another measurement.
            count = seen[row.id] = seen.get(row.id, 0) + 1
            table.add(row if count == 1 else replace(row, id=f"{row.id}-{count}"))
    return table


class Run(NamedTuple):
    """A measured run."""

    line: Line
    container: str
    task: str
    model: str
    chip: str
    gpus: int
    precision: str
    batch: int
    micro: int
    sequence: int
    fsdp: int
    tp: int
    pp: int
    cp: int
    vp: int
    ep: int
    tokens: float
    padded: bool
    predictions: int


def _runs(line: Line) -> Iterator[Run | str]:
    try:
        cells = json.loads(line.text("raw_json"))
        container, task, last = (part.strip() for part in line.text("section").split("/")[-3:])
    except ValueError as error:
        raise InputError(f"{line.path}:{line.number}: `raw_json` or `section`: {error}") from error
    last = last.partition(":")[2].strip()
    chip = (line.text("system") or (last if last.startswith("DGX") else "")).removeprefix("DGX-")
    model = str(cells.get("Model") or last).strip()
    note = ""
    found = re.match(r"(.*?)\s*\((.*)\)$", model)
    if found:
        model, note = found[1], found[2]
    refused = _refused(model, chip, line.text("system") or last, cells)
    if refused:
        yield refused
        return
    halves = 2 if any("(" in str(value) for key, value in cells.items() if key != "Model") else 1
    for half in range(halves):
        part = {key: _half(str(value), half) for key, value in cells.items()}
        precision = part.get("Precision") or ("FP8-CS", "FP8-MX")[half]
        known = PRECISIONS.get(precision.strip().upper())
        if known is None:
            yield f"no such precision: `{precision}`"
            continue

        def whole(key: str, default: int | None = None, part: Mapping[str, str] = part) -> int:
            text = part.get(key, "").replace(",", "").strip()
            if default is not None and (text in ("", "n/a") or key not in part):
                return default
            if not text.isdigit():
                raise InputError(f"{line.path}:{line.number}: `raw_json`: `{key}`: expected a number, found `{text}`")
            return int(text)

        yield Run(
            line, container, task, model.upper(), chip, whole("#-GPUs"), known, whole("GBS"), whole("MBS"),
            whole("Sequence Length"), whole("FSDP", -1), whole("TP"), whole("PP"), whole("CP", 1), whole("VP", 1),
            whole("EP", 1), float(whole("Tokens / sec / GPU")), "tokendrop" in note,
            int("w/ MTP" in note),
        )  # fmt: skip


def _refused(model: str, chip: str, system: str, cells: Mapping[str, Any]) -> str | None:
    """Why a line is left out."""
    if model.upper().startswith("NEMOTRON"):
        return "hybrids of attention and state-space layers are not modelled"
    if model.upper() not in MODELS:
        return f"no sheet of model `{model}`"
    if chip not in SYSTEMS:
        return f"no file of system `{system}`"
    if "[^" in str(cells.get("Model TFLOP / sec / GPU", "")):
        return "a regression by the page's own note"
    return None


def _half(text: str, half: int) -> str:
    """Of `a (b)` the first or the second; of anything else all."""
    found = re.match(r"^\s*(\S+)\s*\((\S+)\)\s*$", text)
    return text.strip() if found is None else found[1 + half]


def _software(run: Run, *, experts: bool) -> dict[str, Any]:
    """What the recipe of the run's container does: graphs, how experts are computed, what is hidden."""
    if not experts:
        dense: dict[str, Any] = {"graphs": "none" if run.container.startswith("25.") else "all"}
        if run.tp > 1 and run.precision != "fp4":
            dense["overlap_chunks"] = run.tp
        return dense
    place, container = (run.model, run.chip), run.container.split()[0]

    def since(table: Mapping[tuple[str, str], str]) -> bool:
        return place in table and container >= table[place]

    carried: dict[str, Any] = {}
    if since(DISPATCHED):
        carried = {"dispatcher": "deepep"}
        if run.chip != "H100" or since(PADDED):
            carried["dispatcher_sms"] = SMS
    if place in WHOLE and container >= "26.06" and run.precision == "fp8":
        return {
            "graphs": "all",
            "fused_experts": True,
            "fused_expert_mlp": True,
            "hidden_exchange": HIDDEN_IN_DOMAIN,
            **carried,
        }
    found: dict[str, Any] = {"graphs": "layers" if since(LAYERS) else "none", **carried}
    if since(HIDDEN) and not since(DROPPED):
        found["hidden_exchange"] = HIDDEN_SHARE
    if since(PADDED):
        found["padded_experts"] = False
    if run.padded:
        found["capacity_factor"] = 1.0
    if run.model == "DEEPSEEKV3" and container.startswith("25.09") and "dispatcher" not in found:
        found["overlap_shared"] = True
    return found


def _row(run: Run, systems: Mapping[str, System]) -> Row | str:
    system = systems.get(SYSTEMS[run.chip])
    if system is None:
        return f"no file of system `{SYSTEMS[run.chip]}`"
    model = MODELS[run.model]
    shards = run.gpus // (run.tp * run.pp * run.cp)
    if shards * run.tp * run.pp * run.cp != run.gpus or run.batch % (shards * run.micro):
        return "the layout does not divide the GPUs or the batch"
    # Without a column for it: a dense model on one stage and one tensor-parallel rank that would not fit is sharded.
    fsdp = run.fsdp > 1
    micro_batches = run.batch // (shards * run.micro)
    chunks = run.vp if run.pp > 1 else 1
    stages = run.pp * chunks
    if chunks > 1 and micro_batches % run.pp:
        return "the micro-batches do not divide into the pipeline's ranks"
    training: dict[str, Any] = {"precision": run.precision, **RECOMPUTE.get((run.model, run.chip, run.precision), {})}
    if run.precision == "fp8":
        training["parameters"] = "fp8"
    if "LoRA" in run.task:
        training["lora_rank"] = 16
    if run.predictions:
        training["multi_token_prediction"] = run.predictions
    training |= _software(run, experts=model.experts)
    if run.pp > 1:
        training["layers_per_stage"] = even(model.layers, stages)
    parallelism: dict[str, Any] = {"tp": run.tp, "pp": run.pp, "cp": run.cp}
    if model.experts:
        # Experts lie over tensor-parallel ranks too; a rank of the expert dimension holds its tokens.
        ep = min(run.ep, shards)
        parallelism |= {"ep": ep, "dp": shards // ep}
        training["expert_tp"] = 1
    else:
        parallelism["dp"] = shards
    if fsdp:
        parallelism |= {"zero": 3, "reshard": "per_pass"}
    if run.pp > 1:
        parallelism["schedule"] = {"name": "interleaved", "chunks": chunks} if chunks > 1 else {"name": "1f1b"}
    scenario = training_scenario(
        system,
        gpus=run.gpus,
        workload={
            "model": model.sheet,
            "global_batch": run.batch,
            "micro_batch": run.micro,
            "sequence": run.sequence,
        },
        parallelism=parallelism,
        training=training,
    )
    racks(scenario, run.gpus)
    inferred = run.chip in NEW or run.precision == "fp4"
    kind = "other chips and FP4" if inferred else "MoE" if model.experts else "dense"
    layout = f"g{run.gpus}-b{run.batch}-m{run.micro}-s{run.sequence}-t{run.tp}-p{run.pp}-c{run.cp}-v{run.vp}-e{run.ep}"
    task = "" if "Pre-Training" in run.task else f"-{run.task.split()[0]}"
    return Row(
        id=f"megatron-bridge/{run.container.split()[0]}-{run.model}-{run.chip}-{run.precision}-{layout}{task}",
        system=system.name,
        measured=run.batch * run.sequence / (run.tokens * run.gpus),
        scenario=scenario,
        groups={
            "kind": kind,
            "size": model.sheet,
            "chip": run.chip,
            "precision": run.precision,
            "scale": f"{run.gpus} GPUs",
            "task": run.task.replace(" Performance", ""),
        },
    )
