"""Random mixes of jobs, from a number alone."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import windtunnel

if TYPE_CHECKING:
    from pathlib import Path

RATE = 100e9
"""Of a NIC, bits per second."""


def _workload(rng: random.Random, ranks: int, length_s: float, path: Path) -> None:
    """Computations and collectives of about `length_s` alone; some overlap, some run into the next iteration."""
    workload = windtunnel.Workload(ranks=ranks)
    everyone = workload.communicator("dp", range(ranks))
    share, parts, overlaps = rng.uniform(0.2, 0.7), rng.randint(1, 4), rng.random() < 0.3
    last: list[str] = []
    for part in range(parts):
        span = length_s * (1 - share) / parts
        computed = workload.compute("all", f"{span * 1e9:.0f} ns", after=last, id=f"compute {part}")
        kind = rng.choice(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
        size = length_s * share / parts * RATE / 8 / (2 if kind == "all_reduce" else 1)
        size = max(ranks, int(size) // ranks * ranks)
        sent = workload.collective(
            "all",
            kind,
            everyone,
            f"{size} B",
            after=[computed],
            id=f"exchange {part}",
            dimension="dp",
            **({"stream": 1} if overlaps else {}),
        )
        last = [computed] if overlaps and rng.random() < 0.7 else [sent]
    workload.write(path)


def _faults(number: int, hosts: int, until_s: float, base_s: float, path: Path) -> None:
    """One to four faults of hosts until then, with repairs of about an iteration of `base_s`, as a log.

    A log, so that every iteration (`--full`) and a part of them meet the same.
    """
    rng = random.Random(f"faults {number}")  # noqa: S311
    rows = sorted(
        (rng.uniform(0, until_s), rng.randrange(hosts), base_s * 10 ** rng.uniform(-0.5, 0.5))
        for _ in range(rng.randint(1, 4))
    )
    lines = [f"{at:.9f},host{host},{repair:.9f}\n" for at, host, repair in rows]
    path.write_text("time_s,component,repair_s\n" + "".join(lines), encoding="utf-8")


def mix(
    number: int, folder: Path, *, writing: float = 0.0, failing: bool = False
) -> tuple[dict[str, Any], dict[str, float]]:
    """A scenario, and the length of each job's iterations over that of the longest; `writing` of its jobs write.

    With `failing` some of its hosts fail. The files that it names are written into `folder`.
    """
    rng = random.Random(number)  # noqa: S311 (a draw for a simulation)
    count = rng.randint(2, 12)
    base = 10 ** rng.uniform(-2, 1)
    lengths = [base] + [max(1e-3, base * 10 ** rng.uniform(-1.5, 0)) for _ in range(count - 1)]
    order = list(range(count))
    rng.shuffle(order)
    if rng.random() < 0.5:
        order.remove(0)
        order.insert(0, 0)
    gap = base * 10 ** rng.uniform(-0.3, 1.3)
    jobs, hosts, at = [], 0, 0.0
    for index in order:
        ranks, length = rng.choice([2, 3, 4, 4, 6, 8]), lengths[index]
        span = base * rng.uniform(4, 30) if index == 0 else base * 10 ** rng.uniform(-0.5, 1.3)
        path = folder / f"job-{index}.jsonl"
        _workload(rng, ranks, length, path)
        job: dict[str, Any] = {
            "name": f"job-{index}",
            "workload": {"file": path.name},
            "iterations": max(1, min(2000, round(span / length))),
            "submit": f"{at:.9f} s",
            "placement": rng.choice(["random", "spread"]),
        }
        if rng.random() < writing:
            every = length * rng.uniform(3, 60)
            write = every * 10 ** rng.uniform(-2.5, -0.5)
            job["checkpoint"] = {"every": f"{every * 1e9:.0f} ns", "write": f"{write * 1e9:.0f} ns"}
        jobs.append(job)
        hosts += ranks
        at += rng.expovariate(1 / gap)
    leaves = math.ceil(hosts / 4)
    tiers = [
        {"ports_down": 4, "oversubscription": rng.choice([1, 2, 4]), "rate": "100 Gbps", "length": "5 m"},
        {"ports_down": max(leaves, 2), "rate": "100 Gbps", "length": "50 m"},
    ]
    cluster: dict[str, Any] = {"reaction_delay": "0 s"}
    if failing:
        _faults(number, hosts, at + 5 * base, base, folder / "faults.csv")
        cluster["faults"] = [{"log": "faults.csv"}]
    scenario = {
        "windtunnel": 1,
        "name": f"mix-{number}",
        "seed": number,
        "fidelity": "flow",
        "topology": {
            "shape": "clos",
            "hosts": leaves * 4,
            "tiers": tiers,
            "host": {"gpu": "H100-SXM", "gpus": 1, "nics": 1, "nic": "ConnectX-7"},
        },
        "network": {"exchange": "hosts"},
        "memory": "ignore",
        "results": {"operations": "none", "flows": "none"},
        "jobs": jobs,
        "cluster": cluster,
    }
    return scenario, {f"job-{index}": length / base for index, length in enumerate(lengths)}


def stream(seed: int) -> dict[str, Any]:
    """A model that trains beside forty short jobs, which come and go within its iterations."""
    long = {
        "name": "long",
        "workload": {"model": "opt-350m", "global_batch": 16, "micro_batch": 1, "sequence": 2048},
        "parallelism": {"dp": 16},
        "iterations": 20,
        "placement": "random",
    }
    short = [
        {
            "name": f"short-{number}",
            "workload": {
                "collective": {"kind": "all_gather", "algorithm": "ring", "bytes": "16 MiB", "ranks": 16},
            },
            "iterations": 20,
            "submit": f"{60 * number} ms",
            "placement": "random",
        }
        for number in range(40)
    ]
    tiers = [
        {"ports_down": 4, "oversubscription": 4, "rate": "100 Gbps", "length": "5 m"},
        {"ports_down": 8, "rate": "100 Gbps", "length": "50 m"},
    ]
    return {
        "windtunnel": 1,
        "name": "stream",
        "seed": seed,
        "fidelity": "flow",
        "topology": {
            "shape": "clos",
            "hosts": 32,
            "tiers": tiers,
            "host": {"gpu": "H100-SXM", "gpus": 1, "nics": 1, "nic": "ConnectX-7"},
        },
        "memory": "ignore",
        "results": {"operations": "none", "flows": "none"},
        "jobs": [long, *short],
        "cluster": {"reaction_delay": "0 s"},
    }
