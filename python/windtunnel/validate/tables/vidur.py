"""Vidur's profiles of all-reduce and send-receive (Agrawal et al., MLSys 2024): hosts of 8 and of bridged pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.validate.collectives import Ranks, question, section
from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import lines
from windtunnel.validate.tables.nccl import LARGE, system_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System

OPERATIONS = {"all_reduce": "all_reduce", "send_recv": "send_receive"}


def read(data: Path, systems: Mapping[str, System]) -> Table | None:
    """The rows of every host that has a file."""
    folder = data / "collectives" / "vidur_network"
    if not folder.is_dir():
        return None
    table = Table("vidur-network")
    table.fitted = frozenset(row for system in systems.values() for row in system.fitted)
    for row in rows(folder, systems, table):
        table.add(row)
    return table


def rows(folder: Path, systems: Mapping[str, System], table: Table) -> Iterator[Row]:
    """The medians of every size; what is left out is counted in `table`."""
    for path in sorted(folder.glob("*.csv.gz")):
        host, _, kind = path.name.removesuffix(".csv.gz").rpartition("__")
        if kind not in OPERATIONS:
            table.exclude(f"collective `{kind}` is not modelled")
            continue
        system = system_of(host, "", systems)
        median = f"time_stats.{kind}.median"
        seen: dict[str, int] = {}
        for line in lines(path, (median, "num_workers", "size", "devices_per_node", "rank")):
            if system is None:
                table.exclude(f"no file of system `{host}`")
                continue
            if line.text("rank") not in {"0", "0.0"}:
                table.exclude("another rank of a run of which rank 0 is compared")
                continue
            if line.number_in(median) <= 0:
                table.exclude("a median of 0")
                continue
            ranks, inside, size = (line.count(key) for key in ("num_workers", "devices_per_node", "size"))
            if ranks % inside:
                table.exclude("ranks do not fill hosts")
                continue
            hosts = ranks // inside
            whole = int(system.section("topology")["host"]["gpus"])
            if inside > whole or section(system, "rows") is None:
                table.exclude("more ranks a host than it has GPUs")
                continue
            large = ">= 1 MiB" if size >= LARGE else "< 1 MiB"
            label = f"vidur-network/{host}/{kind}-{hosts}x{inside}/{size}"
            seen[label] = seen.get(label, 0) + 1
            yield Row(
                id=label if seen[label] == 1 else f"{label}/{seen[label]}",
                system=system.name,
                measured=line.number_in(median) * 1e-3,
                scenario=question(system, OPERATIONS[kind], size, Ranks(hosts, inside)),
                groups={
                    "size": large,
                    "kind": kind,
                    "scale": f"{ranks} ranks on {hosts}",
                    "system, size": f"{system.name}, {large}",
                },
            )
