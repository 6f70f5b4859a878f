"""Bytes of workloads in every form."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel import engine

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results

EXPERIMENTS = Path(__file__).resolve().parents[1]
WORKLOADS = {
    "recorded training step": "examples/workloads/recorded-step.jsonl",
    "storage, Direct Drive": "experiments/atlahs-storage/direct-drive.wtw",
    "hydrodynamics": "experiments/atlahs-placement/hydrodynamics.wtw",
}
TRACES = {"stencil": "examples/traces/mpi-stencil", "conjugate gradient": "examples/traces/mpi-conjugate-gradient"}
WITHOUT_COLLECTIVES = "storage, Direct Drive"


def sizes(source: Path, folder: Path) -> dict[str, int]:
    """Bytes of `source` in each form, written into `folder`."""
    found = {}
    for form, name in (("compact", "w.wtw"), ("goal", "w.bin"), ("chakra", "w.et")):
        target = folder / form
        target.mkdir(parents=True)
        engine.edit_workload(json.dumps({"do": "convert", "file": str(source), "out": str(target / name)}))
        found[form] = sum(file.stat().st_size for file in target.iterdir())
    return found


def observe(_: Results) -> dict[str, Any]:
    """The sizes as a table, and the figures of the claims."""
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sources = {name: EXPERIMENTS.parent / path for name, path in WORKLOADS.items()}
        for name, path in TRACES.items():
            sources[name] = folder / f"{name}.wtw"
            request = {"kind": "mpi", "sources": [str(EXPERIMENTS.parent / path)], "out": str(sources[name])}
            engine.import_recordings(json.dumps(request))
        for name, source in sources.items():
            rows.append({"workload": name, **sizes(source, folder / "forms" / name)})
    table = pl.DataFrame(rows).with_columns(
        (pl.col("goal") / pl.col("compact")).alias("goal_over_compact"),
        (pl.col("chakra") / pl.col("compact")).alias("chakra_over_compact"),
    )
    messages = table.filter(pl.col("workload") == WITHOUT_COLLECTIVES).row(0, named=True)
    return {
        "sizes": table,
        "goal_over_chakra_messages": messages["goal"] / messages["chakra"],
        "goal_over_compact": table["goal_over_compact"].min(),
        "chakra_over_compact": table["chakra_over_compact"].min(),
    }
