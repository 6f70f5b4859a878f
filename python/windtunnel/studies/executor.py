"""What the runner asks of whoever runs points: processes of this machine, or a cluster.

The runner decides what is run, in which order and how often; an executor runs it and tells how it ended. It keeps no
results and knows no store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from windtunnel.studies.point import Point, State


@dataclass(frozen=True)
class Task:
    """A point, where its folder goes, and whether that has tables."""

    number: int
    point: Point
    place: Path
    tables: bool
    threads: int = 1
    """The result does not depend on them."""
    need_bytes: int = 0
    """Memory that it will take, as far as that can be told."""
    most_s: float | None = None
    """Wall time of its run, from its begin. Who runs it elsewhere keeps to this; on this machine the runner does."""
    most_bytes: int | None = None
    """Memory of its process, likewise."""


@dataclass(frozen=True)
class Answer:
    """How a task ended. The folder of one that is done is in its place."""

    number: int
    state: State
    text: str | None
    """The summary as JSON; None unless done."""
    message: str | None
    wall_s: float
    cpu_s: float
    meaning: str | None = None
    inputs: tuple[tuple[str, str], ...] = ()
    """Files that it read, from the scenario's folder, with their digests."""
    full_disk: bool = False
    """Whether it failed because no space was left."""
    begun: float = 0.0
    listed: dict[str, Any] = field(default_factory=dict)
    """What the index has of the summary, by column."""


@dataclass(frozen=True)
class Death:
    """A worker is gone, and the task that it ran is undone."""

    number: int
    how: str
    behind: tuple[int, ...] = ()
    """Tasks that waited for the same worker."""
    machine: bool = False
    """Whether the machine is gone and not the process alone: then the run had no part in it."""


def over(seconds: float, used_bytes: int, most_s: float | None, most_bytes: int | None) -> str | None:
    """What a run that has taken so much fails with; None if it may go on."""
    if most_s is not None and seconds > most_s:
        return f"took longer than {most_s:g} s"
    if most_bytes is not None and used_bytes > most_bytes:
        return f"took more than {most_bytes / 2**20:,.0f} MiB"
    return None


class Executor(Protocol):
    """Runs tasks. One thread uses it."""

    most: int
    """Runs at once, at most."""
    local: bool
    """Whether runs take this machine's memory, which the runner then watches with their time; else the executor does
    (`over`)."""

    def start(self, tasks: list[Task]) -> None:
        """Begins the first of `tasks`, and the others after it on the same worker."""

    def wait(self, seconds: float) -> list[Answer | Death]:
        """What ended since the last call, waiting for it at most so long."""

    def running(self) -> Mapping[int, float]:
        """Numbers of the tasks that run now, with the seconds for which they have; 0 of one whose process starts."""

    def used_bytes(self, number: int) -> int:
        """What the worker that runs `number` has in memory, 0 if unknown."""

    def stop(self, number: int) -> list[int]:
        """Ends the run of `number` and forgets it; returns the tasks that waited behind it, which are undone."""

    def close(self) -> None:
        """Ends all workers; what runs is undone."""
