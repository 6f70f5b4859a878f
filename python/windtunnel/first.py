"""A first scenario: three answers as a commented file that runs as it stands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from windtunnel import engine
from windtunnel.engine import InputError, nearest

if TYPE_CHECKING:
    from windtunnel.layout.space import Layout

PER_HOST = 8
"""GPUs of a host, as most machines have them."""

LARGEST = 65_536
"""GPUs of a first scenario."""

SEQUENCE = 4096


def first_scenario(what: str, gpus: int, kind: str, fabric: str) -> str:
    """The text of a scenario that runs `what`, a model or `all-reduce`, on `gpus` GPUs of `kind` over `fabric`.

    A model gets a layout that fits. Raises `InputError` for a name that is not known or a number that is not possible.
    """
    kind = _known("gpus", kind)
    if not 1 <= gpus <= LARGEST:
        raise InputError(f"--gpus: expected from 1 to {LARGEST:,} GPUs, found {gpus}")
    each = min(PER_HOST, gpus)
    if gpus % each:
        raise InputError(f"--gpus: expected whole hosts of {PER_HOST} GPUs, found {gpus}")
    head = _topology(gpus // each, each, kind, fabric)
    if what == "all-reduce":
        return _text(what, gpus, kind, head, _ALL_REDUCE)
    model = _known("models", what)
    batch = gpus * 2
    job = _MODEL.format(model=model, batch=batch, sequence=SEQUENCE, parallelism="{tp: 1}")
    layout = _layout(_text(model, gpus, kind, head, job), gpus)
    job = _MODEL.format(model=model, batch=batch, sequence=SEQUENCE, parallelism=_parallelism(layout))
    if layout.recompute != "none":
        job = job.replace(
            f"sequence: {SEQUENCE}}}", f"sequence: {SEQUENCE}, training: {{recompute: {layout.recompute}}}}}"
        )
    return _text(model, gpus, kind, head, job)


def _known(kind: str, name: str) -> str:
    """The name as the data sheets have it."""
    names = [known for known, _ in engine.names(kind)]
    for known in names:
        if known.lower() == name.lower():
            return known
    near = nearest(name, names)
    hint = f"did you mean `{near}`?" if near else f"`windtunnel list {kind}` lists them"
    raise InputError(f"no {kind.removesuffix('s')} of the name `{name}`\n\nhint: {hint}")


def _topology(hosts: int, each: int, kind: str, fabric: str) -> str:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?):1", fabric)
    if match is None and fabric not in ("rails", "fat-tree"):
        raise InputError(f"--fabric: expected `rails`, `fat-tree` or a ratio such as `2:1`, found `{fabric}`")
    rails = "true" if fabric == "rails" and each > 1 else "false"
    ratio = match[1] if match is not None else "1"
    return _TOPOLOGY.format(hosts=hosts, each=each, kind=kind, rails=rails, ratio=ratio)


def _layout(text: str, gpus: int) -> Layout:
    """The first layout that fits: within hosts first, then over pipeline stages, recomputing last."""
    from windtunnel.layout.examine import examine  # noqa: PLC0415
    from windtunnel.layout.job import read_job  # noqa: PLC0415
    from windtunnel.layout.space import Space  # noqa: PLC0415
    from windtunnel.source import read_source  # noqa: PLC0415

    job = read_job(read_source(text), [], gpus=gpus)
    space = Space(schedules=("1f1b",), micro_batches=(1,), zero=(1,))
    candidates = [each for each in space.layouts(job) if each.tp <= PER_HOST and each.cp == 1 and each.ep <= PER_HOST]
    candidates.sort(key=lambda each: (each.recompute != "none", each.pp, each.tp, each.ep))
    for candidate in candidates:
        if examine(job, candidate).reason is None:
            return candidate
    raise InputError(f"`{job.own['model']}` does not fit {job.gpus} GPUs in any plain layout\n\nhint: name more GPUs")


def _parallelism(layout: Layout) -> str:
    sizes = {"tp": layout.tp, "ep": layout.ep, "pp": layout.pp, "dp": layout.dp}
    kept = [f"{key}: {value}" for key, value in sizes.items() if value > 1 or key == "dp"]
    return "{" + ", ".join([*kept, f"zero: {layout.zero}"]) + "}"


def _text(what: str, gpus: int, kind: str, topology: str, job: str) -> str:
    name = f"{what}-{gpus}x{kind}".lower()
    return f"# {gpus} GPUs: {what} on {kind}.\n{_HEAD.format(name=name)}{topology}{job}"


_HEAD = """#
#   windtunnel run FILE                          where an iteration's time goes
#   windtunnel run FILE --explain                layers, bytes, FLOPs and memory; no run
#   windtunnel layouts FILE                      other layouts of a model, the fastest first
#   windtunnel sweep FILE --vary 'topology.tiers[0].oversubscription=1,2,4'
#
# All keys: docs/scenario.md, or `windtunnel schema`.
windtunnel: 1
name: {name}
fidelity: flow                # message is faster, packet follows every packet
"""

_TOPOLOGY = """topology:
  shape: clos                 # leaves and spines; `windtunnel list topologies` names others
  hosts: {hosts}
  tiers:
    - {{ports_down: 32, oversubscription: {ratio}, rate: 400 Gbps, length: 30 m}}    # leaves
    - {{ports_down: 64, rate: 400 Gbps, length: 100 m}}                              # spines
  host: {{gpu: {kind}, gpus: {each}, nics: {each}, nic: ConnectX-7, rails: {rails}}}
"""

_MODEL = """jobs:
  - name: train
    workload: {{model: {model}, global_batch: {batch}, micro_batch: 1, sequence: {sequence}}}
    # `training: {{framework: nemo}}` in `workload` says what trains it (`windtunnel list frameworks`); left out, it is
    # what most people run who lay a model out so.
    parallelism: {parallelism}    # its product is the number of GPUs
"""

_ALL_REDUCE = """jobs:
  - name: all-reduce
    workload: {collective: {kind: all_reduce, bytes: 256 MiB}}
    iterations: 2
"""
