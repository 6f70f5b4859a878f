"""Recordings where a workload is expected."""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel import engine

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def as_workload(file: Path) -> Iterator[Path]:
    """`file` itself if it is a workload; a workload made of it, with its coverage beside, if it is a recording.

    A recording, or a folder or archive of them, is read as `windtunnel import auto` does it; what is made lives as
    long as the context.

    Raises:
        InputError: the recording cannot be read, or is of no known kind.

    """
    answer = json.loads(engine.edit_workload(json.dumps({"do": "recording", "file": str(file)})))
    if not answer["recording"]:
        yield file
        return
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / f"{file.name or 'recorded'}.wtw"
        engine.import_recordings(json.dumps({"kind": "auto", "sources": [str(file)], "out": str(out)}))
        yield out
