"""The manifest of a run: enough to run it again, and to say where its figures came from."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from windtunnel.version import __version__


def machine() -> dict[str, Any]:
    """The machine of this process: system, processor, cores usable, memory in bytes, Python version."""
    return dict(_machine())


@cache
def _machine() -> dict[str, Any]:
    return {
        "system": _system(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": _memory_bytes(),
        "python": sys.version.split()[0],
    }


def manifest(
    summary: dict[str, Any],
    *,
    source: str,
    overrides: list[tuple[str, str]],
    options: dict[str, Any],
    rows: dict[str, int],
) -> dict[str, Any]:
    """The manifest of the run that gave `summary`; `rows` counts the rows of each table."""
    return {
        "windtunnel": __version__,
        "scenario": summary.get("scenario"),
        "scenario_sha256": summary.get("scenario_sha256"),
        "source": source,
        "overrides": [f"{path}={value}" for path, value in overrides],
        "options": {key: value for key, value in options.items() if value not in (None, False)},
        "seed": summary.get("seed"),
        "fidelity": summary.get("fidelity"),
        "partial": summary.get("partial"),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "wall_time_s": summary.get("wall_time_s"),
        "machine": machine(),
        "tables": rows,
    }


def _system() -> str:
    """As `platform.platform` says it, which starts a process for it and takes a tenth of a short run."""
    if sys.platform != "linux":
        import platform  # noqa: PLC0415

        return platform.platform()
    here = os.uname()
    try:
        library = (os.confstr("CS_GNU_LIBC_VERSION") or "").replace(" ", "")
    except (ValueError, OSError):
        library = ""
    return f"{here.sysname}-{here.release}-{here.machine}" + (f"-with-{library}" if library else "")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    import platform  # noqa: PLC0415

    return platform.processor() or platform.machine()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
