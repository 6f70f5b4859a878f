"""What is read on the way to a result, noted for whoever wants to know later whether it has changed.

with reading(Read()) as read:
    ...  # whoever looks for measured tables calls `note_folder`
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windtunnel.results import Result
    from windtunnel.studies.point import Point
    from windtunnel.studies.store import Store


@dataclass
class Read:
    """Runs that were asked for, and folders of measured tables that were looked for."""

    folders: set[Path] = field(default_factory=set)
    runs: set[tuple[str, str]] = field(default_factory=set)
    """Folder of the scenario, and folder of the run."""

    def note(self, points: Sequence[Point], found: Sequence[Result]) -> None:
        """Remembers runs that were asked for."""
        self.runs |= {
            (str(point.source.base.resolve()), str(result.path)) for point, result in zip(points, found, strict=True)
        }

    def inputs(self, store: Store) -> set[tuple[str, str]]:
        """Files that the runs read, as the store has them, each list with the folder that its names count from."""
        return {(base, inputs) for base, folder in self.runs if (inputs := store.inputs(Path(folder))) != "[]"}


_reading: ContextVar[Read] = ContextVar("what is read")


@contextmanager
def reading(read: Read) -> Iterator[Read]:
    """Within it, what is read is noted in `read`."""
    token = _reading.set(read)
    try:
        yield read
    finally:
        _reading.reset(token)


def note_folder(folder: Path) -> None:
    """Notes, if somebody wants to know, that measured tables are read from `folder`."""
    read = _reading.get(None)
    if read is not None:
        read.folders.add(folder.resolve())
