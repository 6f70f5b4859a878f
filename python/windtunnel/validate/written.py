"""What calibrations wrote under `data`: JSON records of constants, and of the rows that they were fitted on."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA = Path(__file__).resolve().parents[3] / "data"
"""The data sheets of the checkout."""


@lru_cache(maxsize=256)
def written(*place: str) -> Mapping[str, Any]:
    """The record `data/PLACE.json`; empty where no calibration wrote one. `written.cache_clear()` after one did."""
    path = DATA.joinpath(*place[:-1], f"{place[-1]}.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found
