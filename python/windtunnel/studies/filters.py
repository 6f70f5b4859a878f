"""`KEY=VALUE` as a condition on the index: its columns, keys that were varied, and figures.

Keys are written in full or by their end, as the list shows them (`tp` for `jobs[0].parallelism.tp`). Numbers are
compared as numbers; a figure or a time that is given with a point is found by the digits that are given.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from windtunnel.engine import InputError, nearest
from windtunnel.studies.index import signed
from windtunnel.studies.listing import OPEN

if TYPE_CHECKING:
    from collections.abc import Sequence

STATES = ("queued", "running", "done", "refused", "failed", "interrupted")
TEXTS = ("name", "state", "fidelity", "windtunnel", "folder", "message", "recipe", "content", "build")
WHOLE = ("id", "seed", "peak_bytes")
ROUND = ("wall_s", "cpu_s", "begun")
SHOWN = {"took": "wall_s"}
"""Columns that the list calls otherwise."""

_NUMBER = re.compile(r"[+-]?(\d{1,30}(\.\d*)?|\.\d+)(e[+-]?\d{1,3})?", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class Asked:
    """A condition with `?` for its values, and the state that only a row's process can tell."""

    where: str = ""
    values: tuple[object, ...] = ()
    state: str | None = None


def asked(filters: Sequence[str], keys: Sequence[tuple[str, str]]) -> Asked:
    """What all of `filters` ask for, of an index that has these varied keys and figures.

    Raises `InputError` for what is no filter, and for a key or a state that does not exist.
    """
    conditions: list[str] = []
    values: list[object] = []
    state = None
    for text in filters:
        key, separator, value = text.partition("=")
        if not separator:
            raise InputError(f"expected KEY=VALUE, found `{text}`\n\nhint: such as `state=done`")
        if key == "state":
            _check_state(value)
            if value in OPEN:
                conditions.append(f"state in {OPEN}")
                state = value
                continue
        condition, given = _of(SHOWN.get(key, key), value, keys)
        conditions.append(condition)
        values += given
    return Asked(" and ".join(conditions), tuple(values), state)


def _of(key: str, value: str, keys: Sequence[tuple[str, str]]) -> tuple[str, list[object]]:
    if key in TEXTS:
        return f"{key} = ?", [value]
    if key in (*WHOLE, *ROUND):
        if _NUMBER.fullmatch(value) is None:
            raise InputError(f"{key}: expected a number, found `{value}`")
        if key == "seed" and value.isdigit():
            number = int(value)
            return "seed = ?", [signed(number) if number < 2**64 else number]
        return _near(key, value) if key in ROUND else (f"{key} = ?", [_number(value)])
    found = [(name, kind) for name, kind in keys if name == key or name.endswith(f".{key}")]
    if not found:
        raise _unknown(key, keys)
    conditions, values = [], []
    for name, kind in found:
        condition, given = _of_json(name, kind, value)
        conditions.append(condition)
        values += given
    return f"({' or '.join(conditions)})", values


def _of_json(name: str, kind: str, value: str) -> tuple[str, list[object]]:
    """That a varied key or a figure has this value."""
    path = '$."' + name.replace('"', "") + '"'
    number = _number(value) if _NUMBER.fullmatch(value) else None
    if kind == "figure":
        condition, given = ("0", []) if number is None else _near("json_extract(figures, ?)", value)
        return condition, [one for bound in given for one in (path, bound)]
    # What the JSON has of it is looked for as text first, which spares most rows the reading of their JSON.
    first = None
    if number is None and re.fullmatch(r"[A-Za-z0-9 _-]+", value):
        first = f'{json.dumps(name)}: "{value}"'
    elif number is not None and 1 <= abs(number) < 2**53:
        first = f"{json.dumps(name)}: {int(number)}"
    plain = value.lower()
    if plain in ("true", "false", "none"):
        return "json_type(varied, ?) = ?", [path, "null" if plain == "none" else plain]
    condition = (
        "case json_type(varied, ?) when 'integer' then json_extract(varied, ?) = ? when 'real' then "
        "json_extract(varied, ?) = ? when 'text' then json_extract(varied, ?) = ? when 'array' then "
        "json_extract(varied, ?) = ? when 'object' then json_extract(varied, ?) = ? else 0 end"
    )
    bare = value.replace(" ", "")
    given = [path, path, number, path, number, path, value, path, bare, path, bare]
    return (f"(instr(varied, ?) and {condition})", [first, *given]) if first else (f"({condition})", given)


def _near(column: str, value: str) -> tuple[str, list[object]]:
    """That a number is `value` as far as that is given: exactly, unless it has a point."""
    given = Decimal(value)
    exponent = given.as_tuple().exponent
    if "." not in value or not isinstance(exponent, int):
        return f"({column} = ?)", [_number(value)]
    half = Decimal(5).scaleb(exponent - 1)
    return f"({column} >= ? and {column} <= ?)", [float(given - half), float(given + half)]


def _number(value: str) -> int | float:
    return int(value) if re.fullmatch(r"[+-]?\d+", value) else float(value)


def _unknown(key: str, keys: Sequence[tuple[str, str]]) -> InputError:
    names = [*TEXTS, *WHOLE, *ROUND, *SHOWN, *(name for name, _ in keys)]
    near = nearest(key, [*names, *(name.rpartition(".")[2] for name in names)])
    hint = f"did you mean `{near}`?" if near else f"there are {', '.join(dict.fromkeys(names))}"
    return InputError(f"no such key: `{key}`\n\nhint: {hint}")


def _check_state(value: str) -> None:
    if value not in STATES:
        near = nearest(value, list(STATES))
        hint = f"did you mean `{near}`?" if near else f"there are {', '.join(STATES)}"
        raise InputError(f"no such state: `{value}`\n\nhint: {hint}")
