"""The files that a scenario names: what decides a result beside its text.

Every text in the scenario's tree that is the name of a file, as the engine would find it, counts as one, whatever its
key: too many make a stored result stale too soon, too few would serve a wrong one. Files that are scenarios' parts
themselves (`topology: {file: …}`) are looked through likewise, folders with all that is in them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel import engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windtunnel.studies.point import Point
    from windtunnel.studies.recipe import Digests

LONGEST = 1024
"""Characters of a text that may be the name of a file."""

PARTS = (".yaml", ".yml", ".json")
"""Ends of the names of files that may name files themselves."""


def inputs(point: Point, digests: Digests) -> list[tuple[str, str]]:
    """Files that `point` depends on, relative to its folder where they are below it, each with its digest, in order."""
    tree = json.loads(engine.scenario_tree(point.source.text, point.source.name, list(point.overrides)))
    base = point.source.base
    found = {str(path): digests.of(base / path) for path in _files(tree, base, Path())}
    return sorted((name, digest) for name, digest in found.items() if digest is not None)


def _files(tree: object, base: Path, folder: Path) -> Iterator[Path]:
    """Files named in `tree`, whose names count from `folder`, which counts from `base`."""
    for text in _texts(tree):
        if not text or len(text) > LONGEST or "\n" in text:
            continue
        path = folder / text
        try:
            if (base / path).is_file():
                yield path
                if path.suffix in PARTS:
                    yield from _files(_read(base / path), base, path.parent)
            elif (base / path).is_dir() and "/" in text:
                yield from (inner.relative_to(base) for inner in sorted((base / path).rglob("*")) if inner.is_file())
        except (OSError, ValueError):
            continue


def _texts(tree: object) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _texts(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _texts(value)


def _read(path: Path) -> Any:  # noqa: ANN401
    """What a part says; nothing where it is no YAML, which the engine will complain of."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (YAMLError, OSError, UnicodeDecodeError):
        return None
