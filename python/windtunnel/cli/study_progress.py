"""Progress of many runs on standard error: one bar over all points, time left, the slowest that runs now."""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from windtunnel.cli.console import talk
from windtunnel.cli.progress import PLAIN_PERIOD_S
from windtunnel.studies.runner import Progress
from windtunnel.text import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from windtunnel.studies.point import Point

WIDTH = 24
"""Letters of the bar."""


def line(progress: Progress, elapsed_s: float) -> str:
    """What is said `elapsed_s` seconds after the start."""
    words = [f"{progress.done} of {progress.total} points"]
    if progress.stored:
        words.append(f"{progress.stored} known before")
    made = progress.done - progress.stored
    if made and progress.done < progress.total:
        left = (progress.total - progress.done) * elapsed_s / made
        words.append(f"{duration(round(left, 1))} left")
    if progress.slowest is not None and progress.slowest_s > PLAIN_PERIOD_S:
        words.append(f"slowest for {duration(round(progress.slowest_s))}{_named(progress.slowest)}")
    return " · ".join(words)


def bar(progress: Progress) -> str:
    """The bar alone."""
    full = WIDTH * progress.done // max(1, progress.total)
    return "━" * full + "╌" * (WIDTH - full)


def end(progress: Progress, elapsed_s: float) -> str:
    """What is said when all is done: what ran, how many beside each other and why no more, the slowest."""
    made = progress.done - progress.stored
    words = [f"{progress.done} points"]
    if progress.stored:
        words.append(f"{progress.stored} known before")
    if made:
        words.append(f"{made} run in {duration(round(elapsed_s, 1))}")
        beside = f"{progress.at_once} beside each other at most"
        if progress.at_once < min(progress.asked, made):
            beside += f" of {progress.asked} that might: memory"
        if progress.gave_way:
            beside += f", {progress.gave_way} put off as memory ran out"
        words.append(beside)
    if progress.longest is not None:
        words.append(f"slowest {duration(progress.longest_s)}{_named(progress.longest)}")
    return " · ".join(words)


def _named(point: Point) -> str:
    """What distinguishes a point, if anything does."""
    values = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in point.varied.items())
    return f": {values}" if values else ""


class StudyProgress:
    """Hears the runner, says a line now and then or live, and knows where the study stands."""

    def __init__(self, total: int, say: Callable[[str], None] | None) -> None:
        self.total, self.last = total, None  # type: int, Progress | None
        self._say = say
        self._began = self._said = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        """Hears where the study stands; with other points than before, another study has begun."""
        now = time.monotonic()
        if self.last is not None and (progress.total != self.last.total or progress.done < self.last.done):
            self._began = now
        self.last = progress
        if self._say is not None:
            self._say(f"{bar(progress)} {line(progress, now - self._began)}")
        elif now - self._said >= PLAIN_PERIOD_S:
            self._said = now
            talk().print(line(progress, now - self._began), markup=False)

    def count(self, done: int, total: int) -> None:
        """Hears how many runs are done of how many."""
        self(Progress(done=done, total=total, stored=0, running=0, slowest=None, slowest_s=0.0))

    def kept(self) -> str:
        """How many are done of how many."""
        return f"0 of {self.total}" if self.last is None else f"{self.last.done} of {self.last.total}"

    def say_end(self) -> None:
        """Says what was done."""
        if self.last is not None:
            talk().print(end(self.last, time.monotonic() - self._began), markup=False, soft_wrap=True)


@contextmanager
def study_progress(total: int) -> Iterator[StudyProgress]:
    """A callback for the runner: a live bar on a terminal, else a line now and then.

    Within it SIGTERM is as good as Ctrl-C: what is done is kept.
    """
    with _terminable():
        if not sys.stderr.isatty():
            yield StudyProgress(total, None)
            return
        from rich.text import Text

        with talk().status(f"{total} points", spinner="dots") as status:
            yield StudyProgress(total, lambda text: status.update(Text(text)))


@contextmanager
def _terminable() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    heard = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    before = [(number, signal.signal(number, stop)) for number in heard]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
