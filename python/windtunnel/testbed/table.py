"""Runs of the testbed as a table, a line a flow; `windtunnel calibrate watch` reads it as any table of flows."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from typing import TYPE_CHECKING

from windtunnel.engine import InputError
from windtunnel.source import read_text
from windtunnel.testbed.fabric import Shape
from windtunnel.testbed.flows import Done, Flow, count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SHAPE = ("leaves", "hosts", "spines", "rate", "queue")
LAST = "acknowledgements"
CONGESTIONS = ("reno", "cubic", "bbr")
COLUMNS = (
    "bytes", "fct_s", "class", "run", "pattern", "congestion", "host_bound", "source", "destination", "spine",
    "start_s", *SHAPE, LAST,
)  # fmt: skip


def written(shape: Shape, runs: Sequence[Done]) -> str:
    """The table."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run in runs:
        for flow, seconds in zip(run.flows, run.seconds, strict=True):
            way = "leaf" if flow.spine is None else "spine"
            writer.writerow(
                [flow.bytes, f"{seconds:.6f}", f"{run.congestion} {run.pattern} {way}", run.name, run.pattern,
                 run.congestion, int(run.host_bound), flow.source, flow.destination,
                 "" if flow.spine is None else flow.spine, f"{flow.start:.6f}",
                 *(getattr(shape, name) for name in SHAPE), shape.acknowledgements]
            )  # fmt: skip
    return text.getvalue()


def read(path: Path) -> tuple[Shape, list[Done]]:
    """A table as it was written. Raises `InputError` with file and line."""
    reader = csv.DictReader(io.StringIO(read_text(path)))
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or [])]
    if missing:
        raise InputError(f"{path}:1: column `{missing[0]}` is missing\n\nhint: `windtunnel testbed run` writes it")
    flows: defaultdict[str, list[tuple[Flow, float]]] = defaultdict(list)
    told: dict[str, tuple[str, str, bool]] = {}
    shape: Shape | None = None
    last = 0
    for row in reader:
        last = reader.line_num
        place = f"{path}:{last}"
        found, flow, seconds = _row(row, place)
        run = (row["pattern"], row["congestion"], row["host_bound"] == "1")
        if shape not in {None, found}:
            raise InputError(f"{place}: another shape than in the lines before: {found}")
        if told.setdefault(row["run"], run) != run:
            raise InputError(
                f"{place}: run `{row['run']}` has pattern, congestion and host_bound {run}, and "
                f"{told[row['run']]} in the lines before\n\nhint: a run has one of each"
            )
        flows[row["run"]].append((flow, seconds))
        shape = found
    if shape is None:
        raise InputError(f"{path}: no flow is in it")
    for name, pairs in flows.items():
        due = count(told[name][0], shape.leaves * shape.hosts)
        if due is not None and len(pairs) != due:
            raise InputError(
                f"{path}:{last}: run `{name}` has {len(pairs)} flows, and {told[name][0]} over this shape has {due}"
                "\n\nhint: the table is cut, or lines were taken out; `windtunnel testbed run` writes it anew"
            )
    return shape, [
        Done(name, *told[name][:2], [f for f, _ in pairs], [s for _, s in pairs], told[name][2])
        for name, pairs in flows.items()
    ]


def _row(row: Mapping[str, str], place: str) -> tuple[Shape, Flow, float]:
    """A line: the shape, a flow and its completion time. Raises `InputError` for what no run can have."""
    lacking = [name for name in COLUMNS if row.get(name) is None]
    if lacking:
        raise InputError(f"{place}: `{lacking[0]}` is missing: the line is cut")
    try:
        sizes = [int(row[name]) for name in SHAPE]
        shape = Shape(sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], row[LAST])
        spine = None if row["spine"] == "" else int(row["spine"])
        flow = Flow(int(row["source"]), int(row["destination"]), int(row["bytes"]), float(row["start_s"]), spine)
        seconds = float(row["fct_s"])
    except ValueError as error:
        raise InputError(f"{place}: expected numbers as `windtunnel testbed run` writes them: {error}") from error
    try:
        shape.check()
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    every = shape.leaves * shape.hosts
    apart = flow.source // shape.hosts != flow.destination // shape.hosts
    # None between leaves where the kernel did not tell.
    spines = [None, *range(shape.spines)] if apart else [None]
    for key, expected, right in (
        ("fct_s", "seconds above 0", 0 < seconds < math.inf),
        ("bytes", "bytes above 0", flow.bytes > 0),
        ("start_s", "seconds from 0 on", 0 <= flow.start < math.inf),
        ("source", f"a host below {every}", 0 <= flow.source < every),
        (
            "destination",
            f"another host below {every}",
            0 <= flow.destination < every and flow.destination != flow.source,
        ),
        ("spine", f"one below {shape.spines}" if apart else "none inside a leaf", flow.spine in spines),
        ("congestion", ", ".join(CONGESTIONS), row["congestion"] in CONGESTIONS),
        ("host_bound", "0 or 1", row["host_bound"] in {"0", "1"}),
    ):
        if not right:
            raise InputError(f"{place}: `{key}`: expected {expected}, found `{row[key]}`")
    return shape, flow, seconds
