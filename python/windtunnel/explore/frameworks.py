"""A layout as settings of four frameworks, with what each of them cannot say.

Names are those of Megatron-LM's command line (`megatron/training/arguments.py` of 2025 and 2026), torchtitan's TOML
sections `parallelism`, `training` and `activation_checkpoint`, nanotron's YAML sections `parallelism` and `tokens`, and
NeMo's `MegatronStrategy`.

Settings that leave something of a layout out mean another layout, which takes another time. So what a framework lacks
stands first, and the settings below it are comments.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.explore.search import even

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel.explore.space import Candidate
    from windtunnel.layout.job import Job

TITLES = {"megatron": "Megatron-LM", "torchtitan": "torchtitan", "nanotron": "nanotron", "nemo": "NeMo"}

HABITS = ("profile", "dispatch", "compute_share", "fused", "fused_loss", "attention", "gradients", "graphs")
"""Keys of `training` of which any means that a job without a framework has nobody's habits (docs/scenario.md)."""


@dataclass
class Told:
    """Settings, what of the layout they cannot say, and what to see to."""

    framework: str
    lines: list[str] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def text(self) -> str:
        """As a file; nothing of it is a setting where the framework lacks something."""
        title = TITLES[self.framework]
        head = [f"# note: {note}" for note in self.notes]
        if not self.lacks:
            return "\n".join([*head, *self.lines]) + "\n"
        head = [f"# {title} cannot run this layout:", *(f"# - {lack}" for lack in self.lacks), *head]
        rest = f"# What {title} has of it would be another layout, so it is commented out:"
        return "\n".join([*head, rest, *(f"# {line}".rstrip() for line in self.lines)]) + "\n"

    def record(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {"framework": self.framework, "text": self.text(), "cannot": self.lacks, "notes": self.notes}

    def warning(self) -> str | None:
        """The same as a sentence, None where all is said."""
        title = TITLES[self.framework]
        parts = [f"{title} cannot run this layout: {'; '.join(self.lacks)}"] if self.lacks else []
        return "; ".join([*parts, *(f"{title}: {note}" for note in self.notes)]) or None


@dataclass(frozen=True)
class Layout:
    """A candidate with what a framework asks of it beside."""

    job: Job
    it: Candidate

    @property
    def micro_batches(self) -> int:
        """Of a pipeline."""
        return self.job.global_batch // (self.it.micro_batch * self.it.dp * self.it.ep)

    @property
    def layers(self) -> list[int]:
        """Of each stage, in the order of the model."""
        return list(self.it.layers) or even(self.job.layers, self.it.stages) or []

    @property
    def equal(self) -> bool:
        """Whether all stages have as many."""
        return len(set(self.layers)) <= 1

    @property
    def recomputed(self) -> int | None:
        """Layers of a stage that are recomputed whole; None: all of them."""
        return self.training.get("recompute_layers") if self.it.recompute == "full" else None

    @property
    def predictions(self) -> int:
        """Modules of multi-token prediction."""
        return int(self.training.get("multi_token_prediction") or 0)

    @property
    def training(self) -> dict[str, Any]:
        """What the scenario says of training."""
        return self.job.own["training"] or {}

    @property
    def sequence_parallel(self) -> bool:
        """Whether tensor parallelism shares sequences out too."""
        return self.it.tp > 1 and self.training.get("sequence_parallel") is not False

    @property
    def overlaps(self) -> bool:
        """Whether gradients are reduced beside the backward pass in the run, as the engine decides it."""
        if self.it.zero == 3:
            return True
        said = self.job.own["parallelism"].get("overlap_gradients")
        return bool(habit(self, "overlap_gradients", default=True) if said is None else said)


def habit(layout: Layout, key: str, *, default: object) -> object:
    """What the job's framework does about a key of `parallelism` that the scenario leaves out."""
    from windtunnel.shipped import data  # noqa: PLC0415

    it, training = layout.it, layout.training
    name = training.get("framework")
    if name is None:
        alone = it.zero == 3 and it.tp == it.pp == it.ep == 1
        name = "none" if any(key in training for key in HABITS) else "fsdp" if alone else "megatron"
    path: Path = data() / "frameworks" / f"{name}.yaml"
    path = path if path.is_file() else layout.job.source.base / str(name)
    if name == "none" or not path.is_file():
        return default
    tree = json.loads(engine.scenario_tree(path.read_text(encoding="utf-8"), str(path), []))
    said = (tree.get("parallelism") or {}).get(key)
    said = said.get("value") if isinstance(said, dict) else said
    return default if said is None else said


def megatron(layout: Layout) -> Told:
    """Flags of Megatron-LM."""
    job, it, told = layout.job, layout.it, Told("megatron")
    lines = told.lines
    lines += [
        f"--tensor-model-parallel-size {it.tp}", f"--context-parallel-size {it.cp}",
        f"--expert-model-parallel-size {it.ep}", f"--pipeline-model-parallel-size {it.pp}",
        f"--micro-batch-size {it.micro_batch}", f"--global-batch-size {job.global_batch}",
        f"--seq-length {job.sequence}",
    ]  # fmt: skip
    if layout.sequence_parallel:
        lines.append("--sequence-parallel")
    if "expert_tp" in layout.training:
        lines.append(f"--expert-tensor-parallel-size {layout.training['expert_tp']}")
    if it.pp > 1 and not layout.equal:
        lines.append(f"--pipeline-model-parallel-layout '{_core_layout(layout)}'")
    elif it.chunks > 1:
        lines.append(f"--num-layers-per-virtual-pipeline-stage {layout.layers[0] if layout.layers else 1}")
    if it.chunks > 1 and it.run_length:
        lines.append(f"--microbatch-group-size-per-virtual-pipeline-stage {it.run_length}")
    _megatron_shards(layout, told)
    if it.recompute == "full":
        kept = layout.recomputed
        how = "uniform --recompute-num-layers 1" if kept is None else f"block --recompute-num-layers {kept}"
        lines.append(f"--recompute-granularity full --recompute-method {how}")
    elif it.recompute == "selective":
        lines.append("--recompute-granularity selective --recompute-modules core_attn")
    if it.order == "dp-out":
        lines.append("--use-tp-pp-dp-mapping")
    if layout.predictions:
        lines.append(f"--mtp-num-layers {layout.predictions}")
    if layout.training.get("optimizer") == "muon":
        lines.append("--optimizer muon")
    _core_lacks(layout, told)
    return told


def _megatron_shards(layout: Layout, told: Told) -> None:
    """What replicas share out, and whether they do so beside the backward pass."""
    it, lines = layout.it, told.lines
    if it.zero == 1:
        lines.append("--use-distributed-optimizer")
    elif it.zero in (2, 3):
        kind = "optim_grads_params" if it.zero == 3 else "optim_grads"
        lines += [
            "--use-megatron-fsdp", "--use-distributed-optimizer", f"--data-parallel-sharding-strategy {kind}",
            "--ckpt-format fsdp_dtensor", "--no-gradient-accumulation-fusion",
        ]  # fmt: skip
        told.notes.append("Megatron-FSDP needs CUDA_DEVICE_MAX_CONNECTIONS unset or above 1")
    if layout.overlaps:
        # Parameters are gathered by the distributed optimizer alone.
        lines += ["--overlap-grad-reduce", *(["--overlap-param-gather"] if it.zero else [])]
    if it.zero and it.replicate > 1:
        lines.append(f"--num-distributed-optimizer-instances {it.replicate}")


def nemo(layout: Layout) -> Told:
    """NeMo's `MegatronStrategy` and what stands in the model's config."""
    job, it, told = layout.job, layout.it, Told("nemo")
    virtual = it.chunks if it.chunks > 1 else None
    ddp = [f"use_distributed_optimizer={it.zero > 0}", f"overlap_grad_reduce={layout.overlaps}"]
    ddp.append(f"overlap_param_gather={layout.overlaps and it.zero > 0}")
    if it.zero in (2, 3):
        kind = "optim_grads_params" if it.zero == 3 else "optim_grads"
        ddp += ["use_megatron_fsdp=True", f'data_parallel_sharding_strategy="{kind}"']
        told.notes.append("Megatron-FSDP needs NeMo 2.4 or later and CUDA_DEVICE_MAX_CONNECTIONS unset or above 1")
    if it.zero and it.replicate > 1:
        ddp.append(f"num_distributed_optimizer_instances={it.replicate}")
    expert = layout.training.get("expert_tp")
    told.lines += [
        "strategy = nl.MegatronStrategy(",
        f"    tensor_model_parallel_size={it.tp},", f"    context_parallel_size={it.cp},",
        f"    expert_model_parallel_size={it.ep},", f"    pipeline_model_parallel_size={it.pp},",
        f"    virtual_pipeline_model_parallel_size={virtual},", f"    sequence_parallel={layout.sequence_parallel},",
        f"    use_tp_pp_dp_mapping={it.order == 'dp-out'},",
        *([f"    num_distributed_optimizer_instances={it.replicate},"] if it.zero and it.replicate > 1 else []),
        *([f"    expert_tensor_parallel_size={expert},"] if expert is not None else []),
        *(['    fsdp="megatron",'] if it.zero in (2, 3) else []),
        f"    ddp=DistributedDataParallelConfig({', '.join(ddp)}),",
        ")",
        "data = MockDataModule(",
        f"    seq_length={job.sequence}, micro_batch_size={it.micro_batch}, global_batch_size={job.global_batch},",
        ")",
    ]  # fmt: skip
    if it.chunks > 1 and it.run_length:
        told.lines.append(f"config.microbatch_group_size_per_vp_stage = {it.run_length}")
    if it.pp > 1 and not layout.equal:
        told.lines.append(f'config.pipeline_model_parallel_layout = "{_core_layout(layout)}"')
    if layout.predictions:
        told.lines.append(f"config.mtp_num_layers = {layout.predictions}")
    if it.recompute == "full":
        kept = layout.recomputed
        method, number = ("uniform", 1) if kept is None else ("block", kept)
        told.lines.append(f'config.recompute_granularity, config.recompute_method = "full", "{method}"')
        told.lines.append(f"config.recompute_num_layers = {number}")
    elif it.recompute == "selective":
        told.lines.append('config.recompute_granularity, config.recompute_modules = "selective", ["core_attn"]')
    _core_lacks(layout, told)
    return told


def _core_layout(layout: Layout) -> str:
    """Layers of the stages as Megatron-Core writes them: `Et*3|t*4|t*4|t*3mL`, `m` for a module that predicts."""
    stages = ["t" * n if n < 2 else f"t*{n}" for n in layout.layers]
    return "E" + "|".join(stages) + "m" * layout.predictions + "L"


def _core_lacks(layout: Layout, told: Told) -> None:
    """What Megatron-Core does not have."""
    it, said = layout.it, layout.job.own["parallelism"].get("reshard")
    if it.schedule not in ("1f1b", "interleaved"):
        told.lacks.append(_schedule(it))
    if it.recompute not in ("none", "selective", "full"):
        told.lacks.append(f"`recompute: {it.recompute}`")
    if it.zero == 3 and said not in (None, "per_pass"):
        told.lacks.append(f"`reshard: {said}`: Megatron-FSDP gives parameters up after each pass")


def _schedule(it: Candidate) -> str:
    chunks = f" of {it.chunks} chunks" if it.chunks > 1 else ""
    return f"the schedule `{it.schedule}`{chunks}"


TITAN = {"1f1b": "1F1B", "gpipe": "GPipe", "afab": "GPipe", "interleaved": "Interleaved1F1B",
         "zb1p": "InterleavedZeroBubble", "zbv": "ZBVZeroBubble", "dualpipev": "DualPipeV"}  # fmt: skip
LOOPED = ("interleaved", "zb1p")


def torchtitan(layout: Layout) -> Told:
    """TOML of torchtitan."""
    job, it, told = layout.job, layout.it, Told("torchtitan")
    data = it.dp * it.ep
    shards = data // it.replicate if it.zero else 1
    reshard = job.own["parallelism"].get("reshard")
    always = it.zero == 3 and reshard != "never"
    told.lines += [
        "[parallelism]", f"data_parallel_replicate_degree = {it.replicate if it.zero else data}",
        f"data_parallel_shard_degree = {shards}", f"tensor_parallel_degree = {it.tp}",
        f"context_parallel_degree = {it.cp}", f"pipeline_parallel_degree = {it.pp}",
        f"expert_parallel_degree = {it.ep}",
        f'fsdp_reshard_after_forward = "{"always" if always else "never"}"',
    ]  # fmt: skip
    if "expert_tp" in layout.training:
        told.lines.append(f"expert_tensor_parallel_degree = {layout.training['expert_tp']}")
    if it.ep > 1 and shards * it.cp % it.ep:
        told.lacks.append(f"{it.ep} expert-parallel ranks among {shards} shards: torchtitan takes them of its shards")
    if it.zero == 3 and reshard == "per_run":
        told.lacks.append("`reshard: per_run`")
    if it.zero in (1, 2):
        told.notes.append(f"ZeRO {it.zero} is written as FSDP that keeps what it has gathered: it holds less than this")
    if it.pp > 1:
        _titan_pipeline(layout, told)
    local = job.global_batch // data if it.pp > 1 else it.micro_batch
    mode = {"full": "full", "none": "none"}.get(it.recompute, "selective")
    told.lines += [
        "", "[training]", f"local_batch_size = {local}", f"global_batch_size = {job.global_batch}",
        f"seq_len = {job.sequence}", "", "[activation_checkpoint]", f'mode = "{mode}"',
    ]  # fmt: skip
    if it.recompute == "operations":
        told.lines.append('selective_ac_option = "op"')
    elif it.recompute == "selective":
        told.lacks.append("`recompute: selective`, of attention alone: torchtitan's own chooses other operations")
    if layout.recomputed is not None:
        told.lacks.append(f"recomputation of {layout.recomputed} layers of each stage")
    if layout.predictions:
        told.lacks.append("multi-token prediction")
    return told


def _titan_pipeline(layout: Layout, told: Told) -> None:
    """The schedule, its stages, and in which order torchtitan numbers ranks."""
    it, layers = layout.it, layout.layers
    name = TITAN.get(it.schedule)
    # ZBV and DualPipeV of PyTorch hold two stages a rank; loops at least two.
    held = it.chunks >= 2 if it.schedule in LOOPED else it.chunks == 2 if it.schedule in ("zbv", "dualpipev") else True
    if name is None or not held:
        told.lacks.append(_schedule(it))
    else:
        told.lines.append(f'pipeline_parallel_schedule = "{name}"')
    told.lines.append(f"pipeline_parallel_microbatch_size = {it.micro_batch}")
    if it.schedule in LOOPED and name is not None:
        _titan_rounds(layout, told)
    # Its rule: as many stages as (layers + both weights) / layers per stage, rounded up, and layers shared out with the
    # weights in the first and last stage's place (generate_llm_fqn_per_model_part). Weights of 0 make them equal.
    if it.schedule != "dualpipe" and layers and layout.equal:
        told.lines += [
            f"pipeline_parallel_layers_per_stage = {layers[0]}", "pipeline_parallel_first_stage_less_layers = 0",
            "pipeline_parallel_last_stage_less_layers = 0",
        ]  # fmt: skip
    elif layers:
        told.lines.append(f"module_fqns_per_model_part = {json.dumps(_titan_modules(layers))}")
        told.notes.append("the last stage's `output` is named `lm_head` in torchtitan of 2026")
    if it.order == "dp-out" and it.dp > 1:
        told.lacks.append("replicas outermost (`dp-out`): its mesh has the pipeline outermost")


def _titan_rounds(layout: Layout, told: Told) -> None:
    """PyTorch chooses the run length of a loop itself: micro-batches over as many rounds as ranks fit into them."""
    it, batches = layout.it, layout.micro_batches
    rounds = max(1, batches // it.pp)
    wanted = it.run_length or it.pp
    if batches % rounds:
        told.lacks.append(f"{batches} micro-batches over {it.pp} pipeline ranks: it asks for a multiple of {rounds}")
    elif batches // rounds != wanted:
        told.lacks.append(f"a run length of {wanted}: its loops run {batches // rounds} micro-batches at a time")


def _titan_modules(layers: list[int]) -> list[list[str]]:
    found, at = [], 0
    for n in layers:
        found.append([f"layers.{i}" for i in range(at, at + n)])
        at += n
    found[0].insert(0, "tok_embeddings")
    found[-1] += ["norm", "output"]
    return found


def nanotron(layout: Layout) -> Told:
    """YAML of nanotron."""
    job, it, told = layout.job, layout.it, Told("nanotron")
    told.lines += [
        "parallelism:", f"  dp: {it.dp}", f"  tp: {it.tp}", f"  pp: {it.pp}", f"  expert_parallel_size: {it.ep}",
        f"  context_parallel_size: {it.cp}", f"  pp_engine: {'afab' if it.schedule in ('gpipe', 'afab') else '1f1b'}",
        f"  tp_mode: {'REDUCE_SCATTER' if layout.sequence_parallel or it.tp == 1 else 'ALL_REDUCE'}",
        f"  recompute_layer: {str(it.recompute == 'full').lower()}",
        "tokens:", f"  micro_batch_size: {it.micro_batch}",
        f"  batch_accumulation_per_replica: {layout.micro_batches}", f"  sequence_length: {job.sequence}",
        "optimizer:", f"  zero_stage: {min(it.zero, 1)}",
    ]  # fmt: skip
    if it.schedule not in ("1f1b", "gpipe", "afab"):
        told.lacks.append(_schedule(it))
    if it.zero > 1:
        told.lacks.append(f"ZeRO {it.zero}")
    if it.zero and it.replicate > 1:
        told.lacks.append(f"{it.replicate} replicas of the shards")
    if it.recompute not in ("none", "full"):
        told.lacks.append(f"`recompute: {it.recompute}`")
    if layout.recomputed is not None:
        told.lacks.append(f"recomputation of {layout.recomputed} layers of each stage")
    if layout.predictions:
        told.lacks.append("multi-token prediction")
    if it.order == "dp-out" and it.pp > 1 and it.dp > 1:
        told.lacks.append("replicas outermost (`dp-out`): its ranks have the pipeline outermost")
    if it.layers and not layout.equal:
        told.lacks.append(f"layers of the stages: {layout.layers}")
    elif it.pp > 1:
        told.notes.append("nanotron shares layers out by its own estimate of their cost, the head's included")
    return told


BY_NAME = {"megatron": megatron, "torchtitan": torchtitan, "nanotron": nanotron, "nemo": nemo}


def told(job: Job, candidate: Candidate, framework: str) -> Told:
    """Settings of `framework` that lay the job out as `candidate`, with what it cannot say of it."""
    layout = Layout(job, candidate)
    found = BY_NAME[framework](layout)
    if layout.training.get("optimizer") == "muon" and framework != "megatron":
        found.lacks.append("Muon")
    return found
