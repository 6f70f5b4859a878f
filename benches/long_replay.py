"""Replays of 100 million operations: every iteration of small programs of 64 ranks, at message fidelity.

`step` is what a recording of training becomes: kernels in chains, an all-reduce inside a host after each layer,
gradients over hosts behind four of them. `halo` is what one of an MPI program becomes: computation, then a message of
64 KiB to and from each of two neighbours. Nothing is skipped (`--full`): without it iterations alike are simulated four
times in all.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

RANKS, GPUS, OPERATIONS = 64, 8, 100_000_000
"""Ranks, those of a host, and the least operations of a replay."""


def step(layers: int = 48) -> list[dict[str, Any]]:
    """One program for all ranks, of 21 operations a layer: 20 kernels of 2 to 13 us and an all-reduce of 8 MiB."""
    hosts = range(RANKS // GPUS)
    lines: list[dict[str, Any]] = [
        {"windtunnel_workload": 1, "ranks": RANKS},
        {"communicator": "tp", "groups": [list(range(GPUS * host, GPUS * (host + 1))) for host in hosts]},
        {"communicator": "dp", "groups": [list(range(local, RANKS, GPUS)) for local in range(GPUS)]},
    ]

    def add(after: list[str], **what: Any) -> list[str]:  # noqa: ANN401 - any member of an operation
        name = f"o{len(lines)}"
        lines.append({"id": name, **what, **({"after": after} if after else {})})
        return [name]

    last: list[str] = []
    gradients: list[str] = []
    for layer in range(layers):
        for kernel in range(10):
            last = add(last, compute=f"{3 + kernel * 7 % 11} us", label=f"forward{kernel}", stream=0)
        last = add(last, collective="all_reduce", communicator="tp", bytes="8 MiB", stream=1)
        for kernel in range(10):
            last = add(last, compute=f"{2 + kernel * 5 % 7} us", label=f"backward{kernel}", stream=0)
        if layer % 4 == 3:
            gradients = add(last + gradients, collective="reduce_scatter", communicator="dp", bytes="64 MiB", stream=2)
    add(last + gradients, compute="10 us", label="optimizer", stream=0)
    return lines


def halo(rounds: int = 200) -> list[dict[str, Any]]:
    """A program a rank, of 5 operations a round: a computation of 5 us, two sends and two receives."""
    lines: list[dict[str, Any]] = [{"windtunnel_workload": 1, "ranks": RANKS}]
    for rank in range(RANKS):
        before: list[str] = []
        for number in range(rounds):
            own = f"c{number}"
            lines.append(
                {"rank": rank, "id": own, "compute": "5 us", "stream": 0, **({"after": before} if before else {})}
            )
            before = [own]
            for way, tag in ((1, 1), (-1, 2)):
                other = (rank + way) % RANKS
                message = {"to": other, "bytes": "64 KiB", "tag": tag}
                lines.append({"rank": rank, "id": f"s{number}{tag}", "send": message, "stream": 1, "after": [own]})
                awaited = {"from": other, "tag": 3 - tag}
                lines.append({"rank": rank, "id": f"r{number}{tag}", "receive": awaited, "stream": 2, "after": [own]})
                before += [f"s{number}{tag}", f"r{number}{tag}"]
    return lines


PROGRAMS = {"step": step, "halo": halo}


def write(folder: Path, name: str, least: int = OPERATIONS) -> tuple[Path, int]:
    """A scenario that replays a program until it has done `least` operations; where it is, and how many they are."""
    lines = PROGRAMS[name]()
    workload = folder / f"{name}.jsonl"
    workload.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    each = sum("id" in line for line in lines) * (1 if "rank" in lines[-1] else RANKS)
    iterations = -(-least // each)
    scenario = {
        "windtunnel": 1,
        "name": f"long-replay-{name}",
        "fidelity": "message",
        "topology": {
            "shape": "clos",
            "hosts": RANKS // GPUS,
            "tiers": [{"ports_down": RANKS, "rate": "400 Gbps", "length": "5 m"}],
            "host": {"gpu": "H100-SXM", "gpus": GPUS, "nics": GPUS, "nic": "ConnectX-7"},
        },
        "jobs": [{"name": name, "workload": {"file": workload.name}, "iterations": iterations}],
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(scenario, indent=2) + "\n", encoding="utf-8")
    return path, each * iterations
