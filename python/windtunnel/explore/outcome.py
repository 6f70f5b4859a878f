"""The outcome of a search as a record: the best layouts, the front, what was left out, a baseline, energy, dollars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.bill import with_bill
from windtunnel.explore.prove import reordering
from windtunnel.explore.search import facts_of

if TYPE_CHECKING:
    from windtunnel.explore.prove import Proven
    from windtunnel.explore.search import Found
    from windtunnel.layout.job import Job

FRONT = 100
"""Layouts of the front that are told."""


def outcome(job: Job, found: Found, rows: list[Proven], *, top: int) -> dict[str, Any]:
    """The record that `--json` prints."""
    best = rows[0]
    power, dollars = _bill(job)
    tokens = best.answer.tokens_per_s * (best.answer.iteration_s or 0.0) / best.best_s if best.best_s else 0.0
    baseline = found.sailor()
    own = best.answer.iteration_s or 1.0
    return {
        "scenario": job.source.name,
        "model": job.own["model"],
        "gpus": job.gpus,
        "interrupted": found.stopped,
        "exhaustive": found.whole,
        "tried": found.tried,
        "fit": len(found.rows),
        "best": _row(best),
        "rows": [_row(row) for row in rows[:top]],
        "front": [
            {"iteration_s": answer.iteration_s, "memory_bytes": answer.memory_bytes, "layout": candidate.record()}
            for candidate, answer in found.front()[:FRONT]
        ],
        "proof": reordering(rows),
        "sailor": None if baseline is None else {
            "iteration_s": baseline[1].iteration_s,
            "over_best": (baseline[1].iteration_s or 0.0) / own,
            "layout": baseline[0].record(),
        },
        "left_out": dict(found.accounts.left_out),
        "refused": dict(found.accounts.refused),
        "too_large": found.accounts.too_large,
        "power_w": power,
        "fabric_usd": dollars,
        "energy_j_per_token": power * job.gpus / _gpus(job) / tokens if power and tokens else None,
    }  # fmt: skip


def _row(row: Proven) -> dict[str, Any]:
    return {
        "layout": row.candidate.record(),
        "estimated_rank": row.estimated_rank,
        "estimated_s": row.answer.iteration_s,
        "flow_s": row.flow_s,
        "packet_s": row.packet_s,
        "network": row.network.name(),
        "memory_bytes": row.answer.memory_bytes,
        "capacity_bytes": row.answer.capacity_bytes,
        "micro_batches": row.answer.micro_batches,
        "mfu": row.answer.mfu,
        "tokens_per_s": row.answer.tokens_per_s,
        "limited_by": row.answer.limit(),
        "parts_s": {
            "compute": row.answer.compute_s, "inside": row.answer.inside_s, "data": row.answer.data_s,
            "pipeline": row.answer.pipeline_s,
        },
        "message": row.message,
        "folder": row.folder,
    }  # fmt: skip


def _gpus(job: Job) -> int:
    return int(facts_of(job)["gpus"])


def _bill(job: Job) -> tuple[float | None, float | None]:
    """Watts of GPUs and fabric, and dollars of the fabric, by the sheets; None where no sheet says."""
    _, summary = with_bill('{"jobs": [], "simulated_time_s": null}', job.source, job.overrides)
    cost = summary.get("cost") or {}
    return cost.get("power_w"), cost.get("fabric_usd")
