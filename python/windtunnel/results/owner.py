"""Whose a folder in the making is: names of processes, so that what a dead one left can be told from a live one's.

A name is host, process number and the clock ticks at which the process began: numbers are used again, and folders may
be shared between machines.
"""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path

_NAME = re.compile(r"([0-9a-f]{8})\.(\d+)\.(\d+|-)")


def owner() -> str:
    """The name of this process: letters, digits, dots and dashes."""
    return f"{_host()}.{os.getpid()}.{_began(os.getpid())}"


def is_gone(name: str) -> bool:
    """Whether the process of that name has ended for certain. Those of other machines are not known to have."""
    match = _NAME.fullmatch(name)
    return match is not None and match[1] == _host() and match[3] != "-" and _began(int(match[2])) != match[3]


def _host() -> str:
    return f"{zlib.crc32(os.uname().nodename.encode()):08x}"


def _began(pid: int) -> str:
    """Clock ticks from the system's start to that of the process; `-` if it is gone, or the system does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return "-"
    return stat.rpartition(")")[2].split()[19]
