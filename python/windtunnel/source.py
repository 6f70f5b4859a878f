"""Where a scenario comes from: a file, text, or a mapping."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windtunnel.engine import InputError


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
        return Source(json.dumps(scenario), "<scenario>", Path.cwd())
    if isinstance(scenario, str) and ("\n" in scenario or ": " in scenario):
        return Source(scenario, "<scenario>", Path.cwd())
    path = Path(scenario)
    return Source(read_text(path), str(path), path.parent.resolve())


def read_text(path: Path) -> str:
    """The text of a file, or an `InputError` that names the nearest file there is."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"no such file: `{path}`{_nearest(path)}") from None
    except IsADirectoryError:
        raise InputError(f"a folder where a file is due: `{path}`") from None
    except UnicodeDecodeError as error:
        raise InputError(f"`{path}` is not UTF-8 text: byte {error.start}") from None
    except OSError as error:
        raise InputError(f"cannot read `{path}`: {error.strerror}") from None


def override_text(value: object) -> str:
    """The YAML text of an override: strings as they are, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _nearest(path: Path) -> str:
    if not path.parent.is_dir():
        return ""
    near = difflib.get_close_matches(path.name, [p.name for p in path.parent.iterdir() if p.is_file()], n=1)
    return f"\n\nhint: did you mean `{path.parent / near[0]}`?" if near else ""
