"""The job that is to be laid out, as its scenario has it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.engine import InputError, nearest

if TYPE_CHECKING:
    from windtunnel.source import Source

DIMENSIONS = ("tp", "cp", "ep", "pp", "dp")


@dataclass(frozen=True)
class Job:
    """A transformer that is trained on a number of GPUs."""

    source: Source
    overrides: tuple[tuple[str, str], ...]
    index: int
    gpus: int
    global_batch: int
    sequence: int
    layers: int
    experts: bool
    own: dict[str, Any]
    """What the scenario says: `micro_batch`, `recompute`, `zero`, `schedule`, `chunks`, `attention`, `model`, `order`
    (`pp-out` or `dp-out`), the number of `buildings`, whether its GPUs have `speeds` that differ, and the sections
    `parallelism` and `training`."""
    layout: dict[str, int] | None
    """The scenario's own, if it has one."""

    @property
    def place(self) -> str:
        """Its path in the scenario."""
        return f"jobs[{self.index}]"


def read_job(
    source: Source,
    overrides: list[tuple[str, str]],
    name: str | None = None,
    gpus: int | None = None,
    *,
    at: str = "--gpus",
) -> Job:
    """The job `name` (the first if None) on `gpus` (those of its layout, or all there are, if None), as `at` says.

    Raises `InputError` where there is no such job, or where it is no transformer.
    """
    tree = json.loads(engine.scenario_tree(source.text, source.name, overrides))
    jobs = tree.get("jobs") if isinstance(tree, dict) else None
    if not isinstance(jobs, list) or not jobs:
        raise InputError(f"{source.name}: jobs: expected a list of jobs, for a layout is of one of them")
    index = _index(jobs, name, source)
    workload, given = jobs[index].get("workload") or {}, jobs[index].get("parallelism") or {}
    place = f"{source.name}: jobs[{index}]"
    if not isinstance(workload.get("model"), str):
        raise InputError(f"{place}.workload: expected a `model`, for only a model has layouts")
    batch = workload.get("global_batch")
    if not isinstance(batch, int) or batch < 1:
        raise InputError(f"{place}.workload.global_batch: expected a whole number from 1, found `{batch}`")
    layout = {key: given.get(key, 1) for key in DIMENSIONS} if given else None
    facts = _facts(source, overrides, index)
    if gpus is None:
        gpus = math.prod(layout.values()) if layout else facts["gpus"]
    if not 1 <= gpus <= facts["gpus"]:
        raise InputError(f"{at}: expected from 1 to the {facts['gpus']} GPUs of the topology, found {gpus}")
    training = workload.get("training") or {}
    own = {
        "model": workload["model"],
        "micro_batch": workload.get("micro_batch", 1),
        "recompute": training.get("recompute"),
        "attention": training.get("attention"),
        "zero": given.get("zero", 0),
        "schedule": (given.get("schedule") or {}).get("name", "1f1b"),
        "chunks": (given.get("schedule") or {}).get("chunks") or 1,
        "order": "dp-out" if (given.get("order") or ["pp"])[-1] == "dp" else "pp-out",
        "buildings": len((tree.get("topology") or {}).get("buildings") or [None]),
        "speeds": facts["sheets"] > 1 or _speeds_differ(tree.get("variation")),
        "parallelism": given,
        "training": training,
    }
    sequence = workload.get("sequence")
    sequence = sequence if isinstance(sequence, int) else 1
    return Job(source, tuple(overrides), index, gpus, batch, sequence, facts["layers"], facts["experts"], own, layout)


def _speeds_differ(variation: object) -> bool:
    """Whether some GPUs are slower or faster than others from the start on."""
    rules = variation.get("speeds") if isinstance(variation, dict) else None
    rules = [rule for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []
    apart = ("building", "host", "gpu")
    return any(rule.get("from") is None and any(rule.get(key) is not None for key in apart) for rule in rules)


def explain(
    source: Source, overrides: list[tuple[str, str]], index: int, changes: dict[str, object]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the engine says of the topology and of a job after `changes` of its keys, too large for a GPU or not."""
    pairs = [(f"jobs[{index}].{key}", json.dumps(value)) for key, value in changes.items()]
    text = engine.explain(
        source.text, source.name, str(source.base), [*overrides, ("memory", "warn"), *pairs], {"fidelity": "job"}
    )
    found = json.loads(text)
    return found["topology"], found["jobs"][index]


def _facts(source: Source, overrides: list[tuple[str, str]], index: int) -> dict[str, Any]:
    """Layers of the model, whether it has experts, and GPUs of the topology: asked with one rank of it."""
    alone: dict[str, object] = {
        "parallelism": {"tp": 1}, "workload.global_batch": 2, "workload.micro_batch": 1,
        "workload.training.layers_per_stage": None,
    }  # fmt: skip
    topology, job = explain(source, overrides, index, alone)
    model = job.get("model")
    if model is None or "layers" not in model:
        raise InputError(f"{source.name}: jobs[{index}]: expected a transformer, for only those have layouts")
    try:
        explain(source, overrides, index, {**alone, "parallelism": {"tp": 1, "ep": 2}})
        experts = True
    except InputError as error:
        experts = "no experts" not in str(error)
    sheets = len(topology.get("gpu_sheets") or [None])
    return {"layers": model["layers"], "experts": experts, "gpus": topology["gpus"], "sheets": sheets}


def _index(jobs: list[dict[str, Any]], name: str | None, source: Source) -> int:
    if name is None:
        return 0
    names = [str(job.get("name")) for job in jobs]
    if name in names:
        return names.index(name)
    near = nearest(name, names)
    hint = f"\n\nhint: did you mean `{near}`?" if near else f"\n\nhint: there are {', '.join(f'`{n}`' for n in names)}"
    raise InputError(f"--job: no job `{name}` in {source.name}{hint}")
