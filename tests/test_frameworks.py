"""Frameworks: what a sheet fills in, what a job says itself, and what is wrong with either."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import windtunnel
from windtunnel.engine import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

JOB = """
windtunnel: 1
name: frameworks
fidelity: flow
topology:
  shape: clos
  hosts: 2
  tiers: [{{ports_down: 16, rate: 400 Gbps, length: 10 m}}]
  host: {{gpu: H100-SXM, gpus: 8, nics: 8, nic: ConnectX-7}}
memory: ignore
jobs:
  - name: job
    workload: {{model: llama3-8b, global_batch: 16, micro_batch: 1, sequence: 2048, training: {{{training}}}}}
    parallelism: {{dp: 16{layout}}}
"""
OWN = """
name: mine
title: "a trainer of ours"
training:
  gradients: {value: fp32, evidence: measured, source: "train.py"}
"""


def explained(folder: Path, training: str = "", layout: str = "") -> dict[str, Any]:
    """What the engine says of the job."""
    path = folder / "scenario.yaml"
    path.write_text(JOB.format(training=training, layout=layout))
    return windtunnel.explain(str(path))


def gradients(found: Mapping[str, Any]) -> float:
    """Bytes of gradients on the fullest GPU."""
    return float(found["jobs"][0]["model"]["memory_by_pipeline_rank"][0]["gradients"])


def evidence(found: Mapping[str, Any]) -> dict[str, str]:
    """How each constant is known."""
    return {row["constant"]: row["kind"] for row in found["evidence"]}


def test_a_framework_fills_what_a_job_leaves_out(tmp_path: Path) -> None:
    plain = explained(tmp_path, "framework: none", ", zero: 3")
    told = explained(tmp_path, "framework: torchtitan")
    # ZeRO 3 and gradients in 32 bits come from the sheet, and so twice the bytes of 16 bits.
    assert gradients(told) == pytest.approx(2 * gradients(plain))
    kinds = evidence(told)
    assert kinds["framework.zero"] == "data sheet"
    assert kinds["framework.gradients"] == "data sheet"
    assert "framework.gradients" not in evidence(plain)


def test_what_a_job_says_goes_before_its_framework(tmp_path: Path) -> None:
    found = explained(tmp_path, "framework: torchtitan, gradients: bf16", ", zero: 0")
    kinds = evidence(found)
    assert "framework.gradients" not in kinds
    assert "framework.zero" not in kinds
    assert "framework.attention" in kinds
    assert gradients(found) == pytest.approx(gradients(explained(tmp_path, "framework: none", ", zero: 0")))


@pytest.mark.parametrize(
    ("layout", "ordinary"),
    [
        ("dp: 16", "megatron"),
        ("dp: 16, zero: 1", "megatron"),
        ("dp: 16, zero: 3", "fsdp"),
        ("dp: 16, zero: 3, replicate: 2", "fsdp"),
        ("cp: 2, dp: 8, zero: 3", "fsdp"),
        ("tp: 2, dp: 8, zero: 3", "megatron"),
        ("pp: 2, dp: 8, zero: 3", "megatron"),
    ],
)
def test_a_job_that_says_nothing_gets_what_is_ordinary_for_its_layout(
    tmp_path: Path, layout: str, ordinary: str
) -> None:
    def jobs(training: str) -> object:
        path = tmp_path / "scenario.yaml"
        path.write_text(JOB.format(training=training, layout="").replace("dp: 16", layout))
        found = windtunnel.explain(str(path))["jobs"]
        # How far it may be off is another thing where nothing was said.
        for job in found:
            job["model"].pop("expected_error", None)
        return found

    assert jobs("") == jobs(f"framework: {ordinary}")
    assert jobs("") != jobs("framework: none")


def test_what_a_job_says_of_its_software_leaves_out_what_is_ordinary(tmp_path: Path) -> None:
    assert explained(tmp_path, "dispatch: 0 us")["jobs"] == explained(tmp_path, "framework: none")["jobs"]


@pytest.mark.parametrize(("training", "told"), [("", "`megatron`"), ("framework: none", "`none`")])
def test_a_job_that_says_nothing_of_its_software_is_told_what_it_assumes(
    tmp_path: Path, training: str, told: str
) -> None:
    (row,) = [row for row in explained(tmp_path, training)["evidence"] if row["constant"] == "framework"]
    assert row["kind"] == "inferred"
    assert told in row["source"]
    for said in ("framework: nemo", "dispatch: 50 us", "attention: flash2"):
        assert "framework" not in evidence(explained(tmp_path, said))


@pytest.mark.parametrize("name", ["megatron", "nemo", "torchtitan", "fsdp", "deepspeed", "foundry", "nanotron"])
@pytest.mark.parametrize("zero", [0, 1, 3])
def test_every_framework_goes_with_every_stage_of_zero(tmp_path: Path, name: str, zero: int) -> None:
    kinds = evidence(
        explained(tmp_path, f"framework: {name}", f", zero: {zero}, reduce: {'every' if zero == 3 else 'last'}")
    )
    assert any(key.startswith("framework.") for key in kinds)


def test_a_framework_of_ones_own_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(OWN)
    found = explained(tmp_path, "framework: ./mine.yaml")
    assert evidence(found)["framework.gradients"] == "measured"
    assert gradients(found) == pytest.approx(2 * gradients(explained(tmp_path, "framework: none")))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (OWN.replace("gradients", "gradient"), "did you mean `gradients`?"),
        (OWN + "  framework: {value: nemo, evidence: measured, source: x}\n", "a framework names no other"),
        (OWN.replace(", evidence: measured", ""), "`evidence` is missing"),
    ],
)
def test_a_wrong_sheet_is_told_with_its_key(tmp_path: Path, text: str, wanted: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(InputError, match=wanted) as error:
        explained(tmp_path, "framework: ./mine.yaml")
    assert "mine.yaml: training" in str(error.value)


def test_an_unknown_framework_is_told_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean `megatron`"):
        explained(tmp_path, "framework: megatorn")


def test_gpus_of_a_kind_that_differ_slow_the_job_by_the_slowest(tmp_path: Path) -> None:
    def compute(training: str) -> float:
        stage = explained(tmp_path, training)["jobs"][0]["model"]["stages"][0]
        return float(stage["forward_compute_s"])

    own, equal, apart = (compute(f"compute_share: {x}") for x in ("1, speed_spread: 0", "0.5, speed_spread: 0", "1"))
    # Products and attention take twice as long at half the rate; what memory bounds does not change.
    assert 1.7 * own < equal < 2.0 * own
    # The mean largest of 16 normal variables is 1.77; the sheet says 1.8%.
    assert own < apart < own * (1 + 0.0185 * 1.8)
    for wrong, says in (("speed_spread: 0.3", "from 0 to 0.2"), ("compute_share: 2", "at most 1.5")):
        with pytest.raises(InputError, match=says):
            compute(wrong)


def test_hosts_that_come_late_are_waited_for_once_a_rank(tmp_path: Path) -> None:
    def time(straggle: str, tp: int) -> float:
        path = tmp_path / "scenario.yaml"
        text = JOB.format(training=f"dispatch: 400 us, straggle: {straggle}", layout="")
        path.write_text(text.replace("{dp: 16}", f"{{tp: {tp}, dp: {16 // tp}}}"))
        return float(windtunnel.run(str(path)).summary["jobs"][0]["iteration_time_s"]["mean"])

    none, once, twice = (time(straggle, 4) for straggle in ("0 us", "200 us", "400 us"))
    # Ten collectives a layer, forward and backward, of four ranks; four micro-batches and 32 layers.
    assert once - none == pytest.approx(4 * 32 * 10 * 4 * 200e-6, rel=0.05)
    assert twice - once == pytest.approx(once - none, rel=0.02)
    assert time("400 us", 1) == time("0 us", 1)


MISTRAL = {
    "model_type": "mistral", "hidden_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 16,
    "num_key_value_heads": 8, "intermediate_size": 4096, "vocab_size": 32000, "sliding_window": 1024,
}  # fmt: skip


def test_a_sliding_window_saves_what_is_not_seen(tmp_path: Path) -> None:
    """12 FLOPs a layer, head, feature and pair (PaLM, appendix B), of pairs inside the window."""

    def run(window: int | None, layers: str = "", attention: str = "flash") -> tuple[float, float]:
        training = f"graphs: all, attention: {attention}"
        model = {**MISTRAL, "sliding_window": window}
        if layers:
            model["layer_types"] = [{"f": "full_attention", "s": "sliding_attention"}[kind] for kind in layers]
        (tmp_path / "model.json").write_text(json.dumps(model), encoding="utf-8")
        path = tmp_path / "scenario.yaml"
        path.write_text(JOB.format(training=training, layout="").replace("llama3-8b", "model.json"), encoding="utf-8")
        summary = windtunnel.run(path, fidelity="job", out=tmp_path / "run").summary
        job = summary["jobs"][0]
        assert not job["warnings"]
        time = job["iteration_time_s"]["mean"]
        return time, job["mfu"] * time

    whole, half, one, none = run(None), run(1024), run(1024, "sf"), run(128)
    assert run(2048) == whole
    assert none[0] < half[0] < one[0] < whole[0]
    parameters = 2 * (2 * 1024 * 1024 + 2 * 1024 * 512 + 3 * 1024 * 4096 + 2 * 1024) + 1024 + 32000 * 1024
    a_key = 12 * 2 * 1024
    for found, keys in ((half, 1024), (one, (1024 + 2048) / 2), (none, 128)):
        expected = (6 * parameters + a_key * keys) / (6 * parameters + a_key * 2048)
        assert found[1] / whole[1] == pytest.approx(expected, rel=1e-6)
    # Scores that are stored are stored for all keys.
    assert run(128, attention="unfused")[0] == run(None, attention="unfused")[0]
