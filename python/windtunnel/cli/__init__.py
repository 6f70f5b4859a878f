"""The command `windtunnel`. Exit status: 0 done, 1 a check or run failed, 2 bad input, 130 interrupted."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status. The version alone is said without anything else loaded."""
    if list(sys.argv[1:] if argv is None else argv) == ["--version"]:
        from windtunnel.version import __version__

        sys.stdout.write(f"windtunnel {__version__}\n")
        return 0
    from windtunnel.cli.app import main as run

    return run(argv)
