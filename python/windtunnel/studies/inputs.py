"""The files that a run read: what decides a result beside its text.

The engine remembers each file that it looks for and says its name, as the scenario has it, with the SHA-256 of its
contents (`inputs` of the summary). Sheets that come with it are of its build, but for GPUs', whose files the bill
reads too. Names count from the scenario's folder, or from that of a file that named them: the
one of those places where the contents agree is kept. A name that fits nowhere, or a file that changed while the run
went on, makes a result that is never served again.

Before a run only the text is known: `named` looks through it for whatever is the name of a file, which is what travels
to another machine.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel import engine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from windtunnel.source import Source
    from windtunnel.studies.recipe import Digests

ABSENT = "absent"
"""Digest of a file that was looked for and is not there."""

UNKNOWN = "unknown"
"""Digest of a file that nobody can look up again. No file has it."""

SHEETS = "data/"
"""Begin of the names of sheets that come with the engine."""

PRICED = "data/gpus/"
"""Begin of those that the bill reads from their files: what the engine has of them is of its build."""

LONGEST = 1024
"""Characters of a text that may be the name of a file."""

PARTS = (".yaml", ".yml", ".json")
"""Ends of the names of files that may name files themselves."""


def read_by(summary: Mapping[str, Any], base: Path, digests: Digests, before_ns: int) -> list[tuple[str, str]]:
    """Files that the run of `summary` read, from `base`, with their digests, in order.

    A file that was changed after `before_ns`, the time at which the run began, is unknown.
    """
    from windtunnel.bill import sheet_digest

    found: dict[str, str] = {}
    folders = [Path()]
    left = [(str(one["name"]), str(one["sha256"])) for one in summary.get("inputs", [])]
    shipped = [name for name, _ in left if _is_shipped(name, base)]
    left = [one for one in left if one[0] not in shipped]
    progress = True
    while left and progress:
        progress = False
        for name, digest in list(left):
            path = next((folder / name for folder in folders if digests.of(base / folder / name) == digest), None)
            if path is None:
                continue
            progress = True
            left.remove((name, digest))
            found[path.as_posix()] = digest if _older(base / path, before_ns) else UNKNOWN
            if path.parent not in folders:
                folders.append(path.parent)
    for name, digest in left:
        if name.startswith(SHEETS) and not (base / name).exists():
            continue
        found[name] = ABSENT if digest == ABSENT and not (base / name).exists() else UNKNOWN
    found |= {name: sheet_digest(name.removeprefix(PRICED)) or ABSENT for name in shipped if name.startswith(PRICED)}
    return sorted(found.items())


def _is_shipped(name: str, base: Path) -> bool:
    """Whether this is a sheet that comes with the engine and so is of its build: they are called without an ending."""
    return name.startswith(SHEETS) and "." not in name and not os.path.exists(f"{base}/{name}")  # noqa: PTH110


def _older(path: Path, before_ns: int) -> bool:
    try:
        # The time of change of the file itself: one that was put in its place may bear an older time of writing.
        return path.stat().st_ctime_ns < before_ns
    except OSError:
        return False


def unchanged(inputs: Sequence[Sequence[str]], base: Path, digests: Digests) -> bool:
    """Whether all of `inputs` are as they were."""
    return all((_digest(name, base, digests) or ABSENT) == digest for name, digest in inputs)


def _digest(name: str, base: Path, digests: Digests) -> str | None:
    if not name.startswith(PRICED) or not _is_shipped(name, base):
        return digests.of(base / name)
    from windtunnel.bill import sheet_path

    path = sheet_path(name.removeprefix(PRICED))
    return None if path is None else digests.of(path)


def named(source: Source, overrides: Sequence[tuple[str, str]]) -> list[Path]:
    """Files that a scenario names, relative to its folder unless absolute, in order.

    Every text in the tree that is the name of a file counts as one, whatever its key. Files that are scenarios' parts
    themselves (`topology: {file: …}`) are looked through likewise, folders with all that is in them.
    """
    try:
        tree = json.loads(engine.scenario_tree(source.text, source.name, list(overrides)))
    except engine.InputError:
        return []
    return sorted(set(_files(tree, source.base, Path())))


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
            elif "/" in text and (base / path).is_dir():
                yield from (path / inner.relative_to(base / path) for inner in _inside(base / path))
        except (OSError, ValueError):
            continue


def _inside(folder: Path) -> list[Path]:
    return [inner for inner in sorted(folder.rglob("*")) if inner.is_file()]


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
