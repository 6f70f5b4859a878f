"""Runs a command whose processes record themselves, and collects what they wrote."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.engine import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).resolve().parent
TRACE = re.compile(r"rank(\d+)\.json")
WORLD = re.compile(rb'"world_size":\s*(\d+)')
HEAD = 1 << 16
"""Bytes of a trace in which `distributedInfo` stands: PyTorch writes it first."""


@dataclass(frozen=True)
class Recorded:
    """What a recorded command left."""

    status: int
    """Exit status of the command."""
    folder: Path
    ranks: list[int]
    """Ranks that wrote a trace."""
    world: int | None
    """Ranks of the process group, as the traces say."""

    @property
    def missing(self) -> list[int]:
        """Ranks of the process group without a trace."""
        return sorted(set(range(self.world or 0)) - set(self.ranks))


def record(command: Sequence[str], folder: Path, *, skip: int = 2, steps: int = 3) -> Recorded:
    """Runs `command` with PyTorch's profiler in every process that makes a process group; traces go to `folder`.

    The profiler records `steps` optimizer steps after `skip` others, or all from `init_process_group` on if `steps`
    is 0.

    Raises:
        InputError: the command cannot be started, or the folder has traces already.

    """
    if not command:
        raise InputError("no command to record\n\nhint: `windtunnel record -o traces -- python train.py`")
    folder.mkdir(parents=True, exist_ok=True)
    if found := sorted(path.name for path in folder.iterdir() if TRACE.fullmatch(path.name)):
        raise InputError(
            f"{folder}: expected a folder without traces, found `{found[0]}`\n\nhint: give another to `-o`"
        )
    before = os.environ.get("PYTHONPATH")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(HERE / "hook"), *([before] if before else [])]),
        "WINDTUNNEL_RECORDER": str(HERE / "inside.py"),
        "WINDTUNNEL_RECORD_DIR": str(folder.resolve()),
        "WINDTUNNEL_RECORD_SKIP": str(skip),
        "WINDTUNNEL_RECORD_STEPS": str(steps),
    }
    try:
        status = subprocess.run(list(command), env=environment, check=False).returncode
    except OSError as error:
        raise InputError(f"cannot start `{command[0]}`: {error.strerror}") from error
    found_ranks = {}
    for path in folder.iterdir():
        if match := TRACE.fullmatch(path.name):
            found_ranks[int(match[1])] = path
    worlds = [world for path in found_ranks.values() if (world := _world(path)) is not None]
    return Recorded(status, folder, sorted(found_ranks), max(worlds, default=None))


def _world(path: Path) -> int | None:
    with path.open("rb") as file:
        head = file.read(HEAD)
    if match := WORLD.search(head):
        return int(match[1])
    try:
        return int(json.loads(path.read_bytes())["distributedInfo"]["world_size"])
    except (ValueError, KeyError, TypeError):
        return None
