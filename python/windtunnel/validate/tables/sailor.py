"""Iterations that Sailor's authors measured (Strati et al., SOSP 2025): two models under Megatron-DeepSpeed.

Their profiler timed whole layers by micro-batch and tensor-parallel degree, on one host and with the collectives of
tensor parallelism (`compute_profiles/sailor_MODEL_GPU.json.gz`). Where the profile is in the folder, layers take what
it says; a model between two measured ones takes what lies between; elsewhere they take what the GPU's sheet says.

Jobs of their second cluster had hosts of three kinds of GPUs. Its hosts are buildings here, neighbours of one kind
together, with a cable between each two of them that is as fast as a host's adapter: one switch joined them.
"""

from __future__ import annotations

import gzip
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from windtunnel.engine import InputError
from windtunnel.validate.rows import Row, Table
from windtunnel.validate.tables.common import Line, lines, training_scenario

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
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
    heads: int


MODELS = {
    "OPT-350": Model("opt-350m", "OPT-350", 24, 1024, 16),
    "GPT-NEO": Model("gpt-neo-2.7b", "GPT-Neo-2.7", 32, 2560, 20),
}
ALIKE = (MODELS["OPT-350"], Model("opt-30b", "OPT-30", 48, 7168, 56))
"""Models whose layers the authors measured and which are of one kind: GPT blocks without gates."""
SEQUENCE = 2048
SYSTEMS = {"clariden": "clariden", "mit": "mit-rtx"}

SHEETS = {"RTX-3090": "RTX-3090", "RTX-2080": "RTX-2080-Ti", "Titan-RTX": "Titan-RTX"}
"""GPUs of the second cluster, by the authors' name; of their RTX 2080 they say that it has 11 GB."""

_A, _B, _C = "RTX-3090", "RTX-2080", "Titan-RTX"
HOSTS = {
    (2, 1, 2): (_A, _C),
    (2, 2, 1): (_C, _A),
    (4, 1, 4): (_A, _B, _C, _B),
    (4, 2, 2): (_A, _B, _C, _B),
    (4, 4, 1): (_A, _B, _C, _B),
    (6, 3, 2): (_A, _B, _B, _C, _B, _C),
    (6, 6, 1): (_A, _B, _B, _C, _B, _C),
}
"""By hosts, replicas and stages: GPUs of the hosts, replicas of the first stage first, as the authors' configurations
have them (`sailor/Planner/simulations/validation/mit`, at the commit that the table names)."""


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
    hosts: tuple[str, ...] = ()
    folder = data / "compute_profiles"
    if "|" in gpu:
        if memory:
            return "nobody says what frameworks hold beside on a cluster of several GPUs"
        hosts = HOSTS.get((line.count("nodes_N"), dp, pp), ())
        if not hosts:
            return "no word of which host has which GPUs"
        found = {kind: layer_profile(folder, kind, model, micro, tp) for kind in dict.fromkeys(hosts)}
        measured = f"{min(said for _, said in found.values())}, GPUs of several kinds"
        known = {kind: profile for kind, (profile, _) in found.items() if profile is not None}
        if known:
            training["profile"] = {SHEETS[kind]: f"{SHEETS[kind]}.csv" for kind in known}
            files |= {f"{SHEETS[kind]}.csv": profile for kind, profile in known.items()}
    else:
        profile, measured = layer_profile(folder, gpu, model, micro, tp)
        if profile is not None and not memory:
            training["profile"] = "layers.csv"
            files["layers.csv"] = profile
    scenario = training_scenario(
        system,
        gpus=tp * pp * dp,
        workload={"model": model.sheet, "global_batch": batch, "micro_batch": micro, "sequence": SEQUENCE},
        parallelism={"tp": tp, "pp": pp, "dp": dp, "schedule": {"name": "1f1b"}},
        training=training,
    )
    if hosts:
        scenario["topology"] = several(scenario["topology"], hosts, tp)
    return Row(
        id=f"{name}/{cluster}-{model_name}-d{dp}-p{pp}-t{tp}-m{micro}-b{batch}",
        system=system.name,
        measured=line.number_in("max_mem_bytes" if memory else "measured_iteration_s"),
        scenario=scenario,
        groups={
            "size": model_name,
            "kind": measured,
            "scale": f"{tp * pp * dp} GPUs",
        },
        models=files,
        quantity="memory" if memory else "time",
    )


def several(topology: Mapping[str, Any], hosts: Sequence[str], gpus: int) -> dict[str, Any]:
    """`topology` with `hosts` of these kinds in their order, of each of which a job has so many `gpus`."""
    tier = {**topology["tiers"][0], "ports_down": len(hosts)}
    runs: list[list[str]] = []
    for kind in hosts:
        if runs and runs[-1][0] == kind:
            runs[-1].append(kind)
        else:
            runs.append([kind])
    buildings = [
        {"name": f"row{i}", "hosts": len(run), "tiers": [tier], "host": {"gpu": SHEETS[run[0]]}}
        for i, run in enumerate(runs)
    ]
    cable = {"count": len(hosts), "rate": tier["rate"], "length": tier["length"]}
    cross = [{"between": [f"row{a}", f"row{b}"], **cable} for b in range(len(runs)) for a in range(b)]
    host = {**topology["host"], "gpus": gpus}
    return {"shape": "regions", "host": host, "buildings": buildings, "cross": cross}


def _whole(line: Line, text: str) -> int:
    if not text.isdigit():
        raise InputError(
            f"{line.path}:{line.number}: `layers_per_stage_sizes`: expected whole numbers joined by `|`, found `{text}`"
        )
    return int(text)


def layer_profile(folder: Path, gpu: str, model: Model, micro: int, tp: int) -> tuple[str | None, str]:
    """A kernel profile of whole layers from the authors' times, and what it is.

    A file has seconds [forward, backward, update] by micro-batch, tensor-parallel degree and layer, of which the first
    is the embedding and the last the head. Where a model was not measured, a layer's time is that of two models of the
    same kind, one narrower and one wider: stored scores grow with the heads, products with the square of the width.
    Where two terms do not explain the two (launches bound the narrower), and for embedding and head, times lie between
    on logarithms.
    """
    own = _parts(folder, gpu, model, micro, tp)
    if own is not None:
        return _written(model, micro, tp, own), "measured layers"
    found = [(other, _parts(folder, gpu, other, micro, tp)) for other in ALIKE]
    known = sorted(((other, parts) for other, parts in found if parts is not None), key=lambda one: one[0].hidden)
    below = [one for one in known if one[0].hidden < model.hidden]
    above = [one for one in known if one[0].hidden > model.hidden]
    if not below or not above:
        return None, "layers from the sheet"
    (narrow, first), (wide, second) = below[-1], above[0]
    between = [
        [_between(model, narrow, a, wide, b, layer=part == 1) for a, b in zip(one, two, strict=True)]
        for part, (one, two) in enumerate(zip(first, second, strict=True))
    ]
    return _written(model, micro, tp, between), "layers between measured ones"


def _between(model: Model, narrow: Model, first: float, wide: Model, second: float, *, layer: bool) -> float:
    if layer:
        # first = scores · heads + products · width², and second likewise.
        products = (second - first * wide.heads / narrow.heads) / (
            wide.hidden**2 - narrow.hidden**2 * wide.heads / narrow.heads
        )
        scores = (first - products * narrow.hidden**2) / narrow.heads
        if products >= 0 and scores >= 0:
            return scores * model.heads + products * model.hidden**2
    share = math.log(model.hidden / narrow.hidden) / math.log(wide.hidden / narrow.hidden)
    return float(first ** (1 - share) * second**share)


def _parts(folder: Path, gpu: str, model: Model, micro: int, tp: int) -> list[list[float]] | None:
    """Times of embedding, layer and head; None where they were not measured."""
    path = folder / f"sailor_{model.profile}_{gpu}.json.gz"
    if not path.is_file():
        return None
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            times = json.load(file).get(str(micro), {}).get(str(tp))
        if times is None or len(times) != model.layers + 2:
            # The file of GPT-Neo on GH200 holds the layers of OPT-350M.
            return None
        parts = [[float(value) for value in times[str(key)]] for key in (0, len(times) // 2, len(times) - 1)]
        if any(len(part) != 3 or min(part) < 0 for part in parts):
            raise ValueError(f"expected three times of a layer, found {parts}")
    except (OSError, EOFError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path}: not a profile of layers: {error}") from error
    return parts if min(parts[1]) > 0 else None


def _written(model: Model, micro: int, tp: int, parts: Sequence[Sequence[float]]) -> str:
    rows = ["kernel,m,n,k,dtype,time"]
    for what, part in zip(("embedding", "layer", "head"), parts, strict=True):
        for name, value in zip(("forward", "backward"), part, strict=False):
            rows.append(f"{what}_{name},{micro * SEQUENCE},{model.hidden},{tp},fp16,{value * 1e6:.3f} us")
    # The update of a layer's parameters, which the authors took for every layer alike.
    rows.append(f"optimiser_layer,{model.hidden},{tp},0,fp16,{parts[1][2] * 1e6:.3f} us")
    return "\n".join(rows) + "\n"
