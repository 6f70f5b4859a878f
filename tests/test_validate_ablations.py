"""`windtunnel validate --without all`: what each mechanism of the model buys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from windtunnel.cli.app import DONE, main
from windtunnel.validate import Row, Score
from windtunnel.validate.ablation import MECHANISMS, MOST_GPUS, SAMPLE, sample, table

if TYPE_CHECKING:
    from pathlib import Path

HEAD = (
    "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,tensor parallelism,"
    "data parallelism,pipeline parallelism,iteration time (ms)\n"
)
REFUSED = 2


def row(name: str, gpus: int) -> Row:
    return Row(name, "s", 1.0, {"jobs": [{"workload": {}, "parallelism": {"dp": gpus}}]}, {})


def test_a_sample_is_even_over_jobs_that_are_not_large() -> None:
    rows = [row(str(i), 8 if i % 2 else 2 * MOST_GPUS) for i in range(100)]
    names = [one.id for one in sample(rows)]
    assert len(names) == SAMPLE
    assert all(int(name) % 2 for name in names)
    assert (names[0], int(names[-1]) > 85) == ("1", True)
    assert sample(rows[:1]) == []


def test_a_table_says_what_each_mechanism_buys() -> None:
    rows = [row("a", 8)]
    whole, other = Score("t", rows, [1.1], []), Score("t", rows, [0.7], [])
    text = table([whole, Score("none", [], [], [])], {"spread": [other], "nccl": [whole]})
    assert text.splitlines() == [
        "| table | rows | the whole model | without `spread` | without `nccl` |",
        "|---|---:|---:|---:|---:|",
        "| `t` | 1 | 10.0 % (+10.0 %) | 30.0 % (-30.0 %) | - |",
    ]


@pytest.mark.engine
def test_the_command_takes_every_mechanism_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "data" / "e2e_iteration"
    place.mkdir(parents=True)
    # Bound by launches: without those it is much too fast.
    (place / "vtrain_ground_truth_single.csv").write_text(HEAD + "2,8,1,1024,16,16,1024,1,2,1,230\n")
    asked = [
        "validate",
        "--without",
        "all",
        "--data",
        str(tmp_path / "data"),
        "--workers",
        "1",
        "--table",
        "vtrain-single",
    ]
    places = ["--store", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert main([*asked, *places]) == DONE
    shown = capsys.readouterr().out
    assert (tmp_path / "out" / "ablations.md").read_text() == shown
    head, _, line = shown.splitlines()
    assert all(f"without `{name}`" in head for name in MECHANISMS)
    cells = dict(
        zip([cell.strip() for cell in head.split("|")], [cell.strip() for cell in line.split("|")], strict=True)
    )
    launches = float(cells["without `launches`"].split()[0])
    assert launches > 30.0 > float(cells["the whole model"].split()[0])
    assert main([*asked, *places, "--write"]) == REFUSED
    assert main(["validate", "--without", "al", *places]) == REFUSED
