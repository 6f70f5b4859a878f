"""What section 7.1's regression makes of a ledger: fitted on the small scales, judged on the largest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from windtunnel.calibrate.loop.fit import problems_of
from windtunnel.calibrate.methods import Alignment
from windtunnel.engine import InputError

if TYPE_CHECKING:
    from windtunnel.calibrate.loop.ledger import Ledger
    from windtunnel.calibrate.loop.models import Models


@dataclass(frozen=True)
class Aligned:
    """Median errors of the kinds at the largest scale: as the current set predicts them, and by the regression."""

    scales: tuple[int, ...]
    """GPUs of the scales that were fitted on."""
    largest: int
    kinds: int
    before: float
    after: float
    coefficients: dict[str, float]


TERMS = ("N", "N T", "log N", "1/N", "T", "1")


def align(ledger: Ledger, models: Models) -> Aligned:
    """Fits times measured on N GPUs on N and the predicted times T, on all scales but the largest."""
    found = problems_of(ledger, models).get("collective")
    gpus = np.array([kind[3] * kind[4] for kind in found[1]] if found is not None else [])
    if found is None or len(set(gpus.tolist())) < 2:
        raise InputError(
            f"{ledger.folder}: expected collectives at two scales at least, found {len(set(gpus.tolist()))}\n\n"
            "hint: the regression of section 7.1 goes from small scales to a larger one"
        )
    problem, _ = found
    (initial,) = problem.predict([{}])
    largest = int(gpus.max())
    small = gpus < largest
    fitted = Alignment.of(gpus[small], initial[small], problem.measured[small])
    measured = problem.measured[~small]
    off = [np.abs(times / measured - 1) for times in (initial[~small], fitted.seconds(gpus[~small], initial[~small]))]
    return Aligned(
        tuple(sorted(set(gpus[small].tolist()))),
        largest,
        int((~small).sum()),
        float(np.median(off[0])),
        float(np.median(off[1])),
        dict(zip(TERMS, fitted.coefficients.tolist(), strict=True)),
    )
