"""The testbed's MPI collectives predicted: each at packet fidelity with its kernel's TCP, and at flow fidelity.

Collectives that this project has are asked for by name; the messages of the others, and of those that ask before they
go, are written down one by one. At packet fidelity all are simulated with the paths that their connections took; at
flow fidelity their messages share the links of these paths max-min fairly, each after those that its sender waits for.
One constant is fitted for each fidelity: what a message costs the processor at each end. It is fitted on half of the
kinds of collectives, and the other kinds are predicted with it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.engine import RunError
from windtunnel.experiments.runs import Asked, run_all
from windtunnel.flows import simulate_flows
from windtunnel.testbed.compare import HEADER, scenario
from windtunnel.testbed.fabric import BURST, MTU
from windtunnel.testbed.mpi import COUNTED, WARM
from windtunnel.testbed.schedules import SETS, Step, asks, schedule, steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windtunnel.testbed.fabric import Shape
    from windtunnel.testbed.mpi import Launched, Measured, Operation
    from windtunnel.testbed.schedules import Round

HALVES = (("all_gather", "all_to_all", "barrier"), ("all_reduce", "reduce_scatter", "broadcast"))
"""Kinds that are fitted on together; those of the other half are predicted, and iterations by the first half."""
OVERHEADS = tuple(25e-6 * k for k in (2, 3, 4, 5, 6, 8))
"""Seconds of which the one that suits best is taken."""
WIRE = 1_250_000_000
"""Bytes a second at which veth pairs take no time."""
BESIDE = 9
"""A stream on which nothing else is."""
AFTER_MESSAGES = 1 << 62
"""Beyond the number of any message: where a step stands that waits for none, among those of one instant."""


def operations(run: Launched, one: Measured) -> list[tuple[Operation, list[list[Round]]]]:
    """Operations of a program with their rounds, none for `compute`."""
    found = []
    for op in one.operations:
        rounds: list[list[Round]] = []
        if op.kind != "compute":
            name = SETS[run.algorithms][op.kind].name
            rounds = schedule(op.kind, name, len(run.hosts), op.amount)
        found.append((op, rounds))
    return found


def _steps(run: Launched, one: Measured, name: str, last: list[list[str]], *, ours: bool) -> list[list[Step]]:
    """A program as steps of each rank; with `ours`, collectives that this project has are a step each."""
    found: list[list[Step]] = [[] for _ in run.hosts]
    for number, (op, rounds) in enumerate(operations(run, one)):
        if rounds and not (ours and SETS[run.algorithms][op.kind].ours is not None and not asks(rounds)):
            more = steps(rounds, f"{name}.{number}", 3 * number, last)
            found = [own + added for own, added in zip(found, more, strict=True)]
            continue
        for own, before in zip(found, last, strict=True):
            kind = "collective" if rounds else "compute"
            own.append(Step(f"{name}.{number}", kind, list(before), amount=op.amount, tag=number))
            before[:] = [f"{name}.{number}"]
    return found


def _begun(run: Launched, one: Measured, name: str, last: list[list[str]], *, ours: bool) -> list[list[Step]]:
    """The same behind the moment by which each rank begins late."""
    waits = [
        Step(f"{name}.late", "compute", list(last[rank]), amount=round(1e6 * s)) for rank, s in enumerate(one.late)
    ]
    for before in last:
        before[:] = [f"{name}.late"]
    return [[wait, *own] for wait, own in zip(waits, _steps(run, one, name, last, ours=ours), strict=True)]


def workload(run: Launched, one: Measured, repetitions: int, overhead: float = 0.0) -> str:
    """Repetitions of a program as a workload by hand; each begins at its instant on all ranks."""
    lines: list[dict[str, Any]] = [
        {"windtunnel_workload": 1, "ranks": len(run.hosts)},
        {"communicator": "mpi", "ranks": list(run.hosts)},
    ]
    last: list[list[str]] = [[] for _ in run.hosts]
    for again in range(repetitions):
        clock = f"t{again}"
        lines.append(
            {"id": clock, "compute": _period(one), "stream": BESIDE, "after": [f"t{again - 1}"] if again else []}
        )
        for before in last:
            before.append(clock)
        for rank, own in enumerate(_begun(run, one, f"o{again}", last, ours=True)):
            for step in own:
                lines.append({"id": step.name, "rank": run.hosts[rank], "label": f"{again}", "after": step.after})
                lines[-1] |= _line(run, one, step, overhead)
    return "".join(json.dumps(line) + "\n" for line in lines)


def _line(run: Launched, one: Measured, step: Step, overhead: float) -> dict[str, Any]:
    """What a step does, as a workload has it."""
    if step.kind == "pause":
        # As long as it takes to hear a question.
        return {"compute": f"{round(overhead * 1e9) + 1000} ns", "stream": BESIDE - 1}
    if step.kind == "compute":
        return {"compute": f"{step.amount} us"}
    if step.kind == "collective":
        kind = one.operations[step.tag].kind
        ours = SETS[run.algorithms][kind].ours or {}
        return {"collective": kind, "communicator": "mpi", "bytes": f"{step.amount} B", **ours}
    if step.kind == "send":
        return {"send": {"to": run.hosts[step.peer], "bytes": f"{step.amount} B", "tag": step.tag}}
    return {"receive": {"from": run.hosts[step.peer], "tag": step.tag}}


def _period(one: Measured) -> str:
    """Of the repetitions: twice what they take, and a pause."""
    return f"{round((2 * one.median + 0.1) * 1e6)} us"


def by_packets(shape: Shape, runs: Sequence[Launched], overhead: float = 0.0) -> list[list[float]]:
    """Seconds of each program of each launch: the median of as many repetitions as were measured."""
    asked = []
    for run in runs:
        ways = [(source, to, None if spine < 0 else spine) for source, to, spine in run.ways]
        for one in run.measured:
            plain = scenario(shape, {"file": "programs.jsonl"}, ways, run.congestion)
            asking = any(asks(rounds) for _, rounds in operations(run, one))
            text = _buckets(shape, _rate(shape, one), plain, asking=asking)
            text["network"]["connections"] = "pair"
            text["topology"]["host"]["overhead"] = f"{round(overhead * 1e9)} ns"
            asked.append(Asked(text, files={"programs.jsonl": workload(run, one, WARM + COUNTED, overhead)}))
    results: Iterator[Any] = iter(run_all(asked))
    return [[_seconds(next(results).operations, one) for one in run.measured] for run in runs]


def _rate(shape: Shape, one: Measured) -> int:
    """Bit/s of a link for data: acknowledgements of what goes the other way, one for two packets, take their part.

    A broadcast has nothing that goes the other way. At packet fidelity acknowledgements do not wait in the buckets,
    since in the testbed they go first; their bytes are taken off here.
    """
    if all(op.kind in {"broadcast", "compute"} for op in one.operations):
        return shape.rate
    return round(shape.rate * MTU / (MTU + HEADER / 2))


def _buckets(shape: Shape, rate: int, found: dict[str, Any], *, asking: bool) -> dict[str, Any]:
    """A scenario with the testbed's links as they are: fast, and a token bucket before each.

    A bucket lets two packets through at once after a pause, which a cable of its rate would not: that is half of the
    time of a small collective. A host's own bucket is a switch of one host (`leaf`), and the leaf above it an `agg`.
    Where messages ask before they go (`asking`) a host has a cable of its rate instead, whose connections take turns:
    an answer waits behind few packets of others, since Linux keeps little of a connection in a port's queue.
    """
    host: dict[str, Any] = {"rate": _bps(WIRE)}
    if asking:
        host = {"rate": f"{shape.rate} bps", "oversubscription": shape.rate / (8 * WIRE)}
    found["topology"]["tiers"] = [
        {"ports_down": 1, "length": "1 m", **host},
        {
            "ports_down": shape.hosts,
            "oversubscription": shape.hosts / shape.spines,
            "rate": _bps(WIRE),
            "length": "1 m",
        },
        {"ports_down": shape.leaves, "rate": _bps(WIRE), "length": "1 m"},
    ]
    for route in found["network"]["routes"]:
        source, to = (int(route[key].removeprefix("host").partition("/")[0]) for key in ("from", "to"))
        leaves = (f"agg{host // shape.hosts}.0" for host in (source, to))
        route["via"] = [f"leaf{source}", next(leaves), route["via"][1], next(leaves), f"leaf{to}"]
    found["network"]["queues"] = [
        {"name": "bucket", "rate": f"{rate} bps", "burst": f"{_burst(shape)} B", "lossless": False}
    ]
    # A host keeps back what its own port does not take, in its sockets: nothing is lost there.
    found["network"]["buffers"] = [
        {"size": "1 GB", "alpha": 1},
        *(
            {"size": f"{ports * shape.queue + 100} B", "alpha": 0.001, "reserve": f"{shape.queue} B"}
            for ports in (shape.hosts + shape.spines, shape.leaves)
        ),
    ]
    return found


def _bps(rate: int) -> str:
    return f"{8 * rate} bps"


def _seconds(table: Any, one: Measured) -> float:  # noqa: ANN401 - a frame of polars
    """The median of the repetitions that count."""
    period = float(_period(one).split()[0]) * 1e-6
    found = []
    labels, ends = table["label"].to_list(), table["finish_ps"].to_list()
    for again in range(WARM, WARM + COUNTED):
        last = max(end for label, end in zip(labels, ends, strict=True) if label == str(again))
        found.append(last * 1e-12 - period * (again + 1))
    return float(np.median(found))


def by_flows(shape: Shape, runs: Sequence[Launched], overhead: float = 0.0) -> list[list[float]]:
    """The same at flow fidelity, of one repetition: all are alike."""
    return [[_Fluid(shape, run, one, overhead).seconds() for one in run.measured] for run in runs]


class _Fluid:
    """A program whose messages are fluids over their links, each after what its sender waits for.

    What is known to have begun is simulated (`simulate_flows`); the earliest end among them is final, since whatever
    begins later changes nothing before it. Messages of one connection follow one another. A host's bucket lets what it
    holds through at once.
    """

    def __init__(self, shape: Shape, run: Launched, one: Measured, overhead: float) -> None:
        self.shape, self.hosts, self.overhead = shape, run.hosts, overhead
        self.rate = float(_rate(shape, one))
        ports = [f"h{host} {way}" for host in range(shape.leaves * shape.hosts) for way in ("up", "down")]
        for leaf in range(shape.leaves):
            for spine in range(shape.spines):
                ports += [f"l{leaf} s{spine}", f"s{spine} l{leaf}"]
        self.links = dict.fromkeys(ports, (self.rate, 0.0))
        self.spines = {(source, to): spine for source, to, spine in run.ways}
        last: list[list[str]] = [[] for _ in run.hosts]
        self.steps = _begun(run, one, "o", last, ours=False)
        self.over: list[dict[str, float]] = [{} for _ in run.hosts]
        """When a rank's steps were over."""
        self.busy = [0.0] * len(run.hosts)
        """Until when a rank's processor sends and receives."""
        self.flows: list[dict[str, Any]] = []
        self.whose: list[tuple[int, int, Step]] = []
        """From whom, to whom, and the step that sends, of each flow."""
        self.ends: dict[int, float] = {}
        """Of flows, as far as they are final."""
        self.queues: dict[tuple[int, int], list[tuple[float, Step]]] = {}
        """What a connection has not begun."""
        self.latest: dict[tuple[int, int], int] = {}
        """The last flow that a connection has begun."""
        self.first: dict[int, tuple[float, int, int, int] | None] = {}
        """A rank's step that can be done first, of ranks to which nothing has happened since it was looked for."""
        self.arrived: dict[tuple[int, int, int], list[tuple[float, int]]] = {}
        """Messages that nobody has received yet: when they came, and their flow."""
        self.bucket = {host: (0.0, float(_burst(shape))) for host in run.hosts}

    def seconds(self) -> float:
        """When the last step is over. Raises `RunError` if steps wait for each other."""
        ends: np.ndarray = np.zeros(0)
        while True:
            self._begin()
            if len(ends) != len(self.flows):
                ends = simulate_flows(self.links, self.flows)
            flow = min((i for i in range(len(self.flows)) if i not in self.ends), key=lambda i: ends[i], default=None)
            step = min((one for rank in range(len(self.steps)) if (one := self._first(rank)) is not None), default=None)
            if step is not None and (flow is None or step[0] <= ends[flow]):
                ready, _, rank, at = step
                self._do(rank, self.steps[rank].pop(at), ready)
            elif flow is not None:
                self._end(flow, float(ends[flow]))
            else:
                break
        if any(self.steps):
            raise RunError(f"{sum(len(own) for own in self.steps)} steps wait for each other")
        return max(max(times.values()) for times in self.over)

    def _first(self, rank: int) -> tuple[float, int, int, int] | None:
        """When a rank's first step can be done, which of one instant comes first, the rank, and the step's place."""
        if rank not in self.first:
            due = ((self._due(rank, one), at) for at, one in enumerate(self.steps[rank]))
            self.first[rank] = min(((*when, rank, at) for when, at in due if when is not None), default=None)
        return self.first[rank]

    def _end(self, flow: int, when: float) -> None:
        """A message has come."""
        self.ends[flow] = when
        source, to, step = self.whose[flow]
        self.first.pop(source, None)
        self.first.pop(to, None)
        self.arrived.setdefault((source, to, step.tag), []).append((when, flow))
        if step.waits:
            self.over[source][step.name] = when

    def _due(self, rank: int, step: Step) -> tuple[float, int] | None:
        """When a step can be done and which of one instant comes first: messages as they arrived, then all else."""
        over = self.over[rank]
        if not all(name in over for name in step.after):
            return None
        ready = max((over[name] for name in step.after), default=0.0)
        if step.kind != "receive":
            return ready, AFTER_MESSAGES
        waiting = self.arrived.get((step.peer, rank, step.tag))
        return (max(ready, waiting[0][0]), waiting[0][1]) if waiting else None

    def _do(self, rank: int, step: Step, ready: float) -> None:
        over = self.over[rank]
        self.first.pop(rank, None)
        if step.kind == "pause":
            over[step.name] = ready + self.overhead + 1e-6
        elif step.kind == "compute":
            over[step.name] = ready + step.amount * 1e-6
        else:
            self.busy[rank] = max(ready, self.busy[rank]) + self.overhead
            if step.kind == "receive":
                self.arrived[step.peer, rank, step.tag].pop(0)
            else:
                self.queues.setdefault((rank, step.peer), []).append((self.busy[rank], step))
            if not step.waits:
                over[step.name] = self.busy[rank]

    def _begin(self) -> None:
        """Begins what is first of its connection."""
        for (source, to), queue in self.queues.items():
            latest = self.latest.get((source, to))
            if not queue or (latest is not None and latest not in self.ends):
                continue
            ready, step = queue.pop(0)
            begun = ready if latest is None else max(ready, self.ends[latest])
            self.latest[source, to] = len(self.flows)
            self.flows.append(self._flow(source, to, step.amount, begun))
            self.whose.append((source, to, step))

    def _flow(self, source: int, to: int, size: int, begun: float) -> dict[str, Any]:
        shape, start, end = self.shape, self.hosts[source], self.hosts[to]
        spine = self.spines[start, end]
        path = [f"h{start} up", f"h{end} down"]
        if spine >= 0:
            path[1:1] = [f"l{start // shape.hosts} s{spine}", f"s{spine} l{end // shape.hosts}"]
        wire = size + HEADER * -(-size // (MTU - HEADER))
        since, held = self.bucket[start]
        held = min(float(_burst(shape)), held + (begun - since) * self.rate / 8)
        free = min(held, float(wire))
        self.bucket[start] = (begun, held - wire)
        return {"path": path, "bytes": int(max(0.0, wire - max(0.0, free))), "start": begun}


def _burst(shape: Shape) -> int:
    """Bytes that a port's bucket holds."""
    return max(BURST, shape.rate // 8 // 4000)


@dataclass(frozen=True)
class Predicted:
    """A program of a launch: seconds as measured, and by fidelity as predicted where it was not host-bound."""

    launch: str
    program: str
    kind: str
    algorithm: str
    bytes: int
    measured: float
    host_bound: bool
    packet: float | None = None
    flow: float | None = None

    def error(self, fidelity: str) -> float | None:
        """Of a prediction, with its sign."""
        found: float | None = getattr(self, fidelity)
        return None if found is None else found / self.measured - 1


def predicted(shape: Shape, runs: Sequence[Launched]) -> tuple[dict[str, list[float]], list[Predicted]]:
    """By fidelity the constants of the two halves, and each program predicted by that of kinds other than its own."""
    rows = [_row(run, one) for run in runs for one in run.measured]
    measured = np.array([row.measured for row in rows])
    sound = np.array([not row.host_bound for row in rows], dtype=bool)
    halves = np.array([_half(row.kind) for row in rows])
    constants: dict[str, list[float]] = {}
    for fidelity, by in (("packet", by_packets), ("flow", by_flows)):
        tried = np.array([[s for one in by(shape, runs, o) for s in one] for o in OVERHEADS])
        errors = np.abs(tried / measured - 1)
        best = []
        for half in range(2):
            learnt = sound & (halves == half)
            if not learnt.any():
                return {}, rows
            best.append(int(np.argmin(errors[:, learnt].mean(axis=1))))
        constants[fidelity] = [OVERHEADS[at] for at in best]
        # By the constant of the other half.
        rows = [
            _with(row, fidelity, float(tried[best[int(half == 0)], i])) if sound[i] else row
            for i, (row, half) in enumerate(zip(rows, halves, strict=True))
        ]
    return constants, rows


def _with(row: Predicted, fidelity: str, seconds: float) -> Predicted:
    return replace(row, packet=seconds) if fidelity == "packet" else replace(row, flow=seconds)


def _row(run: Launched, one: Measured) -> Predicted:
    kind = one.operations[0].kind if len(one.operations) == 1 else "iteration"
    algorithm = run.algorithms if kind == "iteration" else SETS[run.algorithms][kind].name
    size = sum(op.amount for op in one.operations if op.kind != "compute")
    return Predicted(run.name, one.name, kind, algorithm, size, one.median, run.host_bound(one))


def _half(kind: str) -> int:
    """In which half a kind is; iterations are in none."""
    return next((at for at, half in enumerate(HALVES) if kind in half), -1)


def record(shape: Shape, runs: Sequence[Launched]) -> dict[str, Any]:
    """As `--json` has it: by fidelity constants and errors, all together, by kind and by size; each program."""
    constants, rows = predicted(shape, runs)
    fidelities = {}
    for fidelity in constants:
        known = [(row, abs(row.error(fidelity) or 0.0)) for row in rows if not row.host_bound]
        single = [(row, error) for row, error in known if row.kind != "iteration"]

        def medians(name: str, of: list[tuple[Predicted, float]]) -> dict[Any, float]:
            every = sorted({getattr(row, name) for row, _ in of})
            return {one: float(np.median([e for row, e in of if getattr(row, name) == one])) for one in every}

        errors = [error for _, error in single]
        fidelities[fidelity] = {
            "overheads": constants[fidelity],
            "median_abs_error": float(np.median(errors)) if errors else None,
            "p95_abs_error": float(np.percentile(errors, 95)) if errors else None,
            "by_kind": medians("kind", known),
            "by_bytes": {str(size): error for size, error in medians("bytes", single).items()},
        }
    return {
        "launches": len(runs),
        "host_bound": [f"{row.launch} {row.program}" for row in rows if row.host_bound],
        "fidelities": fidelities,
        "programs": [
            {**row.__dict__, "errors": {fidelity: row.error(fidelity) for fidelity in constants}} for row in rows
        ],
    }
