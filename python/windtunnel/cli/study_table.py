"""The table of a sweep as a file, and what it takes the place of."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.studies.rows import Row
    from windtunnel.studies.study import Study

ASKED = "windtunnel.asked"
"""Key of the Parquet file's metadata that says of what the table is."""


def file_name(name: str) -> str:
    """A study's name as that of a file."""
    return re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "study"


def write_table(study: Study, found: list[Row], metrics: Sequence[str], target: Path) -> None:
    """A row per combination: varied keys, metrics, half widths of their 95% intervals, state, message, folder."""
    from windtunnel.results.folder import write_beside
    from windtunnel.study_frame import study_frame

    frame = study_frame(found, study.varied_keys(), metrics)
    if target.suffix == ".csv":
        write_beside(target, frame.write_csv().encode())
        return
    import io

    buffer = io.BytesIO()
    frame.write_parquet(buffer, metadata={ASKED: json.dumps(_asked(study, target))})
    write_beside(target, buffer.getvalue())


def replaced(study: Study, target: Path) -> str | None:
    """What is said where `target` is the table of something else: another file, or other axes of a scenario.

    A study's own file may change: that is still the same study.
    """
    had = _read(target)
    now = _asked(study, target)
    if had is None or had == now or (now["study"] and (had["study"], had["of"]) == (True, now["of"])):
        return None
    of = "" if had["of"] == now["of"] else f" of `{had['of']}`"
    over = f" over {', '.join(f'`{key}`' for key in had['varied'])}"
    return (
        f"`{target}` is the table of another sweep{of}{over}: it and its page are replaced, the runs are kept\n\n"
        "hint: `--name` keeps both"
    )


def _asked(study: Study, target: Path) -> dict[str, Any]:
    """Whose table it is: the file from the table's folder, whether that is a study, and what is varied."""
    path = Path(study.place)
    of = os.path.relpath(path.absolute(), target.parent.absolute()) if path.is_file() else study.place
    return {"of": Path(of).as_posix(), "study": study.place != study.source.name, "varied": sorted(study.varied_keys())}


def _read(target: Path) -> dict[str, Any] | None:
    if not target.is_file():
        return None
    import polars as pl

    try:
        found = json.loads(pl.read_parquet_metadata(target).get(ASKED, "null"))
    except (pl.exceptions.PolarsError, OSError, ValueError):
        return None  # of another program
    return found if isinstance(found, dict) and {"of", "study", "varied"} <= set(found) else None
