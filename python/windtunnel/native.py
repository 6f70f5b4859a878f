"""Native code that a scenario names (`network.backend.library`): what the user trusts, and a line on what is loaded.

A library runs in this process with all rights of its user, and a scenario may be anybody's. The engine loads one only
with `--allow-native` (`allow_native=True`), or if the user's own list has its SHA-256.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError

if TYPE_CHECKING:
    from windtunnel.studies.point import Point


def trusted_file() -> Path:
    """The user's list: a line per library, its SHA-256 first; what follows `#` is a remark."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "windtunnel" / "trusted-native"


def native_options(*, allow: bool) -> dict[str, Any]:
    """What the engine is told. Raises `InputError` for a line of the list that begins with no SHA-256."""
    return {"allow_native": allow, "trusted_native": _trusted(), "notice": _notice}


def consented(points: list[Point], *, allow: bool) -> list[Point]:
    """Points of a study whose runs may load native code, if `allow` says so: it goes where their policies go."""
    if not allow:
        return points
    return [replace(point, policies=(*point.policies, ("allow_native", "yes"))) for point in points]


def _trusted() -> list[str]:
    path = trusted_file()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from None
    digests = []
    for number, line in enumerate(lines, start=1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if not re.fullmatch(r"[0-9a-fA-F]{64}", words[0]):
            raise InputError(f"{path}:{number}: expected a SHA-256 of 64 hexadecimal digits, found `{words[0]}`")
        digests.append(words[0])
    return digests


def _notice(line: str) -> None:
    print(line, file=sys.stderr)
