"""Where a scenario comes from: a file, text, or a mapping."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windtunnel.engine import InputError, nearest


@dataclass(frozen=True)
class Source:
    """Text of a scenario, the name messages give it, and the folder its relative paths start from."""

    text: str
    name: str
    base: Path


def read_source(scenario: str | Path | Mapping[str, Any]) -> Source:
    """A scenario from a path, from YAML text (any string with a line break or `: `), or from a mapping.

    Raises `InputError` if the file cannot be read.
    """
    if isinstance(scenario, Mapping):
        return Source(json.dumps(scenario, default=_plain), "<scenario>", Path.cwd())
    if not isinstance(scenario, str | Path):
        raise InputError(f"expected a path, YAML text or a mapping as scenario, found `{scenario!r}`")
    if isinstance(scenario, str) and ("\n" in scenario or ": " in scenario):
        return Source(scenario, "<scenario>", Path.cwd())
    if str(scenario) == "-":
        return Source(_decoded(sys.stdin.buffer.read(), "standard input"), "<standard input>", Path.cwd())
    path = Path(scenario)
    return Source(read_text(path), str(path), path.parent.resolve())


def read_text(path: Path) -> str:
    """The text of a file, or an `InputError` that names the nearest file there is."""
    try:
        return _decoded(path.read_bytes(), f"`{path}`")
    except FileNotFoundError:
        raise InputError(f"no such file: `{path}`{_nearest(path)}") from None
    except IsADirectoryError:
        raise InputError(f"a folder where a file is due: `{path}`") from None
    except OSError as error:
        raise InputError(f"cannot read `{path}`: {error.strerror}") from None


def _decoded(data: bytes, what: str) -> str:
    """Text of bytes in UTF-8, or an `InputError` that says what they are instead."""
    # Letters of UTF-16 have one byte of two, and scenarios begin with letters: without a mark of each pair one is NUL.
    wide = len(data) > 3 and bool(data[0]) != bool(data[1]) and bool(data[2]) != bool(data[3])
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or wide:
        raise InputError(f"{what} is UTF-16 text, expected UTF-8\n\nhint: `iconv -f utf-16 -t utf-8` converts it")
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{what} is not UTF-8 text: byte {error.start}") from None


def override_text(value: object) -> str:
    """The YAML text of an override: strings as they are, anything else as JSON, NumPy's values as numbers."""
    return value if isinstance(value, str) else json.dumps(value, default=_plain)


def _plain(value: object) -> object:
    """What JSON has of a value of NumPy's, or a path."""
    if isinstance(value, Path):
        return str(value)
    listed = getattr(value, "tolist", None)
    if listed is None:
        raise InputError(f"expected numbers, text, lists and mappings in a scenario, found `{value!r}`")
    return listed()


def _nearest(path: Path) -> str:
    if not path.parent.is_dir():
        return ""
    near = nearest(path.name, [p.name for p in path.parent.iterdir() if p.is_file()])
    return f"\n\nhint: did you mean `{path.parent / near}`?" if near else ""
