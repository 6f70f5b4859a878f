"""Steps of the testbed's training jobs predicted at packet fidelity: half of the runs are fitted on, half judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.experiments.runs import Asked, run_all
from windtunnel.testbed.compare import HEADER, Fit, fitted, scenario
from windtunnel.testbed.training import STEPS, workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.testbed.fabric import Shape
    from windtunnel.testbed.training import Trained

WARM = 2
"""Steps before those that count: TCP's windows are open by then."""


@dataclass(frozen=True)
class Step:
    """A run: seconds of a step as measured, as simulated, and as predicted where it was not fitted on."""

    name: str
    measured: float
    simulated: float
    predicted: float | None
    host_bound: bool

    @property
    def error(self) -> float | None:
        """Of the prediction, with its sign."""
        return None if self.predicted is None else self.predicted / self.measured - 1


def simulated(shape: Shape, runs: Sequence[Trained], *, header: int = HEADER, paths: bool = True) -> list[float]:
    """Seconds of a step of each run, the mean of as many as were measured.

    With another `header` than the real one, packets hold as much payload; without `paths` switches hash for themselves.
    """
    asked = []
    for run in runs:
        ways = [(source, to, None if spine < 0 or not paths else spine) for source, to, spine in run.ways]
        text = scenario(shape, {"file": "steps.jsonl"}, ways, "cubic", header)
        asked.append(Asked(text, files={"steps.jsonl": workload(run, WARM + STEPS, run.alone)}))
        asked.append(Asked(text, files={"steps.jsonl": workload(run, WARM, run.alone)}))
    ends = [float(result.summary["jobs"][0]["finish_s"]) for result in run_all(asked)]
    return [(whole - begin) / STEPS for whole, begin in zip(ends[::2], ends[1::2], strict=True)]


def predicted(shape: Shape, runs: Sequence[Trained]) -> tuple[Fit | None, list[Step]]:
    """Each run; two constants are fitted on every second of those that the processor did not slow."""
    seconds = simulated(shape, runs)
    sound = [i for i, run in enumerate(runs) if not run.host_bound]
    learnt, judged = sound[::2], set(sound[1::2])
    fit = None
    if judged:
        fit = fitted(np.array([seconds[i] for i in learnt]), np.array([runs[i].step for i in learnt]))
    return fit, [
        Step(
            run.name,
            run.step,
            seconds[i],
            float(fit.seconds(np.array([seconds[i]]))[0]) if fit is not None and i in judged else None,
            run.host_bound,
        )
        for i, run in enumerate(runs)
    ]


def record(shape: Shape, runs: Sequence[Trained]) -> dict[str, Any]:
    """As `--json` has it: the median and largest error of runs not fitted on, those without any constant, each run."""
    fit, steps = predicted(shape, runs)
    errors = [abs(step.error) for step in steps if step.error is not None]
    raw = [abs(step.simulated / step.measured - 1) for step in steps if not step.host_bound]
    return {
        "fit": None if fit is None else dict(fit.__dict__),
        "median_abs_error": float(np.median(errors)) if errors else None,
        "largest_abs_error": max(errors) if errors else None,
        "raw": float(np.median(raw)) if raw else None,
        "host_bound": [step.name for step in steps if step.host_bound],
        "runs": [{**step.__dict__, "error": step.error} for step in steps],
    }
