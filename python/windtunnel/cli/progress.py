"""Progress on standard error: the phase, what part of it is done, simulated time, events per second, time left."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from windtunnel.cli.console import talk
from windtunnel.progress import SIMULATING
from windtunnel.text import duration, short_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windtunnel._engine import Progress

PLAIN_PERIOD_S = 10.0
"""Seconds between lines where standard error is no terminal."""


def status_line(
    fraction: float | None, simulated_s: float, events: int, elapsed_s: float, phase: str = SIMULATING
) -> str:
    """What is said of a phase `elapsed_s` seconds after its start, in which `events` were handled."""
    days = simulated_s / 86_400
    words = [phase] if phase != SIMULATING else []
    if phase == SIMULATING or simulated_s > 0:
        words.append(f"simulated {days:,.1f} days" if days >= 2 else f"simulated {duration(simulated_s)}")
    if elapsed_s > 0 and (phase == SIMULATING or events > 0):
        words.append(f"{short_count(events / elapsed_s)} events/s")
    if fraction is not None:
        words.append(f"{fraction:.0%}")
    if fraction and elapsed_s > 0:
        words.append(f"{duration(round(elapsed_s * (1 - fraction) / fraction, 1))} left")
    return " · ".join(words)


class Line:
    """What is said of a run: each phase by its own clock."""

    def __init__(self) -> None:
        self._phase = ""
        self._began = time.monotonic()

    def of(self, fraction: float | None, simulated_s: float, events: int, phase: str) -> str:
        """The line now."""
        now = time.monotonic()
        if phase != self._phase:
            self._phase, self._began = phase, now
        return status_line(fraction, simulated_s, events, now - self._began, phase)


@contextmanager
def progress() -> Iterator[Progress]:
    """A callback for the engine: a live line on a terminal, else a line now and then."""
    line = Line()
    if not sys.stderr.isatty():
        yield _plain(line)
        return
    with talk().status("starting", spinner="dots") as status:

        def live(fraction: float | None, simulated_s: float, events: int, phase: str) -> None:
            status.update(line.of(fraction, simulated_s, events, phase))

        yield live


def _plain(line: Line) -> Progress:
    last = time.monotonic()

    def tell(fraction: float | None, simulated_s: float, events: int, phase: str) -> None:
        nonlocal last
        text, now = line.of(fraction, simulated_s, events, phase), time.monotonic()
        if now - last >= PLAIN_PERIOD_S:
            last = now
            talk().print(text)

    return tell
