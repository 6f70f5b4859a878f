"""Quantities with units as systems and data sheets write them: `200 Gbps`, `1.3 us`, `64 KiB`."""

from __future__ import annotations

import re

from windtunnel import engine
from windtunnel.engine import InputError

BASES = {"time": 1e12, "rate": 8.0, "size": 1.0, "length": 1e3}
"""How many of the engine's base units (ps, bit/s, B, mm) make a second, a byte per second, a byte and a metre."""

UNITS: dict[str, dict[str, float]] = {
    kind: {unit: factor / base for unit, factor in engine.units(kind)} for kind, base in BASES.items()
}
"""Units by kind, in seconds, bytes per second, bytes and metres."""

WRITTEN = re.compile(r"\s*([-+0-9.eE_]+)\s*([A-Za-z/]+)\s*")


def quantity(text: object, kind: str, place: str) -> float:
    """The value of `text` in the base unit of `kind`. Raises `InputError` at `place`."""
    units = UNITS[kind]
    found = WRITTEN.fullmatch(str(text))
    try:
        number = float(found[1]) if found else None
    except ValueError:
        number = None
    if found is None or number is None or found[2] not in units:
        raise InputError(f"{place}: expected a {kind} such as `1 {next(iter(units))}`, found `{text}`")
    return number * units[found[2]]


def written(value: float, kind: str = "time") -> str:
    """A time, rate or size as text, with four digits."""
    if kind == "time":
        return f"{value * 1e6:.4g} us"
    if kind == "rate":
        return f"{value / 1e9:.4g} GB/s"
    return f"{value:.4g} B"
