"""Progress of many runs on standard error: points done, time left, the slowest that runs now."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from windtunnel.cli.console import talk
from windtunnel.cli.progress import PLAIN_PERIOD_S
from windtunnel.text import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windtunnel.studies.runner import Progress


def line(progress: Progress, elapsed_s: float) -> str:
    """What is said `elapsed_s` seconds after the start."""
    words = [f"{progress.done} of {progress.total} points"]
    if progress.stored:
        words.append(f"{progress.stored} known before")
    made = progress.done - progress.stored
    if made:
        left = (progress.total - progress.done) * elapsed_s / made
        words.append(f"{duration(round(left, 1))} left")
    if progress.slowest is not None and progress.slowest_s > PLAIN_PERIOD_S:
        values = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in progress.slowest.varied.items())
        words.append(f"slowest for {duration(round(progress.slowest_s))}: {values}")
    return " · ".join(words)


@contextmanager
def study_progress(total: int) -> Iterator[Callable[[Progress], None]]:
    """A callback for the runner: a live line on a terminal, else a line now and then."""
    began = last = time.monotonic()
    if sys.stderr.isatty():
        with talk().status(f"{total} points", spinner="dots") as status:
            yield lambda progress: status.update(line(progress, time.monotonic() - began))
        return

    def plain(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_PERIOD_S:
            last = time.monotonic()
            talk().print(line(progress, last - began), markup=False)

    yield plain
