"""Iterations that Sailor's authors measured (Strati et al., SOSP 2025): two models under Megatron-DeepSpeed.

Their profiler timed whole layers by micro-batch and tensor-parallel degree, on one host and with the collectives of
tensor parallelism (`compute_profiles/sailor_MODEL_GPU.json.gz`). Where the profile is in the folder, layers take what it says;
elsewhere they take what the GPU's sheet says.
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from windtunnel.engine import InputError
from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import Line, lines, training_scenario

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from windtunnel.validate.systems import System

COLUMNS = (
    "cluster", "model", "nodes_N", "dp", "pp_stages", "tp_degrees", "micro_batch", "global_batch",
    "layers_per_stage_sizes", "gpu", "measured_iteration_s", "max_mem_bytes", "flag",
)  # fmt: skip


class Model(NamedTuple):
    """A model under its names: in the table, as a sheet, and in the profiles."""

    sheet: str
    profile: str
    layers: int
    hidden: int


MODELS = {
    "OPT-350": Model("opt-350m", "OPT-350", 24, 1024),
    "GPT-NEO": Model("gpt-neo-2.7b", "GPT-Neo-2.7", 32, 2560),
}
SEQUENCE = 2048
SYSTEMS = {"clariden": "clariden"}


def read(data: Path, systems: Mapping[str, System]) -> Table | None:
    """Iteration times."""
    path = data / "e2e_iteration" / "sailor_measured_iteration.csv"
    if not path.is_file():
        return None
    table = Table("sailor")
    for row in _rows(path, data, systems, "sailor", memory=False):
        if isinstance(row, str):
            table.exclude(row)
            continue
        table.fitted |= systems[row.system].fitted
        table.add(row)
    return table


def rows_of_memory(data: Path, systems: Mapping[str, System]) -> Iterator[Row | str]:
    """Peak memory of the same runs."""
    path = data / "e2e_iteration" / "sailor_measured_iteration.csv"
    if path.is_file():
        yield from _rows(path, data, systems, "memory/sailor", memory=True)


def _rows(path: Path, data: Path, systems: Mapping[str, System], name: str, *, memory: bool) -> Iterator[Row | str]:
    for line in lines(path, COLUMNS):
        yield _row(line, data, systems, name, memory=memory)


def _row(line: Line, data: Path, systems: Mapping[str, System], name: str, *, memory: bool) -> Row | str:
    if line.text("flag"):
        return f"flagged in the table: {line.text('flag').partition(':')[0]}"
    gpu = line.text("gpu")
    if "|" in gpu:
        return "hosts of different GPUs in one job are not modelled"
    cluster, model_name = line.text("cluster"), line.text("model")
    system = systems.get(SYSTEMS.get(cluster, cluster))
    if system is None:
        return f"no file of system `{cluster}`"
    model = MODELS.get(model_name)
    if model is None:
        return f"no sheet of model `{model_name}`"
    sizes = [_whole(line, text) for text in line.text("layers_per_stage_sizes").split("|")]
    pp, dp, tp = line.count("pp_stages"), line.count("dp"), line.count("tp_degrees")
    # The first and the last of the counted layers are the embedding and the head.
    if len(sizes) != pp or sum(sizes) != model.layers + 2:
        return "the layers of the stages are not the model's"
    sizes[0] -= 1
    sizes[-1] -= 1
    micro, batch = line.count("micro_batch"), line.count("global_batch")
    if batch % (micro * dp):
        return "the batch does not divide into micro-batches"
    training: dict[str, Any] = {"layers_per_stage": sizes}
    files: dict[str, Mapping[str, Any] | str] = {}
    profile = layer_profile(data / "compute_profiles" / f"sailor_{model.profile}_{gpu}.json.gz", model, micro, tp)
    if profile is not None and not memory:
        training["profile"] = "layers.csv"
        files["layers.csv"] = profile
    return Row(
        id=f"{name}/{cluster}-{model_name}-d{dp}-p{pp}-t{tp}-m{micro}-b{batch}",
        system=system.name,
        measured=line.number_in("max_mem_bytes" if memory else "measured_iteration_s"),
        scenario=training_scenario(
            system,
            gpus=tp * pp * dp,
            workload={"model": model.sheet, "global_batch": batch, "micro_batch": micro, "sequence": SEQUENCE},
            parallelism={"tp": tp, "pp": pp, "dp": dp, "schedule": {"name": "1f1b"}},
            training=training,
        ),
        groups={
            "size": model_name,
            "kind": "measured layers" if profile is not None else "layers from the sheet",
            "scale": f"{tp * pp * dp} GPUs",
        },
        models=files,
        quantity="memory" if memory else "time",
    )


def _whole(line: Line, text: str) -> int:
    if not text.isdigit():
        raise InputError(
            f"{line.path}:{line.number}: `layers_per_stage_sizes`: expected whole numbers joined by `|`, found `{text}`"
        )
    return int(text)


def layer_profile(path: Path, model: Model, micro: int, tp: int) -> str | None:
    """A kernel profile of whole layers from the authors' times; None where none fits.

    The file has seconds [forward, backward, update] by micro-batch, tensor-parallel degree and layer, of which the first
    is the embedding and the last the head.
    """
    if not path.is_file():
        return None
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            times = json.load(file).get(str(micro), {}).get(str(tp))
        if times is None or len(times) != model.layers + 2:
            # The file of GPT-Neo on GH200 holds the layers of OPT-350M.
            return None
        first, middle, last = (times[key] for key in ("0", str(len(times) // 2), str(len(times) - 1)))
        for one in (first, middle, last):
            if len(one) != 3 or not all(value >= 0 for value in one):
                raise ValueError(f"expected three times of a layer, found {one}")
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path}: not a profile of layers: {error}") from error
    if middle[1] <= 0 or middle[0] <= 0:
        return None
    tokens = micro * SEQUENCE
    rows = ["kernel,m,n,k,dtype,time"]
    for what, (forward, backward, _) in (("embedding", first), ("layer", middle), ("head", last)):
        for name, value in (("forward", forward), ("backward", backward)):
            rows.append(f"{what}_{name},{tokens},{model.hidden},{tp},fp16,{value * 1e6:.3f} us")
    # Sailor books the update of all parameters once a layer, each with the time of one layer.
    rows.append(f"optimiser_layer,{model.hidden},{tp},0,fp16,{middle[2] * 1e6:.3f} us")
    return "\n".join(rows) + "\n"
