"""What the index lists, as records and as JSON text: a long list is made of texts that are JSON already."""

from __future__ import annotations

import json
from functools import cache
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any

from windtunnel.results.owner import is_gone
from windtunnel.studies.index import unsigned

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

BY_NAME = "folder "
"""Begin of what stands for the recipe of a run by name."""

ATTEMPT = "attempt "
"""Begin of what stands for the recipe of a run by name that has no folder: it was refused, or failed."""

_READ = (
    "id", "name", "content", "windtunnel", "build", "seed", "fidelity", "varied", "figures", "state", "message",
    "wall_s", "cpu_s", "peak_bytes", "folder", "owner", "begun",
)  # fmt: skip
_RAW = ("varied", "figures")
"""Columns that are JSON."""

OPEN = "('interrupted', 'queued', 'running')"
"""States of rows of which the process says which they are: one that is gone has been cut off."""


def records(
    db: sqlite3.Connection, where: str, values: tuple[object, ...], limit: int | None, state: str | None = None
) -> Iterator[dict[str, Any]]:
    """Runs, the newest first: `where` is a condition on columns with `?` for `values`, `state` what each must have."""
    for row, by_name in _rows(db, where, values, limit, state):
        record = dict(zip(_READ, row, strict=True))
        record["varied"] = json.loads(record["varied"])
        record["figures"] = json.loads(record["figures"] or "{}")
        yield record | {"by_name": by_name}


def json_text(
    db: sqlite3.Connection, where: str, values: tuple[object, ...], limit: int | None, state: str | None = None
) -> str:
    """`records` as a JSON list."""
    form = ", ".join(f'"{name}": %s' for name in _READ)
    form = f'{{{form}, "by_name": %s}}'
    raw = [_READ.index(name) for name in _RAW]
    found = []
    for row, by_name in _rows(db, where, values, limit, state):
        parts = [
            encode_basestring_ascii(value) if value.__class__ is str else "null" if value is None else repr(value)
            for value in row
        ]
        parts.append("true" if by_name else "false")
        for at in raw:
            parts[at] = row[at] or "{}"
        found.append(form % tuple(parts))
    return f"[{', '.join(found)}]"


def _rows(
    db: sqlite3.Connection, where: str, values: tuple[object, ...], limit: int | None, state: str | None
) -> Iterator[tuple[list[Any], bool]]:
    """Values of `_READ`, and whether the run has a name of its own."""
    if any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values):
        return  # no column holds such a number
    # All of them: sorting takes less than walking by an index.
    order = "order by begun desc, id desc" if limit is not None else "order by +begun desc, id desc"
    text = f"select recipe, {', '.join(_READ)} from runs {f'where {where}' if where else ''} {order}"  # noqa: S608
    if limit is not None and state is None:
        text += f" limit {int(limit)}"
    gone = cache(is_gone)
    state_at, owner_at, seed_at = (_READ.index(name) for name in ("state", "owner", "seed"))
    left = limit
    for recipe, *row in db.execute(text, values):
        row[seed_at] = unsigned(row[seed_at])
        if row[state_at] in ("queued", "running") and gone(row[owner_at] or ""):
            row[state_at] = "interrupted"
        if state is not None and row[state_at] != state:
            continue
        if left is not None:
            if left == 0:
                return
            left -= 1
        yield row, recipe.startswith((BY_NAME, ATTEMPT))
