"""What is sent over the testbed, and what came of it: runs of flows with their completion times."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.engine import RunError
from windtunnel.testbed import sender
from windtunnel.testbed.programs import hear, line, tell
from windtunnel.testbed.shell import inside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.testbed.fabric import Fabric

PATTERNS = ("permutation", "incast", "arrivals")
INCAST = 4
"""Hosts that send to one at once."""
PORT = 5000
FIRST_PORT = 20_000
HOST_BOUND = 0.05
"""A run in which a flow began later than this share of the median completion time waited for the processor."""


@dataclass(frozen=True)
class Flow:
    """A flow of a run: hosts, bytes, seconds after the run's beginning, and the spine that it takes."""

    source: int
    destination: int
    bytes: int
    start: float
    spine: int | None = None


@dataclass(frozen=True)
class Done:
    """A run: its flows, their completion times in seconds, and whether this machine was too slow for it."""

    name: str
    pattern: str
    congestion: str
    flows: Sequence[Flow]
    seconds: Sequence[float]
    host_bound: bool


def drawn(pattern: str, seed: int, leaves: int, hosts: int, size: int) -> list[Flow]:
    """The flows of a run; `size` is their mean size in bytes."""
    draws = random.Random(f"{pattern}/{seed}")  # noqa: S311
    every = list(range(leaves * hosts))
    sizes = [int(size * draws.uniform(0.5, 1.5)) for _ in range(2 * len(every))]
    if pattern == "incast":
        to = draws.choice(every)
        others = draws.sample([host for host in every if host != to], min(INCAST, len(every) - 1))
        return [Flow(host, to, sizes[i], 0.0) for i, host in enumerate(others)]
    if pattern == "permutation":
        # Everybody sends to a host of another leaf.
        turn = draws.randrange(1, leaves)
        order = draws.sample(range(hosts), hosts)
        return [
            Flow(host, (host // hosts + turn) % leaves * hosts + order[host % hosts], sizes[host], 0.0)
            for host in every
        ]
    flows: list[Flow] = []
    now = 0.0
    pairs: set[tuple[int, int]] = set()
    while len(flows) < len(every):
        source, destination = draws.sample(every, 2)
        if (source, destination) not in pairs:
            pairs.add((source, destination))
            flows.append(Flow(source, destination, sizes[len(flows)], now))
            now += draws.expovariate(1.0) * 0.1
    return flows


def count(pattern: str, hosts: int) -> int | None:
    """Flows of a run; None of a pattern that is not ours."""
    if pattern not in PATTERNS:
        return None
    return min(INCAST, hosts - 1) if pattern == "incast" else hosts


def send(fabric: Fabric, flows: Sequence[Flow], congestion: str, turn: int) -> tuple[list[Flow], list[float], bool]:
    """Sends flows: with their spines, completion times, and whether the processor was in the way.

    Runs of one testbed have a `turn` each: a port that was used rests for a minute.
    """
    ways = [(flow.source, flow.destination, FIRST_PORT + 64 * turn + i, PORT) for i, flow in enumerate(flows)]
    spines = fabric.spines(ways)
    plans: dict[int, list[dict[str, Any]]] = {host: [] for flow in flows for host in (flow.source, flow.destination)}
    for i, flow in enumerate(flows):
        to = fabric.address(flow.destination)
        plans[flow.source].append(
            {"id": i, "to": to, "from_port": FIRST_PORT + 64 * turn + i, "bytes": flow.bytes, "start": flow.start}
        )
    programs = {host: inside(fabric.host(host), [str(Path(sender.__file__))]) for host in plans}
    try:
        for host, program in programs.items():
            tell(program, json.dumps({"port": PORT, "congestion": congestion, "flows": plans[host]}))
        hear(programs, "listening")
        for program in programs.values():
            tell(program, "connect")
        hear(programs, "connected")
        begin = time.monotonic() + 0.2
        for program in programs.values():
            tell(program, str(begin))
        told = [one for program in programs.values() for one in json.loads(line(program))]
    finally:
        for program in programs.values():
            program.kill()
            program.communicate()
    seconds = [0.0] * len(flows)
    late = [0.0] * len(flows)
    for one in told:
        seconds[one["id"]], late[one["id"]] = one["fct"], one["late"]
    if not all(seconds):
        raise RunError("a flow of the testbed did not end")
    middle = sorted(seconds)[len(seconds) // 2]
    found = [Flow(f.source, f.destination, f.bytes, f.start, spine) for f, spine in zip(flows, spines, strict=True)]
    return found, seconds, max(late) > HOST_BOUND * middle
