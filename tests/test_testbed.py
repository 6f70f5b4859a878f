"""The testbed: what it builds and takes away again, what it refuses, and how its runs are compared."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from windtunnel.engine import InputError
from windtunnel.testbed import kept, predict, shell, table, training
from windtunnel.testbed.compare import by_flows, by_packets, fitted, judged
from windtunnel.testbed.fabric import Shape, alive, begun, built, spaces
from windtunnel.testbed.flows import PATTERNS, Done, Flow, drawn

if TYPE_CHECKING:
    from conftest import Command

REFUSED = shell.refused() if sys.platform == "linux" else "this is not Linux"
needs_namespaces = pytest.mark.skipif(REFUSED is not None, reason=f"no testbed here: {REFUSED}")
SMALL = Shape(leaves=2, hosts=1, spines=2)


def test_without_root_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr("shutil.which", lambda tool: f"/sbin/{tool}")
    with pytest.raises(InputError, match="network namespaces need root"):
        shell.demand()
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(InputError, match="`ip` of iproute2 is not installed"):
        shell.demand()


def test_bad_input_is_refused_before_anything_is_built(command: Command, tmp_path: Path) -> None:
    assert "no such: `vegas`" in command("testbed", "run", "--congestion", "vegas", check=2).stderr
    assert "expected a rate from 1 to 1000 Mbps" in command("testbed", "run", "--rate", "100 Gbps", check=2).stderr
    assert "at least two packets" in command("testbed", "run", "--queue", "1 KB", check=2).stderr
    (tmp_path / "a.csv").write_text("bytes,fct_s\n1,2\n")
    assert "a.csv:1: column `class` is missing" in command("testbed", "compare", "a.csv", check=2).stderr
    text = table.written(SMALL, [Done("r", "incast", "reno", [Flow(0, 1, 1000, 0.0, 1)], [0.5], host_bound=False)])
    (tmp_path / "b.csv").write_text(text + text.splitlines()[1].replace("0.500000", "soon") + "\n")
    assert "b.csv:3: expected numbers" in command("testbed", "compare", "b.csv", check=2).stderr


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("fct_s", "nan", "`fct_s`: expected seconds above 0, found `nan`"),
        ("fct_s", "-1", "`fct_s`: expected seconds above 0"),
        ("fct_s", "0", "`fct_s`: expected seconds above 0"),
        ("fct_s", "inf", "`fct_s`: expected seconds above 0"),
        ("bytes", "-5", "`bytes`: expected bytes above 0"),
        ("start_s", "-5", "`start_s`: expected seconds from 0 on"),
        ("source", "99", "`source`: expected a host below 8"),
        ("destination", "99", "`destination`: expected another host below 8"),
        ("spine", "9", "`spine`: expected one below 2"),
        ("congestion", "vegas", "`congestion`: expected reno, cubic, bbr"),
        ("acknowledgements", "fir", "expected acknowledgements `first`"),
        ("leaves", "0", "expected 2 to 8 leaves"),
    ],
)
def test_a_table_that_no_run_can_have_left_is_refused(
    command: Command, tmp_path: Path, column: str, value: str, said: str
) -> None:
    shape = Shape()
    runs = [
        Done(f"reno-permutation-{seed}", "permutation", "reno", flows, [0.5] * len(flows), host_bound=False)
        for seed in range(2)
        for flows in [
            [Flow(f.source, f.destination, f.bytes, f.start, 0) for f in drawn("permutation", seed, 4, 2, 800_000)]
        ]
    ]
    lines = table.written(shape, runs).splitlines(keepends=True)
    cells = lines[2].rstrip("\n").split(",")
    cells[table.COLUMNS.index(column)] = value
    (tmp_path / "t.csv").write_text("".join([*lines[:2], ",".join(cells) + "\n", *lines[3:]]))
    found = command("testbed", "compare", "t.csv", check=2).stderr
    assert "t.csv:3: " in found
    assert said in found
    if column != "fct_s" or value != "nan":
        return
    # Lines with another TCP, cut in the middle, and cut between lines.
    (tmp_path / "t.csv").write_text("".join([*lines[:2], lines[2].replace("reno,0", "cubic,0"), *lines[3:]]))
    assert "t.csv:3: run `reno-permutation-0` has" in command("testbed", "compare", "t.csv", check=2).stderr
    (tmp_path / "t.csv").write_text("".join([*lines[:12], lines[12][:40]]))
    assert "t.csv:13: `" in command("testbed", "compare", "t.csv", check=2).stderr
    (tmp_path / "t.csv").write_text("".join(lines[:12]))
    assert "has 3 flows, and permutation over this shape has 8" in " ".join(
        command("testbed", "compare", "t.csv", check=2).stderr.split()
    )


def test_the_number_of_a_process_that_is_used_again_is_no_owner() -> None:
    own = begun(os.getpid())
    assert own is not None
    assert alive(f"wtb{os.getpid()}-t{own}-h0-0")
    assert not alive(f"wtb{os.getpid()}-t{own - 1}-h0-0")
    assert not alive("wtb4194305-t1-h0-0")
    # One of an earlier version tells no time.
    assert alive(f"wtb{os.getpid()}-l0")
    assert begun(4194305) is None


@needs_namespaces
def test_one_run_is_said_to_be_too_few_at_once(command: Command) -> None:
    done = command(
        "testbed",
        "run",
        "--leaves",
        "2",
        "--hosts",
        "1",
        "--size",
        "50 KB",
        "--runs",
        "1",
        "--pattern",
        "permutation",
        "--congestion",
        "reno",
    )
    assert "needs two (`--runs 2`)" in " ".join(done.stderr.split())


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    shape = Shape()
    runs = [
        Done(f"reno-{p}-0", p, "reno", flows, [0.1 + i for i in range(len(flows))], host_bound=p == "incast")
        for p in PATTERNS
        for flows in [drawn(p, 0, shape.leaves, shape.hosts, 800_000)]
    ]
    (tmp_path / "t.csv").write_text(table.written(shape, runs))
    found, again = table.read(tmp_path / "t.csv")
    assert found == shape
    assert [(r.name, r.host_bound, [f.bytes for f in r.flows]) for r in again] == [
        (r.name, r.host_bound, [f.bytes for f in r.flows]) for r in runs
    ]


def test_what_is_drawn_is_what_its_pattern_says() -> None:
    for seed in range(20):
        for flow in drawn("permutation", seed, 4, 2, 1000):
            assert flow.source // 2 != flow.destination // 2
        assert len({flow.destination for flow in drawn("permutation", seed, 4, 2, 1000)}) == 8
        assert len({flow.destination for flow in drawn("incast", seed, 4, 2, 1000)}) == 1
        pairs = [(flow.source, flow.destination) for flow in drawn("arrivals", seed, 4, 2, 1000)]
        assert len(set(pairs)) == len(pairs) == 8


@pytest.mark.engine
def test_a_flow_that_is_alone_takes_its_bytes_at_both_fidelities() -> None:
    shape = Shape()
    run = Done("r", "arrivals", "reno", [Flow(0, 2, 570_000, 0.0, 1)], [1.0], host_bound=False)
    wire = (570_000 + 66 * 394) * 8 / shape.rate
    assert by_flows(shape, [run])[0][0] == pytest.approx(wire, rel=1e-6)
    # Four hops of a packet, stored and forwarded.
    assert by_packets(shape, [run])[0][0] == pytest.approx(wire + 3 * 1514 * 8 / shape.rate, rel=0.01)


def test_constants_that_were_put_in_are_found_and_outliers_hardly_matter() -> None:
    draws = np.random.default_rng(3)
    simulated = draws.uniform(0.1, 2.0, 60)
    measured = 0.02 + 1.05 * simulated
    measured[:6] *= 2
    found = fitted(simulated, measured)
    assert found.besides == pytest.approx(0.02, rel=0.02)
    assert found.factor == pytest.approx(1.05, rel=0.01)


def interfaces() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}


@needs_namespaces
def test_flows_over_a_real_network_are_predicted(command: Command) -> None:
    before = interfaces()
    options = ["--leaves", "2", "--hosts", "1", "--runs", "2", "--pattern", "permutation", "--size", "300 KB"]
    done = command("testbed", "run", *options, "--congestion", "cubic", "--json")
    found = json.loads(done.stdout)
    assert interfaces() == before
    assert not [name for name in spaces() if name.startswith(f"wtb{os.getpid()}")]
    if not found["fidelities"]:
        pytest.skip("this machine was too busy: runs were host-bound")
    assert [one["fidelity"] for one in found["fidelities"]] == ["packet", "flow"]
    for one in found["fidelities"]:
        # Of one flow on each way, which nothing disturbs but this machine's own load.
        assert one["median_abs_error"] < 0.10, one
    again = json.loads(command("testbed", "compare", "testbed.csv", "--json").stdout)
    assert again == found


@needs_namespaces
def test_what_a_killed_testbed_leaves_is_taken_away(command: Command, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("windtunnel")
    before = interfaces()
    with subprocess.Popen(
        [str(program), "testbed", "run", "--leaves", "2", "--hosts", "1", "--size", "20 MB", "--runs", "50"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        ours = f"wtb{process.pid}-"
        until = time.monotonic() + 60
        while time.monotonic() < until and not any(name.startswith(ours) and name.endswith("-s1") for name in spaces()):
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    assert any(name.startswith(ours) for name in spaces())
    assert " namespaces taken away" in command("testbed", "clean").stdout
    assert not any(name.startswith(ours) for name in spaces())
    assert interfaces() == before


@needs_namespaces
def test_a_network_that_fails_is_taken_away() -> None:
    def fails() -> None:
        with built(SMALL) as fabric:
            assert any(name.startswith(f"{fabric.prefix}-") for name in spaces())
            raise RuntimeError("for the test")

    with pytest.raises(RuntimeError, match="for the test"):
        fails()
    assert not any(name.startswith(f"wtb{os.getpid()}-") for name in spaces())


def test_host_bound_runs_are_left_out() -> None:
    runs = [Done(f"r{i}", "incast", "reno", [Flow(0, 1, 9000, 0.0, 0)], [0.1], host_bound=True) for i in range(4)]
    assert judged(SMALL, runs) == []


def trained(shape: Shape, buckets: list[int], step: float = 1.0) -> training.Trained:
    """A run whose ranks stand in order: no two of its ways share a link."""
    hosts = list(range(shape.leaves * shape.hosts))
    ways = [(h, h - 1 if h else hosts[-1], -1 if h % shape.hosts else 0) for h in hosts]
    return training.Trained("r", training.Model(), hosts, buckets, ways, 0.02, step, 0.0)


@pytest.mark.engine
@pytest.mark.parametrize("buckets", [[800_000], [600_000, 200_000]])
def test_a_step_of_training_is_the_time_of_its_ring(buckets: list[int]) -> None:
    shape = Shape()
    found = predict.simulated(shape, [trained(shape, buckets)])[0]
    # Each host sends 2 (n-1)/n of the gradients, in packets with their headers, and computes.
    packets = sum(buckets) * 2 * 7 / 8 / 1448
    assert found == pytest.approx(0.02 + packets * 1514 * 8 / shape.rate, rel=0.03)


@pytest.mark.engine
def test_constants_of_training_are_fitted_on_every_second_run_that_was_not_disturbed(tmp_path: Path) -> None:
    shape = Shape(leaves=2, hosts=2)
    sizes = [200_000, 300_000, 400_000, 500_000, 600_000]
    seconds = predict.simulated(shape, [trained(shape, [size]) for size in sizes])
    runs = [trained(shape, [size], 0.01 + 1.03 * s) for size, s in zip(sizes, seconds, strict=True)]
    runs[1] = training.Trained(**{**runs[1].__dict__, "step": 9.0, "unsteady": 0.2})
    (tmp_path / "t.jsonl").write_text(kept.written(shape, runs))
    again, runs_again = training.read(tmp_path / "t.jsonl")
    assert (again, runs_again) == (shape, runs)
    found = predict.record(again, runs_again)
    assert found["host_bound"] == ["r"]
    assert [run["predicted"] is not None for run in found["runs"]] == [False, False, True, False, True]
    assert found["largest_abs_error"] < 1e-3
    assert found["fit"]["factor"] == pytest.approx(1.03, rel=1e-3)
    assert found["fit"]["besides"] == pytest.approx(0.01, rel=0.1)


def test_what_is_no_run_of_training_is_refused(command: Command, tmp_path: Path) -> None:
    shape = Shape()
    text = kept.written(shape, [trained(shape, [800_000])])
    for cut, line in [("", 1), ("[]\n", 1), (text.splitlines()[0] + '\n{"name": 1}\n', 2), (text[:-20], 2)]:
        (tmp_path / "t.jsonl").write_text(cut)
        assert (
            f"t.jsonl:{line}: expected a run of training"
            in command("testbed", "train", "--from", "t.jsonl", check=2).stderr
        )
    if REFUSED is None:
        said = command("testbed", "train", "--python", "/nowhere/python", check=2).stderr
        assert "`/nowhere/python` has no PyTorch with gloo" in said


def python_with_torch() -> str | None:
    """A Python that has PyTorch with gloo: this one, that of the environment, or the system's."""
    for python in (os.environ.get("WINDTUNNEL_TORCH_PYTHON"), sys.executable, "/usr/bin/python3"):
        try:
            if python is not None:
                training.demand_torch(python)
                return python
        except InputError:
            continue
    return None


@needs_namespaces
def test_training_over_a_real_network_is_predicted(command: Command) -> None:
    python = python_with_torch()
    if python is None:
        pytest.skip("no Python here has PyTorch with gloo (WINDTUNNEL_TORCH_PYTHON names one)")
    before = interfaces()
    options = ["--leaves", "2", "--hosts", "2", "--runs", "2"]
    done = command("testbed", "train", *options, "--python", python, "--json")
    found = json.loads(done.stdout)
    assert interfaces() == before
    if found["host_bound"]:
        pytest.skip("this machine was too busy: runs were host-bound")
    assert found["fit"] is not None
    for run in found["runs"]:
        # Without any constant.
        assert abs(run["simulated"] / run["measured"] - 1) < 0.15, run
