"""RDMA reads of a key-value store on 10 Gbit/s (the testbed of m4): each read, in the closed loop of its run.

A row is a read of a recorded run. Its constants were fitted on answers and on reads of a client that is alone
(`windtunnel calibrate hosts`); those of a run that was fitted on are the ones that were fitted without it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.engine import InputError
from windtunnel.validate.quantities import quantity
from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.closed_loop import DRAWS, Event, Host, Key, durations, loop_of, unloaded
from windtunnel.validate.tables.common import lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windtunnel.validate.systems import System

SYSTEM, CONSTANT = "m4-testbed", "reads"
COLUMNS = ("run", "size_bytes", "window", "order", "kind", "client", "dur_ns")
PATTERN = "m4_testbed_*.csv"
PUBLISHED = {"ns-3": 73.8, "flowSim": 69.1, "m4": 25.3}
"""Median errors of a read that m4's authors publish, in per cent (results/accuracy_summary.txt)."""


@dataclass(frozen=True)
class Run:
    """A recorded run, or the end of one."""

    name: str
    size: int
    window: int
    events: Sequence[Event]


def runs(data: Path) -> list[Run]:
    """The recorded runs of a validation folder. Raises `InputError` with file and line."""
    found: dict[str, tuple[int, int, list[tuple[int, Event]]]] = {}
    for path in sorted((data / "flows").glob(PATTERN)):
        for line in lines(path, COLUMNS):
            kind = line.text("kind")
            if kind not in {"ud", "rdma"}:
                raise InputError(f"{path}:{line.number}: `kind`: expected `ud` or `rdma`, found `{kind}`")
            try:
                client, order = int(line.text("client")), int(line.text("order"))
            except ValueError as error:
                raise InputError(
                    f"{path}:{line.number}: `client` and `order`: expected whole numbers, found "
                    f"`{line.text('client')}` and `{line.text('order')}`"
                ) from error
            size, window = line.count("size_bytes"), line.count("window")
            _, _, events = found.setdefault(line.text("run"), (size, window, []))
            events.append((order, Event(client, kind, line.number_in("dur_ns") * 1e-9)))
    return [
        Run(name, size, window, [event for _, event in sorted(events, key=lambda pair: pair[0])])
        for name, (size, window, events) in found.items()
    ]


def host_of(value: Mapping[str, Any], place: str) -> Host:
    """Constants as a system's file has them."""
    return Host(
        quantity(value["latency"], "time", f"{place}.latency"),
        1.0 / quantity(value["prepare"], "rate", f"{place}.prepare"),
        quantity(value["depth"], "size", f"{place}.depth"),
    )


def read(data: Path, systems: Mapping[str, System]) -> Table | None:
    """Every read of every run."""
    recorded = runs(data)
    if not recorded:
        return None
    table = Table("m4", facts=facts)
    system = systems.get(SYSTEM)
    constant = None if system is None else (system.record.get("constants") or {}).get(CONSTANT)
    if system is None or constant is None:
        table.exclude(f"no constants of system `{SYSTEM}`", sum(len(run.events) for run in recorded))
        return table
    for run in recorded:
        value = (constant.get("without") or {}).get(run.name, constant["value"])
        host = host_of(value, f"{system.path}: constants.{CONSTANT}")
        alone = set(unloaded(run.events))
        count: Counter[int] = Counter()
        table.exclude("answers to requests: not reads", sum(not event.read for event in run.events))
        for at, event in enumerate(run.events):
            if not event.read:
                continue
            index = count[event.client]
            count[event.client] += 1
            for fidelity, rows in (("packet", table.rows), ("flow", table.beside)):
                asked = {
                    "run": run.name, "data": str(data), "client": event.client, "index": index, "fidelity": fidelity,
                    "host": [host.latency, host.prepare, host.depth],
                    "system": {key: system.record[key] for key in ("topology", "network")},
                }  # fmt: skip
                rows.append(
                    Row(
                        id=f"{run.name}/{event.client}/{index}" + ("" if fidelity == "packet" else "/flow"),
                        system=SYSTEM,
                        measured=event.seconds,
                        scenario={"reads": asked},
                        groups={
                            "run": run.name,
                            "size": f"{run.size} B",
                            "window": str(run.window),
                            "load": "unloaded" if at in alone else "loaded",
                        },
                    )
                )
    return table


def facts(rows: Sequence[tuple[Row, float]], beside: Sequence[tuple[Row, float]]) -> dict[str, float]:
    """Medians by fidelity beside the published ones, in per cent."""
    found = {
        f"{name}, median error of a read, %": 100 * float(np.median([abs(p / row.measured - 1) for row, p in pairs]))
        for name, pairs in (("packet fidelity", rows), ("flow fidelity", beside))
        if pairs
    }
    return found | {f"{name}, as published, %": value for name, value in PUBLISHED.items()}


def times(asked: Sequence[Mapping[str, Any]]) -> list[float]:
    """Predicted seconds of each read asked for; the runs they are of are simulated once."""
    recorded: dict[str, dict[str, Run]] = {}
    wanted: defaultdict[str, list[int]] = defaultdict(list)
    for at, one in enumerate(asked):
        wanted[json.dumps([one[key] for key in ("run", "data", "fidelity", "host", "system")])].append(at)
    questions = []
    for members in wanted.values():
        one = asked[members[0]]
        folder = one["data"]
        if folder not in recorded:
            recorded[folder] = {run.name: run for run in runs(Path(folder))}
        run = recorded[folder][one["run"]]
        questions.append((loop_of(run.events), run.size, Host(*one["host"]), one["system"], one["fidelity"]))
    found = [0.0] * len(asked)
    for members, answer in zip(wanted.values(), durations(questions, DRAWS), strict=True):
        for at in members:
            key: Key = (asked[at]["client"], True, asked[at]["index"])
            found[at] = answer[key]
    return found
