"""Network advice: what crosses the fabric farthest under the chosen layout, packet by packet, under other settings.

The traffic is that of the layout's outermost dimension where it crosses the middle of the job, which between two
buildings is the way from one to the other: each GPU of a group sends to the one of its number in the next, and back. It
is cut down to `PAIRS` pairs and `TOTAL` bytes, so that the cost is bounded whatever the job. One knob is turned at a
time, from what the scenario says; then the best of each together, which runs like the others before it is advised.
Runs are points of a study: kept in the store, and not run again.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.explore.space import ORDERS
from windtunnel.source import override_text
from windtunnel.studies.point import Point
from windtunnel.studies.runner import Limits, run_points

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windtunnel.explore.space import Candidate
    from windtunnel.layout.job import Job
    from windtunnel.studies.point import Outcome
    from windtunnel.studies.runner import Progress
    from windtunnel.studies.store import Store

PAIRS = 64
"""Pairs of GPUs that send to each other, at most."""
TOTAL = 256 << 20
"""Bytes that all of them send, at most: 65,000 packets of 4 KiB."""
LARGEST = 8 << 20
"""Bytes of a message, at most."""
GAP = "10 us"
"""Flowlet gap where the scenario says none."""
LOSSES = (1e-4, 1e-3)
"""Shares of packets lost on every link, under which ways of mending losses are compared."""
WORTH = 0.02
"""What changes the time by less is not advised."""
EQUAL = 0.002
"""Times that differ by less are equal."""
GOAL = "advice.goal"

KNOBS: dict[str, tuple[dict[str, Any], ...]] = {
    "load balancing": tuple({"network.load_balancer": name} for name in ("ecmp", "flowlet", "spray", "adaptive")),
    "queue pairs": tuple({"network.queue_pairs": number} for number in (1, 4, 16)),
    "congestion control": tuple({"network.congestion": name} for name in ("none", "dctcp", "dcqcn", "swift")),
    "loss recovery": tuple({"network.recovery": name} for name in ("go_back_n", "selective", "erasure")),
}
"""What is tried, knob by knob; `erasure` is 8 packets of parity after 32 of data."""


@dataclass(frozen=True)
class Alternative:
    """Settings of the network, and what they came to."""

    knob: str
    values: dict[str, Any]
    loss: float = 0.0
    """Share of packets lost on every link beside what the scenario says."""
    seconds: float | None = None
    dropped: int | None = None
    retransmissions: int | None = None
    message: str | None = None
    """Why it has no time."""

    def name(self) -> str:
        """In words."""
        of = (value for key, value in self.values.items() if key != "network.flowlet_gap")
        return ", ".join(str(value) for value in of) or "as written"


@dataclass(frozen=True)
class Traffic:
    """What is simulated: `pairs` of GPUs from `first` on, `stride` apart, that send `bytes_each` to each other."""

    axis: str
    """The outermost dimension of the layout."""
    first: int
    stride: int
    pairs: int
    gpus: int
    bytes_each: int

    def goal(self) -> str:
        """As GOAL text: a rank for each GPU."""
        peers = {}
        for rank in range(self.first, self.first + self.pairs):
            peers[rank], peers[rank + self.stride] = rank + self.stride, rank
        lines = [f"num_ranks {self.gpus}"]
        for rank in range(self.gpus):
            lines.append(f"rank {rank} {{")
            if rank in peers:
                size, peer = self.bytes_each, peers[rank]
                lines += [f"s: send {size}b to {peer} tag 1", f"r: recv {size}b from {peer} tag 1"]
            lines.append("}")
        return "\n".join(lines) + "\n"

    def says(self) -> str:
        """In words."""
        part = "" if self.pairs >= self.stride else f" of {self.stride:,}"
        return (
            f"{self.pairs}{part} pairs of GPUs, {self.stride:,} apart ({self.axis} is outermost), "
            f"{self.bytes_each / 2**20:.3g} MiB each way"
        )


@dataclass(frozen=True)
class Advice:
    """What was simulated, what each alternative took, and what to choose."""

    traffic: Traffic
    rows: tuple[Alternative, ...]
    """The scenario's own settings first, then by knob, then all that is advised together."""

    @property
    def written(self) -> Alternative:
        """The scenario's own settings."""
        return self.rows[0]

    def best(self) -> Alternative | None:
        """The fastest of those without losses of their own; of those that are as good as it, what changes least."""
        timed = [row for row in self.rows if row.loss == 0.0 and row.seconds is not None]
        least = min((row.seconds or math.inf for row in timed), default=math.inf)
        good = [row for row in timed if (row.seconds or math.inf) <= (1.0 + EQUAL) * least]
        return min(good, key=lambda row: len(row.values), default=None)

    def mended(self) -> dict[float, list[Alternative]]:
        """By share of packets lost: how long each way of mending losses took, the fastest first."""
        found: dict[float, list[Alternative]] = {}
        for row in self.rows:
            if row.loss > 0.0 and row.seconds is not None:
                found.setdefault(row.loss, []).append(row)
        return {loss: sorted(rows, key=lambda row: row.seconds or math.inf) for loss, rows in found.items()}

    def sentences(self) -> list[str]:
        """What to choose, and by how much."""
        own, best = self.written, self.best()
        if own.seconds is None or best is None or best.seconds is None:
            return [f"no advice: the settings as written did not run ({own.message})"]
        gain = 1.0 - best.seconds / own.seconds
        if gain < WORTH:
            said = [f"keep the network as it is written: nothing that was tried is {WORTH:.0%} faster on this traffic"]
        else:
            chosen = ", ".join(f"`{key}: {value}`" for key, value in best.values.items())
            said = [f"choose {chosen}: this traffic takes {gain:.0%} less time than as written"]
        for loss, rows in self.mended().items():
            first, last = rows[0], rows[-1]
            if first.seconds and last.seconds and len(rows) > 1:
                said.append(
                    f"of {loss:.2%} of packets lost on every link, `{first.name()}` makes "
                    f"{first.seconds / own.seconds:.2f} times the time without losses, `{last.name()}` "
                    f"{last.seconds / own.seconds:.2f}"
                )
        return said

    def record(self) -> dict[str, Any]:
        """As `--json` has it."""
        best = self.best()
        return {
            "traffic": {
                "outermost": self.traffic.axis, "first": self.traffic.first, "stride": self.traffic.stride,
                "pairs": self.traffic.pairs, "bytes": self.traffic.bytes_each,
            },
            "alternatives": [
                {
                    "knob": row.knob, "values": row.values, "loss": row.loss, "seconds": row.seconds,
                    "dropped": row.dropped, "retransmissions": row.retransmissions, "best": row is best,
                    "message": row.message,
                }
                for row in self.rows
            ],
            "advice": self.sentences(),
        }  # fmt: skip


def traffic_of(job: Job, candidate: Candidate, host_gpus: int) -> Traffic | None:
    """The farthest traffic of a layout; None of one that stays inside a host of `host_gpus`."""
    if candidate.replicate > 1:
        axis, groups = "replicas", candidate.replicate
    else:
        axis = next((name for name in reversed(ORDERS[candidate.order]) if getattr(candidate, name) > 1), "")
        groups = int(getattr(candidate, axis)) if axis else 1
    if groups < 2 or job.gpus <= host_gpus:
        return None
    stride = job.gpus // groups
    # The group that ends in the middle of the job, and the next.
    first = (groups // 2 - 1) * stride
    if stride < host_gpus:
        # Several groups are in a host: those of all of a host's groups leave it together.
        stride = host_gpus
        first = (job.gpus // host_gpus // 2 - 1) * host_gpus
    pairs = min(stride, PAIRS)
    each = min(LARGEST, TOTAL // (2 * pairs))
    return Traffic(axis, first, stride, pairs, job.gpus, each)


def advise(
    job: Job,
    candidate: Candidate,
    host_gpus: int,
    store: Store,
    *,
    limits: Limits | None = None,
    fresh: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Advice | None:
    """Runs the alternatives for `candidate`; None where nothing of it crosses the fabric."""
    traffic = traffic_of(job, candidate, host_gpus)
    if traffic is None:
        return None
    goal = traffic.goal()

    def run(wanted: Sequence[Alternative]) -> list[Alternative]:
        points = [_point(job, each, goal) for each in wanted]
        outcomes = run_points(points, store, limits=limits or Limits(), fresh=fresh, progress=progress)
        return [_with(each, outcome) for each, outcome in zip(wanted, outcomes, strict=True)]

    own = _own(job)
    wanted = [Alternative("as written", {})]
    for knob, choices in KNOBS.items():
        wanted += [Alternative(knob, _complete(values, own)) for values in choices]
    # Go-back-N takes what overtakes for lost, so it is tried on one path too.
    mending = [*KNOBS["loss recovery"], {"network.load_balancer": "ecmp", "network.recovery": "go_back_n"}]
    wanted += [Alternative("under loss", values, loss) for loss in LOSSES for values in mending]
    rows = run(wanted)
    together = _together(rows)
    if together is not None:
        rows += run([together])
    return Advice(traffic, tuple(rows))


def _own(job: Job) -> dict[str, Any]:
    tree = json.loads(engine.scenario_tree(job.source.text, job.source.name, list(job.overrides)))
    own = tree.get("network") or {}
    return own if isinstance(own, dict) else {}


def _complete(values: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """With what the settings need beside themselves."""
    if values.get("network.load_balancer") == "flowlet" and "flowlet_gap" not in own:
        return {**values, "network.flowlet_gap": GAP}
    return values


def _together(rows: Sequence[Alternative]) -> Alternative | None:
    """The best of each knob at once, if more than one of them is worth it."""
    own = rows[0].seconds
    if own is None:
        return None
    found: dict[str, Any] = {}
    number = 0
    for knob in KNOBS:
        best = _fastest(row for row in rows if row.knob == knob)
        if best is not None and best.seconds is not None and best.seconds < (1.0 - WORTH) * own:
            found.update(best.values)
            number += 1
    return Alternative("together", found) if number > 1 else None


def _fastest(rows: Any) -> Alternative | None:  # noqa: ANN401
    timed = [row for row in rows if row.seconds is not None]
    return min(timed, key=lambda row: row.seconds, default=None)


def _point(job: Job, what: Alternative, goal: str) -> Point:
    alone = {"jobs": [{"name": "advice", "workload": {"goal": GOAL}, "placement": "packed", "iterations": 1}]}
    values: dict[str, Any] = {**alone, **what.values}
    if what.loss > 0.0:
        values["impairments.loss"] = [{"on": "all", "rate": what.loss}]
    pairs = tuple((key, override_text(value)) for key, value in values.items())
    shown = {"knob": what.knob, "settings": what.name(), "loss": what.loss}
    kept = tuple((key, value) for key, value in job.overrides if not key.startswith("jobs"))
    return Point(job.source, (*kept, *pairs), fidelity="packet", varied=shown, files=((GOAL, goal),))


def _with(what: Alternative, outcome: Outcome) -> Alternative:
    summary = outcome.summary
    if summary is None:
        return replace(what, message=outcome.message)
    network = summary.get("network") or {}
    return replace(
        what,
        seconds=(summary["jobs"][0]["iteration_time_s"] or {}).get("mean"),
        dropped=network.get("packets_dropped"),
        retransmissions=network.get("retransmissions"),
    )
