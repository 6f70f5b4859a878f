"""What `run --explain` prints: the topology, and each job with its stages and its memory as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from windtunnel.cli.console import out
from windtunnel.text import UNKNOWN, count, duration, short_count, size
from windtunnel.words import title, value_text

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_STAGES = 8
"""Stages that are listed; of more, equal neighbours are one row."""


def show_explanation(found: dict[str, Any]) -> None:
    """Prints the engine's explanation of a scenario."""
    console = out()
    topology = found["topology"]
    head = Text(str(found["scenario"]), style="bold")
    head.append(f" · {found['fidelity']} fidelity · ", style="dim")
    head.append(
        f"{count(topology['hosts'])} hosts, {count(topology['gpus'])} GPUs, {count(topology['links'])} links", "dim"
    )
    console.print(head)
    drawn = found.get("drawn")
    if drawn:
        figures = [f"{title(key)} {value_text(key, value)}" for key, value in drawn.items() if value is not None]
        console.print(f"drawn: {', '.join(figures)}", markup=False)
    for job in found["jobs"]:
        _job(job)


def _job(job: dict[str, Any]) -> None:
    console = out()
    console.print()
    line = Text(str(job["name"]), style="bold")
    parts = [
        f"{count(job['ranks'])} ranks",
        f"{count(job['programs'])} programs",
        f"{count(job['operations'])} operations",
    ]
    line.append(f" · {', '.join(parts)}", style="dim")
    console.print(line)
    if job.get("resized"):
        console.print(f"resized: {job['resized']}", markup=False)
    for warning in job.get("warnings") or []:
        console.print(f"warning: {warning}", markup=False)
    model = job.get("model")
    if not model:
        return
    console.print(
        f"{model['name']}: {short_count(model['parameters'])} parameters, {short_count(model['active_parameters'])} "
        f"active, {model['layers']} layers; {count(model['micro_batches'])} micro-batches, {model['schedule']}",
        markup=False,
    )
    console.print()
    console.print(_stages(model["stages"]))
    if model.get("memory_by_pipeline_rank"):
        console.print()
        console.print(_memory(model["memory_by_pipeline_rank"], (job.get("memory") or {}).get("capacity")))
    if model.get("communicators"):
        console.print()
        groups = ", ".join(f"{c['groups']} {c['role']} of {c['size']}" for c in model["communicators"])
        console.print(f"groups: {groups}", markup=False)


_STAGE: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("forward", "forward_compute_s", duration), ("backward", "backward_compute_s", duration),
    ("FLOPs", "forward_flops", short_count), ("parameters", "parameter_bytes", size),
    ("activation", "activation_bytes", size), ("sends", "send_bytes", size),
)  # fmt: skip
"""Column, key of the engine, and how it is shown: times and forward FLOPs of a micro-batch, bytes of a GPU."""


def _stages(stages: list[dict[str, Any]]) -> Table:
    """A row per stage; neighbours that differ in their place alone are one where there are many."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("stage", "layers", *(name for name, _, _ in _STAGE)):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for first, last in _runs(stages) if len(stages) > MOST_STAGES else ((i, i) for i in range(len(stages))):
        stage = stages[first]
        span = str(stage["stage"]) if first == last else f"{stage['stage']}-{stages[last]['stage']}"
        low, high = stage["layers"][0], stages[last]["layers"][1]
        extra = [word for word in ("embedding", "head") if stage.get(word)]
        cells = [UNKNOWN if stage.get(key) is None else shown(stage[key]) for _, key, shown in _STAGE]
        table.add_row(span, f"{low}-{high - 1}" if high - low > 1 else str(low), *cells, ", ".join(extra))
    return table


def _runs(stages: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """First and last of each run of neighbours that do the same."""

    def what(stage: dict[str, Any]) -> tuple[object, ...]:
        same = tuple(value for key, value in stage.items() if key not in ("stage", "layers"))
        return (*same, stage["layers"][1] - stage["layers"][0])

    found: list[tuple[int, int]] = []
    for i, stage in enumerate(stages):
        if found and what(stages[found[-1][0]]) == what(stage):
            found[-1] = (found[-1][0], i)
        else:
            found.append((i, i))
    return found


def _memory(ranks: list[dict[str, Any]], capacity: int | None) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    parts = ("weights", "gradients", "optimiser", "activations", "buffers", "total")
    for name in ("pipeline rank", *parts, "in flight"):
        table.add_column(name, justify="right")
    most = max(rank["total"] for rank in ranks)
    for rank in ranks:
        style = "bold" if rank["total"] == most else None
        cells = [size(rank[part]) for part in parts]
        table.add_row(str(rank["pipeline_rank"]), *cells, count(rank["peak_in_flight"]), style=style)
    if capacity is not None:
        table.add_row("GPU", *[""] * 5, size(capacity), "", style="dim")
    return table
