"""Measures the speed and memory that Windtunnel promises, as a user would run it; prints a table and never fails.

Run by `make bench`, or `python benches/table.py [--only ROW]… [--quick] [--runs N]`. Each row starts the installed
command (or, where a row is about less than Python's own start, calls the Python API in a process of its own) and keeps
the median of its runs. Columns:

- `command`: wall time of the whole command, from its start to its end, report and tables included;
- `engine`: wall time in `summary.json`, which counts from the scenario's text to its last result;
- `cpu`: processor seconds of the command, all threads, user and system;
- `memory`: peak of the engine's own allocations in `summary.json`; `rss` is the peak of the process.

GOAL files are generated into a temporary folder. Times depend on the machine and on what else it does: compare ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

BENCHES = Path(__file__).resolve().parent
SCENARIOS = BENCHES / "scenarios"
DEMO = BENCHES.parent / "examples" / "llama3-70b-512xH100.yaml"
COMMAND = Path(sys.executable).with_name("windtunnel")
LOGGOPS = "L=2500,o=1500,g=1000,G=6,O=0,S=65535"
SUBJECTS = {"command": "of the command", "engine": "in the engine", "cpu": "of CPU", "memory": "of memory"}


@dataclass(frozen=True)
class Sample:
    """What one run took: seconds and bytes; None is unknown."""

    command: float | None = None
    engine: float | None = None
    cpu: float | None = None
    memory: float | None = None
    rss: float | None = None
    rate: float | None = None
    """Bytes per second, for rows that read a file."""


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    name: str
    work: str
    measure: Callable[[Path], Sample]
    below: dict[str, float] = field(default_factory=dict)
    """Targets: the sample's field and what it must stay below."""
    above: dict[str, float] = field(default_factory=dict)
    runs: int = 3
    quick: bool = True
    """Whether `--quick` keeps the row."""


def timed(arguments: list[str | Path], folder: Path) -> tuple[Sample, str]:
    """Runs a program to its end; what it took and what it printed."""
    with (folder / "out").open("w+b") as out, (folder / "err").open("w+b") as err:
        began = time.perf_counter()
        with subprocess.Popen(arguments, stdout=out, stderr=err, cwd=folder) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - began
        out.seek(0)
        err.seek(0)
        if process.returncode != 0:
            raise RuntimeError(err.read().decode(errors="replace").strip() or f"exit status {process.returncode}")
        text = out.read().decode()
    cpu = usage.ru_utime + usage.ru_stime
    return Sample(command=seconds, cpu=cpu, rss=usage.ru_maxrss * 1024), text


def scenario(path: Path, *settings: str) -> Callable[[Path], Sample]:
    """`windtunnel run` of a scenario."""

    def measure(folder: Path) -> Sample:
        options = [word for setting in settings for word in ("--set", setting)]
        sample, text = timed([COMMAND, "run", path, *options, "--json", "--out", folder / "run"], folder)
        summary = json.loads(text)
        return replace(sample, engine=summary["wall_time_s"], memory=summary["peak_memory_bytes"])

    return measure


def goal(write: Callable[[Path], None]) -> Callable[[Path], Sample]:
    """`windtunnel goal run` of a generated file; the engine's time is a call of the Python API: reading and running."""

    def measure(folder: Path) -> Sample:
        file = generated(folder, write)
        sample, _ = timed([COMMAND, "goal", "run", file, "--loggops", LOGGOPS, "--json"], folder)
        call = f"engine.goal_run({str(file)!r}, {LOGGOPS!r}, 'held')"
        return replace(sample, engine=api_seconds(call, folder))

    return measure


def reading(write: Callable[[Path], None], *, binary: bool) -> Callable[[Path], Sample]:
    """Reading a GOAL file and counting its operations (`engine.goal_stats`); rates are of the text's bytes."""

    def measure(folder: Path) -> Sample:
        text = generated(folder, write)
        file = text.with_suffix(".bin")
        if binary and not file.exists():
            timed([COMMAND, "goal", "convert", text, file], folder)
        source = file if binary else text
        seconds = api_seconds(f"engine.goal_stats({str(source)!r})", folder)
        return Sample(engine=seconds, rate=text.stat().st_size / seconds)

    return measure


def api_seconds(call: str, folder: Path) -> float:
    """Seconds that a call of the engine takes in a Python of its own, whose start is not counted."""
    program = (
        "import time\nfrom windtunnel import engine\n"
        f"began = time.perf_counter()\n{call}\nprint(time.perf_counter() - began)"
    )
    return float(timed([sys.executable, "-c", program], folder)[1])


def generated(folder: Path, write: Callable[[Path], None]) -> Path:
    """The file that `write` writes, made once."""
    file = folder / f"{write.__name__}.goal"
    if not file.exists():
        write(file)
    return file


def all_to_all_1024(file: Path) -> None:
    """1,024 ranks, each with a send of 1 KiB to and a receive from every other."""
    ranks = 1024
    with file.open("w", encoding="ascii") as out:
        out.write(f"num_ranks {ranks}\n")
        for rank in range(ranks):
            out.write(f"rank {rank} {{\n")
            for shift in range(1, ranks):
                out.write(f"s{shift}: send 1024b to {(rank + shift) % ranks} tag 0\n")
                out.write(f"r{shift}: recv 1024b from {(rank - shift) % ranks} tag 0\n")
            out.write("}\n")


def broadcast_65536(file: Path) -> None:
    """A binomial tree of 1 KiB messages from rank 0 of 65,536."""
    ranks = 1 << 16
    with file.open("w", encoding="ascii") as out:
        out.write(f"num_ranks {ranks}\n")
        for rank in range(ranks):
            out.write(f"rank {rank} {{\n")
            first = rank.bit_length()
            if rank:
                out.write(f"r: recv 1024b from {rank - (1 << (first - 1))} tag 0\n")
            for bit in range(first, ranks.bit_length() - 1):
                out.write(f"s{bit}: send 1024b to {rank + (1 << bit)} tag 0\n")
                if rank:
                    out.write(f"s{bit} requires r\n")
            out.write("}\n")


def ring_steps(file: Path) -> None:
    """About 100 MB of text: 2,048 ranks that send, receive and compute in turn, as schedgen lays a ring out."""
    ranks = 2048
    with file.open("w", encoding="ascii") as out:
        out.write(f"num_ranks {ranks}\n")
        for rank in range(ranks):
            out.write(f"rank {rank} {{\n")
            for step in range(500):
                send, receive, calc = 3 * step + 1, 3 * step + 2, 3 * step + 3
                out.write(f"l{send}: send 131072b to {(rank + 1) % ranks} tag {step}\n")
                if step:
                    out.write(f"l{send} requires l{send - 1}\n")
                out.write(f"l{receive}: recv 131072b from {(rank - 1) % ranks} tag {step} cpu 1\n")
                out.write(f"l{calc}: calc {1000 + step % 777}\nl{calc} requires l{receive}\n")
            out.write("}\n")


def show_help(folder: Path) -> Sample:
    """`windtunnel --help`."""
    return timed([COMMAND, "--help"], folder)[0]


HASHED = "network.load_balancer=ecmp"
PAIRS = SCENARIOS / "all-to-all-1024.yaml"
LARGE = SCENARIOS / "llama3-405b-16384xH100.yaml"
FOLDED = ("fold=auto", "network.load_balancer=spray")
ROWS = [
    Row("goal-text", "GOAL text → memory", reading(ring_steps, binary=False), above={"rate": 150e6}),
    Row("goal-binary", "GOAL binary → memory", reading(ring_steps, binary=True), above={"rate": 450e6}),
    Row(
        "message-goal",
        "message: 1,024-rank all-to-all of 1 KiB, GOAL text",
        goal(all_to_all_1024),
        {"cpu": 2, "rss": 600e6},
    ),
    Row(
        "message-all-to-all",
        "message: the same as a scenario",
        scenario(SCENARIOS / "message-all-to-all-1024.yaml"),
        {"cpu": 2, "memory": 600e6},
    ),
    Row("broadcast-goal", "message: 65,536-rank binomial broadcast, GOAL text", goal(broadcast_65536), {"engine": 0.1}),
    Row(
        "broadcast",
        "message: the same as a scenario",
        scenario(SCENARIOS / "message-broadcast-65536.yaml"),
        {"engine": 0.1},
    ),
    Row(
        "permutation",
        "flow: 1,024 hosts, random permutation, hashed ECMP",
        scenario(SCENARIOS / "permutation-1024.yaml"),
        {"engine": 0.1},
    ),
    Row(
        "all-to-all-modulo",
        "flow: 1,024 hosts, all-to-all, destination modulo",
        scenario(PAIRS),
        {"command": 5, "memory": 1e9},
    ),
    Row(
        "all-to-all-ecmp",
        "flow: the same with hashed ECMP",
        scenario(PAIRS, HASHED),
        {"command": 90, "memory": 2e9},
        runs=1,
        quick=False,
    ),
    Row(
        "one-switch",
        "flow: 128 hosts on a switch, all-to-all of 1–100 MB",
        scenario(SCENARIOS / "one-switch-128.yaml"),
        {"cpu": 3},
    ),
    Row(
        "ring",
        "flow: ring all-reduce of 1 GiB over 4,096 GPUs",
        scenario(SCENARIOS / "ring-4096.yaml"),
        {"command": 1},
    ),
    Row(
        "llama-405b",
        "Llama-3-405B step, 16,384 GPUs",
        scenario(LARGE),
        {"command": 120, "memory": 8e9},
        runs=1,
        quick=False,
    ),
    Row(
        "llama-405b-folded",
        "the same, folded (sprayed)",
        scenario(LARGE, *FOLDED),
        {"command": 15},
        runs=1,
        quick=False,
    ),
    Row("demo", "the demo", scenario(DEMO), {"command": 10}),
    Row("help", "windtunnel --help", show_help, {"command": 0.2}, runs=5),
]


def median(samples: list[Sample]) -> Sample:
    """The median of each figure."""

    def middle(name: str) -> float | None:
        known = [value for sample in samples if (value := getattr(sample, name)) is not None]
        return statistics.median(known) if known else None

    return Sample(**{name: middle(name) for name in Sample.__dataclass_fields__})


def verdict(row: Row, sample: Sample) -> tuple[str, bool]:
    """The row's targets as text, and whether all are met."""
    words, met = [], True
    for sign, limits in (("<", row.below), ("≥", row.above)):
        for name, limit in limits.items():
            value = getattr(sample, name)
            met = met and value is not None and (value < limit if sign == "<" else value >= limit)
            words.append(f"{name} {sign} {amount(name, limit)}")
    return ", ".join(words), met


def amount(name: str, value: float | None) -> str:
    """A figure with its unit."""
    if value is None:
        return ""
    if name == "rate":
        return f"{value / 1e6:.0f} MB/s"
    if name in {"memory", "rss"}:
        return f"{value / 1e9:.2f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"
    return f"{value:.3g} s"


def main() -> None:
    """Measures the rows that are wanted and prints them."""
    parser = argparse.ArgumentParser(description="Measure what Windtunnel promises of its speed and memory.")
    parser.add_argument("--only", action="append", choices=[row.name for row in ROWS], help="a row; repeatable")
    parser.add_argument("--quick", action="store_true", help="leave out the rows that take more than seconds; one run")
    parser.add_argument("--runs", type=int, help="runs of each row")
    options = parser.parse_args()
    rows = [row for row in ROWS if (row.name in options.only if options.only else row.quick or not options.quick)]
    columns = ["command", "engine", "cpu", "memory", "rss", "rate"]
    table = Table(title="Speed and memory")
    for name in ["row", "work", *columns, "target", ""]:
        table.add_column(name, justify="right" if name in columns else "left", overflow="fold")
    talk = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="windtunnel-bench-") as name:
        for row in rows:
            runs = options.runs or (1 if options.quick else row.runs)
            talk.print(f"{row.name}: {row.work}", style="dim")
            try:
                sample = median([row.measure(Path(name)) for _ in range(runs)])
            except (RuntimeError, OSError) as error:
                table.add_row(row.name, row.work, *[""] * len(columns), verdict(row, Sample())[0], f"failed: {error}")
                continue
            target, met = verdict(row, sample)
            figures = [amount(column, getattr(sample, column)) for column in columns]
            table.add_row(row.name, row.work, *figures, target, "met" if met else "missed")
    Console(width=None if sys.stdout.isatty() else 200).print(table)


if __name__ == "__main__":
    main()
