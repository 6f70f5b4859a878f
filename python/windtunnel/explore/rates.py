"""What a second of a job costs and draws: the bill of a run (`windtunnel.bill`), asked for one second of so many GPUs.

Sheets say one power and one price for each part, so watts and dollars follow the GPUs and the time: over one number of
GPUs the fastest layout is also the cheapest, and over several it need not be.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windtunnel.bill import with_bill
from windtunnel.engine import InputError

if TYPE_CHECKING:
    from windtunnel.explore.search import Row
    from windtunnel.layout.job import Job

SAYS = {
    "energy": "what each GPU and the fabric draw (`power` of their sheets)",
    "dollars": "what the machine costs (`prices.gpu_hour`, or the prices of its sheets)",
}


@dataclass(frozen=True)
class Rate:
    """Of so many GPUs and as large a part of the fabric; None: no sheet says."""

    watts: float | None
    usd_per_s: float | None

    def joules(self, seconds: float, tokens: float) -> float | None:
        """Of a token, where an iteration takes so long."""
        return None if self.watts is None or not tokens else self.watts * seconds / tokens

    def dollars(self, seconds: float, tokens: float) -> float | None:
        """Of a token likewise."""
        return None if self.usd_per_s is None or not tokens else self.usd_per_s * seconds / tokens


def rate(job: Job, gpus: int) -> Rate:
    """The bill of one second of the job on so many GPUs."""
    second = {"name": "job", "ranks": gpus, "iteration_time_s": {"mean": 1.0}, "tokens_per_s": None}
    _, summary = with_bill(json.dumps({"jobs": [second], "simulated_time_s": None}), job.source, job.overrides)
    billed = ((summary.get("cost") or {}).get("jobs") or [{}])[0]
    return Rate(billed.get("iteration_energy_j"), billed.get("iteration_usd"))


def check_objective(job: Job, objective: str, gpus: int, *, at: str = "--objective") -> None:
    """Raises `InputError` for an objective, said `at` an option or a key, that no sheet has a figure of."""
    found = rate(job, gpus)
    known = {"energy": found.watts, "dollars": found.usd_per_s}
    if objective in known and known[objective] is None:
        said = f"{at} {objective}" if at.startswith("--") else f"{at}: {objective}"
        raise InputError(f"{said}: no sheet says {SAYS[objective]}")


def tokens_of(row: Row) -> float:
    """Tokens of an iteration."""
    return row[1].tokens_per_s * (row[1].iteration_s or 0.0)
