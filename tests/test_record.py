"""`windtunnel record`: a small transformer on four processes, and the same captured without any."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

pytestmark = pytest.mark.engine
TRAIN = ROOT / "examples" / "record" / "train.py"
HIDDEN, LAYERS, VOCABULARY = 64, 2, 256


def parameters() -> int:
    """Of the model of `train.py`: attention, feed-forward and two norms a layer, with biases; embedding and head."""
    layer = 4 * HIDDEN * HIDDEN + 4 * HIDDEN + 8 * HIDDEN * HIDDEN + 5 * HIDDEN + 4 * HIDDEN
    return LAYERS * layer + VOCABULARY * HIDDEN + VOCABULARY * HIDDEN + VOCABULARY


@pytest.fixture(scope="module")
def torch() -> str:
    """A Python that has PyTorch: that of `WINDTUNNEL_TORCH_PYTHON`, or this one; skips where there is none."""
    python = os.environ.get("WINDTUNNEL_TORCH_PYTHON", sys.executable)
    probe = [python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"]
    if subprocess.run(probe, check=False).returncode:
        pytest.skip("needs PyTorch: `pip install 'windtunnel[torch]'`")
    return python


def stats(command: Command, file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command("workload", "stats", file, "--json").stdout)
    return found


def test_four_processes_are_recorded_and_imported(command: Command, torch: str, tmp_path: Path) -> None:
    traces, out = tmp_path / "traces", tmp_path / "step.wtw"
    launch = [
        torch,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "4",
        TRAIN,
        "--steps",
        "4",
    ]
    told = command("record", "-o", traces, "--skip", "1", "--steps", "2", "--", *launch).stdout
    assert "recorded 4 of 4 ranks" in told
    assert f"windtunnel import kineto {traces} -o step.wtw" in told
    assert sorted(path.name for path in traces.iterdir()) == [f"rank{rank}.json" for rank in range(4)]
    command("import", "kineto", traces, "-o", out, "--strict")
    found = stats(command, out)
    assert found["ranks"] == 4
    assert len(found["steps"]) == 2
    gradients = [row for row in found["collectives"] if row["bytes"] > 1_000 and row["collective"] == "all-reduce"]
    assert sum(row["bytes"] * row["count"] for row in gradients) == 2 * 4 * parameters()
    # A second recording does not mix with the first.
    assert "found `rank0.json`" in command("record", "-o", traces, "--", "true", check=2).stderr


def test_a_stub_captures_every_rank(command: Command, torch: str, tmp_path: Path) -> None:
    out = tmp_path / "captured.wtw"
    told = command("record", "--stub", "4", "--steps", "2", "-o", out, "--", torch, TRAIN, "--steps", "9").stdout
    assert "4 ranks" in told
    assert "matrix products, by the kernel model" in told
    found = stats(command, out)
    assert found["steps"] == ["step#0", "step#1"]
    rows = {row["bytes"]: row for row in found["collectives"]}
    # One bucket of all gradients a step; the loss of the first step: the program ends as the second step is taken.
    assert {bytes_: row["count"] for bytes_, row in rows.items()} == {4 * parameters(): 2, 4: 1}
    assert all(row["collective"] == "all-reduce" and row["members"] == 4 for row in rows.values())
    # A linear layer has three products a step, one forward and two backward: on each of 4 ranks 4 a layer and the head.
    products = sum(row["count"] for row in found["computation"] if row["computation"] in ("mm", "addmm"))
    assert products == 4 * 2 * 3 * (4 * LAYERS + 1)
    explained = json.loads(
        command("workload", "explain", out, "-o", tmp_path / "e.html", "--gpus", "4", "--json").stdout
    )
    assert explained["ranks"] == 4
    assert explained["replayed_s"] > 0


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_stub_captures_sharded_parameters(command: Command, torch: str, tmp_path: Path) -> None:
    """FSDP: each layer is gathered forward and backward and its gradients are scattered, what is in no layer once."""
    out, steps, ranks = tmp_path / "captured.jsonl", 2, 4
    command("record", "--stub", str(ranks), "--steps", str(steps), "-o", out, "--", torch, TRAIN.with_name("fsdp.py"))
    found = stats(command, out)
    layer = 4 * (parameters() - 2 * VOCABULARY * HIDDEN - VOCABULARY) // LAYERS
    rest = 4 * (2 * VOCABULARY * HIDDEN + VOCABULARY)
    rows = {(row["collective"], row["bytes"]): row["count"] for row in found["collectives"]}
    # The program ends as its last step is taken.
    assert rows == {
        ("all-gather", layer): 2 * LAYERS * steps,
        ("all-gather", rest): steps,
        ("reduce-scatter", layer): LAYERS * steps,
        ("reduce-scatter", rest): steps,
    }
    # What reads gathered parameters waits for them: there is an operator behind every gather.
    own = [line for line in lines(out) if line.get("rank") == 1]
    gathers = {line["id"] for line in own if line.get("collective") == "all_gather"}
    awaited = {before for line in own if "compute" in line for before in line.get("after", ())}
    assert gathers <= awaited


TENSOR_PARALLEL = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(8192, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_stub_captures_what_a_rank_does_of_tensors_that_are_spread(
    command: Command, torch: str, tmp_path: Path
) -> None:
    """Tensor parallelism: parts of weights and products, a sum of activations a step, parts scattered at the start."""
    out, steps, ranks = tmp_path / "captured.jsonl", 2, 4
    program = tmp_path / "program.py"
    program.write_text(TENSOR_PARALLEL)
    command("record", "--stub", str(ranks), "--steps", str(steps), "-o", out, "--", torch, program)
    found = stats(command, out)
    rows = {(row["collective"], row["bytes"]): row["count"] for row in found["collectives"]}
    # The bias of the second layer is whole on each rank; the input needs no gradient, so backward sums nothing.
    assert rows == {("broadcast", 4 * 64): 1, ("all-reduce", 4 * 8192 * 64): steps}
    # A part each of two weights and one bias to each rank but the root.
    assert (found["sends"], found["sent_bytes"]) == (3 * (ranks - 1), (ranks - 1) * 4 * (2 * 64 * 64 + 64))
    # The activations between the layers are a quarter as wide on each: a read and a write at 3.35 TB/s at most.
    relu = next(line for line in lines(out) if line.get("label") == "relu")
    assert 0 < float(relu["compute"].removesuffix(" ps")) * 1e-12 - 2 * 4 * 8192 * 64 / 3.35e12 < 6e-6


def test_a_stub_captures_a_pipeline(command: Command, torch: str, tmp_path: Path) -> None:
    """1F1B: a message for each microbatch over each boundary and back, and the bubble of its closed form."""
    out, steps, ranks, microbatches = tmp_path / "captured.jsonl", 2, 4, 4
    program = [torch, TRAIN.with_name("pipeline.py"), "--microbatches", str(microbatches)]
    told = command("record", "--stub", str(ranks), "--steps", str(steps), "-o", out, "--", *program).stdout
    bytes_ = 2 * 32 * HIDDEN * 4
    sends = [line["send"] for line in lines(out) if "send" in line]
    # Pairs of neighbours open their connection with 8 bytes each way.
    assert f"{len(sends)} messages" in told
    own = [
        (line["rank"], line["send"]["to"]) for line in lines(out) if line.get("send", {}).get("bytes") == f"{bytes_} B"
    ]
    assert len(own) == 2 * (ranks - 1) * microbatches * steps
    assert {abs(one - other) for one, other in own} == {1}
    found = stats(command, out)
    assert found["sends"] == found["receives"] == len(sends)
    explained = json.loads(
        command("workload", "explain", out, "-o", tmp_path / "e.html", "--gpus", "1", "--json").stdout
    )
    # A stage computes for m of the m + p - 1 slots of a step; the optimizer, which has no bubble, is in both.
    busy = sum(stream["busy_s"] for stream in found["streams"]) / ranks
    slots = (microbatches + ranks - 1) / microbatches
    assert 1.2 * busy < explained["replayed_s"] < 1.1 * slots * busy


def test_what_cannot_be_recorded_is_refused(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    nobody = command("record", "-o", folder, "--", sys.executable, "-c", "print('no torch')", check=1)
    assert "no rank wrote a trace" in nobody.stderr
    assert "cannot start `no-such-program`" in command("record", "-o", folder, "--", "no-such-program", check=2).stderr
    stub = ["record", "--stub", "2", "-o", tmp_path / "x.wtw", "--gpu", "H101", "--", "true"]
    assert "no data sheet of `H101`" in command(*stub, check=2).stderr
    other = ["record", "--stub", "2", "-o", tmp_path / "x.bin", "--", "true"]
    assert "expected a name that ends in `.jsonl` or `.wtw`" in command(*other, check=2).stderr
    nothing = ["record", "--stub", "2", "-o", tmp_path / "x.wtw", "--", "true"]
    assert "rank 0 captured nothing" in command(*nothing, check=2).stderr


def test_a_status_is_passed_on(command: Command, tmp_path: Path) -> None:
    command("record", "-o", tmp_path / "t", "--", sys.executable, "-c", "raise SystemExit(7)", check=7)


def test_a_pytorch_without_fake_process_groups_is_refused(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PyTorch 1.13 is: the program does not run on its own."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for package in ("torch", "torch/distributed"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("__version__ = '1.13.0'\n")
    (tmp_path / "train.py").write_text("import torch\nopen('ran', 'w').close()\n")
    done = command("record", "--stub", "2", "-o", "x.wtw", "--", sys.executable, "train.py", check=2)
    assert "PyTorch 1.13.0" in done.stderr
    assert "has no fake process groups" in done.stderr
    assert not (tmp_path / "x.wtw").exists()
    assert not (tmp_path / "ran").exists()
