"""Options of all commands that run many points: how many at once, within which limits, and where."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from windtunnel.cli.declare import Option
from windtunnel.engine import InputError, nearest, units

if TYPE_CHECKING:
    from windtunnel.studies.executor import Executor
    from windtunnel.studies.runner import Limits

WorkersOption = Annotated[
    int | None, Option("--workers", min=1, help="Runs at once, at most (default: as many as cores).")
]
TimeLimitOption = Annotated[float | None, Option("--time-limit", min=0.001, metavar="SECONDS", help="Longest run.")]
MemoryLimitOption = Annotated[
    str | None, Option("--memory-limit", metavar="SIZE", help="Most memory of a run, such as `2 GB`.")
]
MemoryOption = Annotated[
    str | None,
    Option("--memory", metavar="SIZE", help="Memory of all runs together (default: 80% of what is free)."),
]
EngineOption = Annotated[
    str, Option("--engine", metavar="local|ray[:ADDRESS]", help="Where: on this machine, or on a Ray cluster.")
]
NativeOption = Annotated[
    bool, Option("--allow-native", help="Let the library of `network.backend` run in the runs' processes.")
]
FreshOption = Annotated[bool, Option("--fresh", help="Run anew what the store has.")]


def size_bytes(text: str, where: str) -> int:
    """`2 GB` in bytes."""
    known = dict(units("size"))
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]+)\s*", text)
    if found is None or found[2] not in known:
        near = nearest(found[2], list(known)) if found else None
        hint = f"did you mean `{near}`?" if near else f"units are {', '.join(f'`{unit}`' for unit in known)}"
        raise InputError(f"{where}: expected a size such as `2 GB`, found `{text}`\n\nhint: {hint}")
    return int(float(found[1]) * known[found[2]])


def limits_of(
    workers: int | None,
    seconds: float | None = None,
    memory_limit: str | None = None,
    memory: str | None = None,
    engine: str = "local",
) -> Limits:
    """The limits that options ask for, and where they hold. Raises `InputError` for what cannot be."""
    from windtunnel.studies.runner import Limits

    limits = Limits(
        workers=workers,
        seconds=seconds,
        memory_bytes=None if memory_limit is None else size_bytes(memory_limit, "--memory-limit"),
        together_bytes=None if memory is None else size_bytes(memory, "--memory"),
        engine=engine,
    )
    limits.check()
    return limits


def executor_of(engine: str, limits: Limits) -> Executor:
    """Who runs points within `limits`: processes of this machine, or a Ray cluster."""
    from dataclasses import replace

    return replace(limits, engine=engine).executor()
