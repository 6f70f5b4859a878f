"""Tables of end-to-end training: readers, long iterations from short ones, memory, errors by kind."""

from __future__ import annotations

import csv
import gzip
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from windtunnel.cli.app import main
from windtunnel.engine import InputError
from windtunnel.source import Source
from windtunnel.studies.point import Point
from windtunnel.studies.runner import Limits, run_points
from windtunnel.studies.store import Store
from windtunnel.validate import Row, Score, front, targets, validate
from windtunnel.validate.bands import band, bands, kind_of
from windtunnel.validate.board import Board
from windtunnel.validate.front import rows_of_page
from windtunnel.validate.page import ROOT, block
from windtunnel.validate.predict import predict, runs_of
from windtunnel.validate.rounds import shortened
from windtunnel.validate.systems import read_systems
from windtunnel.validate.tables import READERS
from windtunnel.validate.tables.megatron_bridge import HIDDEN_IN_DOMAIN
from windtunnel.validate.tables.sailor import MODELS, layer_profile
from windtunnel.validate.tables.torchtitan import even

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path, name: str, rows: list[dict[str, object]]) -> Path:
    """A folder with a table."""
    place = folder / "e2e_iteration"
    place.mkdir(parents=True, exist_ok=True)
    with (place / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder


def titan(caption: str, cells: dict[str, str], hardware: str = "H100 96GB") -> dict[str, object]:
    return {"caption": caption, "row_json": json.dumps(cells), "hardware": hardware, "source": "x"}


def bridge(model: str, cells: dict[str, str], tokens: str = "1000", system: str = "DGX-H100") -> dict[str, object]:
    raw = {"#-GPUs": "64", "Precision": "FP8-CS", "GBS": "128", "MBS": "1", "Sequence Length": "8192", "TP": "4",
           "PP": "8", "CP": "1", "VP": "5", "EP": "1", "Tokens / sec / GPU": tokens,
           "Model TFLOP / sec / GPU": "1"}  # fmt: skip
    raw |= cells
    return {
        "section": f"Performance / 25.11 NeMo Container / Pre-Training Performance / Model: {model}",
        "system": system, "gpus": raw["#-GPUs"], "precision": raw.get("Precision", ""), "seq": "8192",
        "tokens_per_s_per_gpu": tokens, "raw_json": json.dumps(raw),
    }  # fmt: skip


def test_torchtitan_captions_and_cells_become_layouts(tmp_path: Path) -> None:
    data = write(tmp_path, "torchtitan_measured_tps.csv", [
        titan("Llama 3.1 8B model. 8 GPUs. Local batch size 2, global batch size 16. "
              "Selective activation checkpointing.",
              {"Techniques": "FSDP", "TPS/GPU": "5,000", "Memory(GiB)": "80"}),
        titan("FSDP + TP + PP + torch.compile + Float8 + AsyncTP. Llama 3.1 405B model. 512 GPUs (FSDP 8, TP 8, PP8). "
              "Local batch size 32, global batch size 256. Full activation checkpointing.",
              {"Schedule": "Interleaved 1F1B", "TPS/GPU": "100", "Memory(GiB)": "80"}),
        titan("#### Llama3 8b on 64 H100s with FSDP=8, TP=8, torch.compile, per op SAC,  local batch size 12",
              {"Quantization": "float8 rowwise", "Vanilla TP tokens/sec": "1", "Async TP tokens/sec": "1"}),
        titan("TPS", {"NUM_NODES": "4", "TPS/GPU": "10000", "Memory(GiB)": "48"}, "H200, see file"),
    ])  # fmt: skip
    found = READERS["torchtitan"](data, read_systems(None))
    assert found is not None
    eager, pipeline, h200 = found.rows
    assert [(e.reason, e.rows) for e in found.excluded] == [("float8 with a scale a row is not modelled", 2)]
    # 16 sequences of 8,192 tokens at 5,000 tokens a second on each of 8.
    assert eager.measured == pytest.approx(16 * 8192 / 40_000)
    job = eager.scenario["jobs"][0]
    assert (job["workload"]["micro_batch"], job["parallelism"]["dp"]) == (2, 8)
    assert job["workload"]["training"] | {"fused": False, "recompute": "operations"} == job["workload"]["training"]
    job = pipeline.scenario["jobs"][0]
    layout = job["parallelism"]
    assert (layout["tp"], layout["pp"], layout["dp"], layout["schedule"]["chunks"]) == (8, 8, 8, 2)
    # As many micro-batches as pipeline ranks; 126 layers over 16 stages.
    assert job["workload"]["micro_batch"] == 4
    assert sum(job["workload"]["training"]["layers_per_stage"]) == 126
    assert (h200.system, h200.scenario["topology"]["host"]["gpu"]) == ("trainy-h200", "H200")


def test_a_cell_of_two_runs_is_two_rows(tmp_path: Path) -> None:
    data = write(tmp_path, "megatron_bridge_measured_throughput.csv", [
        bridge("LLAMA3_70B", {"TP": "1 (2)", "PP": "1 (4)", "VP": "1 (5)", "FSDP": "64 (0)", "MBS": "2",
                              "Tokens / sec / GPU": "4000 (3000)"}, system="DGX-GB200"),
        bridge("Nemotron_3_Nano", {}),
        bridge("Mamba_5", {}),
        bridge("Qwen3_30B_a3B", {"#-GPUs": "8", "TP": "1", "PP": "1", "VP": "n/a", "EP": "8", "Precision": "NVFP4"}),
    ])  # fmt: skip
    found = READERS["megatron-bridge"](data, read_systems(None))
    assert found is not None
    sharded, staged, experts = found.rows
    assert [row.measured for row in (sharded, staged)] == pytest.approx([128 * 8192 / 256e3, 128 * 8192 / 192e3])
    assert sharded.scenario["jobs"][0]["parallelism"]["zero"] == 3
    assert staged.scenario["jobs"][0]["parallelism"]["schedule"] == {"name": "interleaved", "chunks": 5}
    software = [row.scenario["jobs"][0]["workload"]["training"] for row in (sharded, staged)]
    assert [training.get("overlap_chunks") for training in software] == [None, 2]
    assert (sharded.groups["kind"], experts.groups["kind"]) == ("dense", "other chips and FP4")
    assert {e.reason for e in found.excluded} == {
        "hybrids of attention and state-space layers are not modelled",
        "no sheet of model `Mamba_5`",
    }
    # One rack: the domain is as large as the job.
    assert sharded.scenario["topology"]["host"]["scale_up"]["size"] == 64


def test_the_row_that_a_hidden_share_was_fitted_on_is_not_scored(tmp_path: Path) -> None:
    layout = {"#-GPUs": "8", "TP": "1", "PP": "1", "VP": "n/a", "EP": "8", "Precision": "MXFP8"}
    row = bridge("Qwen3_30B_a3B", layout | {"GBS": "512", "MBS": "4", "Sequence Length": "4096"}, system="DGX-GB200")
    row["section"] = str(row["section"]).replace("25.11", "26.06")
    found = READERS["megatron-bridge"](write(tmp_path, "megatron_bridge_measured_throughput.csv", [row]),
                                       read_systems(None))  # fmt: skip
    assert found is not None
    assert not found.rows
    assert [one.reason for one in found.excluded] == ["used to fit a constant"]


def test_recipes_of_a_container_say_what_the_host_launches(tmp_path: Path) -> None:
    layout = {"#-GPUs": "8", "TP": "1", "PP": "1", "VP": "n/a", "EP": "8", "Precision": "MXFP8"}

    def training(container: str, model: str, system: str) -> dict[str, object]:
        row = bridge(model, layout, system=system)
        row["section"] = str(row["section"]).replace("25.11", container)
        found = READERS["megatron-bridge"](write(tmp_path, "megatron_bridge_measured_throughput.csv", [row]),
                                           read_systems(None))  # fmt: skip
        assert found is not None
        keys = (
            "graphs", "fused_experts", "fused_expert_mlp", "padded_experts", "hidden_exchange", "capacity_factor",
            "dispatch", "framework",
        )  # fmt: skip
        told = found.rows[0].scenario["jobs"][0]["workload"]["training"]
        return {key: told[key] for key in keys if key in told}

    new = training("26.06", "Qwen3_30B_a3B", "DGX-GB200")
    old = training("26.04", "Qwen3_30B_a3B", "DGX-GB200")
    padded = training("25.09", "Qwen3_30B_a3B (tokendrop)", "DGX-B200")
    captured = training("26.02", "Qwen3_235B_a22B", "DGX-GB200")
    dense = training("26.02", "LLAMA3_8B", "DGX-GB200")
    assert (new["graphs"], new["hidden_exchange"]) == ("all", HIDDEN_IN_DOMAIN)
    assert new["fused_experts"] is new["fused_expert_mlp"] is True
    # That experts are single products is the framework's.
    assert (old["graphs"], "fused_experts" in old, "hidden_exchange" in old) == ("none", False, False)
    assert padded["capacity_factor"] == 1.0
    # HybridEP pads what it dispatches from Megatron-Core 0.16 on.
    assert old["padded_experts"] is False
    assert "padded_experts" not in training("25.11", "Qwen3_30B_a3B", "DGX-GB200")
    assert captured["graphs"] == "layers"
    assert dense["graphs"] == "all"
    # What a launch takes is the framework's, on every machine.
    assert [("dispatch" in one, one["framework"]) for one in (padded, old)] == [(False, "nemo")] * 2


def test_the_page_says_which_targets_are_missed() -> None:
    row = Row("korthikanti/x", "selene", 1.0, {}, {"kind": "full"})
    good, bad = (Score("korthikanti", [row], [predicted], []) for predicted in (1.05, 1.3))
    (line,) = targets.lines(Board([good], []))
    assert line == "| `korthikanti` | all | 5.0 % | 8.0 % | 5.0 % | 20.0 % |  |"
    (line,) = targets.lines(Board([bad], []))
    assert line.endswith("| missed |")


def test_mlperf_runs_find_their_configuration(tmp_path: Path) -> None:
    run = {"round": "v5.0", "org": "A", "system": "s", "benchmark": "llama2_70b_lora", "nodes": 1,
           "accel_per_node": 8, "accel_model": "NVIDIA H100-SXM5-80GB", "global_batch_size": 8, "seq_len": "",
           "grad_accum": 1,
           "micro_batch": "", "tp": "", "pp": "", "cp": "", "best_step_s": 4.0,
           "best_step_basis": "logged"}  # fmt: skip
    data = write(tmp_path, "mlperf_training_runs.csv", [
        run, run | {"best_step_s": 5.0}, run | {"best_step_s": 4.4}, run | {"best_step_s": ""},
        run | {"benchmark": "bert"}, run | {"accel_model": "Abacus 3"}, run | {"org": "B"},
        run | {"system": "t", "tp": 2, "pp": 1, "cp": 1, "micro_batch": 1},
    ])  # fmt: skip
    config = {"round": "v5.0", "org": "A", "benchmark": "llama2_70b_lora"}
    scripts = {
        "config_common.sh": {"TP": "4", "SP": "1", "FP8": "True"},
        "config_DGXH100_1x8x4.sh": {"DGXNNODES": "1", "MINIBS": "4"},
        "config_DGXH100_1x8x2.sh": {"DGXNNODES": "1", "MINIBS": "2"},
        "config_DGXB200_1x8x1_fp4.sh": {"DGXNNODES": "1", "MINIBS": "1", "TP": "1"},
    }
    rows: list[dict[str, object]] = [
        {**config, "config": name, "params_json": json.dumps(values)} for name, values in scripts.items()
    ]
    write(data, "mlperf_parallelism_configs.csv", rows)
    found = READERS["mlperf"](data, read_systems(None))
    assert found is not None
    first, second = found.rows
    # 8 = 4 · 8/4: the script with a minibatch of 4; the median of three runs.
    assert first.measured == 4.4
    layout = first.scenario["jobs"][0]["parallelism"]
    assert (layout["tp"], layout["dp"]) == (4, 2)
    assert first.scenario["jobs"][0]["workload"]["training"]["lora_rank"] == 16
    assert second.scenario["jobs"][0]["parallelism"]["tp"] == 2
    assert {e.reason: e.rows for e in found.excluded} == {
        "further runs of a configuration, whose median is the row": 2,
        "no configuration of the organisation for this number of nodes": 1,
        "no file of a system with `Abacus 3`": 1,
        "no reliable step time": 1,
        "not a benchmark of a language model": 1,
    }


def test_a_script_that_names_the_chip_goes_before_one_that_names_none(tmp_path: Path) -> None:
    run = {"round": "v5.1", "org": "A", "system": "s", "benchmark": "llama31_8b", "nodes": 1,
           "accel_per_node": 8, "accel_model": "AMD Instinct MI355X", "global_batch_size": 32, "seq_len": "",
           "grad_accum": 1, "micro_batch": "", "tp": "", "pp": "", "cp": "", "best_step_s": 1.0,
           "best_step_basis": "logged"}  # fmt: skip
    data = write(tmp_path, "mlperf_training_runs.csv", [run])
    scripts = {
        "config_A1_1x8x4_8b.sh": {"MINIBS": "4", "DGXNNODES": "1"},
        # Nodes and GPUs stand in its name alone, the batch in `GBS`.
        "config_MI355X_1x8x1_8b.sh": {"GBS": "32", "MBS": "2"},
        "config_MI350X_1x8x1_8b.sh": {"GBS": "32", "MBS": "4"},
    }
    rows: list[dict[str, object]] = [
        {"round": "v5.1", "org": "A", "benchmark": "llama31_8b", "config": name, "params_json": json.dumps(values)}
        for name, values in scripts.items()
    ]
    write(data, "mlperf_parallelism_configs.csv", rows)
    found = READERS["mlperf"](data, read_systems(None))
    assert found is not None
    (row,) = found.rows
    assert (row.system, row.groups["kind"]) == ("mi355x", "other chips and FP4")
    (job,) = row.scenario["jobs"]
    assert (job["workload"]["micro_batch"], job["parallelism"]["dp"]) == (2, 8)


def test_sailor_takes_measured_layers_of_its_own_model_or_what_lies_between(tmp_path: Path) -> None:
    narrow, between = MODELS["OPT-350"], MODELS["GPT-NEO"]

    def measured(name: str, layers: int, time: float) -> None:
        times = {str(layer): [time, 2 * time, 0.001] for layer in range(layers)}
        path = tmp_path / f"sailor_{name}_GH-96.json.gz"
        path.write_bytes(gzip.compress(json.dumps({"8": {"4": times}}).encode()))

    measured("OPT-350", 26, 0.002)
    text, what = layer_profile(tmp_path, "GH-96", narrow, 8, 4)
    assert text is not None
    assert "layer_backward,16384,1024,4,fp16,4000.000 us" in text.splitlines()
    assert what == "measured layers"
    assert layer_profile(tmp_path, "GH-96", narrow, 4, 4) == (None, "layers from the sheet")
    # A file with the layers of another model is no profile of this one.
    measured("GPT-Neo-2.7", 26, 0.002)
    assert layer_profile(tmp_path, "GH-96", between, 8, 4) == (None, "layers from the sheet")
    # 16 and 56 heads, widths 1024 and 7168: 0.1 ms a head and 4e-10 s a squared width make 2.02 ms and 26.15 ms.
    measured("OPT-350", 26, 16e-4 + 4e-10 * 1024**2)
    measured("OPT-30", 50, 56e-4 + 4e-10 * 7168**2)
    text, what = layer_profile(tmp_path, "GH-96", between, 8, 4)
    assert text is not None
    assert what == "layers between measured ones"
    forward = next(line for line in text.splitlines() if line.startswith("layer_forward"))
    assert float(forward.split(",")[-1].removesuffix(" us")) == pytest.approx((20e-4 + 4e-10 * 2560**2) * 1e6, rel=1e-3)
    (tmp_path / "sailor_OPT-350_GH-96.json.gz").write_bytes(b"no gzip")
    with pytest.raises(InputError, match="not a profile of layers"):
        layer_profile(tmp_path, "GH-96", narrow, 8, 4)


def test_sailor_places_hosts_of_several_kinds_as_its_authors_did(tmp_path: Path) -> None:
    columns = {
        "cluster": "mit", "model": "OPT-350", "nodes_N": 6, "dp": 3, "pp_stages": 2, "tp_degrees": 8, "micro_batch": 2,
        "global_batch": 288, "layers_per_stage_sizes": "12|14", "gpu": "RTX-2080|RTX-3090|Titan-RTX",
        "measured_iteration_s": 54.2, "max_mem_bytes": 1, "flag": "",
    }  # fmt: skip
    strange = {**columns, "nodes_N": 5}
    write(tmp_path, "sailor_measured_iteration.csv", [columns, strange])
    table = READERS["sailor"](tmp_path, read_systems(None))
    assert table is not None
    (row,) = table.rows
    assert [(one.reason, one.rows) for one in table.excluded] == [("no word of which host has which GPUs", 1)]
    topology = row.scenario["topology"]
    hosts = [(one["hosts"], one["host"]["gpu"]) for one in topology["buildings"]]
    assert hosts == [
        (1, "RTX-3090"), (2, "RTX-2080-Ti"), (1, "Titan-RTX"), (1, "RTX-2080-Ti"), (1, "Titan-RTX"),
    ]  # fmt: skip
    assert topology["host"]["gpus"] == 8
    assert len(topology["cross"]) == 10
    assert kind_of(row) is None


def test_layers_are_spread_as_evenly_as_they_can_be() -> None:
    assert even(126, 128) == [0, *[1] * 126, 0]
    assert even(61, 8) == [7, 8, 8, 8, 8, 8, 7, 7]
    assert even(80, 8) == [10] * 8


def scenario(batch: int, pp: int = 4) -> dict[str, object]:
    """A pipeline of a small model."""
    layout = {"pp": pp, "dp": 2, "overlap_gradients": False}
    return {
        "windtunnel": 1, "name": "x", "fidelity": "flow", "memory": "ignore",
        "topology": {"shape": "clos", "hosts": 2, "tiers": [{"ports_down": 16, "rate": "200 Gbps", "length": "5 m"}],
                     "host": {"gpu": "A100-80", "gpus": 8, "nics": 8, "nic": "ConnectX-6"}},
        "network": {"load_balancer": "ideal"},
        "jobs": [{"name": "job", "iterations": 1, "parallelism": layout,
                  "workload": {"model": "llama3-8b", "global_batch": batch, "micro_batch": 1, "sequence": 1024}}],
        "cluster": {"episodes": {"iterations": 1}},
        "results": {"operations": "none", "flows": "none", "ideal": False},
    }  # fmt: skip


def test_a_long_iteration_is_that_of_its_short_ones(tmp_path: Path) -> None:
    long = scenario(2 * 4 * 10)
    short = shortened(long)
    assert [run["jobs"][0]["workload"]["global_batch"] for run, _ in short] == [16, 24]
    # Ten rounds: two, and eight times the difference between three and two.
    assert [weight for _, weight in short] == [-7.0, 8.0]
    assert shortened(scenario(24)) == [(scenario(24), 1.0)]

    # Each for itself: what is short already is not shortened.
    rows = [Row(str(i), "s", 1.0, run, {}) for i, (run, _) in enumerate(short)]
    found = predict(rows)
    assert all(len(runs_of(row)) == 1 for row in rows)
    parts = [found[key] for row in rows for key, *_ in runs_of(row)]
    with Store(tmp_path) as store:
        (whole,) = run_points([Point(Source(json.dumps(long), "long", tmp_path))], store)

    def time(summary: dict[str, Any] | str | None) -> float:
        assert isinstance(summary, dict), summary
        return float(summary["jobs"][0]["iteration_time_s"]["mean"])

    weighted = sum(time(part) * weight for part, (_, weight) in zip(parts, short, strict=True))
    assert weighted == pytest.approx(time(whole.summary), rel=1e-3)


def test_errors_are_told_by_kind() -> None:
    def row(name: str, training: dict[str, object], layout: dict[str, object], gpu: str) -> Row:
        job = {"workload": {"training": training, "sequence": 4096}, "parallelism": layout}
        return Row(name, "s", 1.0, {"topology": {"host": {"gpu": gpu}}, "jobs": [job]}, {})

    nemo: dict[str, object] = {"framework": "nemo"}
    rows = [
        row("a", nemo, {"tp": 8, "dp": 4}, "A100-80"), row("b", {**nemo, "precision": "fp8"}, {}, "H100-SXM"),
        row("c", {"lora_rank": 16}, {}, "B200"),
        row("d", {}, {"ep": 8}, "A100-80"), row("e", {"dispatch": "77 us"}, {}, "A100-80"),
    ]  # fmt: skip
    kinds = [kind_of(one) for one in rows]
    dense = "dense, kernels measured"
    assert kinds == [dense, "dense, kernels inferred", "adapters", "experts", dense]
    assert kind_of(row("f", {"precision": "fp8"}, {"zero": 3}, "A100-80")) == "no framework named"
    score = Score("t", rows, [1.1, 0.5, 2.0, 1.0, 0.7], [])
    found = bands([score])
    assert found["kinds"][dense] == {
        "rows": 2, "median": 0.2, "p95": 0.29, "band": found["kinds"][dense]["band"], "inside": None, "tables": ["t"],
        "gpus": ["A100-80"], "most_gpus": 32, "longest_sequence": 4096,
    }  # fmt: skip
    assert found["board"]["t"]["rows"] == 5
    assert "| `t` | 5 |" in block(Board([score], ["gone"]))
    assert found["kinds"][dense]["band"] > 0.29
    other = Score("u", [rows[0]], [1.2], [])
    both = bands([score, other])
    # Left out, `t` has 10% and 30% against a band of 20%, and `u` 20% against one of 29% and more.
    assert both["kinds"][dense]["inside"] == pytest.approx(2 / 3, abs=1e-3)


def test_a_band_is_widened_by_what_tables_exceed_one_another() -> None:
    """Worked by hand."""
    # Without `t` the scale is 20%, which its rows are 0.5 and 1.5 times; without `u` it is 29%. The largest counts.
    two = {("k", "t"): np.array([0.1, 0.3]), ("k", "u"): np.array([0.2])}
    assert band(two, "k") == pytest.approx(0.29 * 1.5)
    # Four rows count as 4/24 of a table, beside one of other kinds: 1/7 of the way is theirs.
    few = {("few", "t"): np.full(4, 0.1), ("many", "u"): np.full(80, 0.4), ("many", "v"): np.full(80, 0.4)}
    assert band(few, "few") == pytest.approx(0.1 ** (1 / 7) * 0.4 ** (6 / 7))
    # Many rows of many tables need no other kind, and a smaller error elsewhere narrows nothing.
    many = {("k", f"{i}"): np.full(400, 0.4) for i in range(9)} | {("few", "t"): np.full(4, 0.1)}
    assert band(many, "k") == pytest.approx(0.4)


def test_a_widened_band_holds_for_tables_that_it_has_not_seen() -> None:
    # Twelve tables, of which some are several times as far off as others: percentiles of the others hold too few rows.
    draw = np.random.default_rng(7)
    scores = []
    for k in range(12):
        scale = 0.03 * float(np.exp(draw.normal(0.0, 0.6)))
        job = {"workload": {"training": {"framework": "nemo"}, "sequence": 1}, "parallelism": {}}
        rows = [
            Row(f"{k}/{i}", "s", 1.0, {"topology": {"host": {"gpu": "A100-80"}}, "jobs": [job]}, {}) for i in range(50)
        ]
        scores.append(Score(f"t{k}", rows, list(1.0 + draw.normal(0.0, scale, 50)), []))
    inside = bands(scores)["kinds"]["dense, kernels measured"]["inside"]
    assert 0.93 <= inside <= 0.97


def test_the_front_page_says_what_the_board_says() -> None:
    readme, page = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/validation.md"))
    assert front.renewed(readme, page) == readme
    assert front.block(page).count("\n") >= 10


def test_the_errors_that_runs_show_follow_the_board() -> None:
    page = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
    shown = json.loads((ROOT / "data" / "errors" / "training.json").read_text(encoding="utf-8"))
    stated = rows_of_page(page)
    for table, figures in shown["board"].items():
        rows, median, p95 = stated[table]
        assert rows == figures["rows"], table
        for text, value in ((median, figures["median"]), (p95, figures["p95"])):
            assert float(text.removesuffix("%")) / 100 == pytest.approx(value, abs=6e-4), table
    # Rows on GPUs of several kinds are of no kind.
    several = [
        line for line in page.splitlines() if line.startswith("| `sailor` | measured layers, GPUs of several kinds |")
    ]
    apart = sum(int(line.split("|")[3]) for line in several)
    assert apart == 7
    rows_of_kinds = sum(kind["rows"] for kind in shown["kinds"].values())
    assert rows_of_kinds + apart == sum(table["rows"] for table in shown["board"].values())


@pytest.mark.parametrize(
    ("name", "table", "row", "message"),
    [
        ("torchtitan", "torchtitan_measured_tps.csv",
         titan("Llama 3.1 8B. 8 GPUs. Local batch size 2",
               {"Techniques": "FSDP", "TPS/GPU": "fast", "Memory(GiB)": "1"}),
         "torchtitan_measured_tps.csv:2: `row_json`: `TPS/GPU`: expected a number, found `fast`"),
        ("torchtitan", "torchtitan_measured_tps.csv",
         {"caption": "x", "row_json": "{", "hardware": "H100", "source": ""},
         "torchtitan_measured_tps.csv:2: `row_json`"),
        ("megatron-bridge", "megatron_bridge_measured_throughput.csv", bridge("LLAMA3_8B", {"GBS": "many"}),
         "throughput.csv:2: `raw_json`: `GBS`: expected a number, found `many`"),
        ("mlperf", "mlperf_training_runs.csv", {"round": "v5.0", "org": "A"},
         "mlperf_training_runs.csv:1: column `system` is missing"),
        ("sailor", "sailor_measured_iteration.csv", {"cluster": "clariden"},
         "sailor_measured_iteration.csv:1: column `model` is missing"),
    ],
)  # fmt: skip
def test_bad_tables_name_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, table: str, row: dict[str, object], message: str
) -> None:
    data = write(tmp_path, table, [row])
    assert main(["validate", "--table", name, "--data", str(data), "--out", str(tmp_path / "out"), "--json"]) == 2
    assert message in capsys.readouterr().err


def test_memory_of_korthikanti_within_the_target(measured: Path) -> None:
    (score,) = validate(["memory"], data=measured, limits=Limits(2)).scores
    found = [(p / r.measured - 1) for r, p in zip(score.rows, score.predicted, strict=True) if "korthikanti" in r.id]
    assert len(found) == 8
    assert max(abs(error) for error in found) < 0.1
