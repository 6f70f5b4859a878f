"""JSON of the engine as tables: lists of records become tables, records become names and values."""

from __future__ import annotations

import json
from typing import Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from windtunnel.cli.console import out
from windtunnel.words import title, value_text


def show_json(text: str) -> None:
    """Prints JSON text."""
    _show(json.loads(text), depth=0)


def _show(value: Any, depth: int, key: str = "") -> None:  # noqa: ANN401
    if isinstance(value, dict):
        _show_record(value, depth, key)
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        if any(isinstance(v, (dict, list)) for item in value for v in item.values()):
            for item in value:
                _show_record(item, depth, key)
                out().print()
        else:
            _print(_records(value, key), depth)
    else:
        _print(Text(_plain(key, value)), depth)


def _show_record(record: dict[str, Any], depth: int, key: str) -> None:
    flat = {k: v for k, v in record.items() if not _nested(v)}
    if flat:
        table = Table.grid(padding=(0, 2))
        for name, value in flat.items():
            table.add_row(Text(title(name), style="dim"), Text(_plain(f"{key}_{name}" if key else name, value)))
        _print(table, depth)
    for name, value in record.items():
        if _nested(value):
            out().print()
            _print(Text(title(name), style="bold"), depth)
            _show(value, depth + 1, name)


def _records(records: list[dict[str, Any]], key: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    names = list(dict.fromkeys(name for record in records for name in record))
    for name in names:
        numeric = all(isinstance(record.get(name), (int, float, type(None))) for record in records)
        table.add_column(title(name), justify="right" if numeric else "left", overflow="fold")
    for record in records:
        table.add_row(*(Text(_plain(f"{key}_{name}", record.get(name))) for name in names))
    return table


def _nested(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(v, dict) for v in value))


def _plain(key: str, value: object) -> str:
    if isinstance(value, list):
        shown = ", ".join(value_text(key, item) for item in value[:16])
        return shown + (f", … ({len(value)} in all)" if len(value) > 16 else "")
    return value_text(key, value)


def _print(what: Table | Text, depth: int) -> None:
    out().print(Padding(what, (0, 0, 0, 2 * depth)))
