"""`windtunnel workload`: counting, converting, scaling, cutting and merging workloads of any form."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from conftest import ROOT
from windtunnel import run
from windtunnel.recording import decompose
from windtunnel.recording.explain import scenario_of

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


def test_hosts_are_regrouped_and_back(command: Command, tmp_path: Path) -> None:
    halo = ROOT / "examples" / "workloads" / "halo.goal"
    two, four = tmp_path / "two.bin", tmp_path / "four.bin"
    told = json.loads(command("workload", "regroup", halo, "-o", two, "--into", "2", "--json").stdout)
    # Each of the four sends 1 MiB to both neighbours: on hosts of two, one of them is in the same.
    assert (told["ranks"], told["operations"]) == (2, 28)
    assert (told["messages_between"], told["bytes_between"]) == (4, 4 << 20)
    assert (told["messages_inside"], told["bytes_inside"]) == (4, 4 << 20)
    told = json.loads(command("workload", "regroup", two, "-o", four, "--from", "2", "--json").stdout)
    # A copy becomes the message of one byte for which the other GPU waits.
    assert (told["ranks"], told["bytes_between"], told["edges_as_messages"]) == (4, 4 << 20, 4)
    ranks = command("workload", "regroup", STEP, "-o", tmp_path / "r.wtw", "--groups", "1;0", "--form", "ranks")
    assert "2 ranks, 64 operations" in ranks.stdout


def collective(folder: Path, kind: str, ranks: int, size: str) -> Path:
    """A workload of one collective."""
    lines: list[dict[str, object]] = [
        {"windtunnel_workload": 1, "ranks": ranks},
        {"collective": kind, "communicator": "world", "bytes": size},
    ]
    file = folder / "one.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.mark.parametrize(
    ("kind", "ranks", "size", "most"),
    [
        ("all_reduce", 16, "64 MiB", 1.03),
        ("all_gather", 16, "64 MiB", 1.04),
        ("reduce_scatter", 8, "64 MiB", 1.05),
        ("all_to_all", 8, "64 MiB", 1.01),
    ],
)
def test_decomposed_takes_as_long_as_whole(tmp_path: Path, kind: str, ranks: int, size: str, most: float) -> None:
    """On an idle fabric NCCL's messages take what the ring takes, and the filling of its chunks."""
    whole, messages = collective(tmp_path, kind, ranks, size), tmp_path / "one.bin"
    told = decompose(whole, messages, environment={"NCCL_ALGO": "ring", "NCCL_PROTO": "simple"}, gpus=8)
    assert [row["protocol"] for row in told["collectives"]] == ["simple"]
    times = []
    for file in (whole, messages):
        scenario = scenario_of(file, on=None, gpus=8, rate="400 Gbps", ranks=ranks)
        scenario["network"] = {"collectives": {"tuner": "size"}}
        times.append(run(scenario).summary["jobs"][0]["iteration_time_s"]["mean"])
    assert 0.99 < times[1] / times[0] < most


def test_decomposed_bytes_are_the_rings(command: Command, tmp_path: Path) -> None:
    whole, messages = collective(tmp_path, "all_reduce", 8, "15 MiB"), tmp_path / "one.goal"
    for protocol, factor in (("simple", 1.0), ("ll", 2.0), ("ll128", 128 / 120)):
        command("workload", "decompose", whole, "-o", messages, "--algorithm", "ring", "--protocol", protocol)
        stats = json.loads(command("workload", "stats", messages, "--json").stdout)
        # 2 (n - 1) / n of the buffer from each of n; short lines at ends of messages are a few bytes.
        assert stats["sent_bytes"] == pytest.approx(2 * 7 * (15 << 20) * factor, rel=2e-3)
    command("goal", "check", messages)


def test_ranks_stand_for_switches_that_sum(command: Command, tmp_path: Path) -> None:
    """NVLS over 8 GPUs of a host: each sends the buffer to be summed and an eighth for all, and gets as many back."""
    size = 64 << 20
    whole, messages = collective(tmp_path, "all_reduce", 8, "64 MiB"), tmp_path / "one.goal"
    command("workload", "decompose", whole, "-o", messages, "--gpus", "8")
    next_best = json.loads(command("workload", "stats", messages, "--json").stdout)
    assert next_best["ranks"] == 8
    words = ["--gpus", "8", "--switches", "ranks"]
    told = json.loads(command("workload", "decompose", whole, "-o", messages, *words, "--json").stdout)
    row = told["collectives"][0]
    assert (row["algorithm"], row["protocol"], row["instead_of_switches"]) == ("nvls", "simple", False)
    assert (told["ranks"], told["ranks_of_nvlink_switches"], told["ranks_of_network_switches"]) == (9, 1, 0)
    command("workload", "stats", messages, "--matrix", tmp_path / "m.csv")
    matrix = [[int(cell) for cell in line.split(",")] for line in (tmp_path / "m.csv").read_text().splitlines()]
    for rank in range(8):
        assert sum(matrix[rank]) == matrix[rank][8] == size + size // 8
        assert matrix[8][rank] == size + size // 8
    command("goal", "check", messages)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--algorithm", "rign"], "expected names of algorithms"),
        (["--algorithm", "nvls"], "no algorithm is left"),
        (["--protocol", "complex"], "expected names of protocols"),
        (["--env", "NCCL_ALGO"], "expected `NAME=VALUE`"),
        (["--chunk", "12"], "expected a size"),
        (["--switches", "all"], "--switches: expected `next-best` or `ranks`, found `all`"),
        (["--out", "x.et"], "expected a name that ends in"),
    ],
)
def test_what_cannot_be_decomposed_is_refused(
    command: Command, tmp_path: Path, arguments: list[str], said: str
) -> None:
    out = [] if "--out" in arguments else ["-o", tmp_path / "o.bin"]
    assert said in command("workload", "decompose", STEP, *out, *arguments, check=2).stderr


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
        (["regroup", STEP, "--into", "3"], "expected a divisor of 2 GPUs"),
        (["regroup", STEP, "--groups", "0-1;1"], "expected each of GPUs 0 to 1 on one node, found GPU 1 on 2"),
        (["regroup", STEP, "--groups", "0-b"], "expected GPUs such as"),
        (["regroup", STEP, "--rate", "5 s"], "expected a rate"),
        (["regroup", STEP, "--form", "gpus"], "expected `nodes` or `ranks`"),
        (["regroup", STEP, "--from", "3"], "no whole number for each of 3 GPUs"),
        (["regroup", STEP, "--from", "2", "--form", "ranks"], "expected a GPU a rank"),
    ],
)
def test_what_cannot_be_done_is_refused(
    command: Command, tmp_path: Path, arguments: list[str | Path], said: str
) -> None:
    assert said in command("workload", *arguments, "-o", tmp_path / "out.wtw", check=2).stderr
    assert not (tmp_path / "out.wtw").exists()


RECORDED = ROOT / "examples" / "traces"


def test_recordings_stand_for_workloads(command: Command, tmp_path: Path) -> None:
    """What `import` recognises, a file or a folder, goes wherever a workload does."""
    traces, imported = tmp_path / "traces", tmp_path / "step.wtw"
    traces.mkdir()
    for rank in range(2):
        shutil.copy(RECORDED / f"step-rank{rank}.json", traces)
    command("import", "kineto", traces, "-o", imported)

    def stats(file: Path) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(command("workload", "stats", file, "--json").stdout)
        return found

    expected = stats(imported)
    found = stats(traces)
    assert found.pop("recordings")[0]["kind"] == "kineto"
    assert found == expected
    # Chakra, as `convert` itself writes it: a file a rank, with the communicators beside.
    chakra = tmp_path / "chakra"
    chakra.mkdir()
    command("workload", "convert", traces, chakra / "step.et")
    found = stats(chakra)
    assert found["collectives"] == expected["collectives"]
    assert found["recordings"][0]["kind"] == "chakra"
    assert "give the folder of all ranks" in command("workload", "stats", chakra / "step.et", check=2).stderr
    # Each of the commands.
    out = tmp_path / "out.wtw"
    for words in (
        ["slice", traces, "--steps", expected["steps"][0]],
        ["scale", traces, "--size", "2"],
        ["merge", f"{traces}@0", f"{chakra}@2+1ms"],
        ["regroup", chakra, "--into", "2"],
        ["decompose", traces, "--algorithm", "ring"],
        ["convert", traces],
    ):
        arguments = [*words, out] if words[0] == "convert" else [*words, "-o", out]
        command("workload", *arguments)
        assert stats(out)["operations"] > 0
        out.unlink()
    told = ["-o", tmp_path / "e.html", "--json"]
    one, other = (json.loads(command("workload", "explain", file, *told).stdout) for file in (traces, imported))
    assert one.pop("workload") == "traces"
    assert other.pop("workload") == "step.wtw"
    assert one == other


def test_what_is_no_recording_is_refused_with_its_name(command: Command, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing of the kind\n")
    for words in (["stats", tmp_path / "notes.txt"], ["stats", tmp_path], ["explain", tmp_path / "notes.txt"]):
        said = command("workload", *words, check=2).stderr
        assert str(words[1]) in said
        assert "recording" in said
    # A hand-written workload whose labels look like the Inspector's records is one.
    plain = tmp_path / "plain.jsonl"
    plain.write_text(
        '{"windtunnel_workload":1,"ranks":1}\n{"rank":0,"id":"a","compute":"1 us","label":"\\"coll_perf\\""}\n'
    )
    assert "recordings" not in json.loads(command("workload", "stats", plain, "--json").stdout)
