"""Keys of a piece of a scenario, held to the schema: which of them it does not know."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.experiments.spec import parse_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator


@cache
def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(engine.schema())
    return found


def pieces(block: str) -> Iterator[dict[str, Any]]:
    """Mappings of a block; a key that stands there again begins another, as where a page shows two ways."""
    entries = re.findall(r"^\S.*\n(?:[ \n].*\n|\n)*", block, flags=re.MULTILINE)
    piece: dict[str, Any] = {}
    for entry in entries:
        read = parse_yaml(entry, "block")
        if read is None:
            continue
        if read.keys() & piece.keys():
            yield piece
            piece = {}
        piece |= read
    yield piece


def unknown(piece: dict[str, Any]) -> list[str]:
    """Keys, by their place, that no record of a scenario has which might be meant by `piece`."""
    records = [schema(), *schema()["$defs"].values()]
    meant = [record for record in records if piece.keys() <= record.get("properties", {}).keys()]
    if not meant:
        return [f"no record has all of {', '.join(piece)}"]
    return _nearest(piece, meant, "")


def _nearest(value: object, ways: list[dict[str, Any]], place: str) -> list[str]:
    """What is unknown by the way that was meant: one of the same kinds of values, and with the fewest strangers."""
    found = [list(_unknown(value, way, place)) for way in ways]
    return min(found, key=lambda said: (any(": no " in one for one in said), len(said)))


def _unknown(value: object, record: dict[str, Any], place: str) -> Iterator[str]:
    if "$ref" in record:
        record = schema()["$defs"][record["$ref"].rpartition("/")[2]]
    ways = [*record.get("anyOf", ()), *record.get("oneOf", ())]
    if ways:
        yield from _nearest(value, ways, place)
    elif isinstance(value, list):
        if not _may_be(record, "array"):
            yield f"{place}: no list"
        for i, item in enumerate(value):
            yield from _unknown(item, record.get("items", {}), f"{place}[{i}]")
    elif isinstance(value, dict):
        yield from _unknown_keys(value, record, place)
    elif not any(_may_be(record, kind) for kind in ("string", "number", "integer", "boolean", "null")):
        yield f"{place}: no value"
    elif value not in record.get("enum", [record.get("const", value)]):
        yield f"{place}: another of the names there are"


def _unknown_keys(value: dict[str, Any], record: dict[str, Any], place: str) -> Iterator[str]:
    if not _may_be(record, "object"):
        yield f"{place}: no record"
    for key, inner in value.items():
        known = record.get("properties", {}).get(key)
        others = record.get("additionalProperties", True)
        if known is not None or isinstance(others, dict):
            yield from _unknown(inner, known or others, f"{place}.{key}")
        elif not others:
            yield f"{place}.{key}"


def _may_be(record: dict[str, Any], kind: str) -> bool:
    kinds = record.get("type", kind)
    return kind in kinds if isinstance(kinds, list) else kind == kinds
