"""Runs of the testbed as a table, a line a flow; `windtunnel calibrate watch` reads it as any table of flows."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from typing import TYPE_CHECKING

from windtunnel.engine import InputError
from windtunnel.source import read_text
from windtunnel.testbed.fabric import Shape
from windtunnel.testbed.flows import Done, Flow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SHAPE = ("leaves", "hosts", "spines", "rate", "queue")
LAST = "acknowledgements"
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
    for row in reader:
        try:
            sizes = [int(row[name]) for name in SHAPE]
            found = Shape(sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], row[LAST])
            spine = None if row["spine"] == "" else int(row["spine"])
            flow = Flow(int(row["source"]), int(row["destination"]), int(row["bytes"]), float(row["start_s"]), spine)
            flows[row["run"]].append((flow, float(row["fct_s"])))
            told[row["run"]] = (row["pattern"], row["congestion"], row["host_bound"] == "1")
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}:{reader.line_num}: expected numbers as in the lines before: {error}") from error
        if shape not in {None, found}:
            raise InputError(f"{path}:{reader.line_num}: another shape than in the lines before: {found}")
        shape = found
    if shape is None:
        raise InputError(f"{path}: no flow is in it")
    shape.check()
    return shape, [
        Done(name, *told[name][:2], [f for f, _ in pairs], [s for _, s in pairs], told[name][2])
        for name, pairs in flows.items()
    ]
