"""A point: one run that is asked for, and what became of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from windtunnel.source import Source

State = Literal["done", "refused", "failed"]
"""`refused`: the scenario was no good (exit status 2 of `run`); `failed`: the run was (1), or it took too much."""


@dataclass(frozen=True)
class Point:
    """A scenario with overrides and options. `varied` is what distinguishes it from its neighbours, for tables."""

    source: Source
    overrides: tuple[tuple[str, str], ...] = ()
    seed: int | None = None
    fidelity: str | None = None
    full: bool = False
    varied: dict[str, Any] = field(default_factory=dict)
    files: tuple[tuple[str, str], ...] = ()
    """Texts by file name that the scenario finds in its folder, in place of what is there: then nothing else is."""
    policies: tuple[tuple[str, str], ...] = ()
    """Of `scheduler` and `placement`, classes of one's own as `FILE.py:CLASS`, the file's path absolute."""
    explain: bool = False
    """Whether only the engine's explanation is asked for (layers, memory, schedule), which is then the summary."""


@dataclass(frozen=True)
class Outcome:
    """What became of a point."""

    state: State
    text: str | None
    """What is in `summary.json`; None unless done."""
    message: str | None
    """Why there is none, in one line."""
    folder: Path | None
    wall_s: float
    cpu_s: float
    stored: bool
    """Whether it was there already."""
    detail: str | None = None
    """The message with its hint, where that has more lines."""
    peak_bytes: int | None = None
    """What the engine took at most, of one that was there already."""

    @cached_property
    def summary(self) -> dict[str, Any] | None:
        """What `text` says; it is read when somebody asks, as most of it is evidence."""
        found: dict[str, Any] | None = None if self.text is None else json.loads(self.text)
        return found


def first_line(message: str | None) -> str | None:
    """A message without its hint."""
    return None if message is None else message.partition("\n")[0]
