"""Vidur's profiles of all-reduce and send-receive (Agrawal et al., MLSys 2024): hosts of 8 and of bridged pairs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from windtunnel.validate.collectives import Ranks, hardware, question, section
from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import lines
from windtunnel.validate.tables.nccl import LARGE, float_or_none, system_of

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


SAME = 0.9
"""Tables of two hosts of which this share of the times is equal are one table."""
COLUMNS = ("num_workers", "size", "devices_per_node", "rank")


def copies(folder: Path, systems: Mapping[str, System]) -> set[Path]:
    """Tables that hold another host's times: those of two equal ones that are faster than their host's own links."""
    found = set()
    for kind in OPERATIONS:
        paths = sorted(folder.glob(f"*__{kind}.csv.gz"))
        median = f"time_stats.{kind}.median"
        times: dict[Path, dict[tuple[str, ...], str]] = {
            path: {
                tuple(line.text(key) for key in COLUMNS): line.text(median) for line in lines(path, (*COLUMNS, median))
            }
            for path in paths
        }
        for path, other in itertools.permutations(paths, 2):
            common = times[path].keys() & times[other].keys()
            equal = sum(times[path][key] == times[other][key] for key in common)
            if equal > SAME * max(1, len(common)) and _too_fast(path, times[path], systems):
                found.add(path)
    return found


def _too_fast(path: Path, times: Mapping[tuple[str, ...], str], systems: Mapping[str, System]) -> bool:
    """Whether a time inside a host is shorter than its scale-up links allow."""
    system = system_of(path.name.partition("__")[0], "", systems)
    if system is None:
        return False
    rate = float(hardware(system)["scale_up"])
    return any(
        number(workers) == number(inside) and 0.0 < number(time) * 1e-3 * rate < number(size)
        for (workers, size, inside, _), time in times.items()
    )


def number(text: str) -> float:
    """A number; 0 for what is none."""
    found = float_or_none(text)
    return 0.0 if found is None else found


def rows(folder: Path, systems: Mapping[str, System], table: Table) -> Iterator[Row]:
    """The medians of every size; what is left out is counted in `table`."""
    copied = copies(folder, systems)
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
            if path in copied:
                table.exclude("a table with another host's times, faster than this host's links")
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
