"""Measures the speed and memory that Windtunnel promises, as a user would run it; prints a table and never fails.

Run by `make bench`, or `python benches/table.py [--only ROW]… [--quick] [--runs N]`. Each row starts the installed
command (or, where a row is about less than Python's own start, calls the Python API in a process of its own) and keeps
the median of its runs. Columns:

- `command`: wall time of the whole command, from its start to its end, tables and manifest included;
- `engine`: wall time in `summary.json`, which counts from the scenario's text to its last result;
- `cpu`: processor seconds of the command, all threads, user and system; `engine_cpu` those in `summary.json`;
- `memory`: peak of the engine's own allocations in `summary.json`; `rss` is the peak of the process.

GOAL files are generated into a temporary folder. Wall times depend on what else the machine does: the caption says its
load, and `cpu` suffers less.
"""

from __future__ import annotations

import argparse
import json
import os
import re
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

import long_replay as long_replays

if TYPE_CHECKING:
    from collections.abc import Callable

BENCHES = Path(__file__).resolve().parent
SCENARIOS = BENCHES / "scenarios"
DEMO = BENCHES.parent / "examples" / "llama3-70b-512xH100.yaml"
COMMAND = Path(sys.executable).with_name("windtunnel")
LOGGOPS = "L=2500,o=1500,g=1000,G=6,O=0,S=65535"


@dataclass(frozen=True)
class Sample:
    """What one run took: seconds and bytes; None is unknown."""

    command: float | None = None
    engine: float | None = None
    cpu: float | None = None
    memory: float | None = None
    rss: float | None = None
    rate: float | None = None
    """Bytes of text per second, for the rows that read a file."""
    ratio: float | None = None
    """How many times faster binary is read than text, in operations."""
    engine_cpu: float | None = None
    operations: float | None = None
    """Operations replayed in a second of `engine_cpu`."""


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


def timed(arguments: list[str | Path], folder: Path, within: Path | None = None) -> tuple[Sample, str]:
    """Runs a program (`within` a folder) to its end; what it took and what it printed."""
    with (folder / "out").open("w+b") as out, (folder / "err").open("w+b") as err:
        began = time.perf_counter()
        with subprocess.Popen(arguments, stdout=out, stderr=err, cwd=within or folder) as process:
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


def scenario(path: Path, *settings: str, report: bool = False, threads: int | None = None) -> Callable[[Path], Sample]:
    """`windtunnel run` of a scenario; the report's drawing, a second of Python, is left to the demo's row."""

    def measure(folder: Path) -> Sample:
        options = [word for setting in settings for word in ("--set", setting)]
        if threads is not None:
            options += ["--threads", str(threads)]
        if not report:
            options.append("--no-report")
        sample, text = timed([COMMAND, "run", path, *options, "--json", "--out", folder / "run"], folder)
        summary = json.loads(text)
        return replace(
            sample, engine=summary["wall_time_s"], engine_cpu=summary["cpu_time_s"], memory=summary["peak_memory_bytes"]
        )

    return measure


def goal(write: Callable[[Path], None]) -> Callable[[Path], Sample]:
    """`windtunnel goal run` of a generated file; the engine's time is a call of the Python API: reading and running."""

    def measure(folder: Path) -> Sample:
        file = generated(folder, write)
        sample, _ = timed([COMMAND, "goal", "run", file, "--loggops", LOGGOPS, "--json"], folder)
        call = f"engine.goal_run({str(file)!r}, {LOGGOPS!r}, 'held')"
        return replace(sample, engine=api_seconds(call, folder))

    return measure


def reading(folder: Path) -> Sample:
    """The crate's own bench of reading GOAL, the lower of its two shapes: no command reads a file and does nothing."""
    file = folder / "reading.txt"
    if not file.exists():
        bench: list[str | Path] = ["cargo", "bench", "--quiet", "-p", "windtunnel-workload", "--bench", "goal"]
        file.write_text(timed(bench, folder, within=BENCHES.parent)[1], encoding="utf-8")
    text = file.read_text(encoding="utf-8")
    rates = re.findall(r"read text .*: +([\d.]+) MB/s", text)
    ratios = re.findall(r"binary against text: +([\d.]+)x", text)
    return Sample(rate=min(map(float, rates)) * 1e6, ratio=min(map(float, ratios)))


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


def show_help(folder: Path) -> Sample:
    """`windtunnel --help`."""
    return timed([COMMAND, "--help"], folder)[0]


HASHED = "network.load_balancer=ecmp"
PAIRS = SCENARIOS / "all-to-all-1024.yaml"
LARGE = SCENARIOS / "llama3-405b-16384xH100.yaml"
FOLDED = ("fold=auto", "network.load_balancer=spray")
JOB_MODE = SCENARIOS / "job-mode.yaml"
NARROW = "jobs.scale={max_duration: 1 d}"
WHOLE = "jobs.locality=fewest-hosts"
SCHEDULERS = ("fcfs", "first-fit", "sjf", "smallest", "edf", "easy", "conservative", "priority", "gang", "mast")


def philly(scheduler: str) -> Callable[[Path], Sample]:
    """The whole log, where it is at hand: `PHILLY_LOG`, or beside the project."""
    beside = BENCHES.parents[1] / "shared" / "data" / "jobs" / "philly_2017_jobs_pollux.csv.gz"
    log = os.environ.get("PHILLY_LOG", str(beside))
    jobs = f"jobs={{log: {log}, format: philly}}"
    return scenario(JOB_MODE, "topology.hosts=64", jobs, f"cluster.scheduler={scheduler}")


def fast_forward(folder: Path) -> Sample:
    """A run by episodes, and how many times as much processor time every iteration takes."""
    path = BENCHES.parent / "experiments" / "arcadia-fast-forward" / "scenario.yaml"
    fast = scenario(path)(folder)
    text = timed([COMMAND, "run", path, "--full", "--no-report", "--json", "--out", folder / "full"], folder)[1]
    return replace(fast, ratio=json.loads(text)["cpu_time_s"] / (fast.engine_cpu or 1))


def long_replay(program: str) -> Callable[[Path], Sample]:
    """Every iteration of 100 million operations, on one thread; how many of them a second of processor time replays."""

    def measure(folder: Path) -> Sample:
        path, operations = long_replays.write(folder, program)
        options: list[str | Path] = ["--full", "--no-report", "--threads", "1", "--json", "--out", folder / "run"]
        sample, text = timed([COMMAND, "run", path, *options], folder)
        summary = json.loads(text)
        job = summary["jobs"][0]
        if job["operations"] * job["simulated_iterations"] != operations:
            raise RuntimeError(f"{operations} operations were asked for, and {job} has others")
        return replace(
            sample,
            engine=summary["wall_time_s"],
            engine_cpu=summary["cpu_time_s"],
            memory=summary["peak_memory_bytes"],
            operations=operations / summary["cpu_time_s"],
        )

    return measure


ROWS = [
    Row("goal", "GOAL text → memory; binary against text", reading, above={"rate": 150e6, "ratio": 3}, runs=1),
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
        {"engine_cpu": 2, "memory": 600e6},
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
        {"engine_cpu": 3},
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
    Row(
        "ring-packets",
        "packet: ring all-reduce of 16 MB over 256 GPUs, 8 channels, DCQCN, one thread",
        scenario(SCENARIOS / "ring-packets-256.yaml", threads=1),
        {"engine_cpu": 3, "memory": 300e6},
    ),
    *(
        Row(
            f"long-replay-{program}",
            f"message: every iteration of 100 million operations on 64 ranks, {about}",
            long_replay(program),
            {"rss": 4e9},
            {"operations": 3e6},
            runs=1,
            quick=False,
        )
        for program, about in (
            ("step", "kernels and collectives of a training step"),
            ("halo", "computation and messages of a halo exchange"),
        )
    ),
    Row("demo", "the demo", scenario(DEMO, report=True), {"command": 10}),
    Row("help", "windtunnel --help", show_help, {"command": 0.2}, runs=5),
    *(
        Row(
            f"jobs-{name}",
            f"job: 1,000,000 jobs like Philly's, 8 times as wide, on 16,384 GPUs at load 0.95, {name}",
            scenario(JOB_MODE, f"cluster.scheduler={name}"),
            {"engine_cpu": seconds, "memory": 500e6},
            runs=1,
            quick=name == "fcfs",
        )
        for name, seconds in (("fcfs", 3), ("easy", 10), ("conservative", 60))
    ),
    Row(
        "jobs-easy-queue",
        "job: 1,200,000 jobs of up to a day at load 1.1: 100,000 wait in the end, easy",
        scenario(JOB_MODE, "cluster.scheduler=easy", "jobs.load=1.1", "jobs.count=1200000", NARROW),
        {"engine_cpu": 60},
        runs=1,
        quick=False,
    ),
    Row(
        "arcadia-queue",
        "flow: recommendation jobs on 4,096 hosts, a queue of 500, until 500 have ended",
        scenario(SCENARIOS / "arcadia-queue.yaml"),
        {"command": 180},
        runs=1,
    ),
    Row(
        "arcadia-8-days",
        "flow: 8 days on 160 hosts, jobs like Philly's",
        scenario(SCENARIOS / "arcadia-8-days.yaml"),
        {"command": 120},
        runs=1,
        quick=False,
    ),
    Row(
        "fast-forward",
        "flow: 20 jobs with noise, n = 3 against every iteration; how many times faster",
        fast_forward,
        {},
        {"ratio": 20},
        runs=1,
        quick=False,
    ),
    *(
        Row(
            f"philly-{name}",
            f"job: the Philly log, 82,247 jobs on 512 GPUs, {name}",
            philly(name),
            {"engine_cpu": 5},
            runs=1,
            quick=False,
        )
        for name in SCHEDULERS
    ),
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
    if name == "ratio":
        return f"{value:.1f}×"
    if name == "operations":
        return f"{value / 1e6:.2f} M/s"
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
    columns = ["command", "engine", "cpu", "engine_cpu", "memory", "rss", "rate", "ratio", "operations"]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    table = Table(title="Speed and memory", caption=f"{os.cpu_count()} CPUs; load average before: {load}")
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
