"""What a caller of `run` is told while it goes."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from windtunnel._engine import Progress

    AnyProgress: TypeAlias = Progress | Callable[[float | None, float, int], object]

SIMULATING = "simulating"
"""The phase in which the scenario itself is simulated."""

WRITING = "writing"
"""The phase in which tables, report and trace are written."""


def with_phases(progress: AnyProgress | None) -> Progress:
    """A callable of four arguments, the last one the phase.

    One that takes three hears the same until the engine has ended, with a fraction where that is of the simulation.
    """
    if progress is None:
        return _nobody
    try:
        inspect.signature(progress).bind(None, 0.0, 0, SIMULATING)
    except TypeError:
        return _of_three(progress)
    except ValueError:
        # Nobody knows what it takes.
        pass
    return progress  # type: ignore[return-value]


def _nobody(_fraction: float | None, _simulated_s: float, _events: int, _phase: str) -> None:
    pass


def _of_three(progress: AnyProgress) -> Progress:
    def without_phase(fraction: float | None, simulated_s: float, events: int, phase: str) -> None:
        if phase != WRITING:
            progress(fraction if phase == SIMULATING else None, simulated_s, events)  # type: ignore[call-arg]

    return without_phase
