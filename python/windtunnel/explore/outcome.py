"""The outcome of a search as a record: the best layouts, the front, what was left out, a baseline, energy, dollars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.bill import with_bill
from windtunnel.explore.prove import reordering
from windtunnel.explore.rates import rate, tokens_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windtunnel.explore.prove import Proven
    from windtunnel.explore.rates import Rate
    from windtunnel.explore.search import Found, Row
    from windtunnel.layout.job import Job

FRONT = 100
"""Layouts of the front that are told."""


def outcome(job: Job, found: Found, rows: list[Proven], *, top: int, objective: str = "time") -> dict[str, Any]:
    """The record that `--json` prints."""
    best = rows[0]
    power, dollars = _bill(job)
    gpus = sorted({row[0].gpus for row in found.rows})
    rates = {number: rate(job, number) for number in gpus}
    baseline = found.sailor(best.candidate.gpus)
    own = best.answer.iteration_s or 1.0
    joules, usd = of_token(best, rates)
    return {
        "scenario": job.source.name,
        "model": job.own["model"],
        "gpus": best.candidate.gpus,
        "objective": objective,
        "interrupted": found.stopped,
        "exhaustive": found.whole,
        "tried": found.tried,
        "fit": len(found.rows),
        "best": _row(best, rates),
        "rows": [_row(row, rates) for row in rows[:top]],
        "front": [_on_front(row, rates) for row in found.front()[:FRONT]],
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
        "energy_j_per_token": joules,
        "usd_per_token": usd,
    }  # fmt: skip


def of_token(row: Proven, rates: Mapping[int, Rate]) -> tuple[float | None, float | None]:
    """Joules and dollars of a token, by the finest run that there is."""
    found, tokens = rates[row.candidate.gpus], tokens_of((row.candidate, row.answer))
    return found.joules(row.best_s, tokens), found.dollars(row.best_s, tokens)


def _on_front(row: Row, rates: Mapping[int, Rate]) -> dict[str, Any]:
    candidate, answer = row
    seconds, tokens, found = answer.iteration_s or 0.0, tokens_of(row), rates[candidate.gpus]
    return {
        "iteration_s": answer.iteration_s, "memory_bytes": answer.memory_bytes,
        "energy_j_per_token": found.joules(seconds, tokens), "usd_per_token": found.dollars(seconds, tokens),
        "layout": candidate.record(),
    }  # fmt: skip


def _row(row: Proven, rates: Mapping[int, Rate]) -> dict[str, Any]:
    joules, usd = of_token(row, rates)
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
        "energy_j_per_token": joules,
        "usd_per_token": usd,
        "limited_by": row.answer.limit(),
        "parts_s": {
            "compute": row.answer.compute_s, "inside": row.answer.inside_s, "data": row.answer.data_s,
            "pipeline": row.answer.pipeline_s,
        },
        "held_s": row.answer.held_s,
        "message": row.message,
        "folder": row.folder,
    }  # fmt: skip


def _bill(job: Job) -> tuple[float | None, float | None]:
    """Watts of GPUs and fabric, and dollars of the fabric, by the sheets; None where no sheet says."""
    _, summary = with_bill('{"jobs": [], "simulated_time_s": null}', job.source, job.overrides)
    cost = summary.get("cost") or {}
    return cost.get("power_w"), cost.get("fabric_usd")
