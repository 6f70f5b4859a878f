"""Quantities with units as systems and data sheets write them: `200 Gbps`, `1.3 us`, `64 KiB`."""

from __future__ import annotations

import re

from windtunnel.engine import InputError

UNITS: dict[str, dict[str, float]] = {
    "time": {"ps": 1e-12, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0},
    "rate": {
        "bps": 0.125, "Kbps": 125.0, "Mbps": 125e3, "Gbps": 125e6, "Tbps": 125e9,
        "B/s": 1.0, "KB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12,
    },
    "size": {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "KB": 1e3, "MB": 1e6, "GB": 1e9},
    "length": {"cm": 1e-2, "m": 1.0, "km": 1e3},
}  # fmt: skip
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
