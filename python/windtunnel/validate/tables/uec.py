"""The Ultra Ethernet Consortium's own regression results: completion times of its simulator on 8,192 hosts.

Each recording is two rows, its first and its last flow to end, and one run at packet fidelity. A run has the recorded
matrix, leaf-spine fabric, queues, thresholds, path numbers and start times; hashes and draws are our own.

The recordings are of July and August 2024, and what their program did then and does no more is set as a parameter
here (uet-htsim, by commit):

- Matrices name starts in microseconds, and completion times count from zero, not from a flow's own start.
- Receivers' credit (RCCC) was granted a packet at a time. On oversubscribed fabrics receivers lowered it by marks
  (`OversubscribedCC` at 1af36c4), which ports that lead to hosts did not make.
- NSCC aimed at a delay of 6 us, whatever the round trip. All else of the law is today's, and what it lacked is not put
  back: until 9cfe344, of which the recordings of 30 July know nothing, its increases were not scaled to the network.
- From 228493d (29 July) to 90e6cda (7 August) the thresholds of all queues, not of failed links alone, were a quarter
  of those stated. The recordings of 2 August and those with a failed link are of that time.
- A failed link is one spine all of whose links run at a quarter of their rate, with a quarter of their queues.

Completion times end with the last acknowledgement at the sender, ours with the last byte at the receiver: the way
back of an acknowledgement on an idle path is added.
"""

from __future__ import annotations

import gzip
import re
import tarfile
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.engine import InputError
from windtunnel.validate.quantities import quantity
from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import Line, lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from windtunnel.validate.systems import System

FILE = "uet_results.csv.gz"
INCASTS = "incast_matrices.tar.gz"
COLUMNS = (
    "kind", "transport", "hosts", "link_gbps", "oversub", "failed", "flows", "size_bytes", "paths", "matrix",
    "topology", "queue_pkts", "ecn_low_pkts", "ecn_high_pkts", "min_fct_us", "tail_fct_us", "target_us", "pass",
    "recorded",
)  # fmt: skip

PACKET, HEADER = 4150, 64
"""Bytes on the wire of a full packet, and of its header and of control packets."""
PATHS = 64
"""Path numbers where a row states none: the program's default."""
RENEWED = "2024-08-02"
"""The recording of NSCC after a change, by a program that marked at a quarter of the stated thresholds."""
QUARTER = 0.25
TARGET_US = 6.0
"""The delay that NSCC aimed at."""
KEPT = 0.75
"""Of a receiver's credit, over the oversubscription: the least that it granted."""
BLOCK = 10
"""First and last flows stand so many rows apart: every tenth row (`--quick`) is both of every tenth recording."""
ENDS = ("smallest", "largest")
"""Quantities: when the first flow of a run ends, and the last."""

CONNECTION = re.compile(r"^(\d+)->(\d+) id \d+ start (\d+) size (\d+)\s*$", re.MULTILINE)
TOPOLOGY = re.compile(r"leaf_spine_(\d+)_(\d+)g(?:_(\d+)_to_1)?\.topo")


def read(data: Path, _: Mapping[str, System]) -> Table | None:
    """The recordings under `golden/htsim/uet`."""
    folder = data / "golden" / "htsim" / "uet"
    if not (folder / FILE).is_file():
        return None
    matrices = Matrices(folder)
    table = Table("uec")
    targets: dict[str, tuple[float, bool]] = {}
    found: list[tuple[Row, Row]] = []
    names: dict[str, int] = {}
    for line in lines(folder / FILE, COLUMNS):
        name = _name(line)
        # Repetitions of a configuration on one day would be equal rows.
        names[name] = names.get(name, 0) + 1
        name += f"-{names[name]}" if names[name] > 1 else ""
        pair = _rows(line, name, matrices)
        if isinstance(pair, str):
            table.exclude(pair, 2)
            continue
        targets[pair[1].id] = (line.number_in("target_us") / 1e6, line.text("pass") == "1")
        found.append(pair)
    for first in range(0, len(found), BLOCK):
        for end in range(len(ENDS)):
            for pair in found[first : first + BLOCK]:
                table.add(pair[end])
    table.facts = _facts(targets)
    return table


class Matrices:
    """Recorded matrices as tables of flows, each read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: dict[str, str | None] = {}
        self._incasts: dict[str, str] | None = None

    def flows(self, name: str) -> str | None:
        """The flows of a matrix as CSV; None if it is not there. Raises `InputError` if it is none."""
        if name not in self._kept:
            text = self._text(name)
            self._kept[name] = None if text is None else _flows(text, self._folder / name)
        return self._kept[name]

    def _text(self, name: str) -> str | None:
        for path in (self._folder / name, self._folder / f"{name}.gz"):
            if path.is_file():
                try:
                    return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
                except (OSError, EOFError, UnicodeDecodeError) as error:
                    raise InputError(f"{path}: not a matrix: {error}") from error
        if self._incasts is None:
            self._incasts = _members(self._folder / INCASTS)
        return self._incasts.get(name)


def _members(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    found = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive.getmembers():
                file = archive.extractfile(member) if member.isfile() else None
                if file is not None:
                    found[member.name.rpartition("/")[2]] = file.read().decode()
    except (tarfile.TarError, OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not an archive of matrices: {error}") from error
    return found


def _flows(text: str, path: Path) -> str:
    stated = re.search(r"^Connections (\d+)", text, re.MULTILINE)
    rows = CONNECTION.findall(text)
    if stated is None or int(stated[1]) != len(rows):
        said = "no `Connections`" if stated is None else f"`Connections` is {stated[1]}"
        raise InputError(f"{path}: {said}, but {len(rows)} connections follow")
    # Starts are microseconds.
    return "source,destination,bytes,start_ps\n" + "".join(
        f"{source},{destination},{size},{int(start) * 1_000_000}\n" for source, destination, start, size in rows
    )


def _name(line: Line) -> str:
    matrix = line.text("matrix").removesuffix(".cm").rpartition(f"{line.text('hosts')}n_")[2]
    parts = [
        line.text("kind"), line.text("transport"), f"{line.text('link_gbps')}g", f"{line.text('oversub')}to1",
        f"fail{line.text('failed')}", f"p{line.text('paths') or PATHS}", matrix, line.text("recorded"),
    ]  # fmt: skip
    return "uec/" + "-".join(parts)


def _rows(line: Line, name: str, matrices: Matrices) -> tuple[Row, Row] | str:
    transport = line.text("transport")
    if transport not in ("nscc", "rccc"):
        return f"`{transport}` is not modelled"
    flows = matrices.flows(line.text("matrix"))
    if flows is None:
        return "its matrix is not in the folder"
    scenario = _scenario(line, transport)
    kind = f"{line.text('kind')}, {transport}"
    size = line.count("size_bytes")
    groups = {
        "kind": kind,
        "size": f"{size / 1e6:.0f} MB",
        "fabric": f"{line.text('link_gbps')} Gbps, {line.text('oversub')}:1"
        + (", a slow spine" if line.text("failed") != "0" else ""),
        "law": _law(line, transport),
    }

    def row(end: str, column: str) -> Row:
        return Row(
            id=f"{name}/{end}",
            system="uet-htsim",
            measured=line.number_in(column) / 1e6,
            scenario=scenario,
            groups={"end": end, "kind and end": f"{kind}, {end}", **groups},
            models={"flows.csv": flows},
            quantity=end,
        )

    return row(ENDS[0], "min_fct_us"), row(ENDS[1], "tail_fct_us")


def _law(line: Line, transport: str) -> str:
    if transport == "rccc":
        return "rccc"
    return "nscc, after the change" if line.text("recorded") == RENEWED else "nscc, before the change"


def _scenario(line: Line, transport: str) -> dict[str, Any]:
    shape = TOPOLOGY.fullmatch(line.text("topology"))
    if shape is None:
        raise InputError(
            f"{line.path}:{line.number}: `topology`: expected a leaf-spine such as `leaf_spine_8192_400g_4_to_1.topo`, "
            f"found `{line.text('topology')}`"
        )
    hosts, gbps, ratio = int(shape[1]), int(shape[2]), int(shape[3] or 1)
    failed = line.text("failed") != "0"
    marks_early = failed or (transport == "nscc" and line.text("recorded") == RENEWED)
    part = QUARTER if marks_early else 1.0
    rate = f"{gbps} Gbps"

    def bytes_of(column: str, part: float = 1.0) -> str:
        return f"{int(line.count(column) * PACKET * part)} B"

    network: dict[str, Any] = {
        "mtu": f"{PACKET} B",
        "header": f"{HEADER} B",
        "control": f"{HEADER} B",
        "load_balancer": "spray",
        "paths": line.count("paths") if line.text("paths") else PATHS,
        "transport": "uec" if transport == "nscc" else "rccc",
        "ecn": {
            "rate": rate,
            "kmin": bytes_of("ecn_low_pkts", part),
            "kmax": bytes_of("ecn_high_pkts", part),
            "pmax": 1.0,
            "at": "dequeue",
        },
        "trimming": {"queue": bytes_of("queue_pkts"), "rate": rate},
    }
    if transport == "rccc":
        network["ecn_on"] = ["leaf-up", "leaf-down"]
        network["parameters"] = {"grant_packets": 1, "least_rate": KEPT / ratio if ratio > 1 else 1.0}
        if ratio > 1:
            network["parameters"] |= {
                "adjust_interval": "18 us",
                "rate_increase": 0.05,
                "rate_decrease": 0.75,
                "heeds_trims": False,
            }
    else:
        # Four links there and back, of 1 us each.
        round_trip = 8.0 + 4 * (PACKET + HEADER) * 8e-3 / gbps
        network["parameters"] = {"target_delay": TARGET_US / round_trip}
    scenario: dict[str, Any] = {
        "windtunnel": 1,
        "name": "uec",
        "seed": 1,
        "fidelity": "packet",
        "topology": {
            "shape": "clos",
            "hosts": hosts,
            "tiers": [
                {"ports_down": 64, "oversubscription": ratio, "rate": rate, "length": "200 m"},
                {"ports_down": hosts // 64, "rate": rate, "length": "200 m"},
            ],
            "switch": {"latency": "0 ns"},
            "host": {"gpus": 1, "nics": 1},
        },
        "network": network,
        "jobs": [{"name": "matrix", "workload": {"flows": {"file": "flows.csv"}}, "iterations": 1}],
        "results": {"operations": "none", "ideal": False},
    }
    if failed:
        scenario["impairments"] = {"slow": [{"part": "spine0", "rate": QUARTER, "at": "0 ns"}]}
    return scenario


def ends(flows: pl.DataFrame, scenario: Mapping[str, Any]) -> dict[str, float]:
    """When the first and the last flow of a run have been acknowledged, in seconds from its start.

    `flows` is the run's table; the way back is `hops` links, each with its latency and an acknowledgement's time.
    """
    tier = scenario["topology"]["tiers"][0]
    rate = quantity(tier["rate"], "rate", "rate")
    back = quantity(tier["length"], "length", "length") * 5e-9 + HEADER / rate
    times = flows["finish_ps"].to_numpy() / 1e12 + flows["hops"].to_numpy() * back
    return {ENDS[0]: float(np.min(times)), ENDS[1]: float(np.max(times))}


def _facts(
    targets: Mapping[str, tuple[float, bool]],
) -> Callable[[Sequence[tuple[Row, float]], Sequence[tuple[Row, float]]], Mapping[str, float]]:
    def facts(rows: Sequence[tuple[Row, float]], _: Sequence[tuple[Row, float]]) -> Mapping[str, float]:
        found: dict[str, float] = {}
        for end in ENDS:
            errors = [abs(value / row.measured - 1.0) for row, value in rows if row.quantity == end]
            if errors:
                found[f"{end} completion time, median error"] = float(np.median(errors))
        sides: dict[str, list[bool]] = {}
        for row, value in rows:
            if row.id in targets:
                target, passed = targets[row.id]
                agrees = (value <= target) == passed
                for group in ("all", row.groups["law"]):
                    sides.setdefault(group, []).append(agrees)
        for group, same in sorted(sides.items()):
            found[f"same side of the target, {group}"] = sum(same) / len(same)
        return found

    return facts
