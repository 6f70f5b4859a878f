"""`windtunnel import`: recordings become workloads that run at every fidelity, or are refused with a reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import windtunnel
from conftest import ROOT
from windtunnel.engine import InputError
from windtunnel.validate import validate
from windtunnel.validate.board import data_folder

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

pytestmark = pytest.mark.engine
PROFILER = ROOT / "examples" / "traces" / "nccl-profiler"
STEP = [ROOT / "examples" / "traces" / f"step-rank{rank}.json" for rank in range(2)]
SCENARIO = """
windtunnel: 1
name: recorded
fidelity: {fidelity}
topology:
  shape: clos
  hosts: 2
  tiers: [{{ports_down: 2, rate: 100 Gbps, length: 5 m}}]
  host: {{gpu: A100-80, gpus: 1, nics: 1, nic: ConnectX-6}}
jobs:
  - name: step
    workload: {{{source}: {file}}}
    iterations: 1
"""


def recorded() -> Path:
    """The folder of recordings, or a test that is skipped."""
    try:
        folder = data_folder(None)
    except InputError:
        pytest.skip("needs ../shared/data")
    if not (folder / "traces_kineto").is_dir():
        pytest.skip("needs ../shared/data/traces_kineto")
    return folder


@pytest.mark.parametrize("end", ["wtw", "jsonl", "goal", "bin"])
def test_every_form_runs_at_every_fidelity(command: Command, tmp_path: Path, end: str) -> None:
    target = tmp_path / f"step.{end}"
    command("import", "kineto", *STEP, "-o", target)
    times = []
    for fidelity in ("message", "flow", "packet"):
        scenario = tmp_path / f"{fidelity}.yaml"
        source = "goal" if end in ("goal", "bin") else "file"
        scenario.write_text(SCENARIO.format(fidelity=fidelity, source=source, file=target.name))
        job = windtunnel.run(scenario).summary["jobs"][0]
        times.append(float(job["iteration_time_s"]["mean"]))
    # Four all-reduces of 32 MiB over two ranks at 100 Gbps: each rank sends and takes as much as the vector.
    assert all(4 * 33_554_432 * 8 / 100e9 < time < 0.03 for time in times)


@pytest.mark.parametrize("fidelity", ["message", "flow", "packet"])
def test_events_of_the_nccl_profiler_plugin_run_at_every_fidelity(
    command: Command, tmp_path: Path, fidelity: str
) -> None:
    target = tmp_path / "nccl.wtw"
    answer = json.loads(command("import", "auto", PROFILER, "-o", target, "--json").stdout)
    assert answer["kind"] == "nccl-profiler"
    assert answer["workload"]["ranks"] == 4
    assert answer["totals"]["dropped"]["operations"] == 0
    scenario = tmp_path / "run.yaml"
    text = SCENARIO.format(fidelity=fidelity, source="file", file=target.name)
    scenario.write_text(text.replace("hosts: 2", "hosts: 4").replace("down: 2", "down: 4"))
    job = windtunnel.run(scenario).summary["jobs"][0]
    # What lies between operations on each rank: 1.79 ms a step, 2.6 ms between the steps, 1.6 ms before the broadcast.
    gaps = 2 * 1.79e-3 + 2.6e-3 + 1.6e-3
    # Two steps move: halves of 2 MiB and 16 MiB, an all-reduce of 8 MiB over two ranks, 4 MiB to a rank; NCCL
    # reaches less than the 100 Gbps with such sizes.
    moved = 2 * (1 + 8 + 8 + 4) * (1 << 20) * 8 / 100e9
    assert gaps + moved < job["iteration_time_s"]["mean"] < gaps + 1.5 * moved


def test_a_recording_of_any_length_is_read_in_parts_or_refused_at_once(command: Command, tmp_path: Path) -> None:
    # A hole of 5 GiB: nothing of it is on the disk, and no kind that is read whole begins to read it.
    long = tmp_path / "host.xplane.pb"
    with long.open("wb") as file:
        file.truncate(5 << 30)
    done = command("import", "xplane", long, "-o", tmp_path / "w.wtw", check=2)
    assert "at most 4 GiB of a recording that is read whole, found 5368709120 bytes" in done.stderr
    assert "may be of any length" in done.stderr
    # Of pages only those that are asked for are read: here a table whose tree is beyond 4 GiB.
    database = tmp_path / "long.sqlite"
    head = bytearray(512)
    head[:16] = b"SQLite format 3\0"
    head[16:18] = (512).to_bytes(2, "big")
    far = (5 << 30) // 512
    sql, name = b"CREATE TABLE k(start integer)", b"CUPTI_ACTIVITY_KIND_KERNEL"
    kinds = bytes([6, 23, 13 + 2 * len(name), 13 + 2 * len(name), 4, 13 + 2 * len(sql)])
    record = kinds + b"table" + name + name + far.to_bytes(4, "big") + sql
    cell = bytes([len(record), 1]) + record
    at = 512 - len(cell)
    head[100:110] = bytes([13, 0, 0, 0, 1]) + at.to_bytes(2, "big") + bytes([0]) + at.to_bytes(2, "big")
    head[at:] = cell
    with database.open("wb") as file:
        file.write(head)
        file.seek((far - 1) * 512)
        file.write(bytes([13]) + bytes(511))
    done = command("import", "nsys", database, "-o", tmp_path / "w.wtw", check=2)
    assert "expected at least one kernel, found none" in done.stderr


def test_the_account_adds_up_and_lies_beside_the_workload(command: Command, tmp_path: Path) -> None:
    target = tmp_path / "step.wtw"
    answer = json.loads(command("import", "auto", *STEP, "-o", target, "--json").stdout)
    assert json.loads((tmp_path / "step.wtw.coverage.json").read_text()) == answer
    totals = answer["totals"]
    parts = [totals[verdict]["operations"] for verdict in ("mapped", "approximated", "guessed", "dropped")]
    assert sum(parts) == totals["read"]["operations"]
    assert sum(row["operations"] for row in answer["rows"]) == totals["read"]["operations"]
    calls = [row for row in answer["rows"] if row["kind"] == "collective: all-reduce"]
    assert sum(row["operations"] for row in calls) == 8
    assert [span["name"] for span in answer["spans"]] == ["ProfilerStep#1"] * 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["kineto", "step"], "no such file"),
        (["kinto", STEP[0]], "did you mean `kineto`?"),
        (["kineto", STEP[0]], "missing: rank 1"),
        (["kineto", STEP[0], STEP[0]], "rank 0 again"),
        (["kineto", *STEP, "--missing", "sam"], "did you mean `same`?"),
        (["chakra", *STEP], "workload_graph"),
        (["auto", ROOT / "README.md"], "a known kind"),
        (["kineto", *STEP, "--only", "rank7"], "rank7"),
    ],
)
def test_what_cannot_be_read_is_refused(
    command: Command, tmp_path: Path, arguments: list[str | Path], said: str
) -> None:
    done = command("import", *arguments, "-o", tmp_path / "w.wtw", check=2)
    assert said in done.stderr
    assert not (tmp_path / "w.wtw").exists()


def test_a_cut_file_is_refused_with_its_place(command: Command, tmp_path: Path) -> None:
    cut = tmp_path / "cut.json"
    cut.write_text(STEP[0].read_text()[:900])
    done = command("import", "kineto", cut, "-o", tmp_path / "w.wtw", check=2)
    assert "cut.json:byte 900" in done.stderr


def test_missing_ranks_are_filled_in_when_asked(command: Command, tmp_path: Path) -> None:
    done = command("import", "kineto", STEP[0], "--missing", "same", "-o", tmp_path / "w.wtw", "--json")
    answer = json.loads(done.stdout)
    assert answer["workload"]["ranks"] == 2
    assert {"rank": "guessed"}.items() <= {row["kind"]: row["verdict"] for row in answer["rows"]}.items()


def test_recorded_steps_are_replayed_within_five_percent() -> None:
    board = validate(["traces"], data=recorded())
    (score,) = board.scores
    assert not score.failed
    for row, predicted in zip(score.rows, score.predicted, strict=True):
        assert predicted == pytest.approx(row.measured, rel=0.05), row.id
