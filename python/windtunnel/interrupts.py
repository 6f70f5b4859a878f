"""What Ctrl-C, SIGTERM and SIGHUP do to a run, and to a command whose engine does not answer.

Python handles a signal between two of its own instructions, so never while the engine is at work. Therefore a run
looks for signals where the engine calls `progress`, some five times a second, and stops there with a partial result. An
engine that does not call (it lays out a large topology, or is caught in a loop) cannot be stopped from within. So
under the command line, within `watched`, a thread hears of each signal at once, through the pipe that
`signal.set_wakeup_fd` names. It ends the process if nobody has heeded the signal for `PATIENCE` seconds, or if another
one comes meanwhile. Nothing half-written stays then, and a run's journal does: the run can go on.

A process that only imports Windtunnel, such as a notebook's kernel, is not ours to end: there a signal waits until the
engine calls, or has ended.

Invariants: a signal that is heeded in time never ends the process from here; none is lost; signals that are ignored
stay so.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

    from windtunnel._engine import Progress

PATIENCE = 2.0
"""Seconds for which a signal may be unheeded."""

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""What ends a run and leaves a partial result."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came, as Slurm, Kubernetes and `timeout` send it, or SIGHUP: a Ctrl-C by another name."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Interrupts:
    """A signal waits for the next call of `progress`, where it raises: a batch of rows is never torn.

    Every later call raises too: a part of the engine that does not stop for the first is told again. A second signal
    before a call raises where it comes and leaves no result. What the caller's own `progress` raises is kept, and
    raised when the engine has stopped.
    """

    def __init__(self) -> None:
        self._pending: int | None = None
        self._heeded: float | None = None
        self.torn = False
        self.number = int(signal.SIGINT)
        self.raised: BaseException | None = None
        self.made: Path | None = None
        """The folder in the making, which does not outlive the process."""
        self.journal: Path | None = None
        """What the run can go on with."""

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Notes a signal."""
        if self._pending is not None and self._heeded is None:
            self.torn = True
            raise self.error(number)
        self._pending = number
        self.number = number

    @staticmethod
    def error(number: int) -> KeyboardInterrupt:
        """A signal as an exception."""
        return KeyboardInterrupt() if number == signal.SIGINT else Terminated(number)

    def is_heeded(self, since: float = 0.0) -> bool:
        """Whether the run has been told to stop, and again `since` this instant of the monotonic clock."""
        return self.torn or (self._heeded is not None and self._heeded >= since)

    def raising(self, progress: Progress) -> Progress:
        """`progress`, which raises once a signal has come."""

        def raising_progress(fraction: float | None, simulated_s: float, events: int, phase: str) -> None:
            if self._pending is not None:
                self._heeded = time.monotonic()
                raise self.error(self._pending)
            if self.raised is not None:
                raise self.raised
            try:
                progress(fraction, simulated_s, events, phase)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    self._pending, self._heeded = signal.SIGINT, time.monotonic()
                else:
                    self.raised = error
                raise

        return raising_progress

    def raise_unheeded(self) -> None:
        """Raises a signal that came so late that the engine ended without being told."""
        if self._pending is not None and self._heeded is None:
            raise self.error(self._pending)

    def clear(self) -> str:
        """Removes what is half-written; a hint for who wants to go on, if that can be."""
        if self.made is not None:
            shutil.rmtree(self.made, ignore_errors=True)
        if self.journal is None or not self.journal.is_file():
            return ""
        return f"\n\nhint: `windtunnel run --resume {self.journal.with_suffix('')}` goes on with what it had"


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Within it signals wait for `Interrupts.raising`, or for the end."""
    from windtunnel.engine import InputError, RunError  # noqa: PLC0415

    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    # What is ignored, as `nohup` has it, stays so.
    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = [(number, signal.signal(number, interrupts.handle)) for number in heard]
    try:
        with _Watch(heard, interrupts) if _Watch.allowed else nullcontext():
            yield interrupts
    except (InputError, RunError):
        # Raised inside a policy, it comes back as that one's failure.
        if interrupts.torn:
            raise interrupts.error(interrupts.number) from None
        raise
    finally:
        for number, handler in before:
            signal.signal(number, handler)


class _Raising(Interrupts):
    """Raises where a signal comes, as Python does."""

    def handle(self, number: int, _frame: FrameType | None) -> None:
        self._heeded = time.monotonic()
        raise self.error(number)


@contextmanager
def watched() -> Iterator[None]:
    """For a process of one command: within it a signal ends the process also while the engine is at work.

    Ctrl-C by what is here, SIGTERM and SIGHUP by themselves, and any of them by `interruptible`.
    """
    interrupts = _Raising()
    before, _Watch.allowed = _Watch.allowed, True
    try:
        usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if threading.current_thread() is not threading.main_thread() or not usual:
            yield
            return
        signal.signal(signal.SIGINT, interrupts.handle)
        try:
            with _Watch([signal.SIGINT], interrupts):
                yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    finally:
        _Watch.allowed = before


class _Watch:
    """A thread that ends the process where a signal of `heard` is not heeded; see the head of this file."""

    allowed = False
    """Whether this process may be ended: within `watched`."""
    pipes: set[int] = set()  # noqa: RUF012
    """Ends of the pipes of all watches; the innermost hears."""

    def __init__(self, heard: list[signal.Signals], interrupts: Interrupts) -> None:
        self._heard, self._interrupts = set(map(int, heard)), interrupts
        self._ended = threading.Event()
        self._number: int | None = None

    def __enter__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self.pipes.add(self._write)
        # Others may listen too, such as an event loop.
        self._before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        signal.set_wakeup_fd(self._before, warn_on_full_buffer=False)
        self.pipes.discard(self._write)
        os.close(self._write)
        self._thread.join(1.0)

    def _listen(self) -> None:
        due: float | None = None
        since = 0.0
        while True:
            left = None if due is None else max(0.0, due - time.monotonic())
            ready, _, _ = select.select([self._read], [], [], left)
            numbers = os.read(self._read, 64) if ready else b""
            if self._ended.is_set() or (ready and not numbers):
                os.close(self._read)
                return
            if numbers and self._before != -1 and self._before not in self.pipes:
                os.write(self._before, numbers)
            came = [number for number in numbers if number in self._heard]
            now = time.monotonic()
            if due is not None and (came or now >= due) and not self._interrupts.is_heeded(since):
                self._end()
            if due is not None and now >= due:
                due = None
            if came:
                # Heeding the first signal takes as long as a partial result does; a further one asks for more haste.
                since = now if self._number is not None else 0.0
                due, self._number = now + PATIENCE, came[0]

    def _end(self) -> None:
        hint = self._interrupts.clear()
        shown = "\x1b[?25h\n" if sys.stderr.isatty() else ""  # a progress line hides the cursor
        sys.stderr.write(f"{shown}error: interrupted while the engine was busy: there is no partial result{hint}\n")
        sys.stderr.flush()
        os._exit(128 + (self._number or 0))
