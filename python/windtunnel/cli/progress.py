"""Progress on standard error: simulated time, events per second, time left."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from windtunnel.cli.console import talk
from windtunnel.text import duration, short_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windtunnel._engine import Progress

PLAIN_PERIOD_S = 10.0
"""Seconds between lines where standard error is no terminal."""


def status_line(fraction: float | None, simulated_s: float, events: int, elapsed_s: float) -> str:
    """What is said of a run `elapsed_s` seconds after its start."""
    days = simulated_s / 86_400
    words = [f"simulated {days:,.1f} days" if days >= 2 else f"simulated {duration(simulated_s)}"]
    if elapsed_s > 0:
        words.append(f"{short_count(events / elapsed_s)} events/s")
    if fraction:
        words.append(f"{fraction:.0%}")
        words.append(f"{duration(round(elapsed_s * (1 - fraction) / fraction, 1))} left")
    return " · ".join(words)


@contextmanager
def progress() -> Iterator[Progress]:
    """A callback for the engine: a live line on a terminal, else a line now and then."""
    began = time.monotonic()
    if not sys.stderr.isatty():
        yield _plain(began)
        return
    with talk().status("starting", spinner="dots") as status:

        def live(fraction: float | None, simulated_s: float, events: int) -> None:
            status.update(status_line(fraction, simulated_s, events, time.monotonic() - began))

        yield live


def _plain(began: float) -> Callable[[float | None, float, int], None]:
    last = began

    def line(fraction: float | None, simulated_s: float, events: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PLAIN_PERIOD_S:
            last = now
            talk().print(status_line(fraction, simulated_s, events, now - began))

    return line
