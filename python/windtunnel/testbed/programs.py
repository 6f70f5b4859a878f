"""What is said to the programs of the testbed's hosts, and heard from them: a line at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.engine import RunError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping


def tell(program: subprocess.Popen[str], text: str) -> None:
    """Writes a line to a program. Raises `RunError` with the program's last words if it has ended."""
    assert program.stdin is not None  # noqa: S101 - it has pipes
    try:
        program.stdin.write(text + "\n")
        program.stdin.flush()
    except BrokenPipeError:
        raise ended(program) from None


def line(program: subprocess.Popen[str]) -> str:
    """A line of a program. Raises `RunError` with the program's last words if it has ended."""
    assert program.stdout is not None  # noqa: S101
    found = program.stdout.readline()
    if not found:
        raise ended(program)
    return found.strip()


def hear(programs: Mapping[int, subprocess.Popen[str]], word: str) -> None:
    """Waits until all programs have said `word`. Raises `RunError` if one says something else."""
    for program in programs.values():
        found = line(program)
        if found != word:
            raise RunError(f"a host of the testbed says `{found}`, expected `{word}`")


def ended(program: subprocess.Popen[str]) -> RunError:
    """That a program has ended before its time, and what it said."""
    program.kill()
    assert program.stderr is not None  # noqa: S101
    words = program.stderr.read().strip().splitlines()
    return RunError(f"a host of the testbed ended: {words[-1] if words else 'killed'}")
