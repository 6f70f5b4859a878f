"""`windtunnel workload`: counting, converting, scaling, cutting and merging workloads of any form."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

pytestmark = pytest.mark.engine
STEP = ROOT / "examples" / "workloads" / "recorded-step.jsonl"


def test_every_form_says_the_same_of_itself(command: Command, tmp_path: Path) -> None:
    first = json.loads(command("workload", "stats", STEP, "--json").stdout)
    assert first["collectives"] == [
        {"collective": "all-reduce", "dimension": "other", "members": 2, "count": 4, "bytes": 33_554_432}
    ]
    compact = tmp_path / "step.wtw"
    command("workload", "convert", STEP, compact)
    assert json.loads(command("workload", "stats", compact, "--json").stdout) == first
    assert compact.stat().st_size < STEP.stat().st_size / 5
    sent = []
    for name in ("step.goal", "step.bin"):
        command("workload", "convert", compact, tmp_path / name)
        sent.append(json.loads(command("workload", "stats", tmp_path / name, "--json").stdout)["sent_bytes"])
    # Four all-reduces between two ranks: each sends the vector once, in two halves.
    assert sent == [4 * 2 * 33_554_432] * 2


def test_the_matrix_has_what_each_sends(command: Command, tmp_path: Path) -> None:
    command("workload", "stats", STEP, "--matrix", tmp_path / "m.csv")
    rows = [[int(cell) for cell in line.split(",")] for line in (tmp_path / "m.csv").read_text().splitlines()]
    assert rows == [[0, 4 * 33_554_432], [4 * 33_554_432, 0]]


def test_a_slice_scaled_and_merged(command: Command, tmp_path: Path) -> None:
    step, fast, both = tmp_path / "step.wtw", tmp_path / "fast.wtw", tmp_path / "both.wtw"
    command("workload", "slice", STEP, "--steps", "ProfilerStep#1", "-o", step)
    before = json.loads(command("workload", "stats", step, "--json").stdout)
    command("workload", "scale", step, "--compute", "gemm*=0.5", "--size", "2", "-o", fast)
    after = json.loads(command("workload", "stats", fast, "--json").stdout)
    assert after["collectives"][0]["bytes"] == 2 * before["collectives"][0]["bytes"]

    def gemm(told: dict[str, list[dict[str, float]]]) -> float:
        return sum(row["time_s"] for row in told["computation"] if str(row["computation"]).startswith("gemm"))

    assert gemm(after) == pytest.approx(gemm(before) / 2)
    command("workload", "merge", step, f"{fast}+2ms", "-o", both, "--placing", "round-robin")
    merged = json.loads(command("workload", "stats", both, "--json").stdout)
    assert merged["ranks"] == 4
    assert merged["communicators"] == 2 * before["communicators"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["slice", STEP, "--steps", "Step#7"], "it has `ProfilerStep#1`"),
        (["scale", STEP, "--compute", "gem=2"], "no computation is called `gem`"),
        (["scale", STEP, "--compute", "gemm"], "LABEL=FACTOR"),
        (["scale", STEP, "--size", "-1"], "factors from 0"),
        (["merge", f"{STEP}+soon"], "expected a time"),
        (["merge", f"{STEP}@0", f"{STEP}@1"], "both stand on rank 1"),
        (["merge", STEP, "--placing", "randm"], "did you mean `random`?"),
    ],
)
def test_what_cannot_be_done_is_refused(
    command: Command, tmp_path: Path, arguments: list[str | Path], said: str
) -> None:
    assert said in command("workload", *arguments, "-o", tmp_path / "out.wtw", check=2).stderr
    assert not (tmp_path / "out.wtw").exists()
