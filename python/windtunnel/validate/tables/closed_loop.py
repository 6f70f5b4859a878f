"""Clients that read from one server in a closed loop, as a scenario.

A client asks (a datagram), the server prepares the value and answers, the client reads the value by RDMA and then asks
again. The server's adapter hands packets of all reads in turn to a queue in front of its link; the queue is bounded, so
an answer waits for what stands before it, and a read whose packets are in the queue keeps its place when others begin.

A recording that begins in the middle of a run does not say what was under way: clients that come back later than others
have a part of a read left, evenly spread in the order in which they come back. `DRAWS` runs with shifted parts are
made, and a duration is their median.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.experiments.runs import Asked, run_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

DRAWS = 8
REQUEST, ANSWER, FETCH = 17, 41, 24
"""Bytes of a request, of its answer and of the packet that asks for a read."""
THINK = 3000
"""Nanoseconds from a read's end to the client's next request."""
FEED = 4
"""How many times the link's rate the adapter fetches from memory."""
BACK = 0.5
"""Share of a read's fixed time that its request takes; the rest is the data's."""


@dataclass(frozen=True)
class Event:
    """A line of a recording, in order of starts: an answer waited for (`ud`), or a read (`rdma`); seconds."""

    client: int
    kind: str
    seconds: float

    @property
    def read(self) -> bool:
        """Whether it is a read."""
        return self.kind == "rdma"


@dataclass(frozen=True)
class Host:
    """Constants of the server, its adapter and its link."""

    latency: float
    """Seconds of a read besides its bytes on the link."""
    prepare: float
    """Seconds for each byte of a value until the server answers."""
    depth: float
    """Bytes that stand in front of the link when it is busy."""


@dataclass(frozen=True)
class Loop:
    """What a recording's clients do: reads left to each, slots, and how each begins."""

    reads: Mapping[int, int]
    slots: Mapping[int, int]
    begins: Mapping[int, str]
    """`asks`, `reads` (the first read is under way), or `late` (a read from before the recording is)."""


def loop_of(events: Sequence[Event]) -> Loop:
    """The loop that a recording shows."""
    reads: Counter[int] = Counter(event.client for event in events if event.read)
    seen: list[int] = []
    begins: dict[int, str] = {}
    open_requests: Counter[int] = Counter()
    slots: dict[int, int] = {}
    for event in events:
        client = event.client
        if client not in begins:
            returned = len(seen) != len(set(seen))
            begins[client] = "reads" if event.read else "late" if returned else "asks"
        seen.append(client)
        open_requests[client] = max(0, open_requests[client] + (-1 if event.read else 1))
        slots[client] = max(slots.get(client, 1), open_requests[client])
    return Loop({client: reads[client] for client in begins}, slots, begins)


def unloaded(events: Sequence[Event]) -> list[int]:
    """Indices of what the last client did once all others had ended, its first such request left out."""
    last = events[-1].client
    others = max((i for i, event in enumerate(events) if event.client != last), default=-1)
    alone = [i for i in range(others + 1, len(events)) if events[i].client == last]
    # What is under way when the others end, and the request after it, have met them.
    return alone[3:] if others >= 0 else alone


def goal(loop: Loop, size: int, host: Host, draw: int) -> str:
    """The loop as GOAL: rank 0 is the server, the others the clients in order of appearance."""
    server: list[str] = []
    ranks = {client: rank for rank, client in enumerate(loop.begins, 1)}
    late = [client for client, how in loop.begins.items() if how == "late"]
    left = {client: (at + (draw + 0.5) / DRAWS) / len(late) for at, client in enumerate(late)}
    texts = [_client(server, loop, client, rank, size, left.get(client), host) for client, rank in ranks.items()]
    bodies = ["\n".join(server), *texts]
    return f"num_ranks {len(bodies)}\n" + "".join(f"rank {rank} {{\n{body}\n}}\n" for rank, body in enumerate(bodies))


def _client(server: list[str], loop: Loop, client: int, rank: int, size: int, left: float | None, host: Host) -> str:
    lines: list[str] = []
    ends: list[str | None] = []
    tag = 0

    def ask(
        kind: tuple[str, str, str, str, str],
        label: str,
        after: str | None,
        of: int,
        answer: int,
        prepare: float | None = None,
    ) -> str:
        """A request of `of` bytes and its answer, for which the server first works."""
        nonlocal tag
        asks, hears, takes, works, gives = kind
        there, back, tag = tag, tag + 1, tag + 2
        lines.append(f"{asks}{label}: send {of}b to 0 tag {there}")
        if after is not None:
            lines.append(f"{asks}{label} requires {after}")
        lines.extend((f"{hears}{label}: recv {answer}b from 0 tag {back}", f"{hears}{label} requires {asks}{label}"))
        mine = f"c{rank}n{label}"
        server.append(f"{takes}{mine}: recv {of}b from {rank} tag {there} cpu {rank}")
        if prepare is not None:
            work = f"{works}{mine}"
            server.extend((f"{work}: calc {round(prepare * 1e9)} cpu {rank}", f"{work} requires {takes}{mine}"))
        ready = f"{takes if prepare is None else works}{mine}"
        server.extend(
            (f"{gives}{mine}: send {answer}b to {rank} tag {back} cpu {rank}", f"{gives}{mine} requires {ready}")
        )
        return f"{hears}{label}"

    def read(label: str, after: str | None, part: int) -> str:
        return ask(("q", "d", "f", "", "s"), label, after, FETCH, part)

    before = None if left is None else read("before", None, max(1, int(size * left)))
    for i in range(loop.reads[client]):
        slot = i - loop.slots[client]
        after = before if slot < 0 else ends[slot]
        if i == 0 and loop.begins[client] == "reads":
            ends.append(read("0", None, size))
            continue
        if after is not None:
            lines.extend((f"t{i}: calc {THINK}", f"t{i} requires {after}"))
        thought = None if after is None else f"t{i}"
        answer = ask(("u", "v", "r", "p", "a"), str(i), thought, REQUEST, ANSWER, host.prepare * size)
        ends.append(read(str(i), answer, size))
    return "\n".join(lines)


def scenario(system: Mapping[str, Any], clients: int, host: Host, fidelity: str) -> tuple[dict[str, Any], str]:
    """The scenario of `goal` on a system (`topology`, `network`), and its graph as an edge list."""
    topology, network = dict(system["topology"]), dict(system["network"])
    rate = float(topology.pop("rate_gbps"))
    ways = 2
    hop = host.latency / 2 / ways * 1e9
    edges = [
        f"host0,adapter,{FEED * rate:g} Gbps,0 ns",
        f"adapter,core,{rate:g} Gbps,{hop:.1f} ns",
        *(f"host{i},core,{rate:g} Gbps,{hop:.1f} ns" for i in range(1, clients + 1)),
    ]
    found = {
        "windtunnel": 1,
        "name": "reads",
        "fidelity": fidelity,
        "topology": {**topology, "shape": "graph", "graph": {"file": "graph.csv"}},
        "network": {**network, "pfc": {**network["pfc"], "xoff": f"{max(1, round(host.depth))} B"}},
        "jobs": [{"name": "reads", "workload": {"goal": "reads.goal"}}],
        "results": {"ideal": False, "operations": "all"},
    }
    return found, "src,dst,rate,latency\n" + "\n".join(edges) + "\n"


Key = tuple[int, bool, int]
"""Client, whether a read, and which of its kind."""


def durations(
    asked: Iterable[tuple[Loop, int, Host, Mapping[str, Any], str]], draws: int = DRAWS
) -> list[dict[Key, float]]:
    """Seconds of every answer and read, of each (loop, size, host, system, fidelity): medians over `draws`."""
    every = list(asked)
    runs = []
    for loop, size, host, system, fidelity in every:
        text, graph = scenario(system, len(loop.begins), host, fidelity)
        runs += [
            Asked(text, files={"graph.csv": graph, "reads.goal": goal(loop, size, host, draw)}) for draw in range(draws)
        ]
    results = run_all(runs)
    found: list[dict[Key, float]] = []
    for at, (loop, *_) in enumerate(every):
        spans: defaultdict[Key, list[float]] = defaultdict(list)
        for result in results[at * draws : (at + 1) * draws]:
            table = result.operations.select("rank", "label", "ready_ps", "finish_ps")
            times = {(rank, label): (ready, finish) for rank, label, ready, finish in table.iter_rows()}
            for rank, client in enumerate(loop.begins, 1):
                for i in range(loop.reads[client]):
                    for is_read, begin, end in ((True, "q", "d"), (False, "u", "v")):
                        if (rank, f"{end}{i}") in times:
                            span = times[rank, f"{end}{i}"][1] - times[rank, f"{begin}{i}"][0]
                            spans[client, is_read, i].append(span * 1e-12)
        found.append({key: float(np.median(each)) for key, each in spans.items()})
    return found
