"""The winner for those who train: a scenario that runs, and the settings of four frameworks.

Names are those of Megatron-LM's command line (`megatron/training/arguments.py`), torchtitan's TOML sections
`parallelism`, `training` and `activation_checkpoint`, nanotron's YAML sections `parallelism` and `tokens`, and NeMo's
`MegatronStrategy`. What a framework cannot do is said in a comment and not left out.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.source import override_text

if TYPE_CHECKING:
    from windtunnel.explore.space import Candidate
    from windtunnel.layout.job import Job

FRAMEWORKS = ("megatron", "torchtitan", "nanotron", "nemo")


def scenario(job: Job, candidate: Candidate, extra: dict[str, Any] | None = None) -> str:
    """The scenario with the job laid out as `candidate`, as YAML text."""
    values = {**candidate.values(job.place, job.own["parallelism"]), **(extra or {})}
    pairs = [*job.overrides, *((key, override_text(value)) for key, value in values.items())]
    tree = json.loads(engine.scenario_tree(job.source.text, job.source.name, pairs))
    head = f"# {job.own['model']} on {job.gpus} GPUs, laid out by `windtunnel explore {job.source.name}`.\n"
    return head + "\n".join(_yaml(tree, 0)) + "\n"


def _yaml(value: Any, depth: int) -> list[str]:  # noqa: ANN401
    """Block style for mappings and for lists of mappings, JSON for everything else, which is YAML too."""
    pad = "  " * depth
    if isinstance(value, dict) and value:
        lines = []
        for key, item in value.items():
            if item is None:
                continue
            name = key if key.replace("_", "").isalnum() else json.dumps(key)
            if _block(item):
                lines += [f"{pad}{name}:", *_yaml(item, depth + 1)]
            else:
                lines.append(f"{pad}{name}: {json.dumps(item, ensure_ascii=False)}")
        return lines
    if isinstance(value, list):
        lines = []
        for item in value:
            inner = _yaml(item, depth + 1)
            lines += [f"{pad}- {inner[0].lstrip()}", *inner[1:]]
        return lines
    return [f"{pad}{json.dumps(value, ensure_ascii=False)}"]


def _block(value: Any) -> bool:  # noqa: ANN401
    if isinstance(value, dict):
        return bool(value)
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) and item for item in value)


def settings(job: Job, candidate: Candidate, framework: str) -> str:
    """Settings of `framework` that lay the job out as `candidate`."""
    return {"megatron": _megatron, "torchtitan": _torchtitan, "nanotron": _nanotron, "nemo": _nemo}[framework](
        job, candidate
    )


def _layers_per_chunk(job: Job, it: Candidate) -> int:
    return max(1, job.layers // it.stages)


def _megatron(job: Job, it: Candidate) -> str:
    lines = [
        f"--tensor-model-parallel-size {it.tp}", f"--context-parallel-size {it.cp}",
        f"--expert-model-parallel-size {it.ep}", f"--pipeline-model-parallel-size {it.pp}",
        f"--micro-batch-size {it.micro_batch}", f"--global-batch-size {job.global_batch}",
        f"--seq-length {job.sequence}",
    ]  # fmt: skip
    if it.tp > 1:
        lines.append("--sequence-parallel")
    if it.chunks > 1:
        lines.append(f"--num-layers-per-virtual-pipeline-stage {_layers_per_chunk(job, it)}")
        if it.run_length:
            lines.append(f"--microbatch-group-size-per-virtual-pipeline-stage {it.run_length}")
    if it.zero in (1, 2):
        lines += ["--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"]
    if it.zero == 3:
        lines += ["--use-megatron-fsdp", "--data-parallel-sharding-strategy optim_grads_params"]
    if it.replicate > 1:
        lines.append(f"--num-distributed-optimizer-instances {it.replicate}")
    if it.recompute == "full":
        lines += ["--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1"]
    elif it.recompute == "selective":
        lines.append("--recompute-granularity selective")
    if it.order == "dp-out":
        lines.append("--use-tp-pp-dp-mapping")
    if it.layers:
        lines.append(f"# layers of the stages: {list(it.layers)}; --pipeline-model-parallel-layout takes such a list")
    if it.schedule not in ("1f1b", "interleaved"):
        lines.append(f"# the schedule `{it.schedule}` is not in Megatron-LM")
    return "\n".join(lines) + "\n"


def _torchtitan(job: Job, it: Candidate) -> str:
    names = {
        "1f1b": "1F1B", "interleaved": "Interleaved1F1B", "gpipe": "GPipe", "zbv": "ZBVZeroBubble",
        "zb1p": "InterleavedZeroBubble", "dorapp": "InterleavedZeroBubble", "dualpipev": "DualPipeV",
    }  # fmt: skip
    shards = it.dp * it.ep // it.replicate if it.zero else 1
    lines = [
        "[parallelism]", f"data_parallel_replicate_degree = {it.replicate if it.zero else it.dp * it.ep}",
        f"data_parallel_shard_degree = {shards}", f"tensor_parallel_degree = {it.tp}",
        f"context_parallel_degree = {it.cp}", f"pipeline_parallel_degree = {it.pp}",
        f"expert_parallel_degree = {it.ep}",
        f'fsdp_reshard_after_forward = "{"always" if it.zero == 3 else "never"}"',
    ]  # fmt: skip
    if it.pp > 1:
        name = names.get(it.schedule)
        lines.append(
            f'pipeline_parallel_schedule = "{name}"' if name else f"# the schedule `{it.schedule}` is not in torchtitan"
        )
        lines.append(f"pipeline_parallel_microbatch_size = {it.micro_batch}")
        if it.chunks > 1:
            lines.append(f"pipeline_parallel_layers_per_stage = {_layers_per_chunk(job, it)}")
    local = job.global_batch // (it.dp * it.ep) if it.pp > 1 else it.micro_batch
    lines += [
        "", "[training]", f"local_batch_size = {local}", f"global_batch_size = {job.global_batch}",
        f"seq_len = {job.sequence}", "", "[activation_checkpoint]",
        f'mode = "{"full" if it.recompute == "full" else "selective" if it.recompute != "none" else "none"}"',
    ]  # fmt: skip
    if it.order == "dp-out" and it.pp > 1:
        lines.append("# torchtitan's mesh has the pipeline outermost: number the ranks of a pipeline in one building")
    if it.layers:
        lines.append(f"# layers of the stages: {list(it.layers)} (module_fqns_per_model_part)")
    return "\n".join(lines) + "\n"


def _nanotron(job: Job, it: Candidate) -> str:
    lines = [
        "parallelism:", f"  dp: {it.dp}", f"  tp: {it.tp}", f"  pp: {it.pp}", f"  expert_parallel_size: {it.ep}",
        f"  context_parallel_size: {it.cp}", f"  pp_engine: {'afab' if it.schedule in ('gpipe', 'afab') else '1f1b'}",
        "  tp_mode: REDUCE_SCATTER", f"  recompute_layer: {str(it.recompute == 'full').lower()}",
        "tokens:", f"  micro_batch_size: {it.micro_batch}",
        f"  batch_accumulation_per_replica: {job.global_batch // (it.micro_batch * it.dp * it.ep)}",
        f"  sequence_length: {job.sequence}",
        "optimizer:", f"  zero_stage: {min(it.zero, 1)}",
    ]  # fmt: skip
    if it.schedule not in ("1f1b", "gpipe", "afab"):
        lines.append(f"# the schedule `{it.schedule}` is not in nanotron")
    if it.zero > 1:
        lines.append(f"# ZeRO {it.zero} is not in nanotron")
    return "\n".join(lines) + "\n"


def _nemo(job: Job, it: Candidate) -> str:
    virtual = it.chunks if it.chunks > 1 else None
    lines = [
        "strategy = nl.MegatronStrategy(",
        f"    tensor_model_parallel_size={it.tp},", f"    context_parallel_size={it.cp},",
        f"    expert_model_parallel_size={it.ep},", f"    pipeline_model_parallel_size={it.pp},",
        f"    virtual_pipeline_model_parallel_size={virtual},", f"    sequence_parallel={it.tp > 1},",
        f"    use_tp_pp_dp_mapping={it.order == 'dp-out'},",
        f"    ddp=DistributedDataParallelConfig(use_distributed_optimizer={it.zero > 0}, overlap_grad_reduce=True),",
        ")",
        "data = MockDataModule(",
        f"    seq_length={job.sequence}, micro_batch_size={it.micro_batch}, global_batch_size={job.global_batch},",
        ")",
    ]  # fmt: skip
    if it.recompute == "full":
        lines.append('config.recompute_granularity, config.recompute_method = "full", "uniform"')
    if it.schedule not in ("1f1b", "interleaved"):
        lines.append(f"# the schedule `{it.schedule}` is not in NeMo")
    return "\n".join(lines) + "\n"
