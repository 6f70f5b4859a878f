"""torchtitan's published throughputs: Llama 3.1 8B, 70B and 405B on Grand Teton (H100, 500 W) and on H200.

The configuration stands in captions and cells; what a caption leaves out is the configuration file's (8,192 tokens,
tensor-parallel loss). A cell of another technique is another row.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from windtunnel.engine import InputError
from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import Line, lines, training_scenario

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System

COLUMNS = ("caption", "row_json", "hardware", "source")
GIB = 2**30
SEQUENCE = 8192
MODELS = {"8b": "llama3-8b", "70b": "llama3-70b", "405b": "llama3-405b"}
LAYERS = {"llama3-8b": 32, "llama3-70b": 80, "llama3-405b": 126}
H200: dict[str, Any] = {"model": "llama3-8b", "gpus_per_node": 8, "local_batch": 2}
"""The runs of Trainy: command line in benchmarks/llama3-8b_h200_202506_trainy-whitefiber.md, float8 and a compiler."""


class Run(NamedTuple):
    """A measured run."""

    line: Line
    model: str
    gpus: int
    fsdp: int
    tp: int
    pp: int
    cp: int
    sequence: int
    global_batch: int
    recompute: str
    compiled: bool
    precision: str
    asynchronous: bool
    schedule: str
    tps: float
    memory: float | None


def read(data: Path, systems: Mapping[str, System]) -> Table | None:
    """Step times, from tokens per second and GPU."""
    return _read("torchtitan", data, systems)


def rows_of_memory(data: Path, systems: Mapping[str, System]) -> Iterator[Row | str]:
    """Peak memory of the same runs; a text says why one is left out."""
    path = data / "e2e_iteration" / "torchtitan_measured_tps.csv"
    for run in _runs(path) if path.is_file() else ():
        if isinstance(run, str):
            continue
        if run.memory is not None:
            yield _row("memory/torchtitan", run, systems, memory=True)


def _read(name: str, data: Path, systems: Mapping[str, System]) -> Table | None:
    path = data / "e2e_iteration" / "torchtitan_measured_tps.csv"
    if not path.is_file():
        return None
    table = Table(name)
    for run in _runs(path):
        row = run if isinstance(run, str) else _row(name, run, systems)
        if isinstance(row, str):
            table.exclude(row)
            continue
        table.fitted |= systems[row.system].fitted
        table.add(row)
    return table


def _runs(path: Path) -> Iterator[Run | str]:
    for line in lines(path, COLUMNS):
        try:
            cells = json.loads(line.text("row_json"))
        except ValueError as error:
            raise InputError(f"{path}:{line.number}: `row_json`: {error}") from error
        if not isinstance(cells, dict):
            raise InputError(f"{path}:{line.number}: `row_json`: expected an object, found `{cells}`")
        if "NUM_NODES" in cells:
            nodes = int(_number(line, cells, "NUM_NODES"))
            gpus = nodes * H200["gpus_per_node"]
            yield Run(
                line, H200["model"], gpus, gpus, 1, 1, 1, SEQUENCE, gpus * H200["local_batch"],
                "operations", compiled=True, precision="fp8", asynchronous=False, schedule="1f1b",
                tps=_number(line, cells, "TPS/GPU"), memory=_number(line, cells, "Memory(GiB)") * GIB,
            )  # fmt: skip
        elif "Quantization" in cells:
            yield from _asynchronous(line, cells)
        else:
            yield _december(line, cells)


def _number(line: Line, cells: Mapping[str, Any], key: str) -> float:
    text = str(cells.get(key, "")).replace(",", "")
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise InputError(f"{line.path}:{line.number}: `row_json`: `{key}`: expected a number, found `{text}`")
    return value


def _in_caption(line: Line, pattern: str) -> int:
    found = re.search(pattern, line.text("caption"), re.IGNORECASE)
    if found is None:
        raise InputError(f"{line.path}:{line.number}: `caption`: nothing in it is like `{pattern}`")
    return int(found[1])


def _model(line: Line) -> str:
    caption = line.text("caption").lower()
    for size, model in MODELS.items():
        if re.search(rf"\b{size}\b", caption):
            return model
    raise InputError(f"{line.path}:{line.number}: `caption`: names none of the models {', '.join(MODELS)}")


def _recompute(line: Line) -> str:
    caption = line.text("caption").lower()
    return "operations" if "selective" in caption or "sac" in caption else "full"


def _asynchronous(line: Line, cells: Mapping[str, Any]) -> Iterator[Run | str]:
    """A line has plain tensor parallelism beside an asynchronous one."""
    gpus, fsdp, tp = (_in_caption(line, p) for p in (r"on (\d+) H100", r"FSDP=(\d+)", r"TP=(\d+)"))
    batch = fsdp * _in_caption(line, r"local batch size (\d+)")
    name = str(cells["Quantization"])
    if "rowwise" in name:
        yield "float8 with a scale a row is not modelled"
        yield "float8 with a scale a row is not modelled"
        return
    precision = "fp8" if "float8" in name else "bf16"
    for key, asynchronous in (("Vanilla TP tokens/sec", False), ("Async TP tokens/sec", True)):
        yield Run(
            line, _model(line), gpus, fsdp, tp, 1, 1, SEQUENCE, batch, _recompute(line), compiled=True,
            precision=precision, asynchronous=asynchronous, schedule="1f1b", tps=_number(line, cells, key), memory=None,
        )  # fmt: skip


def _december(line: Line, cells: Mapping[str, Any]) -> Run:
    caption = line.text("caption")
    techniques = str(cells.get("Techniques", ""))
    layout = str(cells.get("Parallelism", "")) + " " + caption
    gpus = _in_caption(line, r"(\d+) GPUs")

    def degree(name: str) -> int:
        found = re.search(rf"\b{name}\s*(\d+)", layout)
        return int(found[1]) if found else 1

    tp, pp, cp = degree("TP"), degree("PP"), degree("CP")
    fsdp = gpus // (tp * pp * cp)
    local = _in_caption(line, r"Local batch size (\d+)")
    sequence = int(_number(line, cells, "Sequence Length")) if "Sequence Length" in cells else SEQUENCE
    schedule = str(cells.get("Schedule", "1F1B")).lower()
    return Run(
        line, _model(line), gpus, fsdp, tp, pp, cp, sequence, fsdp * local, _recompute(line),
        "compile" in techniques + caption, "fp8" if "float8" in (techniques + caption).lower() else "bf16",
        "asynctp" in (techniques + caption).lower(), "interleaved" if "interleaved" in schedule else "1f1b",
        _number(line, cells, "TPS/GPU"), _number(line, cells, "Memory(GiB)") * GIB,
    )  # fmt: skip


def _row(name: str, run: Run, systems: Mapping[str, System], *, memory: bool = False) -> Row | str:
    wanted = "grand-teton" if "H100" in run.line.text("hardware") else "trainy-h200"
    system = systems.get(wanted)
    if system is None:
        return f"no file of system `{wanted}`"
    training: dict[str, Any] = {"recompute": run.recompute, "precision": run.precision}
    if not run.compiled:
        training["fused"] = False
    if run.precision == "fp8":
        training["parameters"] = "fp8"
    if "Table" in run.line.text("caption"):
        # In 2024 the compiler had the layers, not the loss.
        training["fused_loss"] = False
    if run.asynchronous:
        training["overlap_chunks"] = run.tp
    parallelism: dict[str, Any] = {"tp": run.tp, "pp": run.pp, "cp": run.cp, "dp": run.fsdp}
    if run.pp > 1:
        # Two stages a rank in the interleaved schedule (inferred); parameters stay gathered between micro-batches, and
        # gradients are reduced in the last one (torch/distributed/pipelining/stage.py, `backward_maybe_with_nosync`).
        chunks = 2 if run.schedule == "interleaved" else 1
        parallelism["schedule"] = {"name": run.schedule, **({"chunks": chunks} if chunks > 1 else {})}
        parallelism |= {"reshard": "never", "reduce": "last"}
        training["layers_per_stage"] = even(LAYERS[run.model], run.pp * chunks)
    kind = f"{run.precision}{' async TP' if run.asynchronous else ''}{'' if run.compiled else ' eager'}"
    # The local batch is cut into as many micro-batches as there are pipeline ranks (pipelining_utils.py at 9dec370).
    micro = max(1, run.global_batch // run.fsdp // run.pp)
    layout = f"{run.model}-n{run.gpus}-f{run.fsdp}-t{run.tp}-p{run.pp}-c{run.cp}-s{run.sequence}"
    what = kind.replace(" ", "-")
    tokens = run.global_batch * run.sequence
    return Row(
        id=f"{name}/{layout}-{what}-{run.schedule}-b{run.global_batch}",
        system=system.name,
        measured=run.memory or 0.0 if memory else tokens / (run.tps * run.gpus),
        scenario=training_scenario(
            system,
            gpus=run.gpus,
            workload={
                "model": run.model,
                "global_batch": run.global_batch,
                "micro_batch": micro,
                "sequence": run.sequence,
            },
            parallelism=parallelism,
            training=training,
        ),
        groups={"size": run.model, "kind": kind, "scale": f"{run.gpus} GPUs", "precision": run.precision},
        quantity="memory" if memory else "time",
    )


def even(layers: int, stages: int) -> list[int]:
    """Layers of each stage as equal as they can be; the last stages, and then the first, have the fewer."""
    most = -(-layers // stages)
    counts = [most] * stages
    short = most * stages - layers
    order = [stages - 1, 0, *range(stages - 2, 0, -1)] if stages > 1 else [0]
    for stage in order[:short]:
        counts[stage] -= 1
    return counts
