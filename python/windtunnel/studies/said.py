"""What a point says of itself before it is run: its scenario's name, seed and fidelity, for the list of runs."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from windtunnel import engine

if TYPE_CHECKING:
    from windtunnel.studies.point import Point

KEYS = ("name", "seed", "fidelity")


def said(point: Point) -> dict[str, Any]:
    """`KEYS` of `point`, None where neither its text nor an override says them; a text that is no YAML says nothing.

    A text is read once, whatever its points set in it: a study has many of one text.
    """
    found = dict(_of_text(point.source.text))
    found |= {path: value.strip().strip("'\"") for path, value in point.overrides if path in KEYS}
    found |= {key: value for key in KEYS[1:] if (value := getattr(point, key)) is not None}
    seed, name, fidelity = (found.get(key) for key in ("seed", "name", "fidelity"))
    number = int(str(seed)) if str(seed).isdigit() else None
    return {
        "name": None if name is None else str(name),
        "seed": number if number is not None and number < 2**64 else None,
        "fidelity": None if fidelity is None else str(fidelity),
    }


@lru_cache(maxsize=64)
def _of_text(text: str) -> dict[str, Any]:
    try:
        tree = json.loads(engine.scenario_tree(text, "scenario", []))
    except engine.InputError:
        return {}
    if not isinstance(tree, dict):
        return {}
    return {key: tree[key] for key in KEYS if isinstance(tree.get(key), str | int | float)}
