"""`windtunnel calibrate kernels` and `training`: what is known goes in and comes out."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from windtunnel.calibrate import collectives, kernels, training
from windtunnel.cli.app import main
from windtunnel.engine import InputError
from windtunnel.experiments.spec import parse_yaml
from windtunnel.studies.runner import Limits
from windtunnel.validate import validate
from windtunnel.validate.systems import System

SHEETS = Path(__file__).resolve().parents[1] / "data" / "gpus"
CURVE = [(64.0, 0.2), (128.0, 0.35), (256.0, 0.5), (512.0, 0.6), (1024.0, 0.7), (2048.0, 0.75)]
PEAK, BANDWIDTH, LAUNCH = 312e12, 2039e9, 3e-6


def synthetic() -> list[kernels.Kernel]:
    """Kernels of a GPU whose figures are known."""
    rows = [
        kernels.Kernel("residual", m, 1024, 0, "bf16", LAUNCH + 6 * m * 1024 / (0.8 * BANDWIDTH)) for m in range(1, 16)
    ]
    shapes = [(m, n, 8192) for m in (8, 16) for n in range(4096, 12288, 512)]
    shapes += [(m, n, k) for m in np.geomspace(64, 8192, 24).astype(int) for n in (4096, 8192) for k in (4096, 8192)]
    for m, n, k in shapes:
        kernel = kernels.Kernel("gemm", int(m), n, k, "bf16", 1.0)
        # A thin product reads its weight and little else.
        compute = 0.0 if m <= 16 else 2 * kernel.m * n * k / (PEAK * kernels.share_at(CURVE, kernel.size))
        rows.append(kernel._replace(seconds=LAUNCH + max(compute, kernel.moved / (0.7 * BANDWIDTH))))
    return rows


def test_known_figures_come_back() -> None:
    found = kernels.fit("x", synthetic(), ["made"], peak=PEAK, bandwidth=BANDWIDTH)
    assert found.launch == pytest.approx(LAUNCH)
    assert found.memory == pytest.approx(0.7, abs=0.01)
    for size, share in found.gemm:
        if 256 <= size <= 2048:
            assert share == pytest.approx(dict(CURVE)[size], abs=0.03), size
    assert found.residuals["gemm"][1] < 0.03
    assert "efficiency.attention_forward" in found.refused


def test_what_the_rows_do_not_determine_is_refused() -> None:
    few = [row for row in synthetic() if row.kind == "gemm" and row.m > 4000][:8]
    found = kernels.fit("x", few, ["made"], peak=PEAK, bandwidth=BANDWIDTH)
    assert (found.launch, found.memory, found.gemm) == (None, None, [])
    assert {"launch", "efficiency.memory", "efficiency.gemm"} <= found.refused.keys()


def test_the_command_rewrites_a_sheet_and_names_bad_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sheet = tmp_path / "mine.yaml"
    shutil.copy(SHEETS / "a100-80.yaml", sheet)
    profile = tmp_path / "kernels.csv"
    lines = [f"{k.kind},{k.m},{k.n},{k.k},{k.dtype},{k.seconds * 1e6:.6f} us" for k in synthetic()]
    profile.write_text("kernel,m,n,k,dtype,time\n" + "\n".join(lines) + "\n")
    assert main(["calibrate", "kernels", str(sheet), str(profile)]) == 0
    text = sheet.read_text()
    assert "launch: {value: 3 us, evidence: measured" in text
    assert f"windtunnel calibrate kernels on kernels.csv: {len(lines)} rows" in text
    # Everything else is as it was.
    old = (SHEETS / "a100-80.yaml").read_text().splitlines()
    changed = [line for line, before in zip(text.splitlines(), old, strict=True) if line != before]
    assert sorted(line.split(":")[0].strip() for line in changed) == ["gemm", "launch", "memory"]
    profile.write_text("kernel,m,n,k,dtype,time\ngemm,1,2,3,bf16,fast\n")
    assert main(["calibrate", "kernels", str(sheet), str(profile)]) == 2
    assert "kernels.csv:2: `time`: expected a time such as `12.5 us`, found `fast`" in capsys.readouterr().err
    assert main(["calibrate", "kernels", "a100-8", str(profile)]) == 2
    assert "did you mean `a100-80`?" in capsys.readouterr().err


def test_the_curve_of_a_narrow_format_goes_to_its_own_place() -> None:
    products = [row._replace(dtype="fp8") for row in synthetic() if row.kind == "gemm" and row.m > 16]
    found = kernels.fit("x", products, ['a "made" one'], peak=PEAK, bandwidth=BANDWIDTH)
    sheet = (SHEETS / "h100-sxm.yaml").read_text()
    text = kernels.rewritten(sheet, found, dt.date(2026, 1, 2))
    changed = [line for line, before in zip(text.splitlines(), sheet.splitlines(), strict=True) if line != before]
    assert [line.split(":")[0].strip() for line in changed] == ["gemm_fp8"]
    read = parse_yaml(text, "h100-sxm.yaml")["efficiency"]["gemm_fp8"]
    assert [tuple(point) for point in read["value"]] == found.gemm
    assert read["source"].startswith('windtunnel calibrate kernels on a "made" one: ')
    # A sheet without one would take it for that of the wide formats.
    with pytest.raises(InputError, match="`gemm_fp8` is not on a line of its own"):
        kernels.rewritten((SHEETS / "a100-80.yaml").read_text(), found, dt.date(2026, 1, 2))


def test_kernels_that_move_no_bytes_alone_say_nothing_of_the_launch() -> None:
    attention = [kernels.Kernel("attention_forward", 128, m, 1024, "bf16", 50e-6) for m in range(1, 99)]
    found = kernels.fit("x", synthetic(), ["made"], peak=PEAK, bandwidth=BANDWIDTH)
    both = kernels.fit("x", [*synthetic(), *attention], ["made"], peak=PEAK, bandwidth=BANDWIDTH)
    assert (both.launch, both.memory, both.gemm) == (found.launch, found.memory, found.gemm)
    assert both.residuals == found.residuals


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("GEMM,8,8,8,bf16,1 us", "no kernel `GEMM`\n\nhint: did you mean `gemm`?"),
        ("gemm,²,8,8,bf16,1 us", "`m`: expected a whole number, found `²`"),
        (f"gemm,{'9' * 400},8,8,bf16,1 us", "`m`: expected a whole number, found `999"),
        ("gemm,8,8,8,bf16,1e400 us", "`time`: expected a time such as `12.5 us`, found `1e400 us`"),
        ("gemm,8,8,8,bf16,1 us,7", "expected 6 fields, found 7"),
    ],
)
def test_bad_kernels_are_told_with_their_line(tmp_path: Path, row: str, message: str) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text(f"kernel,m,n,k,dtype,time\n{row}\n", encoding="utf-8")
    with pytest.raises(InputError) as failure:
        list(kernels.read(path))
    assert message in str(failure.value)


def test_damaged_tables_and_sheets_are_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = "num_tokens,num_tensor_parallel_workers,n_embd,n_expanded_embd,n_head,n_kv_head"
    table = tmp_path / "layers.csv"
    for tokens, ranks in (("nan", 1), ("inf", 1), ("8", 64)):
        table.write_text(f"{head}\n{tokens},{ranks},8,8,8,8\n")
        with pytest.raises(InputError, match=r"layers.csv:2: "):
            list(kernels.read(table))
    packed = bytearray(gzip.compress(b"kernel,m,n,k,dtype,time\n" + b"gemm,8,8,8,bf16,1 us\n" * 99))
    packed[15:17] = b"\xff\xff"
    damaged = tmp_path / "kernels.csv.gz"
    damaged.write_bytes(bytes(packed))
    with pytest.raises(InputError, match="not a table: "):
        list(kernels.read(damaged))
    table.write_text("kernel,m,n,k,dtype,time\ngemm,8,8,8,bf16,1 us\n")
    sheet = tmp_path / "mine.yaml"
    for text, message in ((b"\xe9", "is not UTF-8 text"), (b"\x00", "unacceptable character")):
        sheet.write_bytes(text)
        assert main(["calibrate", "kernels", str(sheet), str(table)]) == 2
        assert message in capsys.readouterr().err


def test_constants_of_collectives_and_of_training_stand_side_by_side(tmp_path: Path) -> None:
    system = System("mine", tmp_path / "mine.yaml", {})
    beside = tmp_path / "constants" / "mine.json"
    assert collectives.write(system, '{"nccl": {"value": 1}}') == beside
    training_s = {"compute_share": {"value": 0.6}, "nccl": {"value": 0}}
    beside.write_text(json.dumps(training_s))
    collectives.write(system, '{"nccl": {"value": 2}}')
    assert json.loads(beside.read_text()) == {"compute_share": {"value": 0.6}, "nccl": {"value": 2}}


def test_vidurs_layers_become_kernels(tmp_path: Path) -> None:
    path = tmp_path / "layers.csv"
    head = "num_tokens,num_tensor_parallel_workers,n_embd,n_expanded_embd,n_head,n_kv_head,use_gated_mlp"
    path.write_text(
        f"{head},time_stats.attn_pre_proj.median,time_stats.add.median\n64,2,1024,4096,16,4,True,0.5,0.01\n"
    )
    product, addition = kernels.read(path)
    # 8 + 2·2 heads of 64 features on each of two ranks.
    assert product == kernels.Kernel("gemm", 64, 768, 1024, "bf16", 0.5e-3)
    assert (addition.kind, addition.moved) == ("residual", 2 * 3 * 64 * 1024)
    assert math.isclose(product.size, 1 / (1 / 64 + 1 / 768 + 1 / 1024))
    path.write_text(f"{head}\nmany,2,1024,4096,16,4,True\n")
    with pytest.raises(InputError, match=r"layers.csv:2: `num_tokens`: expected a number, found `many`"):
        list(kernels.read(path))


def titan(folder: Path, tps: float) -> Path:
    """A folder with one run of torchtitan."""
    place = folder / "e2e_iteration"
    place.mkdir(parents=True, exist_ok=True)
    caption = "Llama 3.1 8B model. 8 GPUs. Local batch size 1, global batch size 8. Selective. torch.compile"
    cells = json.dumps({"Techniques": "FSDP", "TPS/GPU": f"{tps:.3f}", "Memory(GiB)": "80"}).replace('"', '""')
    text = f'caption,row_json,hardware,source\n"{caption}","{cells}",H100,x\n'
    (place / "torchtitan_measured_tps.csv").write_text(text)
    systems = folder / "systems"
    systems.mkdir(exist_ok=True)
    shutil.copy(SHEETS.parent / "systems" / "grand-teton.yaml", systems)
    return folder


def test_a_share_that_made_the_rows_is_found_again(tmp_path: Path) -> None:
    folder = titan(tmp_path, 6000)
    system = folder / "systems" / "grand-teton.yaml"
    plain = system.read_text()
    system.write_text(plain + "constants: {compute_share: {value: 0.6, evidence: calibrated, source: made}}\n")
    (score,) = validate(["torchtitan"], data=folder, limits=Limits(1)).scores
    system.write_text(plain)
    folder = titan(tmp_path, 8 * 8192 / 8 / score.predicted[0])
    outcome = training.fit("grand-teton", "compute_share", ["torchtitan/*"], folder)
    assert outcome.value == pytest.approx(0.6, rel=0.01)
    record = training.record("compute_share", outcome, dt.date(2026, 1, 2))
    path = training.write("grand-teton", "compute_share", record, folder)
    assert path == folder / "systems" / "constants" / "grand-teton.json"
    # What was fitted on is read again, and never scored.
    (score,) = validate(["torchtitan"], data=folder, limits=Limits(1)).scores
    assert [e.reason for e in score.excluded] == ["used to fit a constant"]
    with pytest.raises(InputError, match="no row of grand-teton that runs matches"):
        training.fit("grand-teton", "compute_share", ["torchtitan/nothing*"], folder)
    with pytest.raises(InputError, match="no such constant: `luck`"):
        training.fit("grand-teton", "luck", ["torchtitan/*"], folder)
