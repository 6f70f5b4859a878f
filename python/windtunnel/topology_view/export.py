"""Where drawings and exports go: a file, whole or not at all, or standard output."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_text(path: Path | None, text: str) -> None:
    """Writes `text` beside `path` and renames it; without a path, or with `-`, to standard output."""
    if path is None or str(path) == "-":
        sys.stdout.write(text)
        return
    from windtunnel.results.folder import write_beside  # noqa: PLC0415 - loads the tables' libraries

    write_beside(path, text.encode())
