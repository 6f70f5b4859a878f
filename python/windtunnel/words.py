"""Keys and figures of the results in words.

Units come from the ends of the keys (`_bytes`, `_s`, `_ps`, `_bps`), as everywhere in the results.
"""

from __future__ import annotations

from windtunnel.better import is_rate
from windtunnel.text import UNKNOWN, count, duration, energy, percent, power, rate, short_count, size

SHARES = ("mfu", "utilisation", "goodput", "loss_rate", "path_unevenness", "fragmentation")
"""Ends of the keys of figures that are shares."""


def value_text(key: str, value: object) -> str:
    """A scalar in the unit that its key names."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)):
        return str(value)
    if "bytes" in key:
        return size(value)
    if key.endswith("_ps"):
        return duration(value / 1e12)
    if key.endswith("_s"):
        return duration(value)
    if key.endswith("power_w"):
        return power(value)
    if key.endswith("energy_j"):
        return energy(value)
    if key.endswith("_usd") and not is_rate(key):
        return f"{count(value)} US$"
    if key.endswith("_bps"):
        return rate(value)
    if "flops" in key:
        return short_count(value)
    return count(value)


def title(key: str) -> str:
    """A key in words, without its unit."""
    if key.endswith(("power_w", "energy_j")):
        key = key[:-2]
    for unit in ("_bytes", "_ps", "_bps", "_s"):
        key = key.removesuffix(unit)
    return key.replace("_", " ")


def label(key: str) -> str:
    """`iteration_time_s.mean` as `iteration time mean`."""
    if key.startswith("links."):
        return f"utilisation of {key.removeprefix('links.').removesuffix('.utilisation')}"
    return " ".join("tokens/s" if part == "tokens_per_s" else title(part) for part in key.split("."))


def figure_text(key: str, value: object) -> str:
    """A figure in the unit that some part of its key, a path of the summary, names. Rates are plain numbers."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value_text(key, value)
    parts = key.split(".")
    if parts[-1].endswith(SHARES):
        return percent(value)
    if is_rate(key):
        return _exact(value)
    if any(part.endswith("_seconds") for part in parts):
        return duration(value)
    if "memory" in parts:
        return size(value)
    named = next((part for part in reversed(parts) if part.endswith(("_s", "_bps")) or "bytes" in part), None)
    if named is not None:
        return value_text(named, value)
    said = value_text(parts[-1], value)
    return _exact(value) if said == count(value) else said


def difference_text(key: str, value: float) -> str:
    """The size of a difference between two figures; of shares in percentage points, as `%` would say of what."""
    return figure_text(key, abs(value)).replace("%", "pp")


def _exact(number: float) -> str:
    """A number as `count` has it, one below 0.1 with four digits."""
    return f"{number:.4g}" if 0 < abs(number) < 0.1 else count(number)
