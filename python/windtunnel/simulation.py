"""A run with a clock that the caller moves: stop it at an instant, look at what has happened, let it go on."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, cast

from windtunnel import engine
from windtunnel.api import run
from windtunnel.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from windtunnel.policies import Placement, Scheduler
    from windtunnel.progress import AnyProgress
    from windtunnel.results import Result

NS = 1_000_000_000


class Options(TypedDict, total=False):
    """Options of `windtunnel.run`; a plan takes `threads`, `allow_native` and `progress` alone."""

    fidelity: str | None
    seed: int | None
    threads: int | None
    overrides: Mapping[str, object] | None
    full: bool
    scheduler: str | type[Scheduler] | None
    placement: str | type[Placement] | None
    allow_native: bool
    progress: AnyProgress | None


@dataclass(frozen=True)
class Event:
    """Something that happened to a job or to a part of the machine."""

    time_s: float
    what: str
    """`submitted`, `started`, `stopped`, `suspended`, `interrupted`, `ended` or `fault`."""
    job: str | None
    """The job; of a fault the first that it interrupted."""
    gpus: int | None
    """GPUs that the job has, or that the fault took out."""
    component: str | None
    """The part that failed or is drained."""


class Simulation:
    """A run that stands still between two calls.

        with windtunnel.Simulation("month.yaml") as run:
            run.advance_until(3600.0)
            waiting = [event.job for event in run.events() if event.what == "submitted"]
            result = run.finish()

    The arguments are those of `windtunnel.run`, or a `windtunnel.Plan`. The run is simulated by another thread, which
    stops where its calendar would go beyond the instant that was allowed: between two events of the cluster. No
    figure depends on where a run was held. What the run raises is raised by the call that waits for it.
    """

    def __init__(
        self,
        scenario: str | Path | Mapping[str, Any] | Plan,
        *,
        out: str | Path | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._gate = engine.Gate()
        self._result: Result | None = None
        self._error: BaseException | None = None
        self._state: tuple[int, int | None, bool] = (0, None, False)
        self._events: list[Event] = []
        self._thread = threading.Thread(target=self._run, args=(scenario, out, options), daemon=True)
        self._thread.start()

    @property
    def now_s(self) -> float:
        """The last instant at which something happened, in simulated seconds."""
        return self._state[0] / NS

    @property
    def next_s(self) -> float | None:
        """The instant at which something happens next; None before the first call, and once the run has ended."""
        return None if self._state[1] is None else self._state[1] / NS

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return self._state[2]

    def advance_until(self, seconds: float) -> Self:
        """Lets everything happen that happens until `seconds`, and stops there."""
        self._gate.advance(_nanoseconds(seconds))
        return self._waited()

    def step(self) -> Self:
        """Goes to the next instant at which something happens, and stops there."""
        self._gate.step()
        return self._waited()

    def events(self) -> list[Event]:
        """What has happened since the last call, in order."""
        return [Event(at / NS, what, job, gpus, part) for at, what, job, gpus, part in self._gate.take()]

    def finish(self) -> Result:
        """Lets the run go to its end, and returns what it found."""
        self._gate.open()
        self._waited()
        if self._result is None:
            raise RuntimeError("the run was closed")
        return self._result

    def close(self) -> None:
        """Stops a run that has not ended: its result is partial, and with `out` it can go on (`windtunnel.resume`)."""
        self._gate.close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _waited(self) -> Self:
        self._state = self._gate.wait()
        if self.ended:
            self._thread.join()
            if self._error is not None:
                raise self._error
        return self

    def _run(self, scenario: str | Path | Mapping[str, Any] | Plan, out: str | Path | None, options: Options) -> None:
        try:
            if isinstance(scenario, Plan):
                self._result = scenario.run(out=out, gate=self._gate, **cast("dict[str, Any]", options))
            else:
                self._result = run(scenario, out=out, gate=self._gate, **options)
        except BaseException as error:  # noqa: BLE001 - raised where somebody waits for it
            self._error = error
        finally:
            self._gate.end()


def _nanoseconds(seconds: float) -> int:
    if not 0 <= seconds <= 2**64 / NS:
        raise engine.InputError(f"expected seconds from 0 to {2**64 / NS:.0f}, found `{seconds!r}`")
    return min(int(seconds * NS), 2**64 - 1)
