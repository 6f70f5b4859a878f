"""Quantities as people read them."""

from __future__ import annotations

import math

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"), (1e-12, "ps"))
LONG = ((86_400.0, 48 * 3_600.0, "d"), (3_600.0, 7_200.0, "h"), (60.0, 300.0, "min"))
"""Seconds of a unit, seconds from which it is used, its name: 5 min, 2 h and 48 h begin the next larger one."""
_SIZES = ((1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_COUNTS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

UNKNOWN = "–"
"""What is shown for a figure that is not known."""


def duration(seconds: float | None) -> str:
    """Seconds in the largest fitting unit, four significant digits: `12.34 ms`, `485.7 s` is `8.095 min`, `13.30 d`."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds == 0:
        return "0 s"
    for scale, least, unit in LONG:
        if abs(seconds) >= least:
            value = seconds / scale
            return f"{value:,.0f} {unit}" if abs(value) >= 1000 else f"{_digits(value)} {unit}"
    for scale, unit in _TIMES:
        if abs(seconds) >= scale * 0.99995 or unit == "ps":
            return f"{_digits(seconds / scale)} {unit}"
    raise AssertionError("ps fits everything")


def size(count: float | None) -> str:
    """Bytes in powers of 2: `61.2 GiB`."""
    if count is None:
        return UNKNOWN
    for scale, unit in _SIZES:
        if abs(count) >= scale:
            return f"{_digits(count / scale)} {unit}"
    return f"{count:.0f} B"


def rate(bits_per_second: float | None) -> str:
    """Bits per second in powers of 10: `400 Gbps`."""
    if bits_per_second is None:
        return UNKNOWN
    for scale, prefix in _COUNTS:
        if abs(bits_per_second) >= scale:
            return f"{bits_per_second / scale:g} {prefix}bps"
    return f"{bits_per_second:g} bps"


def count(number: float | None) -> str:
    """A number with thousands separated: `1,234,567`; below 100, four digits."""
    if number is None:
        return UNKNOWN
    if isinstance(number, int):
        return f"{number:,}"
    return f"{number:,.0f}" if abs(number) >= 1000 or number == int(number) else _digits(number)


def counted_words(number: int, word: str) -> str:
    """A number and what is counted: `1 switch`, `24 switches`."""
    return f"{count(number)} {word}{'' if number == 1 else 'es' if word.endswith('ch') else 's'}"


def short_count(number: float | None) -> str:
    """A number with a prefix: `1.235 M`."""
    if number is None:
        return UNKNOWN
    for scale, prefix in _COUNTS:
        if abs(number) >= scale:
            return f"{_digits(number / scale)} {prefix}"
    return count(number)


def power(watts: float | None) -> str:
    """Watts: `38.07 kW`."""
    return UNKNOWN if watts is None else _prefixed(watts, "W")


def energy(joules: float | None) -> str:
    """Joules: `1.667 MJ`."""
    return UNKNOWN if joules is None else _prefixed(joules, "J")


def _prefixed(value: float, unit: str) -> str:
    for scale, prefix in _COUNTS:
        if abs(value) >= scale:
            return f"{_digits(value / scale)} {prefix}{unit}"
    return f"{_digits(value)} {unit}"


def percent(fraction: float | None, *, signed: bool = False) -> str:
    """A fraction as a percentage: `43.2 %`."""
    if fraction is None or not math.isfinite(fraction):
        return UNKNOWN
    return f"{fraction * 100:{'+' if signed else ''}.1f} %"


def change(fraction: float | None) -> str:
    """By how much something is more, as a part of what it was: `+4.3 %`, `-0.02 %`; from three times on `12.5×`."""
    if fraction is None or not math.isfinite(fraction):
        return UNKNOWN
    if fraction >= 2:
        return f"{1 + fraction:,.0f}×" if fraction >= 99 else f"{1 + fraction:.1f}×"
    return f"{fraction * 100:+.{1 if abs(fraction) >= 5e-4 else 2}f} %"


def _digits(value: float) -> str:
    whole = len(str(int(abs(value))))
    return f"{value:.{max(0, 4 - whole)}f}"
