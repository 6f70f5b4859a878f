"""What decides the bytes of a result, as keys: equal keys, equal results.

The *recipe* is a hash of what is at hand before a run: the scenario's text, overrides, seed, fidelity, options and the
engine's build; never time, place or threads. The files that a scenario names (`inputs.py`) are kept beside it with
their digests, and a stored result is served when each still has its digest. The *content key* is a hash of all of this
with the resolved tree in place of the text: two texts that mean the same share it.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel import engine

if TYPE_CHECKING:
    from windtunnel.studies.point import Point


@cache
def engine_build() -> str:
    """Digest of the engine's own file: another build may give other bytes."""
    module = import_module(os.environ.get("WINDTUNNEL_ENGINE") or "windtunnel._engine")
    return file_digest(Path(str(module.__file__)))


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash(what: object) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def recipe(point: Point) -> str:
    """The key of what is asked, before anything is read."""
    return _hash([engine_build(), point.source.text, point.overrides, point.seed, point.fidelity, point.full])


def content_key(point: Point, inputs: list[tuple[str, str]]) -> str:
    """The key of what comes out."""
    tree = json.loads(engine.scenario_tree(point.source.text, point.source.name, list(point.overrides)))
    return _hash([engine_build(), tree, inputs, point.seed, point.fidelity, point.full])


class Digests:
    """Digests of files, each worked out anew when its size or its time of change differs."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[int, int, str]] = {}

    def of(self, path: Path) -> str | None:
        """The digest of `path`, None if it cannot be read."""
        try:
            stat = path.stat()
            known = self._known.get(path)
            if known is None or known[:2] != (stat.st_size, stat.st_mtime_ns):
                known = (stat.st_size, stat.st_mtime_ns, file_digest(path))
                self._known[path] = known
        except OSError:
            return None
        return known[2]
