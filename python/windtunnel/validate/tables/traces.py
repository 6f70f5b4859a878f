"""Recorded programs replayed: what the recording says of kernels and hosts, and communication as it is modelled.

A row is a step of a rank (PyTorch's `ProfilerStep`), or the whole of an MPI program. Where recordings of all ranks are
there, nothing is filled in; where one rank is, the others do the same as it.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.experiments.runs import Asked, run_all
from windtunnel.validate.rows import Row, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windtunnel.validate.systems import System


@dataclass(frozen=True)
class Case:
    """A recording and the machine that it was made on."""

    name: str
    kind: str
    sources: tuple[str, ...]
    host: Mapping[str, Any]
    ranks: int
    """Ranks that ran."""
    whole: bool = False
    """Whether recordings of all ranks are there."""
    rate: str = "100 Gbps"
    only: str = ""
    """What the name of an archive's member contains."""


WORKLOAD = "workload.wtw"
NODE = {"nics": 8, "nic": "ConnectX-7", "gpus": 8, "rails": True}
KINETO = "traces_kineto/"
CASES = (
    Case(
        "dlrm-8xV100",
        "kineto",
        (KINETO + "param_dlrm_8rank_kineto.tar.gz", KINETO + "param_dlrm_8rank_pytorch_et.tar.gz"),
        {"gpu": "V100", "gpus": 8, "nics": 1, "nic": "ConnectX-5"},
        8,
        whole=True,
    ),
    Case(
        "ddp-2xA100",
        "kineto",
        (KINETO + "hta_a100_ddp_ws2_rank0_nccl_data.json.gz",),
        {"gpu": "A100-80", "gpus": 8, "nics": 1, "nic": "ConnectX-5"},
        2,
    ),
    Case(
        "deepseek-v3-64xH800",
        "kineto",
        (KINETO + "deepseek_v3_train_ep64_rank0.json.gz",),
        {"gpu": "H100-SXM", **NODE},
        64,
        rate="400 Gbps",
    ),
    Case(
        "resnet-8xMI300X",
        "kineto",
        (KINETO + "tracelens_mi300x_resnet_ddp_ws8_rank0.json.gz",),
        {"gpu": "MI300X", **NODE},
        8,
        rate="400 Gbps",
    ),
    Case(
        "inference-8xB200",
        "kineto",
        (KINETO + "tracelens_b200_ws8_rank0_eager.json.gz",),
        {"gpu": "B200", **NODE},
        8,
        rate="400 Gbps",
    ),
    Case(
        "sweep3d-2x2",
        "liballprof",
        ("traces_mpi/liballprof_sweep3d_2x2_and_bcast.tar.gz",),
        {"gpus": 1, "nics": 1, "nic": "ConnectX-5"},
        4,
        whole=True,
        rate="10 Gbps",
        only="sweep3d",
    ),
)


def read(data: Path, systems: Mapping[str, System]) -> Table | None:  # noqa: ARG001
    """The recorded steps of every case whose files are there."""
    table = Table("traces")
    for case in CASES:
        sources = [data / source for source in case.sources]
        if not all(source.is_file() for source in sources):
            table.exclude(f"{case.name}: its files are not in the folder")
            continue
        with tempfile.TemporaryDirectory() as folder:
            answer = _imported(case, [str(source) for source in sources], Path(folder))
        spans = answer["spans"]
        if not spans:
            table.exclude(f"{case.name}: no step is marked in it")
        for span in spans:
            table.add(
                Row(
                    id=f"{case.name}/{span['rank']}/{span['name']}",
                    system=case.name,
                    measured=span["time_s"],
                    scenario={
                        "trace": {
                            "case": case.name,
                            "data": str(data),
                            "rank": span["rank"],
                            "name": span["name"],
                        }
                    },
                    groups={
                        "recording": case.name,
                        "ranks": "all recorded" if case.whole else "one recorded, the others alike",
                    },
                )
            )
    return table if table.rows else None


def times(asked: Sequence[Mapping[str, Any]]) -> list[float]:
    """Predicted seconds of each span asked for; each recording is replayed once, at flow fidelity."""
    replayed: dict[tuple[str, str], dict[tuple[int, str], float]] = {}
    found = []
    for one in asked:
        key = (one["case"], one["data"])
        if key not in replayed:
            case = next(case for case in CASES if case.name == one["case"])
            replayed[key] = _replayed(case, Path(one["data"]))
        found.append(replayed[key][one["rank"], one["name"]])
    return found


def _imported(case: Case, sources: Sequence[str], folder: Path) -> dict[str, Any]:
    request = {
        "kind": case.kind,
        "sources": list(sources),
        "only": case.only,
        "out": str(folder / WORKLOAD),
        "missing": "refuse" if case.whole else "same",
    }
    answer: dict[str, Any] = json.loads(engine.import_recordings(json.dumps(request)))
    return answer


def _replayed(case: Case, data: Path) -> dict[tuple[int, str], float]:
    """Spans of a replay by rank and name."""
    hosts = -(-case.ranks // int(case.host["gpus"]))
    tiers = [{"ports_down": 1 if case.host.get("rails") else hosts, "rate": case.rate, "length": "5 m"}]
    if case.host.get("rails"):
        tiers = [{"ports_down": hosts, "rate": case.rate}, {"ports_down": 8, "rate": case.rate}]
    begins: dict[tuple[int, str], float] = {}
    spans: dict[tuple[int, str], float] = {}
    last: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        _imported(case, [str(data / source) for source in case.sources], Path(folder))
        scenario = {
            "windtunnel": 1,
            "name": case.name,
            "fidelity": "flow",
            "topology": {"shape": "clos", "hosts": hosts, "tiers": tiers, "host": dict(case.host)},
            "jobs": [{"name": "replay", "workload": {"file": str(Path(folder) / WORKLOAD)}, "iterations": 1}],
        }
        (result,) = run_all([Asked(scenario)])
        operations = result.operations
        for rank, label, finish in operations.select("rank", "label", "finish_ps").iter_rows():
            time = finish * 1e-12
            last[rank] = max(last.get(rank, 0.0), time)
            name, _, end = label.rpartition(" ")
            if end == "begin":
                begins[rank, name] = time
            elif end == "end" and (rank, name) in begins:
                spans[rank, name] = time - begins[rank, name]
    spans.update({(rank, "program"): time for rank, time in last.items()})
    return spans
