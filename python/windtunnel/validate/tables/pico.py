"""PICO's MPI collectives by algorithm (De Sensi, Pichetti et al. 2025) on Leonardo, LUMI, MareNostrum 5 and Fugaku.

Algorithms with a published definition are predicted; a library's own choice (`default`) is not one. Leonardo has its
allocation and its map of switches, Fugaku the shape of its torus; on LUMI and MareNostrum what is known of the fabric
is the number of hosts a switch has, and hosts are taken by number.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from collections import Counter, defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.engine import InputError
from windtunnel.validate.collectives import METRE, SWITCH, section
from windtunnel.validate.quantities import quantity
from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from windtunnel.validate.systems import System
    from windtunnel.validate.tables.common import Line

COLUMNS = (
    "system", "timestamp", "test_id", "nnodes", "tasks_per_node", "ranks", "collective", "mpi_lib", "gpu_awareness",
    "algorithm", "dtype", "bytes", "median_us", "notes",
)  # fmt: skip
NAMES = {
    "ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather", "REDUCE_SCATTER": "reduce_scatter", "BCAST": "broadcast",
    "REDUCE": "reduce", "GATHER": "gather", "SCATTER": "scatter", "ALLTOALL": "all_to_all",
}  # fmt: skip
ALGORITHMS = {
    ("ALLREDUCE", "ring"): "ring",
    ("ALLREDUCE", "recursive_doubling"): "recursive_doubling",
    ("ALLREDUCE", "rabenseifner"): "rabenseifner",
    ("ALLREDUCE", "bine_lat"): "bine_whole",
    ("ALLREDUCE", "bine_bdw_remap"): "bine",
    ("ALLREDUCE", "bine_bdw_static"): "bine",
    ("ALLREDUCE", "bine_block_by_block_any_even"): "bine_blocks_even",
    ("ALLGATHER", "ring"): "ring",
    ("ALLGATHER", "neighbor"): "neighbour_exchange",
    ("ALLGATHER", "recursive_doubling"): "recursive_doubling",
    ("ALLGATHER", "k_bruck"): "bruck",
    ("ALLGATHER", "brucks"): "bruck",
    ("ALLGATHER", "sparbit"): "sparbit",
    ("ALLGATHER", "bine_2_blocks"): "bine_two_blocks",
    ("ALLGATHER", "bine_2_blocks_dtype"): "bine_two_blocks",
    ("ALLGATHER", "bine_block_by_block"): "bine_blocks",
    ("ALLGATHER", "bine_block_by_block_any_even"): "bine_blocks_even",
    ("ALLGATHER", "bine_send_remap"): "bine",
    ("ALLGATHER", "bine_send_static"): "bine",
    ("ALLGATHER", "bine_permute_remap"): "bine+permute",
    ("ALLGATHER", "bine_permute_static"): "bine+permute",
    ("REDUCE_SCATTER", "ring"): "ring",
    ("REDUCE_SCATTER", "recursive_halving"): "recursive_halving",
    ("REDUCE_SCATTER", "recursive_distance_doubling"): "distance_doubling+permute",
    ("REDUCE_SCATTER", "bine_send_remap"): "bine",
    ("REDUCE_SCATTER", "bine_permute_remap"): "bine+permute",
    ("REDUCE_SCATTER", "bine_block_by_block"): "bine_blocks",
    ("REDUCE_SCATTER", "bine_block_by_block_any_even"): "bine_blocks_even",
    ("REDUCE_SCATTER", "pairwise"): "pairwise",
    ("BCAST", "binomial"): "binomial",
    ("BCAST", "scatter_allgather"): "scatter_allgather",
    ("BCAST", "scatter_allgather_ring"): "scatter_ring",
    ("BCAST", "bine_bdw_remap"): "bine_blocks",
    ("BCAST", "bine_bdw_static"): "bine_blocks",
    ("REDUCE", "binomial"): "binomial",
    ("REDUCE", "rabenseifner"): "rabenseifner",
    ("REDUCE", "bine_bdw"): "bine",
    ("REDUCE", "bine_lat"): "bine_whole",
    ("GATHER", "binomial"): "binomial",
    ("GATHER", "bine"): "bine",
    ("GATHER", "linear"): "linear",
    ("SCATTER", "binomial"): "binomial",
    ("SCATTER", "bine"): "bine",
    ("SCATTER", "linear"): "linear",
    ("ALLTOALL", "linear"): "linear",
    ("ALLTOALL", "pairwise"): "pairwise",
    ("ALLTOALL", "modified_bruck"): "bruck",
    ("ALLTOALL", "bine"): "bine",
}
"""PICO's name without its library to the definition."""
TORUS = {
    ("ALLREDUCE", "BINE-L"): "bine_whole",
    ("ALLREDUCE", "BINE-B_CONT"): "bine",
    ("ALLREDUCE", "RECDOUB-L"): "recursive_doubling",
    ("ALLREDUCE", "RECDOUB-B_CONT"): "rabenseifner",
    ("ALLREDUCE", "RING-B_CONT"): "ring",
    ("ALLGATHER", "BINE-VEC_DOUBLING_BLOCKS"): "bine_blocks",
    ("ALLGATHER", "BINE-VEC_DOUBLING_CONT_PERMUTE"): "bine+permute",
    ("ALLGATHER", "BINE-VEC_DOUBLING_CONT_SEND"): "bine",
    ("ALLGATHER", "RING-VEC_DOUBLING_CONT_PERMUTE"): "ring",
    ("REDUCE_SCATTER", "BINE-VEC_HALVING_CONT_PERMUTE"): "bine+permute",
    ("REDUCE_SCATTER", "RING-VEC_HALVING_CONT_PERMUTE"): "ring",
    ("BCAST", "BINE-BINOMIAL_TREE"): "bine",
    ("BCAST", "BINE-BINOMIAL_TREE_TMPBUF"): "bine",
    ("BCAST", "BINE-SCATTER_ALLGATHER"): "bine_blocks",
    ("REDUCE", "BINE-BINOMIAL_TREE"): "bine_whole",
    ("REDUCE", "BINE-REDUCE_SCATTER_GATHER"): "bine",
    ("GATHER", "BINE-BINOMIAL_TREE_CONT_PERMUTE-DEC"): "bine+permute",
    ("GATHER", "BINE-BINOMIAL_TREE_CONT_PERMUTE-INC"): "bine+permute",
    ("SCATTER", "BINE-BINOMIAL_TREE_CONT_PERMUTE-DEC"): "bine+permute",
    ("SCATTER", "BINE-BINOMIAL_TREE_CONT_PERMUTE-INC"): "bine+permute",
    ("ALLTOALL", "BINE-LOG"): "bine",
}
"""Names of libbine on uTofu to the definition."""
UTOFU = re.compile(r"(.+)-UTOFU-(\d+)-(\d)")
WHOLE = ("recursive_doubling", "bine_whole")
"""All-reduces that do not cut the vector."""
SHOWN_APART = ("lumi", "mare_nostrum")
TASKS = re.compile(r"^(\d+) tasks per node$")
ALONE = 0.6
"""A job with hosts on most of a machine's leaves (here those of other partitions are counted, too) had it to itself."""
NODE = re.compile(r"NODE (\d+) RACK \d+ CELL (\d+) .*SWITCH (\d+)")


def read(data: Path, systems: Mapping[str, System]) -> Table | None:
    """The rows of algorithms with a published definition."""
    if not (data / "collectives" / "pico_mpi_collectives.csv.gz").is_file():
        return None
    table = Table("pico")
    table.fitted = frozenset(row for system in systems.values() for row in system.fitted)
    for row in rows(data / "collectives", systems, table):
        table.add(row)
    return table


def rows(folder: Path, systems: Mapping[str, System], table: Table) -> Iterator[Row]:
    """Measured points that can be predicted; what is left out is counted in `table`."""
    places = Places(folder)
    seen: dict[str, int] = {}
    for line in lines(folder / "pico_mpi_collectives.csv.gz", COLUMNS):
        name, collective = line.text("system"), line.text("collective")
        system = systems.get(name)
        if system is None:
            table.exclude(f"no file of system `{name}`")
            continue
        if line.text("gpu_awareness") == "yes":
            table.exclude("buffers on GPUs, whose copies the algorithms' definitions leave open")
            continue
        if line.text("bytes") in {"", "null"}:
            table.exclude("no bytes: the columns of this run are shifted")
            continue
        if collective not in NAMES:
            table.exclude(f"collective `{collective}` is not modelled")
            continue
        if line.text("algorithm").startswith("default"):
            table.exclude("`default`: the library's own choice or variant, not defined")
            continue
        defined = definition(collective, line.text("algorithm"))
        if defined is None:
            table.exclude("algorithm without a published definition, or not modelled")
            continue
        ranks, size = places.ranks(line) if "x" not in line.text("nnodes") else line.count("ranks"), line.count("bytes")
        whole = collective in {"BCAST", "REDUCE"} or (collective == "ALLREDUCE" and defined["algorithm"] in WHOLE)
        if size < 4 * ranks and not whole:
            table.exclude("fewer elements than ranks")
            continue
        measured = line.number_in("median_us") * 1e-6
        label = "/".join(
            [
                *("pico", name, line.text("timestamp"), collective, line.text("algorithm")),
                *(f"{line.text('nnodes')}x{line.text('tasks_per_node')}", str(size)),
            ]
        )
        seen[label] = seen.get(label, 0) + 1
        fabric = places.fabric(system, line)
        if isinstance(fabric, str):
            table.exclude(fabric)
            continue
        yield Row(
            id=label if seen[label] == 1 else f"{label}/{seen[label]}",
            system=system.name,
            measured=measured,
            scenario={
                "mpi": {
                    "collective": NAMES[collective],
                    "bytes": float(size),
                    **defined,
                    "fabric": fabric,
                    "constants": constants(system),
                }
            },
            groups={
                "kind": collective.lower(),
                "algorithm": f"{NAMES[collective]} by {defined['algorithm']}",
                "size": "< 64 KiB" if size < 65536 else "< 8 MiB" if size < 8388608 else ">= 8 MiB",
                "scale": f"{ranks} ranks",
                "shown": "apart" if name in SHOWN_APART else "together",
            },
        )


def definition(collective: str, name: str) -> dict[str, Any] | None:
    """Algorithm, segment, ports and whether a permutation is needed; None for a name without a definition."""
    found: dict[str, Any] = {"segment": 0.0, "ports": 1, "permute": False, "announced": False}
    utofu = UTOFU.fullmatch(name)
    if utofu:
        base = TORUS.get((collective, utofu[1]))
        found["ports"] = int(utofu[3])
        # Trees of whole vectors alone cut them.
        if "BINOMIAL_TREE" in utofu[1] and collective in {"BCAST", "REDUCE"}:
            found["segment"] = float(utofu[2])
            # Into the caller's buffer, unknown to the sender, unless by way of one that is known.
            found["announced"] = collective == "BCAST" and not utofu[1].endswith("TMPBUF")
    else:
        plain = re.sub(r"_(ompi|over|mpich)(?=_|$)", "", name)
        cut = re.fullmatch(r"(bine_bdw_remap)_segmented_(\d+)", plain)
        if cut:
            found["segment"], plain = float(cut[2]), cut[1]
        base = ALGORITHMS.get((collective, plain))
    if base is None:
        return None
    found["permute"] = base.endswith("+permute")
    found["algorithm"] = base.removesuffix("+permute")
    return found


class Places:
    """Where the ranks of each run were."""

    def __init__(self, folder: Path) -> None:
        self._allocations: dict[tuple[str, str], dict[str, list[tuple[int, str]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        path = folder / "pico_allocations.csv.gz"
        if path.is_file():
            for line in lines(path, ("system", "timestamp", "alloc_file", "mpi_rank", "node")):
                rank = int(line.text("mpi_rank")) if line.text("mpi_rank").isdigit() else 0
                run = self._allocations[line.text("system"), line.text("timestamp")]
                run[line.text("alloc_file")].append((rank, line.text("node")))
        self._switches = switches(folder / "pico_topology" / "leonardo.txt.gz")
        self._hosts_of = Counter(leaf for leaf, _ in self._switches.values())
        self._made: dict[tuple[str, ...], dict[str, Any] | str] = {}

    def fabric(self, system: System, line: Line) -> dict[str, Any] | str:
        """What joins the ranks of a run, or why it cannot be said."""
        key = tuple(line.text(column) for column in ("system", "timestamp", "nnodes", "tasks_per_node"))
        if key not in self._made:
            self._made[key] = self._fabric(system, line)
        return self._made[key]

    def _fabric(self, system: System, line: Line) -> dict[str, Any] | str:
        shape = line.text("nnodes")
        if "x" in shape:
            sides = [int(side) for side in shape.split("x")]
            return {
                "torus": {
                    "sides": sides,
                    "straight": int(section(system, "longest_side", max(sides))),
                    "link_rate": _figure(system, "link_rate", "rate"),
                    "hop": _figure(system, "hop", "time"),
                }
            }
        count = line.count("nnodes")
        tasks = self.ranks(line) // count
        if count * tasks < 2:
            return "one rank"
        names = self._nodes(line, count, tasks)
        hosts: dict[str, int] = {}
        placed = [hosts.setdefault(name, len(hosts)) for name in names]
        under = [self._under(system, name, i) for i, name in enumerate(hosts)]
        leaves: dict[object, int] = {}
        groups: dict[object, int] = {}
        return {
            "switches": {
                "hosts": placed,
                "leaves": [leaves.setdefault(leaf, len(leaves)) for leaf, _ in under],
                "groups": [groups.setdefault(group, len(groups)) for _, group in under],
                "host_rate": _figure(system, "host_rate", "rate"),
                "rails": float(section(system, "rails", 1)),
                "leaf_rate": _figure(system, "leaf_rate", "rate"),
                "group_rate": _figure(system, "group_rate", "rate"),
                "memory_rate": _figure(system, "memory_rate", "rate"),
                "latencies": [0.0, SWITCH + 10 * METRE, 3 * SWITCH + 40 * METRE, 5 * SWITCH + 100 * METRE],
                "exposed": float(self._exposed(leaves, hosts)),
                "wide": self._wide(leaves),
            }
        }

    def ranks(self, line: Line) -> int:
        """Ranks of a run: those of its allocation where its note says so many a host, else its column's."""
        stated = TASKS.search(line.text("notes"))
        if stated:
            ranks = line.count("nnodes") * int(stated[1])
            files = self._allocations.get((line.text("system"), line.text("timestamp")), {})
            if any(len(entries) == ranks for entries in files.values()):
                return ranks
        return line.count("ranks")

    def _exposed(self, leaves: Mapping[object, int], hosts: Mapping[str, int]) -> int:
        """Leaves of which hosts belong to others.

        None where a job has hosts on most leaves of the machine: it then had the machine to itself.
        """
        if not self._hosts_of or not any(leaf in self._hosts_of for leaf in leaves) or self._wide(leaves):
            return 0
        mine: Counter[object] = Counter()
        for name in hosts:
            number = re.search(r"(\d+)", name)
            under = self._switches.get(int(number[1])) if number else None
            if under is not None:
                mine[under[0]] += 1
        return sum(self._hosts_of[leaf] > mine[leaf] for leaf in mine)

    def _wide(self, leaves: Mapping[object, int]) -> bool:
        """Whether a job has hosts on most leaves of a machine whose leaves are known."""
        known = sum(leaf in self._hosts_of for leaf in leaves)
        return known > 0 and known >= ALONE * len(self._hosts_of)

    def _nodes(self, line: Line, count: int, tasks: int) -> list[str]:
        files = self._allocations.get((line.text("system"), line.text("timestamp")), {})
        lists = [[node for _, node in sorted(entries, key=lambda entry: entry[0])] for entries in files.values()]
        for nodes in lists:
            if len(nodes) == count * tasks and len(set(nodes)) == count:
                return nodes
        for nodes in lists:
            distinct = list(dict.fromkeys(nodes))
            if len(distinct) >= count:
                return [node for node in distinct[:count] for _ in range(tasks)]
        return [str(i) for i in range(count) for _ in range(tasks)]

    def _under(self, system: System, name: str, at: int) -> tuple[object, object]:
        number = re.search(r"(\d+)(?!.*\d)", name.split(".", maxsplit=1)[0])
        if number and system.name == "leonardo" and int(number[1]) in self._switches:
            return self._switches[int(number[1])]
        index = int(number[1]) if number and len(name) > 4 else at
        leaf, group = int(section(system, "hosts_of_a_leaf", 16)), int(section(system, "hosts_of_a_group", 128))
        prefix = name[: number.start(1)] if number and len(name) > 4 else ""
        return (prefix, index // leaf), (prefix, index // group)


@lru_cache(maxsize=4)
def switches(path: Path) -> dict[int, tuple[object, object]]:
    """Leonardo's leaf and cell by node number. Raises `InputError` with file and line."""
    found: dict[int, tuple[object, object]] = {}
    if not path.is_file():
        return found
    try:
        text = gzip.decompress(path.read_bytes()).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a map of switches: {error}") from error
    for number, row in enumerate(text.splitlines(), 1):
        if not row.strip():
            continue
        match = NODE.match(row)
        if match is None:
            raise InputError(f"{path}:{number}: expected `NODE n RACK r CELL c … SWITCH s`, found `{row[:60]}`")
        found[int(match[1])] = (match[3], match[2])
    return found


def _figure(system: System, key: str, kind: str) -> float:
    value = section(system, key)
    if value is None:
        raise InputError(f"{system.path}: `collectives.{key}` is missing")
    return quantity(value, kind, f"{system.path}: collectives.{key}")


KINDS = {
    "latency": "time", "forward": "time", "disturbance": "time", "message": "time", "segment": "time", "plan": "time",
    "block": "time", "rendezvous": "time", "post": "time", "split": "time", "register": "time",
    "inside": "rate", "reduction": "rate", "reduction_memory": "rate", "copy": "rate", "fresh": "rate",
    "eager": "size", "cache": "size",
}  # fmt: skip
"""Units of the constants; the others are shares."""


def constants(system: System) -> dict[str, float]:
    """The constants as the engine takes them."""
    found: dict[str, float] = {}
    stated = {key: section(system, key) for key in ("eager", "cache")}
    for name, value in {**stated, **(system.constant("mpi") or {})}.items():
        if value is not None:
            kind = KINDS.get(name)
            found[name] = quantity(value, kind, f"{system.path}: constants.mpi.{name}") if kind else float(value)
    return found


class Asked:
    """Questions made ready, to be answered under many constants."""

    def __init__(self, asked: Iterable[Mapping[str, Any]]) -> None:
        # Fabrics are shared by the rows of a run and told apart by identity first: they are long.
        by_object: dict[int, int] = {}
        fabrics: list[Mapping[str, Any]] = []
        questions = []
        for one in asked:
            at = by_object.setdefault(id(one["fabric"]), len(fabrics))
            if at == len(fabrics):
                fabrics.append(one["fabric"])
            kept = {
                key: one[key]
                for key in ("collective", "algorithm", "bytes", "segment", "ports", "permute", "announced")
            }
            questions.append({"fabric": at, **kept})
        self._text = f'"fabrics": {json.dumps(fabrics)}, "questions": {json.dumps(questions)}'

    def times(self, variants: Sequence[Mapping[str, Any]]) -> list[list[float]]:
        """Seconds by variant and question."""
        answer = engine.mpi_times(f'{{{self._text}, "constants": {json.dumps(list(variants))}}}')
        seconds: list[list[float]] = json.loads(answer)["times"]
        return seconds


def times(asked: Sequence[Mapping[str, Any]]) -> list[float]:
    """Seconds of questions under their own constants."""
    groups: dict[str, list[int]] = {}
    for i, one in enumerate(asked):
        groups.setdefault(json.dumps(one["constants"], sort_keys=True), []).append(i)
    found = [math.nan] * len(asked)
    for key, members in groups.items():
        (seconds,) = Asked(asked[i] for i in members).times([json.loads(key)])
        for i, value in zip(members, seconds, strict=True):
            found[i] = value
    return found
