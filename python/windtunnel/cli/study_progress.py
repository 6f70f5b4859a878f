"""Progress of many runs on standard error: one bar over all points, time left, the slowest that runs now."""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from windtunnel.cli.console import talk
from windtunnel.cli.progress import PLAIN_PERIOD_S
from windtunnel.studies.runner import Progress
from windtunnel.text import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
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


def end(rounds: Sequence[Progress], elapsed_s: float) -> str:
    """What is said when all is done: what ran, how many beside each other and why no more, the slowest.

    `rounds` are where the rounds of a study stood at their ends.
    """
    stored, made = _counts(rounds)
    words = [f"{stored + made} points"]
    if stored:
        words.append(f"{stored} known before")
    if made:
        words.append(f"{made} run in {duration(round(elapsed_s, 1))}")
        beside = f"{max(one.at_once for one in rounds)} beside each other at most"
        if any(_was_held(one) for one in rounds):
            beside += f" of {max(one.asked for one in rounds)} that might: memory"
        gave_way = sum(one.gave_way for one in rounds)
        if gave_way:
            beside += f", {gave_way} put off as memory ran out"
        words.append(beside)
    slowest = max(rounds, key=lambda one: one.longest_s)
    if slowest.longest is not None:
        words.append(f"slowest {duration(slowest.longest_s)}{_named(slowest.longest)}")
    return " · ".join(words)


def record(rounds: Sequence[Progress], elapsed_s: float) -> dict[str, Any]:
    """The same for JSON.

    `points`, of them `known` before and `run`, in `wall_s` seconds; runs `beside` each other at most, of
    `workers` that might; whether `memory` kept it from more, and how many were `put_off`; the `slowest` run.
    """
    stored, made = _counts(rounds)
    slowest = max(rounds, key=lambda one: one.longest_s, default=None)
    longest = None if slowest is None else slowest.longest
    return {
        "points": stored + made, "known": stored, "run": made, "wall_s": round(elapsed_s, 3),
        "beside": max((one.at_once for one in rounds), default=0),
        "workers": max((one.asked for one in rounds), default=0),
        "memory": any(_was_held(one) for one in rounds), "put_off": sum(one.gave_way for one in rounds),
        "slowest": None if slowest is None or longest is None
        else {"varied": longest.varied, "wall_s": slowest.longest_s},
    }  # fmt: skip


def _counts(rounds: Sequence[Progress]) -> tuple[int, int]:
    """Points that were known before, and those that were run."""
    stored = sum(one.stored for one in rounds)
    return stored, sum(one.done for one in rounds) - stored


def _was_held(progress: Progress) -> bool:
    """Whether fewer ran beside each other than might have: memory alone keeps runs apart."""
    return progress.at_once < min(progress.asked, progress.done - progress.stored - progress.alike)


def _named(point: Point) -> str:
    """What distinguishes a point, if anything does."""
    values = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in point.varied.items())
    return f": {values}" if values else ""


class StudyProgress:
    """Hears the runner, says a line now and then or live, and knows where the study stands."""

    def __init__(self, total: int, say: Callable[[str], None] | None) -> None:
        self.total, self.last = total, None  # type: int, Progress | None
        self._say = say
        self._rounds: list[Progress] = []
        self._first = self._began = self._said = self._heard = time.monotonic()

    def begin(self) -> None:
        """Another round begins: what the end says, and what is kept, is of all of them."""
        if self.last is not None:
            self._rounds.append(self.last)
            self.last = None
        self._began = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        """Hears where the study stands; with other points than before, another study has begun."""
        now = self._heard = time.monotonic()
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
        told = self._told()
        return f"{sum(one.done for one in told)} of {sum(one.total for one in told) or self.total}"

    def end(self) -> str:
        """What was done, empty if nothing was heard."""
        told = self._told()
        return end(told, self._took_s()) if told else ""

    def record(self) -> dict[str, Any]:
        """What was done, for JSON."""
        return record(self._told(), self._took_s())

    def say_end(self) -> None:
        """Says what was done."""
        if self.last is not None:
            talk().print(self.end(), markup=False, soft_wrap=True)

    def _took_s(self) -> float:
        """Seconds from the start to what was heard last, of all rounds."""
        return self._heard - (self._first if self._rounds else self._began)

    def _told(self) -> list[Progress]:
        return [*self._rounds, *([] if self.last is None else [self.last])]


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
