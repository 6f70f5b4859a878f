"""DeepEP's published dispatch and combine of 4,096 tokens with 8 of 256 experts, on at most 4 hosts.

A bandwidth between hosts counts a token once for each host that it reaches, its own among them, and one inside a host
once for each GPU (`test_internode.py`, `test_intranode.py` of the repository); the time compared is that of so many
bytes at it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from windtunnel.validate.collectives import Ranks, dispatched
from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import lines
from windtunnel.validate.tables.nccl import system_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System

COLUMNS = ("mode", "hardware", "op", "ep", "latency_us", "bottleneck_GBps", "bottleneck_link", "config")
HIDDEN, EXPERTS, TOP_K, TOKENS = 7168, 256, 8, 4096
HOST, MOST_HOSTS = 8, 4
SMS = 24
"""What the repository's tests take."""


def read(data: Path, systems: Mapping[str, System]) -> Table | None:
    """All rows whose hardware has a file."""
    path = data / "collectives" / "deepep_dispatch_combine.csv"
    if not path.is_file():
        return None
    table = Table("deepep")
    seen: dict[str, int] = {}
    for line in lines(path, COLUMNS):
        hardware, op = line.text("hardware"), line.text("op")
        system = system_of(hardware, line.text("mode"), systems)
        if system is None:
            table.exclude(f"no file of system `{hardware}`")
            continue
        if op not in {"dispatch", "combine"}:
            table.exclude(f"operation `{op}` is not modelled")
            continue
        ep = 1
        for factor in line.text("ep").split("x"):
            ep *= int(factor) if factor.isdigit() else line.count("ep")
        if ep % HOST:
            table.exclude("ranks do not fill hosts of 8")
            continue
        if "v2" in line.text("mode"):
            table.exclude("the second version's kernels are not modelled")
            continue
        if line.text("latency_us"):
            table.exclude("low-latency kernels are not modelled: inference calls them")
            continue
        hosts = ep // HOST
        # FP8 is dispatched, BF16 combined.
        token = TOKENS * HIDDEN * (1 if op == "dispatch" else 2)
        counted = _reached(min(hosts, MOST_HOSTS), 1) if hosts > 1 else _reached(1, HOST)
        measured = token * counted / (line.number_in("bottleneck_GBps") * 1e9)
        routing = {
            "experts": EXPERTS,
            "top_k": TOP_K,
            "domains": MOST_HOSTS,
            "sms": SMS,
            "combine": op == "combine",
        }
        label = f"deepep/{line.text('mode')}/{system.name}/{op}-{line.text('ep')}"
        seen[label] = seen.get(label, 0) + 1
        table.rows.append(
            Row(
                id=label if seen[label] == 1 else f"{label}/{seen[label]}",
                system=system.name,
                measured=measured,
                scenario=dispatched(system, token * TOP_K, Ranks(hosts, HOST), routing),
                groups={"kind": op, "mode": line.text("mode"), "scale": f"{ep} ranks"},
            )
        )
    return table


def _reached(hosts: int, gpus: int) -> float:
    """How many of equal parts of the experts (hosts, or their GPUs) a token has an expert on."""
    parts = hosts * gpus
    experts = EXPERTS * hosts // MOST_HOSTS if hosts > 1 else EXPERTS
    missed = math.prod((experts - experts / parts - i) / (experts - i) for i in range(TOP_K))
    return parts * (1 - missed)
