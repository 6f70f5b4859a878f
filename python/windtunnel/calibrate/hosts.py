"""Constants of hosts that serve reads, from recorded runs of a closed loop.

Each constant is taken from the rows that know it: `latency` from reads of a client that is alone, `prepare` from the
answers that it gets, `depth` (bytes in front of a busy link) from answers while others read. No read that meets another
is fitted on. The whole is done on all runs, and without each run in turn, which is what its rows are judged by.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.engine import InputError
from windtunnel.validate.quantities import written
from windtunnel.validate.tables import m4
from windtunnel.validate.tables.closed_loop import Event, Host, Loop, durations, loop_of, unloaded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from windtunnel.validate.systems import System

START = Host(latency=10e-6, prepare=0.0, depth=64e3)
ROUNDS = 7
WEAK = 0.1
"""A depth is refused if answers grow by less than this for each unit of its logarithm."""
LEAST, MOST = 2e3, 2e6
ALONE = Loop({0: 2}, {0: 1}, {0: "asks"})


def calibrate(system: System, data: Path) -> dict[str, Any]:
    """The constant of `system` as its file has it. Raises `InputError` where the runs do not determine it."""
    runs = m4.runs(data)
    if not runs:
        raise InputError(f"no runs of system `{system.name}` to fit on in {data}")
    whole = fit(system, runs)
    without = {run.name: fit(system, others) for run in runs if (others := [r for r in runs if r is not run])}
    return {
        "value": text(whole),
        "evidence": "calibrated",
        "source": f"{sum(len(run.events) for run in runs)} lines of runs {', '.join(run.name for run in runs)}: "
        "latency on reads of a client alone, prepare on its answers, depth on answers while others read",
        "date": str(dt.datetime.now(tz=dt.UTC).date()),
        "without": {name: text(host) for name, host in without.items()},
    }


def text(host: Host) -> dict[str, str]:
    """Constants with units."""
    return {
        "latency": written(host.latency),
        "prepare": written(1.0 / max(host.prepare, 1e-15), "rate"),
        "depth": written(host.depth, "size"),
    }


def fit(system: System, runs: Sequence[m4.Run]) -> Host:
    """The constants on `runs`."""
    latencies, prepares = [], []
    for run in runs:
        alone = unloaded(run.events)
        reads = [run.events[i].seconds for i in alone if run.events[i].read]
        answers = [run.events[i].seconds for i in alone if not run.events[i].read]
        if not reads or not answers:
            continue
        (bare,) = durations([(ALONE, run.size, START, system.record, "packet")], draws=1)
        latencies.append(START.latency + float(np.median(reads)) - bare[0, True, 1])
        # An answer takes one way there and one back, as a read does.
        less = bare[0, False, 1] + latencies[-1] - START.latency
        prepares.append(max(0.0, float(np.median(answers)) - less) / run.size)
    if not latencies:
        raise InputError("no run ends with a client that is alone: `latency` and `prepare` cannot be told")
    found = replace(START, latency=float(np.median(latencies)), prepare=float(np.median(prepares)))
    return replace(found, depth=_depth(system, runs, found))


def _depth(system: System, runs: Sequence[m4.Run], host: Host) -> float:
    """The depth at which the median of ln(predicted/measured) of loaded answers is zero."""
    loops = [loop_of(run.events) for run in runs]

    def off(depth: float) -> float:
        asked = [
            (loop, run.size, replace(host, depth=depth), system.record, "packet")
            for loop, run in zip(loops, runs, strict=True)
        ]
        found = []
        for run, answer in zip(runs, durations(asked), strict=True):
            logs = [
                np.log(answer[client, False, index] / event.seconds)
                for client, index, event in _loaded_answers(run.events)
                if (client, False, index) in answer
            ]
            found.append(float(np.median(logs)))
        return float(np.mean(found))

    low, high = np.log(LEAST), np.log(MOST)
    at = float(np.log(START.depth))
    value = off(START.depth)
    if abs(off(START.depth * 1.5) - value) < WEAK * np.log(1.5):
        raise InputError("`depth`: answers hardly depend on it in these runs")
    for _ in range(ROUNDS):
        if abs(value) < 0.01:
            break
        low, high = (low, at) if value > 0 else (at, high)
        at = (low + high) / 2 if abs(value) > 0.5 else float(np.clip(at - 1.5 * value, low, high))
        value = off(float(np.exp(at)))
    if abs(value) > 0.1:
        raise InputError("`depth`: no value brings answers under load to their median")
    return float(np.exp(at))


def _loaded_answers(events: Sequence[Event]) -> list[tuple[int, int, Event]]:
    """Answers while others read: client, which of the client's requests (that of its read), and the event."""
    alone = set(unloaded(events))
    reads: dict[int, int] = {}
    found = []
    for at, event in enumerate(events):
        index = reads.get(event.client, 0)
        if event.read:
            reads[event.client] = index + 1
        elif at not in alone:
            found.append((event.client, index, event))
    return found
