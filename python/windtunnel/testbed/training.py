"""Data-parallel training over the testbed: a rank on every host, gradients all-reduced by gloo over the kernel's TCP.

The time of a step is predicted from what the program says of itself (the bytes of its buckets, and the time of a step
that exchanges nothing) and from gloo's ring, which `workload` writes down.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError, RunError
from windtunnel.testbed import kept, trainer
from windtunnel.testbed.fabric import Shape, built, congestions
from windtunnel.testbed.programs import hear, line, tell
from windtunnel.testbed.shell import demand, inside, lacks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windtunnel.testbed.fabric import Fabric

PORT = 29_500
STEPS = 4
UNSTEADY = 0.05
"""A run whose steps alone changed by more than this share of a step, from before the others to after them, says
nothing: others had the processor."""


@dataclass(frozen=True)
class Model:
    """A small transformer; its parameters are all-reduced."""

    width: int = 64
    layers: int = 3
    vocabulary: int = 512
    sequence: int = 16
    batch: int = 1


@dataclass(frozen=True)
class Trained:
    """A run: where its ranks stood, and what it measured."""

    name: str
    model: Model
    hosts: Sequence[int]
    """The host of each rank."""
    buckets: Sequence[int]
    """Bytes of gradients that are exchanged together, in the order of their exchange."""
    ways: Sequence[tuple[int, int, int]]
    """From host, to host, and the spine between them; -1 inside a leaf."""
    alone: float
    """Seconds of a step that exchanges nothing, the median over ranks and steps."""
    step: float
    """Seconds of a step, of the slowest rank."""
    unsteady: float
    """The change of `alone` from before the steps to after them, over `step`."""

    @property
    def host_bound(self) -> bool:
        """Whether this machine was in the way."""
        return self.unsteady > UNSTEADY


def models(count: int) -> list[Model]:
    """Models of 0.17 to 0.67 million parameters, in turns."""
    shapes = [(64, 2, 512), (64, 3, 512), (96, 2, 512), (64, 4, 512), (96, 3, 512), (96, 4, 1024)]
    return [Model(*shapes[i % len(shapes)]) for i in range(count)]


def placed(hosts: int, seed: int) -> list[int]:
    """The host of each rank: in order, then drawn."""
    order = list(range(hosts))
    if seed:
        random.Random(f"training/{seed}").shuffle(order)  # noqa: S311
    return order


def demand_torch(python: str) -> None:
    """Raises `InputError` unless a Python has PyTorch with gloo."""
    said = lacks(python, "import torch.distributed as d; assert d.is_available() and hasattr(d, 'ProcessGroupGloo')")
    if said is not None:
        raise InputError(
            f"`{python}` has no PyTorch with gloo: {said}\n\n"
            "hint: `pip install torch`, or name a Python that has it: `--python PATH`"
        )


def usual_python() -> str:
    """The Python that trains where none is named: that of WINDTUNNEL_TORCH_PYTHON, else this one."""
    return os.environ.get("WINDTUNNEL_TORCH_PYTHON", sys.executable)


def trained(shape: Shape, count: int, python: str) -> Iterator[Trained]:
    """Runs over a testbed that stands as long as they are asked for: of a model each, their ranks on drawn hosts.

    Raises `InputError` where there can be no testbed, or `python` cannot train; `RunError` if a rank fails.
    """
    demand()
    congestions(["cubic"])
    demand_torch(python)
    with built(shape, "cubic") as fabric:
        for seed, model in enumerate(models(count)):
            order = placed(shape.leaves * shape.hosts, seed)
            yield train(fabric, model, order, f"{model.width}x{model.layers}-{seed}", python)


def train(fabric: Fabric, model: Model, hosts: Sequence[int], name: str, python: str) -> Trained:
    """Trains over a testbed. Raises `RunError` if a rank fails."""
    world = len(hosts)
    programs = {
        rank: inside(fabric.host(host), [str(Path(trainer.__file__))], python) for rank, host in enumerate(hosts)
    }
    try:
        for rank, program in programs.items():
            plan = {
                "rank": rank, "world": world, "master": fabric.address(hosts[0]), "port": PORT, "interface": "e0",
                "from": fabric.address(hosts[(rank + 1) % world]), "steps": STEPS, **asdict(model),
            }  # fmt: skip
            tell(program, json.dumps(plan))
        hear(programs, "joined")
        for program in programs.values():
            tell(program, "go")
        told = [json.loads(line(program)) for program in programs.values()]
    finally:
        for program in programs.values():
            program.kill()
            program.communicate()
    if any(one["buckets"] != told[0]["buckets"] for one in told):
        raise RunError("the ranks of a training job have not the same buckets")
    ends = [max(one["steps"][i][1] for one in told) for i in range(STEPS)]
    step = (ends[-1] - min(one["steps"][0][0] for one in told)) / STEPS
    before = statistics.median(s for one in told for s in one["alone"][:STEPS])
    after = statistics.median(s for one in told for s in one["alone"][STEPS:])
    return Trained(
        name, model, list(hosts), told[0]["buckets"], _ways(fabric, hosts, [one["ways"] for one in told]),
        statistics.median(s for one in told for s in one["alone"]), step, abs(before - after) / step,
    )  # fmt: skip


def _ways(fabric: Fabric, hosts: Sequence[int], told: Sequence[list[list[Any]]]) -> list[tuple[int, int, int]]:
    """The spine of what each rank sends to the one before it."""
    asked = []
    for rank, host in enumerate(hosts):
        to = hosts[rank - 1]
        ports = [(own, other) for address, own, other in told[rank] if address == fabric.address(to)]
        if len(ports) != 1:
            raise RunError(f"a rank of a training job has {len(ports)} connections to the one before it, expected one")
        asked.append((host, to, *ports[0]))
    spines = fabric.spines(asked)
    return [(way[0], way[1], -1 if spine is None else spine) for way, spine in zip(asked, spines, strict=True)]


def workload(run: Trained, steps: int, alone: float) -> str:
    """Steps of a run as a workload by hand.

    A step computes for a third of `alone` forwards and for the rest backwards, in which buckets become ready one after
    the other; at most two are exchanged at once, since gloo has two threads. It sums a bucket by a ring that goes from
    each rank to the one before it, in two halves that take turns: while one is summed the other is on its way. All go
    by one connection from host to host.
    """
    lines: list[dict[str, Any]] = [
        {"windtunnel_workload": 1, "ranks": len(run.hosts)},
        {"communicator": "ring", "ranks": list(reversed(run.hosts))},
    ]
    whole = sum(run.buckets)
    ended: list[str] = []
    for number in range(steps):
        before = f"f{number}"
        lines.append({"id": before, "compute": f"{round(alone * 1e9 / 3)} ns", "after": ended})
        exchanged: list[list[str]] = []
        for b, size in enumerate(run.buckets):
            ready = f"b{number}.{b}"
            share = f"{round(alone * 1e9 * 2 / 3 * size / whole)} ns"
            lines.append({"id": ready, "compute": share, "after": [before]})
            before = ready
            waits = exchanged[b - 2] if b >= 2 else []
            halves = [f"a{number}.{b}.{half}" for half in range(2)]
            lines += [
                {
                    "id": name, "collective": "all_reduce", "communicator": "ring", "bytes": f"{-(-size // 2)} B",
                    "algorithm": "ring", "form": "steps", "dimension": "dp", "stream": 1 + 2 * (b % 2) + half,
                    "after": [ready, *waits],
                }
                for half, name in enumerate(halves)
            ]  # fmt: skip
            exchanged.append(halves)
        ended = [before, *(name for halves in exchanged[-2:] for name in halves)]
    return "".join(json.dumps(one) + "\n" for one in lines)


def read(path: Path) -> tuple[Shape, list[Trained]]:
    """Runs as `kept.written` writes them. Raises `InputError` with file and line."""
    return kept.read(
        path, lambda found: Trained(**{**found, "model": Model(**found["model"])}), "a run of training", "train"
    )
