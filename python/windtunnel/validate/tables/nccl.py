"""Measured runs of nccl-tests, each row by constants that have not seen its scale, or nothing of its machine."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windtunnel.validate.collectives import Ranks, question, section
from windtunnel.validate.rails import leaves_a_slow_leaf
from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System
    from windtunnel.validate.tables.common import Line

RUNS = ("run_id", "system", "collective", "nodes", "gpus_per_node", "ranks", "variant", "quality", "source")
ROWS = ("run_id", "size_bytes", "oop_time_us", "ip_time_us")
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv")
LARGE = 1 << 20
"""From here a size is large."""
SMALL_SCALE = 32
"""Beyond so many ranks a run is one of `nccl-scale`."""
FOLLOWED = re.compile(
    r"(NCCL_(?:ALGO|PROTO|MIN_NCHANNELS|MAX_NCHANNELS|MIN_CTAS|MAX_CTAS|BUFFSIZE|NVLS_ENABLE|COLLNET_ENABLE|CROSS_NIC)"
    r"|FI_HMEM_CUDA_USE_GDRCOPY|FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD)[=_]([\^A-Za-z0-9]+)"
)
VERSION = re.compile(r"nccl[ _-]v?(\d+[._]\d+(?:[._]\d+)?)", re.IGNORECASE)
"""NCCL's version in the name of a run whose column says none."""
STATED = re.compile(r"\d+\.\d+(?:\.\d+)?|\d{4,5}(?!\d)")
HOSTS = re.compile(r"[a-z]+\d*-(\d+)_[a-z]+\d*-(\d+)\.log$")


@dataclass
class Run:
    """A run of one collective over several sizes."""

    line: Line
    system: System | str
    """Its system, or why it is left out."""
    ranks: Ranks
    settings: list[tuple[str, str]] = field(default_factory=list)
    hosts: tuple[int, ...] = ()
    """Numbers of its hosts, if its source says them."""

    @property
    def operation(self) -> str:
        """The collective."""
        return self.line.text("collective")


@dataclass
class Point:
    """A measured size; several where set-ups of a group are unknown."""

    run: Run
    size: int
    measured: list[float]
    name: str
    """The id of its row."""


def tests(data: Path, systems: Mapping[str, System]) -> Table | None:
    """Every row, by constants that have seen no other row of its scale either."""
    return _table("nccl-tests", data, systems)


def unseen(data: Path, systems: Mapping[str, System]) -> Table | None:
    """Every row, by constants that have seen nothing of its machine."""
    return _table("nccl-systems", data, systems)


def scale(data: Path, systems: Mapping[str, System]) -> Table | None:
    """All sizes on many ranks, by constants that have seen no other row of their scale."""
    return _table("nccl-scale", data, systems)


def samples(data: Path, systems: Mapping[str, System]) -> Table | None:
    """Samples in documents, of which no constant has seen any: what a cluster gets that nobody has fitted."""
    return _table("nccl-samples", data, systems)


def _table(name: str, data: Path, systems: Mapping[str, System]) -> Table | None:
    folder = data / "collectives"
    if not (folder / "nccl_tests_runs.csv").is_file():
        return None
    table = Table(name)
    quality = "doc_sample" if name == "nccl-samples" else "raw_log"
    for point in points(folder, systems, table, quality):
        run = point.run
        if isinstance(run.system, str):
            continue
        members = run.ranks.hosts * run.ranks.ranks
        if name == "nccl-scale" and members <= SMALL_SCALE:
            continue
        large = ">= 1 MiB" if point.size >= LARGE else "< 1 MiB"
        scale = scale_of(run.ranks)
        without = {"nccl-systems": "machine", "nccl-samples": "machine"}.get(name, scale)
        table.rows.append(
            Row(
                id=point.name.replace("nccl-tests", name, 1),
                system=run.system.name,
                measured=statistics.median(point.measured),
                scenario=asked_of(run.system, run, point.size, without=without),
                groups={
                    "size": large,
                    "kind": run.operation,
                    "scale": scale,
                    "system, size": f"{run.system.name}, {large}",
                },
            )
        )
    return table


def points(folder: Path, systems: Mapping[str, System], table: Table, quality: str = "raw_log") -> Iterator[Point]:
    """The measured sizes of usable runs of a quality; what is left out is counted in `table`."""
    runs: dict[str, Run] = {}
    for line in lines(folder / "nccl_tests_runs.csv", RUNS):
        runs[line.text("run_id")] = _run(line, systems, quality)
    groups: dict[str, Point] = {}
    rows = folder / "nccl_tests_rows.csv.gz"
    for line in lines(rows, ROWS):
        run = runs.get(line.text("run_id"))
        if run is None:
            table.exclude("run without a description")
            continue
        if isinstance(run.system, str):
            table.exclude(run.system)
            continue
        text = line.text("oop_time_us")
        # A column that a run did not print, and times that the program rounds to nothing.
        if text == "" or float_or_none(text) == 0.0:
            table.exclude("no out-of-place time")
            continue
        size = line.count("size_bytes") if line.text("size_bytes") != "0" else 0
        if size == 0:
            table.exclude("no bytes")
            continue
        measured = line.number_in("oop_time_us") * 1e-6
        mark = section(run.system, "group_by_variant")
        if mark is not None and str(mark) in run.line.text("variant"):
            label = re.sub(r"[^a-z0-9_]+", "-", run.line.text("variant").split(str(mark))[0].lower()).strip("-")
            ranks = run.ranks
            name = f"nccl-tests/{run.system.name}/{label}/{run.operation}-{ranks.hosts}x{ranks.ranks}/{size}"
            if name in groups:
                groups[name].measured.append(measured)
                table.exclude("other set-up of a group, of which the median is compared")
            else:
                groups[name] = Point(run, size, [measured], name)
            continue
        yield Point(run, size, [measured], f"nccl-tests/{line.text('run_id')}/{size}")
    yield from groups.values()


def float_or_none(text: str) -> float | None:
    """A number, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def _run(line: Line, systems: Mapping[str, System], quality: str) -> Run:
    nothing = Ranks(1, 1)
    if line.text("quality") != quality:
        what = "a sample in a document, no raw log" if quality == "raw_log" else "shown by another table"
        return Run(line, f"quality `{line.text('quality')}`: {what}", nothing)
    if line.text("collective") not in OPERATIONS:
        return Run(line, f"collective `{line.text('collective')}` is not modelled", nothing)
    system = system_of(line.text("system"), line.text("variant"), systems, line)
    if system is None:
        return Run(line, f"no file of system `{line.text('system')}`", nothing)
    hosts, ranks = line.count("nodes"), line.count("gpus_per_node")
    if hosts * ranks != line.count("ranks"):
        return Run(line, "hosts x GPUs of a host is not the number of ranks", nothing)
    if hosts * ranks == 1:
        return Run(line, "one rank: a copy, no collective", nothing)
    one_process = hosts == 1 and bool(section(system, "one_process_on_one_host", default=False))
    settings = [(name, value) for name, value in FOLLOWED.findall(line.text("variant"))]
    settings += [("NCCL_VERSION", version) for version in _version(line)]
    numbers = HOSTS.search(line.text("source"))
    return Run(
        line,
        system,
        Ranks(hosts, ranks, ranks if one_process else 1),
        settings,
        tuple(int(number) for number in numbers.groups()) if numbers else (),
    )


def _version(line: Line) -> list[str]:
    """NCCL's version, of the column or the variant; none if neither says it."""
    stated = STATED.match(line.optional("nccl_version"))
    named = VERSION.search(line.text("variant"))
    return [stated[0]] if stated else [named[1]] if named else []


def system_of(name: str, variant: str, systems: Mapping[str, System], line: Line | None = None) -> System | None:
    """The system whose `collectives.rows` name a row's system and variant, else the one of its very name.

    A rule's `variant` is a part of the row's, or several that are all in it; `except` a part of `source` that is not;
    `where` values that other columns have, one of several each.
    """
    for system in systems.values():
        for rule in section(system, "rows", []):
            parts = rule.get("variant", "")
            told = all(part in variant for part in ([parts] if isinstance(parts, str) else parts))
            if rule["system"] in name and told and (line is None or _is_of(rule, line)):
                return system
    return systems.get(name)


def _is_of(rule: Mapping[str, Any], line: Line) -> bool:
    if "except" in rule and rule["except"] in line.text("source"):
        return False
    wanted: Mapping[str, Any] = rule.get("where", {})
    return all(
        line.optional(column) in [str(value) for value in (values if isinstance(values, list) else [values])]
        for column, values in wanted.items()
    )


def scale_of(ranks: Ranks) -> str:
    """The scale of a run as people name it."""
    return f"{ranks.hosts * ranks.ranks} ranks on {ranks.hosts}"


def members(scale: str) -> int:
    """The ranks of a scale, as `scale_of` names it."""
    return int(scale.partition(" ")[0])


def asked_of(system: System, run: Run, size: int, *, without: str | None = None) -> dict[str, Any]:
    """What a row of `run` asks: its ranks, settings and way."""
    slow = leaves_a_slow_leaf(system, run.operation, run.hosts, run.ranks.ranks)
    return question(system, run.operation, size, run.ranks, run.settings, slow_leaf=slow, without=without)
