"""What decides the bytes of a result, as keys: equal keys, equal results.

Three keys, each a hash. The *recipe* is of what is at hand before a run: the scenario's text, overrides, seed,
fidelity, options and the build of engine and bill; never time, place or threads. The *meaning* is the same with the
resolved tree in place of the text, so that two texts that mean the same share it. The *content key* is the meaning with
the digests of all files that the run read (`inputs.py`). A stored result is served to an equal recipe or meaning when
each of those files still has its digest.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel import engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.studies.point import Point


PARTS = ("bill.py", "policies.py")
"""This package's files that have a part in a result: they add to a summary, or make what the engine is told."""


@cache
def build() -> str:
    """Digest of all code that decides the bytes of a result: the engine's own file, and `PARTS`."""
    package = Path(__file__).resolve().parents[1]
    return _hash([engine_build(), *(file_digest(package / name) for name in PARTS)])


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


@lru_cache(maxsize=64)
def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _options(point: Point) -> list[object]:
    files = [(name, _text_digest(text)) for name, text in sorted(point.files)]
    policies = [(what, name.rpartition(":")[2], _policy_digest(name)) for what, name in point.policies]
    return [build(), point.seed, point.fidelity, point.full, point.explain, files, policies]


def _policy_digest(name: str) -> str | None:
    try:
        return file_digest(Path(name.rpartition(":")[0]))
    except OSError:
        return None


def recipe(point: Point) -> str:
    """The key of what is asked, before anything is read. A point keeps it, unless a policy's file decides it."""
    known: str | None = point.__dict__.get("_recipe")
    if known is None:
        known = _hash([_text_digest(point.source.text), point.overrides, _options(point)])
        if not point.policies:
            point.__dict__["_recipe"] = known
    return known


def scenario_text(point: Point) -> str:
    """What the scenario of `point` says, as JSON with its keys in order: equal trees, equal texts.

    Raises `InputError` where the text or an override is no YAML.
    """
    return engine.scenario_tree(point.source.text, point.source.name, list(point.overrides), in_order=True)


def meaning(point: Point, tree: str | None = None) -> str:
    """The key of what is meant, by its `scenario_text`. Raises `InputError` where that is no YAML."""
    return _hash([scenario_text(point) if tree is None else tree, _options(point)])


def content_key(meant: str, inputs: Sequence[tuple[str, str]]) -> str:
    """The key of what comes out."""
    return _hash([meant, inputs])


class Digests:
    """Digests of files, each worked out anew when the file's size, place or times differ."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, ...], str]] = {}

    def of(self, path: Path) -> str | None:
        """The digest of `path`, None if it cannot be read."""
        try:
            stat = path.stat()
            seen = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
            known = self._known.get(path)
            if known is None or known[0] != seen:
                known = self._known[path] = (seen, file_digest(path))
        except OSError:
            return None
        return known[1]
