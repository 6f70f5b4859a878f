"""A workload's answers: from the account of its import, and from one replay on a fabric."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from windtunnel import engine
from windtunnel.api import run
from windtunnel.engine import InputError
from windtunnel.recording.opened import as_workload
from windtunnel.source import read_text

if TYPE_CHECKING:
    from pathlib import Path

MATRIX_RANKS = 1024
"""Up to so many ranks bytes within and between hosts are counted: the matrix has their square."""


@dataclass(frozen=True)
class Explanation:
    """What is asked of a recording. Times in seconds, of an iteration of the whole workload."""

    workload: str
    ranks: int
    hosts: int
    gpus_per_host: int
    fidelity: str
    recorded_s: float | None
    """The longest sum of recorded steps of a rank, or the longest recorded program."""
    replayed_s: float
    compute_s: float
    exposed_s: dict[str, float]
    """Exposed communication by what the group is for."""
    bubble_s: float
    straggler_s: float
    host_s: float
    ideal_fabric_s: float | None
    """The same on a fabric where NICs alone are shared."""
    no_stragglers_s: float
    """Without the time in which the last rank was waited for: at best, as ranks then meet earlier elsewhere too."""
    bytes_within_hosts: int | None
    bytes_between_hosts: int | None
    collectives: list[dict[str, Any]]
    arrivals: list[dict[str, Any]]
    """By group and rank: collectives, how often it came last, how long it held up the others, how long it waited."""
    coverage: dict[str, Any] | None
    notes: list[str]

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def fabric(ranks: int, gpus: int, rate: str) -> dict[str, Any]:
    """Hosts of so many GPUs with a NIC each, below one switch."""
    hosts = max(2, -(-ranks // gpus))
    return {
        "shape": "clos",
        "hosts": hosts,
        "tiers": [{"ports_down": hosts * gpus, "rate": rate, "length": "5 m"}],
        "host": {"gpu": "H100-SXM", "gpus": gpus, "nics": gpus, "nic": "ConnectX-7"},
    }


def _scenario(on: Path) -> dict[str, Any]:
    """A scenario's own topology and network, without its jobs."""
    try:
        tree = YAML(typ="safe").load(read_text(on))
    except YAMLError as error:
        raise InputError(f"{on}: expected a scenario, found: {error}") from error
    if not isinstance(tree, dict) or "topology" not in tree:
        raise InputError(f"{on}: expected a scenario with a `topology`")
    return {key: tree[key] for key in ("topology", "network", "fidelity", "seed") if key in tree}


def _stats(file: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        engine.edit_workload(json.dumps({"do": "stats", "file": str(file), "matrix": False}))
    )
    return answer


def scenario_of(
    file: Path, *, on: Path | None, gpus: int | None, rate: str, ranks: int | None = None
) -> dict[str, Any]:
    """A scenario whose only job is one iteration of `file`, on the fabric of `on`, or on a `fabric` of as many GPUs.

    Raises:
        InputError: the workload or the scenario cannot be read.

    """
    if ranks is None:
        ranks = int(_stats(file)["ranks"])
    own = _scenario(on) if on is not None else {}
    if gpus is None:
        gpus = 8 if ranks % 8 == 0 else 1
    source = "goal" if file.name.removesuffix(".gz").endswith((".goal", ".bin")) else "file"
    topology = {} if on is not None else {"topology": fabric(ranks, gpus, rate)}
    return {
        "windtunnel": 1,
        "name": "explained",
        "fidelity": "flow",
        **topology,
        **own,
        "jobs": [{"name": "workload", "workload": {source: str(file.resolve())}, "iterations": 1}],
    }


def explain(
    file: Path, *, on: Path | None = None, gpus: int | None = None, rate: str = "400 Gbps", fidelity: str | None = None
) -> Explanation:
    """Replays `file`, a workload, a recording or a folder of them, once, and says what recording and replay tell.

    The fabric is that of the scenario `on`; else hosts of `gpus` GPUs (8, or 1 where the ranks do not fill hosts of 8)
    with a NIC of `rate` each below one switch.

    Raises:
        InputError: the workload cannot be read, or it does not fit the fabric.

    """
    with as_workload(file) as own:
        return _explained(own, name=file.name, on=on, gpus=gpus, rate=rate, fidelity=fidelity)


def _explained(
    file: Path, *, name: str, on: Path | None, gpus: int | None, rate: str, fidelity: str | None
) -> Explanation:
    stats = _stats(file)
    scenario = scenario_of(file, on=on, gpus=gpus, rate=rate, ranks=int(stats["ranks"]))
    ranks, gpus = int(stats["ranks"]), int(scenario["topology"].get("host", {}).get("gpus", 8))
    summary = run(scenario, fidelity=fidelity).summary
    job = summary["jobs"][0]
    coverage = _coverage(file)
    within, between = _places(file, ranks, gpus)
    replayed = float(job["iteration_time_s"]["mean"])
    return Explanation(
        workload=name,
        ranks=ranks,
        hosts=-(-ranks // gpus),
        gpus_per_host=gpus,
        fidelity=str(summary["fidelity"]),
        recorded_s=_recorded(coverage),
        replayed_s=replayed,
        compute_s=float(job["compute_s"]),
        exposed_s={name: float(value) for name, value in job["exposed_s"].items()},
        bubble_s=float(job["bubble_s"]),
        straggler_s=float(job["straggler_s"]),
        host_s=float(job["host_s"]),
        ideal_fabric_s=job["ideal_iteration_time_s"],
        no_stragglers_s=replayed - float(job["straggler_s"]),
        bytes_within_hosts=within,
        bytes_between_hosts=between,
        collectives=stats["collectives"],
        arrivals=coverage["arrivals"] if coverage else [],
        coverage=coverage["totals"] if coverage else None,
        notes=coverage["notes"] if coverage else [],
    )


def _coverage(file: Path) -> dict[str, Any] | None:
    beside = file.with_name(file.name + ".coverage.json")
    if not beside.is_file():
        return None
    try:
        found = json.loads(read_text(beside))
        return {key: found[key] for key in ("arrivals", "totals", "notes", "spans")}
    except (ValueError, KeyError, TypeError):
        raise InputError(
            f"{beside}: expected the coverage that `windtunnel import` wrote\n\nhint: import again, or remove it"
        ) from None


def _recorded(coverage: dict[str, Any] | None) -> float | None:
    by_rank: dict[int, float] = {}
    for span in coverage["spans"] if coverage else []:
        by_rank[span["rank"]] = by_rank.get(span["rank"], 0.0) + float(span["time_s"])
    return max(by_rank.values(), default=None)


def _places(file: Path, ranks: int, gpus: int) -> tuple[int | None, int | None]:
    """Bytes within and between hosts, collectives as the messages of their algorithms."""
    if ranks > MATRIX_RANKS:
        return None, None
    answer = json.loads(engine.edit_workload(json.dumps({"do": "stats", "file": str(file), "matrix": True})))
    within = between = 0
    for source, row in enumerate(answer["matrix_bytes"]):
        for target, size in enumerate(row):
            if source // gpus == target // gpus:
                within += size
            else:
                between += size
    return within, between
