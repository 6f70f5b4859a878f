"""DeepEP's published dispatch and combine: all-to-alls of experts by one-sided writes.

A latency is compared as it is. A bandwidth counts every byte that a token's experts are sent, those on its own host
included; the time compared is that of 4,096 tokens at it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from windtunnel.validate.collectives import Ranks, question
from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import lines
from windtunnel.validate.tables.nccl import system_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System

COLUMNS = ("mode", "hardware", "op", "ep", "latency_us", "bottleneck_GBps", "bottleneck_link", "config")
HIDDEN, EXPERTS, TOKENS = 7168, 8, 4096
HOST = 8


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
        stated = re.search(r"(\d+) tokens", line.text("config"))
        tokens = int(stated[1]) if stated else TOKENS
        # FP8 is dispatched, BF16 combined.
        size = tokens * EXPERTS * HIDDEN * (1 if op == "dispatch" else 2)
        latency = line.text("latency_us") != ""
        measured = line.number_in("latency_us") * 1e-6 if latency else size / (line.number_in("bottleneck_GBps") * 1e9)
        label = f"deepep/{line.text('mode')}/{system.name}/{op}-{line.text('ep')}"
        seen[label] = seen.get(label, 0) + 1
        table.rows.append(
            Row(
                id=label if seen[label] == 1 else f"{label}/{seen[label]}",
                system=system.name,
                measured=measured,
                scenario=question(system, "alltoall", size, Ranks(ep // HOST, HOST)),
                groups={"kind": op, "mode": line.text("mode"), "scale": f"{ep} ranks"},
            )
        )
    return table
