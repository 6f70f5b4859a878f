"""`windtunnel workload slice --repeats`, `scale --gpu` and `merge --shared`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from windtunnel import Workload, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Command

pytestmark = pytest.mark.engine


def training(file: Path, *, iterations: int = 5, prologue: bool = False, odd: bool = False) -> Path:
    """Iterations of three layers and a sum on two ranks, without marks; or with a prologue, or none alike."""
    lines: list[dict[str, Any]] = [{"windtunnel_workload": 1, "ranks": 2}]
    count, last = 0, ""

    def add(ranks: list[int], **what: object) -> None:
        nonlocal count, last
        after = [last] if last else []
        last = f"o{count}"
        lines.append({"ranks": ranks, "id": last, "after": after, **what})
        count += 1

    both = [0, 1]
    if prologue:
        add(both, compute="7 us", label="load")
        add(both, collective="broadcast", communicator="world", bytes="3 MiB")
        add(both, compute="1 us", label="layer")
        add(both, collective="all_gather", communicator="world", bytes="5 KiB")
    for iteration in range(iterations):
        for layer in range(3):
            label = f"layer-{iteration}-{layer}" if odd else "layer"
            add(both, compute=f"{100 + iteration} us", label=label)
            add(both, collective="all_reduce", communicator="world", bytes=f"{iteration + 1 if odd else 1} MiB")
        add(both, compute="20 us", label="backward")
        add([0], send={"to": 1, "bytes": "1 MiB", "tag": iteration})
        lines.append({"rank": 1, "id": last, "after": [f"o{count - 2}"], "receive": {"from": 0, "tag": iteration}})
        add(both, collective="all_reduce", communicator="world", bytes="64 MiB")
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.mark.parametrize(("prologue", "before"), [(False, 0), (True, 4)])
def test_iterations_are_cut_where_operations_repeat(
    command: Command, tmp_path: Path, *, prologue: bool, before: int
) -> None:
    file, cut = training(tmp_path / "all.jsonl", prologue=prologue), tmp_path / "cut.wtw"
    told = json.loads(command("workload", "slice", file, "--repeats", "1..3", "-o", cut, "--json").stdout)
    assert told["repeats"] == {"before": before, "period": 9, "count": 5, "behind": 0}
    assert (told["operations"], told["collectives_left_out"]) == (2 * 3 * 9, 0)
    stats = json.loads(command("workload", "stats", cut, "--json").stdout)
    layers = next(row for row in stats["computation"] if row["computation"] == "layer")
    # Three layers of iterations 1 to 3 on both ranks.
    assert layers["time_s"] == pytest.approx(2 * 3 * (101 + 102 + 103) * 1e-6)
    one = command("workload", "slice", file, "--repeats", "4", "-o", cut).stdout
    assert f"5 repetitions of 9 operations on the first rank that does anything, {before} before" in one
    command("workload", "convert", cut, tmp_path / "cut.goal")
    command("goal", "check", tmp_path / "cut.goal")


def test_what_does_not_repeat_is_refused(command: Command, tmp_path: Path) -> None:
    def refused(file: Path, repeats: str) -> str:
        text: str = command("workload", "slice", file, "--repeats", repeats, "-o", tmp_path / "o.wtw", check=2).stderr
        assert not (tmp_path / "o.wtw").exists()
        return " ".join(text.split())

    assert "found none on rank 0" in refused(training(tmp_path / "odd.jsonl", odd=True), "0")
    good = training(tmp_path / "good.jsonl")
    assert "expected iterations from 0 to 4, found 3 to 5" in refused(good, "3..5")
    assert "expected iterations such as `0` or `1..3`, found `x`" in refused(good, "x")
    apart = Workload(ranks=2)
    for _ in range(6):
        apart.compute(0, "1 us")
    for _ in range(4):
        apart.compute(1, "1 us")
    assert "found 4 on rank 1 and 6 on rank 0" in refused(apart.write(tmp_path / "apart.jsonl"), "0")
    assert "expected `--steps` or `--repeats`, found neither" in " ".join(
        command("workload", "slice", good, "-o", tmp_path / "o.wtw", check=2).stderr.split()
    )


def kernels(file: Path) -> Path:
    lines: list[dict[str, Any]] = [
        {"windtunnel_workload": 1, "ranks": 2},
        {"ranks": "all", "compute": "100 us", "label": "nvjet_tst_128x256"},
        {"ranks": "all", "compute": "40 us", "label": "vectorized_elementwise_kernel<int*>"},
        {"ranks": "all", "compute": "10 us", "label": "host", "stream": 6},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_computation_goes_by_the_sheets_of_two_gpus(command: Command, tmp_path: Path) -> None:
    file, other = kernels(tmp_path / "a100.jsonl"), tmp_path / "h100.wtw"
    words = ["workload", "scale", file, "--gpu", "a100-80=H100-SXM", "-o", other]
    told = json.loads(command(*words, "--json").stdout)["classes"]
    peak, memory = 312 / 989.4, 2039 / 3350
    assert [(row["class"], row["count"]) for row in told] == [("products", 2), ("memory", 2), ("host", 2)]
    assert [row["factor"] for row in told] == pytest.approx([peak, memory, 1])
    assert [row["time_s"] for row in told] == pytest.approx([200e-6, 80e-6, 20e-6])
    stats = json.loads(command("workload", "stats", other, "--json").stdout)
    times = {row["computation"]: row["time_s"] for row in stats["computation"]}
    assert times["nvjet_tst_128x256"] == pytest.approx(200e-6 * peak)
    assert times["vectorized_elementwise_kernel<int*>"] == pytest.approx(80e-6 * memory)
    assert times["host"] == pytest.approx(20e-6)
    assert "200.0 µs × 0.3153: 2 of products" in command(*words).stdout
    # A rule by label comes first, and a format has its own peak.
    told = json.loads(command(*words, "--format", "fp32", "--compute", "host=0.5", "--json").stdout)["classes"]
    assert told[0]["factor"] == pytest.approx(19.5 / 66.9)
    assert told[2]["count"] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpu", "a100-80=h100-sxn"], "did you mean `h100-sxm`?"),
        (["--gpu", "h100-sxm"], "--gpu: expected `FROM=TO`, found `h100-sxm`"),
        (["--gpu", "a100-80=h100-sxm", "--format", "fp8"], "--format: expected a format of the sheet of `a100-80`"),
        (["--format", "fp8"], "found no `--gpu`"),
    ],
)
def test_gpus_that_nobody_knows_are_refused(command: Command, tmp_path: Path, words: list[str], said: str) -> None:
    file = kernels(tmp_path / "k.jsonl")
    text = command("workload", "scale", file, *words, "-o", tmp_path / "o.wtw", check=2).stderr
    assert said in " ".join(text.split())


def ring(file: Path, *, any_tag: bool = False) -> Path:
    """Each of four computes for 100 us and sends 10 MB to the next, and all meet at last."""
    step = Workload(ranks=4)
    computed = step.compute("all", "100 us")
    for rank in range(4):
        step.send(rank, (rank + 1) % 4, "10 MB", tag=3, after=[computed], stream=1)
        got = step.receive(rank, (rank - 1) % 4, tag="any" if any_tag else 3, stream=1, id="got")
        step.collective(rank, "barrier", "world", "0 B", after=[got], stream=1, id="met")
    return step.write(file)


def taken(file: Path) -> float:
    scenario = {
        "windtunnel": 1,
        "name": "shared",
        "fidelity": "flow",
        "topology": {
            "shape": "clos",
            "hosts": 4,
            "tiers": [{"ports_down": 4, "rate": "100 Gbps"}],
            "host": {},
            "switch": {"latency": "0 ns"},
        },
        "network": {"header": "0 B"},
        "jobs": [{"name": "step", "workload": {"file": str(file)}}],
    }
    mean: float = run(scenario).summary["jobs"][0]["iteration_time_s"]["mean"]
    return mean


@pytest.mark.parametrize("any_tag", [False, True])
def test_two_on_the_same_nodes_share_their_nics(command: Command, tmp_path: Path, *, any_tag: bool) -> None:
    one, two, both = ring(tmp_path / "one.jsonl"), ring(tmp_path / "two.jsonl", any_tag=any_tag), tmp_path / "both.wtw"
    told = json.loads(command("workload", "merge", f"{one}@0", f"{two}@0", "--shared", "-o", both, "--json").stdout)
    assert (told["ranks"], told["operations"], told["communicators"]) == (4, 32, 2)
    alone, shared = taken(one), taken(both)
    # 10 MB at 100 Gbps in 800 us; computations run beside each other.
    assert alone == pytest.approx(900e-6, rel=0.01)
    assert shared - 100e-6 == pytest.approx(2 * (alone - 100e-6), rel=0.02)
    stats = json.loads(command("workload", "stats", both, "--json").stdout)
    assert {row["stream"]: row["busy_s"] for row in stats["streams"]} == pytest.approx({0: 400e-6, 2: 400e-6})
    # Every message finds its receive.
    command("workload", "convert", both, tmp_path / "both.goal")
    command("goal", "check", tmp_path / "both.goal")


def test_one_that_begins_later_and_beside(command: Command, tmp_path: Path) -> None:
    one, both = ring(tmp_path / "one.jsonl"), tmp_path / "both.wtw"
    command("workload", "merge", f"{one}@0", f"{one}@0+5ms", "--shared", "-o", both)
    assert taken(both) == pytest.approx(5e-3 + taken(one), rel=0.01)
    told = json.loads(command("workload", "merge", f"{one}@0", f"{one}@2", "--shared", "-o", both, "--json").stdout)
    assert told["ranks"] == 6


def test_sharing_is_asked_for(tmp_path: Path, command: Command) -> None:
    one = ring(tmp_path / "one.jsonl")

    def refused(*words: str) -> str:
        run: Callable[..., Any] = command
        text: str = run("workload", "merge", f"{one}@0", f"{one}@0", *words, "-o", tmp_path / "o.wtw", check=2).stderr
        return " ".join(text.split())

    assert "both stand on rank 0" in refused()
    assert "`--shared` has them run beside each other" in refused()
    assert "expected `packed` with `--shared`, found `random`" in refused("--placing", "random", "--shared")
