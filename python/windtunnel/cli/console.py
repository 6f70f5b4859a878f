"""Consoles: data on standard output, talk on standard error. Colours follow the terminal and `NO_COLOR`.

Rich is imported by who prints: with `--json` nobody does.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH = 100
"""Columns of output that does not go to a terminal."""


@cache
def out() -> Console:
    """Standard output."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)


@cache
def talk() -> Console:
    """Standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else PLAIN_WIDTH)


def say(text: str) -> None:
    """A sentence on standard error, as it is."""
    talk().print(text, markup=False, soft_wrap=True)


def print_json(text: str) -> None:
    """JSON text as it is, with one line break at its end."""
    sys.stdout.write(text.rstrip("\n") + "\n")
