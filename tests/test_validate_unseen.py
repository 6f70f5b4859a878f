"""Tables that nobody has fitted: how their rows are read, and what they show besides errors."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from windtunnel.engine import InputError
from windtunnel.validate import Row
from windtunnel.validate.bands import kind_of
from windtunnel.validate.systems import fitted_of, read_systems
from windtunnel.validate.tables import READERS, dgxc, marin, ultrascale

if TYPE_CHECKING:
    from pathlib import Path

MPT = (
    "model,layers,hidden,heads,vocab,sequence,gpus,gpu,micro_batch,grad_accum,global_batch,precision,mp_mode,sharding,"
    "activation_checkpointing,activation_cpu_offload,iteration_s\n"
)
ULTRA = "model,nodes,gpus,dp,tp,pp,mbs,grad_acc,gbs,zero,run,step_s,mem_gb,kv_heads,slow,rule\n"


def folder(tmp_path: Path, name: str, text: str) -> Path:
    """A data folder with one table."""
    place = tmp_path / "e2e_iteration"
    place.mkdir(exist_ok=True)
    data = text.encode()
    (place / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return tmp_path


def row(series: str, gpus: int, measured: float) -> Row:
    """A row of a series."""
    return Row(f"dgxc/{series}-{gpus}", "eos", measured, {}, {"series": series, "scale": f"{gpus} GPUs"})


def test_growth_is_from_the_smallest_to_the_largest_scale() -> None:
    rows = [(row("a", 512, 2.2), 2.1), (row("a", 64, 2.0), 2.0), (row("a", 2048, 2.5), 2.2), (row("b", 8, 1.0), 1.0)]
    found = dgxc.growth(rows, [])
    assert found["growth of a, predicted, %"] == pytest.approx(10.0)
    assert found["growth of a, measured, %"] == pytest.approx(25.0)
    assert len(found) == 2, "one scale has no growth"


def test_precision_and_recall_of_what_fits() -> None:
    small, large, inf = 10e9, 200e9, float("inf")
    given = [(small, 1.0), (small, 1.0), (small, inf), (large, 1.0), (large, inf)]
    rows = [(Row(f"r{i}", "s", measured, {}, {}), size) for i, (size, measured) in enumerate(given)]
    found = ultrascale.fits([], rows)
    assert found["fit, precision"] == pytest.approx(2 / 3)
    assert found["fit, recall"] == pytest.approx(2 / 3)
    assert ultrascale.fits([], []) == {}


def test_stages_of_nanotron_are_filled_up_to_their_share() -> None:
    # 16 layers of 67.1 M multiplications and a head of 268 M, four layers' worth: 20 layers' worth over 4 stages.
    assert ultrascale.stages_of("1.34B", 4) == [5, 5, 5, 1]
    assert ultrascale.stages_of("80B", 1) == [80]
    assert all(
        sum(ultrascale.stages_of(name, pp)) == shape["layers"]
        for name, shape in ultrascale.SHAPES.items()
        for pp in (2, 8)
    )


def test_rows_of_ultrascale_are_told_apart(tmp_path: Path) -> None:
    lines = [
        "1.34B,1,8,8,1,1,1,32,256,0,0,3.3,20.0,32,0,",
        "1.34B,1,8,8,1,1,1,32,256,0,1,3.4,20.0,32,0,",
        "1.34B,4,32,16,1,2,1,16,256,1,0,9.9,20.0,32,1,",
        "1.34B,1,8,1,8,1,64,4,256,0,0,,,,,",
        "1.34B,1,8,8,1,1,1,32,256,1,0,3.4,20.0,32,0,pp>21",
    ]
    data = folder(tmp_path, "ultrascale_configs.csv.gz", ULTRA + "\n".join(lines) + "\n")
    table = READERS["ultrascale"](data, read_systems(None))
    assert table is not None
    assert [row.measured for row in table.rows] == [3.3]
    assert sorted(row.measured for row in table.beside) == [1.0, 1.0, float("inf")]
    reasons = {e.reason for e in table.excluded}
    assert {"a repetition of another row", "breaks a rule of the benchmark itself"} <= reasons
    training = table.rows[0].scenario["jobs"][0]["workload"]["training"]
    assert training["straggle"] == "0 us", "one stage: no exchange between stages"


def test_rows_of_mpt_tell_the_layout_and_leave_the_rest_to_the_framework(tmp_path: Path) -> None:
    line = "2b,32,4096,32,50368,2048,8,h100_80gb,6,1,48,amp_bf16,DEFAULT,SHARD_GRAD_OP,False,False,1.0\n"
    table = READERS["mosaic-mpt"](folder(tmp_path, "mosaic_mpt.csv", MPT + line), read_systems(None))
    assert table is not None
    job = table.rows[0].scenario["jobs"][0]
    assert job["parallelism"] == {"dp": 8, "reshard": "never"}
    assert job["workload"]["training"] == {"framework": "foundry", "precision": "bf16", "recompute": "none"}
    wrong = folder(tmp_path, "mosaic_mpt.csv", MPT + line.replace("h100_80gb", "tpu"))
    with pytest.raises(InputError, match=r"mosaic_mpt\.csv:2: `gpu`: expected one of"):
        READERS["mosaic-mpt"](wrong, read_systems(None))


def test_rows_that_a_gpu_or_a_framework_was_fitted_on_are_those_of_its_systems() -> None:
    fitted = {row for figure in fitted_of("gpus", "H100-SXM").values() for row in figure["fitted"]}
    assert fitted
    systems = read_systems(None)
    assert all(fitted <= systems[name].fitted for name in ("eos", "mosaic-h100", "ultrascale-p5"))
    assert not fitted & systems["selene"].fitted


def test_rows_told_nothing_keep_their_layout_and_lose_their_software(tmp_path: Path) -> None:
    line = "2b,32,4096,32,50368,2048,8,h100_80gb,6,1,48,amp_bf16,DEFAULT,SHARD_GRAD_OP,False,False,1.0\n"
    table = READERS["no-framework"](folder(tmp_path, "mosaic_mpt.csv", MPT + line), read_systems(None))
    assert table is not None
    (row,) = [row for row in table.rows if "2b" in row.id]
    job = row.scenario["jobs"][0]
    assert job["workload"]["training"] == {"precision": "bf16", "recompute": "none"}
    assert job["parallelism"] == {"dp": 8, "zero": 3}
    assert row.id.startswith("no-framework/mosaic-mpt/")
    assert kind_of(row) == "no framework named"


def test_levanter_steps_by_muon_and_its_older_runs_scatter_tokens(tmp_path: Path) -> None:
    head = (
        "id,issue,date,gpu,gpus,framework,hidden,layers,heads,kv_heads,experts,topk,expert_ffn,shared_ffn,seq,global_batch,"
        "fsdp,ep,transport,recompute,capacity_factor,step_s,complete_shape,note\n"
    )

    def line(name: str, date: str, framework: str) -> str:
        return f"{name},1,{date},GB200,64,{framework},5120,48,40,10,256,8,2048,5120,4096,1024,,64,NCCL,,,15,1,\n"

    text = head + line("old", "2026-07-27", "levanter-grug") + line("new", "2026-08-05", "levanter-grug")
    text += line("other", "2026-07-27", "megatron")
    table = READERS["marin"](folder(tmp_path, "marin_moe.csv", text), read_systems(None))
    assert table is not None
    told = {row.id: row.scenario["jobs"][0]["workload"]["training"] for row in table.rows}
    assert (told["marin/old"]["optimizer"], told["marin/old"]["permute_traffic"]) == ("muon", marin.SCATTERED)
    assert told["marin/new"]["optimizer"] == "muon"
    assert "permute_traffic" not in told["marin/new"]
    assert not {"optimizer", "permute_traffic"} & told["marin/other"].keys()
