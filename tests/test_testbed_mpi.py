"""MPI over the testbed: what its algorithms send, how its runs are read and compared, and that nothing of it stays."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from windtunnel.engine import InputError
from windtunnel.testbed import kept, mpi, mpi_predict, shell
from windtunnel.testbed.compare import HEADER
from windtunnel.testbed.fabric import MTU, Shape, spaces
from windtunnel.testbed.mpi import Launched, Measured, Operation
from windtunnel.testbed.schedules import EAGER, SETS, Algorithm, schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conftest import Command


def refused() -> str | None:
    """Why there can be no MPI over a testbed here."""
    if sys.platform != "linux":
        return "this is not Linux"
    reason = shell.refused()
    if reason is None:
        try:
            mpi.tools()
        except InputError as error:
            reason = str(error)
    return reason


REFUSED = refused()
needs_mpi = pytest.mark.skipif(REFUSED is not None, reason=f"no MPI over a testbed here: {REFUSED}")
ALL = [(kind, one.name) for algorithms in SETS.values() for kind, one in algorithms.items()]


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
@pytest.mark.parametrize(("kind", "name"), ALL)
def test_every_message_that_is_awaited_is_sent(kind: str, name: str, ranks: int) -> None:
    rounds = schedule(kind, name, ranks, 1 << 20)
    sent = sorted((rank, to) for rank, own in enumerate(rounds) for part in own for to, _ in part.sends)
    awaited = sorted((of, rank) for rank, own in enumerate(rounds) for part in own for of in part.receives)
    assert sent == awaited
    assert all(rank != to for rank, to in sent)


@pytest.mark.parametrize(
    ("kind", "name", "vectors"),
    [
        ("all_reduce", "ring", 2 * 7 / 8), ("all_reduce", "rabenseifner", 2 * 7 / 8),
        ("all_reduce", "recursive doubling", 3), ("all_gather", "ring", 7 / 8), ("all_gather", "bruck", 7 / 8),
        ("all_gather", "recursive doubling", 7 / 8), ("reduce_scatter", "recursive halving", 7 / 8),
        ("all_to_all", "pairwise", 7 / 8), ("all_to_all", "bruck", 3 / 2),
    ],
)  # fmt: skip
def test_a_rank_sends_as_much_as_its_algorithm_says(kind: str, name: str, vectors: float) -> None:
    for own in schedule(kind, name, 8, 1 << 20):
        assert sum(size for part in own for _, size in part.sends) == vectors * (1 << 20)


def launched(
    algorithms: str, programs: Sequence[Sequence[Operation]], shape: Shape, late: Sequence[float] | None = None
) -> Launched:
    """A launch whose ranks stand in order, whose ways all go over spine 0, and whose times are 50 ms."""
    hosts = list(range(shape.leaves * shape.hosts))
    ways = [(a, b, -1 if a // shape.hosts == b // shape.hosts else 0) for a in hosts for b in hosts if a != b]
    measured = [Measured(list(ops), [list(late or [0.0] * len(hosts))], [0.05]) for ops in programs]
    return Launched("r", algorithms, "cubic", hosts, ways, measured)


@pytest.mark.engine
@pytest.mark.parametrize("algorithms", list(SETS))
def test_collectives_send_what_their_schedules_say(algorithms: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape()
    kinds = [kind for kind, one in SETS[algorithms].items() if one.ours is not None]
    run = launched(algorithms, [[Operation(kind, 0 if kind == "barrier" else 1 << 16)] for kind in kinds], shape)
    ours = mpi_predict.by_packets(shape, [run], 1e-4)[0]
    plain: dict[str, Algorithm] = {kind: replace(one, ours=None) for kind, one in SETS[algorithms].items()}
    monkeypatch.setitem(SETS, algorithms, plain)
    for kind, one, other in zip(kinds, ours, mpi_predict.by_packets(shape, [run], 1e-4)[0], strict=True):
        assert one == pytest.approx(other, rel=0.05), kind


def test_flows_of_a_ring_take_their_bytes() -> None:
    shape = Shape(leaves=4, hosts=1, spines=1)
    run = launched("ring", [[Operation("all_reduce", 1 << 16)]], shape)
    packets = -(-(1 << 14) // (MTU - HEADER))
    rate = shape.rate / 8 * MTU / (MTU + HEADER / 2)
    # Six messages of a quarter; what the bucket holds goes at once.
    wire = (6 * ((1 << 14) + HEADER * packets) - 2 * MTU) / rate
    assert mpi_predict.by_flows(shape, [run])[0][0] == pytest.approx(wire, rel=1e-3)


def test_who_asks_later_goes_when_the_other_has_gone() -> None:
    shape = Shape(leaves=2, hosts=1, spines=1)
    size = 1 << 17

    def seconds(amount: int, wait: float) -> float:
        run = launched("doubling", [[Operation("all_reduce", amount)]], shape, [0.0, wait])
        return mpi_predict.by_flows(shape, [run], 1e-5)[0][0]

    one, later, short = seconds(size, 0.0), seconds(size, 0.001), seconds(EAGER, 0.001)
    rate = shape.rate / 8 * MTU / (MTU + HEADER / 2)
    assert one == pytest.approx(size * MTU / (MTU - HEADER) / rate, rel=0.05)
    assert later == pytest.approx(2 * one, rel=0.05)
    assert short == pytest.approx(EAGER / size * one, rel=0.1)


@pytest.mark.engine
def test_constants_that_were_put_in_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape(leaves=2, hosts=2)
    monkeypatch.setattr(mpi_predict, "OVERHEADS", (5e-5, 1e-4, 2e-4))
    programs = mpi.programs("ring", [1 << 12, 1 << 14])
    run = launched("ring", programs, shape)
    truth = mpi_predict.by_packets(shape, [run], 1e-4)[0]
    measured = [replace(one, ends=[seconds] * 3) for one, seconds in zip(run.measured, truth, strict=True)]
    # A collective for which this machine was too slow.
    measured[0] = replace(measured[0], ends=[9.0] * 3, begins=[[1.0] * 4])
    found = mpi_predict.record(shape, [replace(run, measured=measured)])
    assert found["host_bound"] == ["r all_reduce 4096"]
    assert found["fidelities"]["packet"]["overheads"] == [1e-4, 1e-4]
    assert found["fidelities"]["packet"]["p95_abs_error"] < 1e-3
    assert [row["packet"] is None for row in found["programs"]] == [True] + [False] * (len(programs) - 1)


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    shape = Shape(acknowledgements="short")
    run = launched("ring", mpi.programs("ring", [1024, 4096]), shape)
    (tmp_path / "m.jsonl").write_text(kept.written(shape, [run]))
    assert mpi.read(tmp_path / "m.jsonl") == (shape, [run])


def test_what_is_no_launch_is_refused(command: Command, tmp_path: Path) -> None:
    shape = Shape()
    text = kept.written(shape, [launched("ring", [[Operation("barrier", 0)]], shape)])
    first = text.splitlines()[0] + "\n"
    for cut, line in [("", 1), ("[]\n", 1), (first + '{"name": 1}\n', 2), (text[:-20], 2)]:
        (tmp_path / "m.jsonl").write_text(cut)
        said = command("testbed", "mpi", "--from", "m.jsonl", check=2).stderr
        assert f"m.jsonl:{line}: expected a launch of MPI" in said
    (tmp_path / "m.jsonl").write_text(text.replace('"ring"', '"knot"'))
    assert "no algorithms `knot`" in command("testbed", "mpi", "--from", "m.jsonl", check=2).stderr
    assert "no such: `knot`" in command("testbed", "mpi", "--algorithms", "knot", check=2).stderr
    assert "no such: `vegas`" in command("testbed", "mpi", "--congestion", "vegas", check=2).stderr
    assert "a power of two, found 6" in command("testbed", "mpi", "--leaves", "3", check=2).stderr
    assert "a multiple of 32 B" in command("testbed", "mpi", "--size", "1 KB", check=2).stderr


def test_without_open_mpi_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: f"/bin/{tool}" if tool == "unshare" else None)
    with pytest.raises(InputError, match=r"`mpirun` is not installed[\s\S]*openmpi-bin"):
        mpi.tools()
    monkeypatch.setattr(shutil, "which", lambda tool: f"/bin/{tool}")
    monkeypatch.setattr(mpi, "call", lambda *_, **__: "HYDRA build details:\n")
    with pytest.raises(InputError, match=r"expected Open MPI 4.*HYDRA"):
        mpi.tools()


def interfaces() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}


def scratch() -> list[str]:
    return [path.name for path in Path(tempfile.gettempdir()).glob(f"{mpi.SCRATCH}*")]


@needs_mpi
def test_collectives_over_a_real_network_are_predicted(command: Command) -> None:
    before, left = interfaces(), scratch()
    options = ["--leaves", "2", "--hosts", "2", "--runs", "1", "--algorithms", "ring", "--size", "64 KiB"]
    found = json.loads(command("testbed", "mpi", *options, "--json").stdout)
    assert interfaces() == before
    assert scratch() == left
    if len(found["host_bound"]) > 1:
        pytest.skip("this machine was too busy: runs were host-bound")
    for row in found["programs"]:
        if row["kind"] != "barrier" and not row["host_bound"]:
            assert abs(row["errors"]["packet"]) < 0.2, row
    again = json.loads(command("testbed", "mpi", "--from", "mpi.jsonl", "--json").stdout)
    assert again == found


@needs_mpi
def test_what_a_killed_launch_leaves_is_taken_away(command: Command, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("windtunnel")
    before = interfaces()
    options = ["--leaves", "2", "--hosts", "1", "--size", "4 MiB", "--runs", "50"]
    with subprocess.Popen(
        [str(program), "testbed", "mpi", *options], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        ours = f"wtb{process.pid}-"
        until = time.monotonic() + 60
        there: list[int] = []
        try:
            # Until the ranks have come.
            while time.monotonic() < until and not there:
                there = [
                    pid for name in spaces() if name.startswith(ours) and name.endswith("h1-0") for pid in ranks(name)
                ]
                time.sleep(0.05)
        finally:
            process.send_signal(signal.SIGKILL)
    assert there
    assert any(ours in name for name in scratch())
    assert " namespaces taken away" in command("testbed", "clean").stdout
    assert not any(name.startswith(ours) for name in spaces())
    assert not any(ours in name for name in scratch())
    assert interfaces() == before


def ranks(space: str) -> list[int]:
    """Processes of ranks in a namespace."""
    told = shell.call("ip", "netns", "pids", space, check=False).split() if space in spaces() else []
    names = {int(pid): Path(f"/proc/{pid}/comm") for pid in told}
    return [pid for pid, name in names.items() if name.exists() and name.read_text(encoding="ascii") == "rank\n"]
