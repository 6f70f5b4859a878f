"""Readers of what production leaves, a line at a time: each gives measurements, or says what it cannot use and why.

A reader keeps what it needs of the lines before (a log's header) in a plain record, so that it can go on in the middle
of a file. Lines that are no measurement at all (comments, other programs' output) are passed over; those that look like
one and cannot be used are put aside with file, line and reason.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path, PurePath

OPERATIONS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "broadcast": "broadcast",
    "reduce": "reduce", "alltoall": "alltoall", "sendrecv": "sendrecv",
}  # fmt: skip
"""Operations of NCCL by their names without case and underscores."""


@dataclass(frozen=True)
class Measured:
    """A measurement: what it is of (`kind`, plain values that a model knows), seconds, and when, if it is said."""

    kind: tuple[Any, ...]
    seconds: float
    at: float | None = None
    name: str | None = None
    """What makes it one of its kind (a sequence number), so that it counts once wherever it is written."""


@dataclass(frozen=True)
class Aside:
    """A line that looks like a measurement and is none."""

    reason: str


def reader_of(path: PurePath) -> str | None:
    """The reader of a file, by its name: `nccl`, `lines`, `transfers` or `kineto`; None where there is none."""
    name = path.name.removesuffix(".gz")
    if name.endswith((".jsonl", ".ndjson")):
        return "lines"
    if name.endswith(".csv"):
        return "transfers"
    if name.endswith(".json"):
        return "kineto"
    if name.endswith((".log", ".txt", ".out")):
        return "nccl"
    return None


def read_line(reader: str, text: str, state: dict[str, Any], path: PurePath) -> list[Measured | Aside]:
    """What a line of a file of `reader` gives; `state` is kept from line to line."""
    return _LINES[reader](text, state, path)


RANK = re.compile(r"#\s+Rank\s+(\d+).*?\bon\s+(\S+)\s+device\s+\d+")
STARTING = re.compile(r"(?:Collective test starting:\s*|[/\s])(\w+)_perf\b")
UNITS = re.compile(r"#\s*\(B\)")


def _nccl(text: str, state: dict[str, Any], path: PurePath) -> list[Measured | Aside]:
    """A line of nccl-tests or rccl-tests."""
    rank = RANK.search(text)
    if rank:
        # Ranks are numbered from 0 in each run: a new run of the same log begins anew.
        if int(rank[1]) == 0:
            state["hosts"] = {}
        hosts = state.setdefault("hosts", {})
        hosts[rank[2]] = hosts.get(rank[2], 0) + 1
        return []
    starting = STARTING.search(text)
    if starting and _operation(starting[1]):
        state["operation"] = _operation(starting[1])
        state["units"] = None
    if text.lstrip().startswith("#"):
        if UNITS.search(text):
            state["units"] = "us" if "(us)" in text else "other"
        return []
    cells = text.split()
    if len(cells) < 3 or not cells[0].isdigit() or not cells[1].isdigit():
        return []
    operation = state.get("operation") or _operation_of_name(path)
    counts = set(state.get("hosts", {}).values())
    # size, count, type[, redop][, root], then time, algbw, busbw, wrong, twice.
    seconds = _number(cells[-8], 1e6) if len(cells) >= 8 else None
    reason = _unusable(operation, state.get("units"), counts, cells, seconds)
    if reason is not None:
        return [Aside(reason)]
    size, hosts = int(cells[0]), len(state["hosts"])
    if size == 0 or hosts * min(counts) == 1:
        return []
    return [Measured(("collective", operation, size, hosts, min(counts)), seconds or 0.0)]


def _unusable(
    operation: str | None, units: object, counts: set[int], cells: list[str], seconds: float | None
) -> str | None:
    """Why a line of nccl-tests is no measurement."""
    if operation is None:
        return "which collective it is stands nowhere: name the file after it (`all_reduce_perf.log`)"
    if units != "us":
        return "no line of units before it, or times that are not in us"
    if len(counts) != 1:
        return "no lines of ranks before it" if not counts else "hosts with different numbers of ranks"
    if len(cells) not in {11, 12, 13}:
        return f"expected 11 to 13 columns, found {len(cells)}: the line is cut"
    return None if seconds is not None else f"expected a time, found `{cells[-8]}`"


def _operation(name: str) -> str | None:
    return OPERATIONS.get(name.lower().replace("_", ""))


def _operation_of_name(path: PurePath) -> str | None:
    plain = path.name.lower().replace("_", "").replace("-", "")
    found = [name for name in OPERATIONS if name in plain]
    # `reducescatter` contains `reduce`.
    return OPERATIONS[max(found, key=len)] if found else None


def _number(text: object, per: float = 1.0) -> float | None:
    try:
        value = float(str(text)) / per
    except ValueError:
        return None
    return value if value > 0 and math.isfinite(value) else None


def _lines(text: str, state: dict[str, Any], path: PurePath) -> list[Measured | Aside]:
    """A line of JSON: a record of NCCL's Inspector, or an iteration of a job."""
    if not text.strip():
        return []
    try:
        record = json.loads(text)
    except ValueError as error:
        return [Aside(f"no JSON: {error}")]
    if not isinstance(record, dict):
        return [Aside(f"expected a record, found {type(record).__name__}")]
    for key in ("header", "metadata"):
        # Newer versions say them once a dump.
        if isinstance(record.get(key), dict):
            state[key] = record[key]
    if "coll_perf" in record:
        return [_inspected(record["coll_perf"], state)]
    if "iteration_s" in record:
        return [_iteration(record, path)]
    return []


def _inspected(found: dict[str, Any], state: dict[str, Any]) -> Measured | Aside:
    header, metadata = state.get("header", {}), state.get("metadata", {})
    operation = _operation(str(found.get("coll", "")))
    ranks, hosts = header.get("n_ranks"), header.get("nnodes")
    size, seconds = found.get("coll_msg_size_bytes"), _number(found.get("coll_exec_time_us"), 1e6)
    if operation is None:
        return Aside(f"collective `{found.get('coll')}` is not modelled")
    if not isinstance(ranks, int) or not isinstance(hosts, int) or hosts < 1 or ranks % hosts:
        return Aside("no header with `n_ranks` and `nnodes`, or hosts with different numbers of ranks")
    if not isinstance(size, int) or size <= 0 or seconds is None:
        return Aside("no `coll_msg_size_bytes` or `coll_exec_time_us` that is a positive number")
    # One rank's part in these two, the whole vector in the others.
    size *= ranks if operation in {"reduce_scatter", "all_gather"} else 1
    at = metadata.get("dump_timestamp_us")
    name = f"{header.get('id')}/{header.get('rank')}/{found.get('coll_sn')}" if "coll_sn" in found else None
    return Measured(
        ("collective", operation, size, hosts, ranks // hosts),
        seconds,
        at / 1e6 if isinstance(at, int) else None,
        name,
    )


def _iteration(record: dict[str, Any], path: PurePath) -> Measured | Aside:
    seconds = _number(record["iteration_s"])
    if seconds is None:
        return Aside(f"`iteration_s`: expected a positive number, found `{record['iteration_s']}`")
    job = str(record.get("job", path.name.partition(".")[0]))
    at = _number(record.get("time"))
    name = f"{job}/{record['run']}/{record['iteration']}" if {"run", "iteration"} <= record.keys() else None
    return Measured(("iteration", job), seconds, at, name)


TIMES = {"fct_s": 1.0, "fct_ms": 1e3, "fct_us": 1e6, "fct_ns": 1e9}


def _transfers(text: str, state: dict[str, Any], path: PurePath) -> list[Measured | Aside]:  # noqa: ARG001
    """A line of a table of flows: `bytes`, a completion time with its unit, perhaps `class` and `time`."""
    (cells,) = csv.reader([text])
    if "columns" not in state:
        state["columns"] = [cell.strip() for cell in cells]
        return []
    columns: list[str] = state["columns"]
    unit = next((name for name in TIMES if name in columns), None)
    if "bytes" not in columns or unit is None:
        return [Aside(f"expected columns `bytes` and one of {', '.join(TIMES)}, found {', '.join(columns)}")]
    if len(cells) != len(columns):
        return [Aside(f"expected {len(columns)} columns, found {len(cells)}: the line is cut")]
    row = dict(zip(columns, cells, strict=True))
    size, seconds = _number(row["bytes"]), _number(row[unit], TIMES[unit])
    if size is None or seconds is None:
        return [Aside(f"`bytes` and `{unit}`: expected positive numbers, found `{row['bytes']}` and `{row[unit]}`")]
    return [Measured(("transfer", row.get("class", "") or "all", int(size)), seconds, _number(row.get("time")))]


def _kineto(text: str, state: dict[str, Any], path: PurePath) -> list[Measured | Aside]:  # noqa: ARG001
    """A whole trace of PyTorch's profiler: the steps that it marks."""
    try:
        trace = json.loads(text)
        events = trace["traceEvents"]
    except (ValueError, KeyError, TypeError) as error:
        return [Aside(f"no trace of PyTorch's profiler: {error}")]
    job = str((trace.get("distributedInfo") or {}).get("job") or path.name.partition(".")[0])
    found: list[Measured | Aside] = []
    for event in events:
        if isinstance(event, dict) and str(event.get("name", "")).startswith("ProfilerStep#"):
            seconds = _number(event.get("dur"), 1e6)
            if seconds is not None and event.get("cat") in {None, "user_annotation", "cpu_op"}:
                found.append(Measured(("iteration", job), seconds))
    return found or [Aside("no step is marked in it")]


_LINES = {"nccl": _nccl, "lines": _lines, "transfers": _transfers, "kineto": _kineto}

WHOLE = frozenset({"kineto"})
"""Readers whose unit is the file."""


def new_lines(path: Path, reader: str, offset: int) -> Iterator[tuple[str, int]]:
    """Lines of a file from `offset` on, each with the offset behind it; a last one without its end waits."""
    if reader in WHOLE:
        raw = path.read_bytes()
        if offset == 0:
            try:
                yield (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8", "replace"), len(raw)
            except (OSError, EOFError) as error:
                yield f"cut: {error}", len(raw)
        return
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            yield line.decode("utf-8", "replace").rstrip("\r\n"), offset
