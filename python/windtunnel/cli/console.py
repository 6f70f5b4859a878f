"""Consoles: data on standard output, talk on standard error. Colours follow the terminal and `NO_COLOR`.

Rich is imported by who prints: with `--json` nobody does.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

    from rich.console import Console

PLAIN_WIDTH = 100
"""Columns of output that does not go to a terminal, unless `COLUMNS` says how many."""
WHOLE_WIDTH = 10_000
"""Columns of a table that must not be cut there."""


def _width(stream: TextIO, plain: int = PLAIN_WIDTH) -> int | None:
    """Columns of `stream`; None where the terminal or `COLUMNS` says them."""
    return None if stream.isatty() or os.environ.get("COLUMNS", "").isdigit() else plain


@cache
def out() -> Console:
    """Standard output."""
    from rich.console import Console

    return Console(highlight=False, width=_width(sys.stdout))


@cache
def whole() -> Console:
    """Standard output for tables of many columns: who reads them from a file or a pipe reads them whole."""
    from rich.console import Console

    return Console(highlight=False, width=_width(sys.stdout, WHOLE_WIDTH))


@cache
def talk() -> Console:
    """Standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, width=_width(sys.stderr))


def say(text: str) -> None:
    """A sentence on standard error, as it is."""
    talk().print(text, markup=False, soft_wrap=True)


def print_json(text: str) -> None:
    """JSON text as it is, with one line break at its end."""
    sys.stdout.write(text.rstrip("\n") + "\n")
