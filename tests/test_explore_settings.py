"""The winner as settings of other frameworks: they mean the layout, or say that they do not."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from conftest import EIGHT_H100
from windtunnel.explore.export import FRAMEWORKS, settings
from windtunnel.explore.frameworks import told
from windtunnel.explore.space import Candidate, Space
from windtunnel.layout.job import read_job
from windtunnel.source import read_source

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command
    from windtunnel.layout.job import Job

SCENARIO = EIGHT_H100.replace("sequence: 2048", "sequence: 4096")
PLAIN = Candidate(2, 1, 1, 2, 2, 1, 1, "pp-out", "1f1b", 1, 0, 1, "none")
LOOPED = replace(PLAIN, tp=4, dp=1, order="dp-out", schedule="interleaved", chunks=4, run_length=4, recompute="full")


def job(text: str = SCENARIO) -> Job:
    return read_job(read_source(text), [])


def with_training(said: str) -> Job:
    whole = SCENARIO.replace("sequence: 4096", f"sequence: 4096, training: {{{said}}}")
    assert whole != SCENARIO
    return job(whole)


def runnable(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_settings_name_the_layout() -> None:
    all_of = {name: settings(job(), LOOPED, name) for name in FRAMEWORKS}
    assert "--num-layers-per-virtual-pipeline-stage 4" in all_of["megatron"]
    assert "--microbatch-group-size-per-virtual-pipeline-stage 4" in all_of["megatron"]
    assert "--use-tp-pp-dp-mapping" in all_of["megatron"]
    assert "--recompute-granularity full" in all_of["megatron"]
    assert 'pipeline_parallel_schedule = "Interleaved1F1B"' in all_of["torchtitan"]
    assert "batch_accumulation_per_replica: 32" in all_of["nanotron"]
    assert "virtual_pipeline_model_parallel_size=4" in all_of["nemo"]
    assert "config.microbatch_group_size_per_vp_stage = 4" in all_of["nemo"]
    assert "config.recompute_num_layers = 1" in all_of["nemo"]


def test_nemo_shards_what_the_layout_shards() -> None:
    text = settings(job(), replace(PLAIN, zero=3, replicate=2), "nemo")
    assert 'fsdp="megatron"' in text
    assert 'data_parallel_sharding_strategy="optim_grads_params"' in text
    assert "num_distributed_optimizer_instances=2" in text
    assert "# note: Megatron-FSDP needs" in text
    text = settings(job(), replace(PLAIN, recompute="selective"), "nemo")
    assert 'config.recompute_granularity, config.recompute_modules = "selective", ["core_attn"]' in text


def test_uneven_layers_are_settings_where_a_framework_has_them() -> None:
    it = replace(PLAIN, pp=4, dp=1, layers=(7, 9, 9, 7))
    assert "--pipeline-model-parallel-layout 'Et*7|t*9|t*9|t*7L'" in settings(job(), it, "megatron")
    assert 'config.pipeline_model_parallel_layout = "Et*7|t*9|t*9|t*7L"' in settings(job(), it, "nemo")
    titan = settings(job(), it, "torchtitan")
    parts = json.loads(next(one for one in titan.splitlines() if one.startswith("module_fqns")).partition(" = ")[2])
    assert [sum(name.startswith("layers.") for name in part) for part in parts] == [7, 9, 9, 7]
    assert parts[0][0] == "tok_embeddings"
    assert parts[-1][-2:] == ["norm", "output"]
    assert told(job(), it, "nanotron").lacks == ["layers of the stages: [7, 9, 9, 7]"]


@pytest.mark.parametrize(
    ("framework", "it", "said"),
    [
        ("megatron", replace(PLAIN, schedule="dorapp", chunks=2), "the schedule `dorapp` of 2 chunks"),
        ("nemo", replace(PLAIN, schedule="zbv", chunks=2), "the schedule `zbv`"),
        ("nemo", replace(PLAIN, recompute="operations"), "`recompute: operations`"),
        ("torchtitan", replace(PLAIN, schedule="dorapp", chunks=2), "the schedule `dorapp`"),
        ("torchtitan", replace(PLAIN, schedule="zbv", chunks=4), "the schedule `zbv` of 4 chunks"),
        ("torchtitan", replace(PLAIN, schedule="interleaved", chunks=2, run_length=8), "a run length of 8"),
        ("torchtitan", replace(PLAIN, recompute="selective"), "`recompute: selective`"),
        ("torchtitan", replace(PLAIN, order="dp-out"), "`dp-out`"),
        ("nanotron", LOOPED, "the schedule `interleaved`"),
        ("nanotron", replace(PLAIN, zero=3), "ZeRO 3"),
        ("nanotron", replace(PLAIN, replicate=2), "2 replicas of the shards"),
        ("nanotron", replace(PLAIN, recompute="selective"), "`recompute: selective`"),
    ],
)
def test_what_a_framework_lacks_is_said_and_nothing_can_be_run(framework: str, it: Candidate, said: str) -> None:
    found = told(job(), it, framework)
    assert any(said in lack for lack in found.lacks), found.lacks
    assert runnable(found.text()) == []
    assert "cannot run this layout" in found.text().splitlines()[0]
    assert said in (found.warning() or "")


def test_megatron_overlaps_where_the_run_does() -> None:
    """Megatron-LM does not unless told, nor does a run of its habits; NeMo's does."""
    assert "--overlap" not in settings(job(), PLAIN, "megatron")
    assert "overlap_grad_reduce=False" in settings(job(), PLAIN, "nemo")
    other = with_training("framework: nemo")
    assert {"--overlap-grad-reduce", "--overlap-param-gather"} <= set(runnable(settings(other, PLAIN, "megatron")))
    plain = settings(other, replace(PLAIN, zero=0), "megatron")
    assert "--overlap-grad-reduce" in plain
    assert "--overlap-param-gather" not in plain


def test_megatron_fsdp_comes_with_what_it_needs() -> None:
    text = settings(job(), replace(PLAIN, zero=3), "megatron")
    needed = {"--use-megatron-fsdp", "--use-distributed-optimizer", "--ckpt-format fsdp_dtensor",
              "--data-parallel-sharding-strategy optim_grads_params", "--overlap-param-gather"}  # fmt: skip
    assert needed <= set(runnable(text))
    assert "CUDA_DEVICE_MAX_CONNECTIONS" in text


def test_recomputed_layers_are_told() -> None:
    some = with_training("recompute: full, recompute_layers: 3")
    it = replace(PLAIN, recompute="full")
    assert "--recompute-method block --recompute-num-layers 3" in settings(some, it, "megatron")
    assert "config.recompute_num_layers = 3" in settings(some, it, "nemo")
    for framework in ("torchtitan", "nanotron"):
        assert told(some, it, framework).lacks == ["recomputation of 3 layers of each stage"]


def test_the_optimizer_is_told() -> None:
    some = with_training("optimizer: muon")
    assert "--optimizer muon" in settings(some, PLAIN, "megatron")
    assert "--optimizer" not in settings(job(), PLAIN, "megatron")
    for framework in ("nemo", "torchtitan", "nanotron"):
        assert "Muon" in told(some, PLAIN, framework).lacks
        assert "Muon" not in told(job(), PLAIN, framework).lacks


def test_modules_that_predict_are_told() -> None:
    """Megatron-Core writes them into its layout too, before the loss; the other two have none."""
    some = with_training("multi_token_prediction: 1")
    uneven = next(it for it in Space().candidates(job(), Counter()) if it.pp > 1)
    uneven = replace(uneven, layers=(*[1] * (uneven.stages - 1), job().layers - uneven.stages + 1))
    assert "--mtp-num-layers 1" in settings(some, PLAIN, "megatron")
    assert re.search(r"layout 'Et\|.*mL'", settings(some, uneven, "megatron"))
    assert "mtp" not in settings(job(), PLAIN, "megatron")
    assert "config.mtp_num_layers = 1" in settings(some, PLAIN, "nemo")
    for framework in ("torchtitan", "nanotron"):
        assert told(some, PLAIN, framework).lacks == ["multi-token prediction"]


def test_torchtitan_makes_as_many_stages_as_the_layout_has() -> None:
    """Its own rule: (layers + both weights) / layers per stage, rounded up, and a multiple of the pipeline's ranks."""
    of = job()
    seen = Counter[int]()
    for it in Space(schedules=("1f1b", "interleaved", "zbv")).candidates(of, Counter()):
        if it.pp == 1:
            continue
        said = dict(re.findall(r"(?m)^(?:# )?(\w+) = (\S.*)$", settings(of, it, "torchtitan")))
        if "module_fqns_per_model_part" in said:
            stages = len(json.loads(said["module_fqns_per_model_part"]))
        else:
            weights = int(said["pipeline_parallel_first_stage_less_layers"])
            weights += int(said["pipeline_parallel_last_stage_less_layers"])
            stages = math.ceil((of.layers + weights) / int(said["pipeline_parallel_layers_per_stage"]))
        assert stages == it.stages
        seen[stages] += 1
    assert len(seen) >= 4


def test_the_command_warns(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    few = ["--tp", "2", "--pp", "2", "--cp", "1", "--zero", "1", "--micro-batch", "1", "--recompute", "none"]
    few += ["--schedule", "zbv", "--prove", "0", "--store", str(tmp_path / "runs"), "--settings", "megatron"]
    ran = command("explore", path, *few)
    assert "# Megatron-LM cannot run this layout:" in ran.stdout
    assert "warning: Megatron-LM cannot run this layout: the schedule `zbv`" in ran.stderr
    record = json.loads(command("explore", path, *few, "--json").stdout)
    assert record["settings"]["cannot"] == ["the schedule `zbv` of 2 chunks"]
