"""Readers of what production leaves, a line at a time: each gives measurements, or says what it cannot use and why.

A reader keeps what it needs of the lines before (a log's header) in a plain record, so that it can go on in the middle
of a file. Lines that are no measurement at all (comments, other programs' output) are passed over; those that look like
one and cannot be used are put aside with file, line and reason.
"""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import PurePath

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
    gpus: tuple[str, ...] = ()
    """Names of the GPUs that it was measured on, where they are said."""
    log: str | None = None
    """What rows of one run have in common within a file: a table of nccl-tests. None where each is a run of its own."""


@dataclass(frozen=True)
class Aside:
    """A line that looks like a measurement and is none."""

    reason: str
    again: bool = False
    """Whether it is of a file that is being written, and is read again once that has changed."""


ROTATED = re.compile(r"(\.\d+|[-.]\d{8}([-.]?\d+)?)$")
"""What rotation adds to a name: `flows.csv.1`, `flows.csv-20261128`."""


def reader_of(path: PurePath) -> str | None:
    """The reader of a file, by its name: `nccl`, `lines`, `transfers` or `kineto`; None where there is none.

    What rotation and packing add to a name is passed over.
    """
    name = ROTATED.sub("", path.name.removesuffix(".gz"))
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
    """What a line of a file of `reader` gives; `state` is kept from line to line.

    Whatever a line holds, it is put aside where it cannot be read, and those behind it are read.
    """
    try:
        return _LINES[reader](text, state, path)
    except Exception as error:  # noqa: BLE001 - a line may hold anything, and none may end the watch
        return [Aside(f"cannot be read: {type(error).__name__}: {error}")]


RANK = re.compile(r"#\s+Rank\s+(\d+).*?\bon\s+(\S+)\s+device\s+\d+(?:\s+\[[^\]]*\]\s*(.*))?")
ROW = re.compile(r"-?[0-9]+\s+-?[0-9]+\s")
STARTING = re.compile(r"(?:Collective test starting:\s*|[/\s])(\w+)_perf\b")
UNITS = re.compile(r"#\s*\(B\)")
FOOT = re.compile(r"#\s*(Out of bounds values|Avg bus bandwidth)")
OVER = "over"
"""What a reader notes in its record where a line ends a log; whoever takes the rows takes it off."""


def _nccl(text: str, state: dict[str, Any], path: PurePath) -> list[Measured | Aside]:
    """A line of nccl-tests or rccl-tests."""
    rank = RANK.search(text)
    if rank:
        # Ranks are numbered from 0 in each run: a new run of the same log begins anew.
        if int(rank[1]) == 0:
            state.update(hosts={}, last=-1, gpus=[])
        hosts = state.setdefault("hosts", {})
        hosts[rank[2]] = hosts.get(rank[2], 0) + 1
        state["last"] = max(int(rank[1]), state.get("last", -1))
        gpu = (rank[3] or "").strip()
        if gpu and gpu not in state.setdefault("gpus", []):
            state["gpus"].append(gpu)
        return []
    starting = STARTING.search(text)
    if starting and _operation(starting[1]):
        state["operation"] = _operation(starting[1])
        state["units"] = None
    if text.lstrip().startswith("#"):
        if UNITS.search(text):
            state["units"] = "us" if "(us)" in text else "other"
            state["table"] = state.get("table", 0) + 1
        if FOOT.match(text.lstrip()):
            state[OVER] = True
        return []
    cells = text.split()
    if len(cells) < 3 or not ROW.match(text.lstrip()):
        return []
    operation = state.get("operation") or _operation_of_name(path)
    counts = set(state.get("hosts", {}).values())
    # size, count, type[, redop][, root], then time, algbw, busbw, wrong, twice.
    seconds = _seconds(cells[-8], 1e6) if len(cells) >= 8 else None
    told, listed = state.get("last", -1) + 1, sum(state.get("hosts", {}).values())
    reason = _unusable(operation, state.get("units"), counts, cells, seconds)
    if listed and told != listed:
        reason = f"{listed} lines of ranks before it, and the last is rank {told - 1}: some are missing or twice there"
    if reason is not None:
        return [Aside(reason)]
    size, hosts = int(cells[0]), len(state["hosts"])
    if size == 0 or hosts * min(counts) == 1:
        return []
    kind = ("collective", operation, size, hosts, min(counts))
    return [Measured(kind, seconds or 0.0, gpus=tuple(state.get("gpus", [])), log=str(state.get("table", 0)))]


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
    if not 0 <= int(cells[0]) <= MOST_BYTES:
        return f"expected a size of up to 2^60 bytes, found `{cells[0]}`"
    return None if seconds is not None else f"expected a time from 1 ps to 30 years, found `{cells[-8]}`"


def _operation(name: str) -> str | None:
    return OPERATIONS.get(name.lower().replace("_", ""))


def _operation_of_name(path: PurePath) -> str | None:
    plain = path.name.lower().replace("_", "").replace("-", "")
    found = [name for name in OPERATIONS if name in plain]
    # `reducescatter` contains `reduce`.
    return OPERATIONS[max(found, key=len)] if found else None


MOST_BYTES = 1 << 60
SHORTEST_S, LONGEST_S = 1e-12, 1e9
"""Times that anything takes, from a picosecond to 30 years: others are another unit or no time."""


def _number(text: object) -> float | None:
    """A positive number, None for anything else."""
    try:
        value = float(str(text))
    except ValueError:
        return None
    return value if value > 0 and math.isfinite(value) else None


def _seconds(text: object, per: float = 1.0) -> float | None:
    """A time that something takes, None for anything else."""
    value = _number(text)
    return value / per if value is not None and SHORTEST_S <= value / per <= LONGEST_S else None


def _bytes(text: object) -> int | None:
    """A size, None for anything else."""
    value = _number(text)
    return int(value) if value is not None and value <= MOST_BYTES and value.is_integer() else None


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
        found = record["coll_perf"]
        if not isinstance(found, dict):
            return [Aside(f"`coll_perf`: expected a record, found {type(found).__name__}")]
        return [_inspected(found, state)]
    if "iteration_s" in record:
        return [_iteration(record, path)]
    return []


def _inspected(found: dict[str, Any], state: dict[str, Any]) -> Measured | Aside:
    header, metadata = state.get("header", {}), state.get("metadata", {})
    operation = _operation(str(found.get("coll", "")))
    ranks, hosts = header.get("n_ranks"), header.get("nnodes")
    size, seconds = found.get("coll_msg_size_bytes"), _seconds(found.get("coll_exec_time_us"), 1e6)
    if operation is None:
        return Aside(f"collective `{found.get('coll')}` is not modelled")
    if not isinstance(ranks, int) or not isinstance(hosts, int) or not 1 <= hosts <= ranks or ranks % hosts:
        return Aside("no header with `n_ranks` and `nnodes`, or hosts with different numbers of ranks")
    if not isinstance(size, int) or not 0 < size <= MOST_BYTES or seconds is None:
        return Aside(
            "`coll_msg_size_bytes` and `coll_exec_time_us`: expected up to 2^60 bytes and a time, found "
            f"`{size}` and `{found.get('coll_exec_time_us')}`"
        )
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
    seconds = _seconds(record["iteration_s"])
    if seconds is None:
        return Aside(f"`iteration_s`: expected a time from 1 ps to 30 years, found `{record['iteration_s']}`")
    job = str(record.get("job", path.name.partition(".")[0]))
    at = _number(record.get("time"))
    name = f"{job}/{record['run']}/{record['iteration']}" if {"run", "iteration"} <= record.keys() else None
    return Measured(("iteration", job), seconds, at, name)


TIMES = {"fct_s": 1.0, "fct_ms": 1e3, "fct_us": 1e6, "fct_ns": 1e9}


def _transfers(text: str, state: dict[str, Any], path: PurePath) -> list[Measured | Aside]:  # noqa: ARG001
    """A line of a table of flows: `bytes`, a completion time with its unit, perhaps `class` and `time`."""
    if not text.strip():
        return []
    (cells,) = csv.reader([text.removeprefix("\ufeff")])
    named = [cell.strip() for cell in cells]
    if named == state.setdefault("columns", named):
        return []
    columns: list[str] = state["columns"]
    unit = next((name for name in TIMES if name in columns), None)
    if "bytes" not in columns or unit is None:
        return [Aside(f"expected columns `bytes` and one of {', '.join(TIMES)}, found {', '.join(columns)}")]
    if len(cells) != len(columns):
        return [Aside(f"expected {len(columns)} columns, found {len(cells)}: the line is cut")]
    row = dict(zip(columns, cells, strict=True))
    size, seconds = _bytes(row["bytes"]), _seconds(row[unit], TIMES[unit])
    if size is None or seconds is None:
        return [
            Aside(
                f"`bytes` and `{unit}`: expected up to 2^60 whole bytes and a time from 1 ps to 30 years, found "
                f"`{row['bytes']}` and `{row[unit]}`"
            )
        ]
    return [Measured(("transfer", row.get("class", "") or "all", size), seconds, _number(row.get("time")))]


def _kineto(text: str, state: dict[str, Any], path: PurePath) -> list[Measured | Aside]:  # noqa: ARG001
    """A whole trace of PyTorch's profiler: the steps that it marks."""
    try:
        trace = json.loads(text)
    except ValueError as error:
        return [Aside(f"no trace of PyTorch's profiler: {error}", again=True)]
    events = trace.get("traceEvents") if isinstance(trace, dict) else None
    if not isinstance(events, list):
        return [Aside("no trace of PyTorch's profiler: `traceEvents` is missing or no list")]
    said = trace.get("distributedInfo")
    job = str((said.get("job") if isinstance(said, dict) else None) or path.name.partition(".")[0])
    found: list[Measured | Aside] = []
    for event in events:
        if isinstance(event, dict) and str(event.get("name", "")).startswith("ProfilerStep#"):
            seconds = _seconds(event.get("dur"), 1e6)
            if str(event.get("cat")) not in {"None", "user_annotation", "cpu_op"}:
                continue
            if seconds is None:
                found.append(Aside(f"{event['name']}: expected `dur` in us, found `{event.get('dur')}`"))
            else:
                found.append(Measured(("iteration", job), seconds))
    return found or [Aside("no step is marked in it")]


_LINES = {"nccl": _nccl, "lines": _lines, "transfers": _transfers, "kineto": _kineto}

WHOLE = frozenset({"kineto"})
"""Readers whose unit is the file."""
