"""`windtunnel workload slice --repeats`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from windtunnel import Workload

if TYPE_CHECKING:
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
