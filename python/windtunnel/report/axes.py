"""Figures as SVG by hand: the look of all, axes, legends and maps. The same figure is the same bytes.

Text and lines take the page's colours (`--ink`, `--muted`, `--line`), which the reader's system may have dark, and
light ones where a figure stands alone.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from windtunnel.report.html import text
from windtunnel.text import LONG

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDTH = 1040
"""Units across a figure, those of the page's column."""

INK, MUTED, LINE = "var(--ink, #1f2933)", "var(--muted, #616e7c)", "var(--line, #e4e7eb)"
"""Of text, of labels, and of lines."""

ON_LIGHT = "#1e2832"
"""Of text on an area whose own colour is light, whatever the page's is."""

PARTS_OF_LOG = 20.0
"""Largest over smallest from which an axis of numbers is logarithmic."""

LETTER = 6.6
"""Units across a letter of a legend, on average and with some to spare."""

_SHADES = ("ffffd9", "edf8b1", "c7e9b4", "7fcdbb", "41b6c4", "1d91c0", "225ea8", "253494", "081d58")
"""ColorBrewer's YlGnBu, from nothing to all."""


@dataclass(frozen=True)
class Axis:
    """A range of pixels and what it stands for: numbers, evenly or by factors, or names side by side."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    names: tuple[Any, ...] | None = None

    def at(self, value: Any) -> float:  # noqa: ANN401
        """The place of `value`."""
        if self.names is not None:
            share = (self.names.index(value) + 0.5) / len(self.names)
        elif self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 2)

    def ticks(self, unit: float = 1.0) -> list[Any]:
        """Values that have a mark: names, or about five numbers that are round in `unit`."""
        if self.names is not None:
            return list(self.names)
        if self.log:
            return _log_ticks(self.low, self.high)
        step = _round_step((self.high - self.low) / 5 / unit)
        first = math.ceil(self.low / unit / step - 1e-9)
        return [round(i * step, 12) * unit for i in range(first, math.floor(self.high / unit / step + 1e-9) + 1)]


def numbers(values: Sequence[float], start: float, end: float, *, from_zero: bool = False) -> Axis:
    """An axis for `values`, with room at both ends."""
    low, high = min(values), max(values)
    if low > 0 and high / low > PARTS_OF_LOG:
        return Axis(low / 1.15, high * 1.15, start, end, log=True)
    if from_zero and low >= 0 and low < 0.6 * high:
        return Axis(0.0, high * 1.06, start, end)
    room = (high - low) * 0.08 or abs(high) * 0.08 or 1.0
    return Axis(low - room, high + room, start, end)


def levels(values: Sequence[Any], start: float, end: float) -> Axis:
    """An axis for what was varied: numbers where they lie, names side by side."""
    if len(values) > 1 and all(isinstance(value, int | float) for value in values):
        return numbers([float(value) for value in values], start, end)
    return Axis(0, 1, start, end, names=tuple(values))


def label(value: Any) -> str:  # noqa: ANN401
    """A tick in words."""
    return f"{value:,.6g}" if isinstance(value, int | float) else str(value)


def time_unit(longest_s: float) -> tuple[float, str]:
    """Seconds of the unit that suits times up to `longest_s`, and its name; long ones as texts have them."""
    for scale, least, unit in LONG:
        if longest_s >= least:
            return scale, unit
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if longest_s >= 2 * scale:
            return scale, unit
    return 1e-9, "ns"


def below(axis: Axis, y: float, name: str, scale: float = 1.0, *, top: float | None = None) -> list[str]:
    """Marks of a horizontal axis at `y`, in a unit of `scale`, and its name below; lines up to `top`."""
    found = [rule(axis.start, y, axis.end, y)]
    for tick in axis.ticks(scale):
        if top is not None:
            found.append(rule(axis.at(tick), top, axis.at(tick), y))
        found += [rule(axis.at(tick), y, axis.at(tick), y + 4), words(axis.at(tick), y + 18, label(tick / scale))]
    found.append(words((axis.start + axis.end) / 2, y + 36, name))
    return found


def svg(height: float, name: str, *content: str) -> str:
    """A figure as wide as the page."""
    size = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}"'
    return f'<svg role="img" aria-label="{text(name)}" {size} font-size="12">{"".join(content)}</svg>'


def words(
    x: float, y: float, what: object, *, anchor: str = "middle", muted: bool = True, colour: str = "", more: str = ""
) -> str:
    """A text."""
    colour = colour or (MUTED if muted else INK)
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" style="fill:{colour}" {more}>{text(what)}</text>'


def rule(x1: float, y1: float, x2: float, y2: float, colour: str = LINE, width: float = 1, more: str = "") -> str:
    """A straight line."""
    ends = f'x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"'
    return f'<line {ends} style="stroke:{colour};stroke-width:{width:g}{more}"/>'


def box(x: float, y: float, width: float, height: float, colour: str, title: str = "") -> str:
    """An area without a border; one that is `transparent` only tells its title."""
    size = f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" style="fill:{colour}"'
    return f"<rect {size}><title>{text(title)}</title></rect>" if title else f"<rect {size}/>"


def polyline(points: Iterable[tuple[float, float]], colour: str, width: float, more: str = "", title: str = "") -> str:
    """A line through `points`."""
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    inner = f"<title>{text(title)}</title>" if title else ""
    return (
        f'<polyline points="{path}" style="fill:none;stroke:{colour};stroke-width:{width:g}{more}">{inner}</polyline>'
    )


def legend(items: Sequence[tuple[str, str]], x: float = 0.0, y: float = 12.0) -> tuple[str, float]:
    """Colours and what they stand for, line after line from `y` on; and where the next line would be."""
    found, at = [], x
    for colour, name in items:
        width = 18 + LETTER * len(name) + 16
        if at > x and at + width > WIDTH:
            at, y = x, y + 18
        found.append(f'<rect x="{at:g}" y="{y - 10:g}" width="11" height="11" rx="2" style="fill:{colour}"/>')
        found.append(words(at + 17, y, name, anchor="start", muted=False))
        at += width
    return "".join(found), y + 18


def linked(content: str, link: str | None, title: str) -> str:
    """A mark that tells `title` to who points at it, and leads to `link`."""
    inner = f"<g><title>{text(title)}</title>{content}</g>"
    return inner if link is None else f'<a href="{text(link)}">{inner}</a>'


@cache
def shades() -> list[str]:
    """256 colours from nothing to all, as `rrggbb`."""
    parts = [tuple(int(shade[i : i + 2], 16) for i in (0, 2, 4)) for shade in _SHADES]
    found = []
    for level in range(256):
        low = min(level * (len(parts) - 1) // 255, len(parts) - 2)
        share = level * (len(parts) - 1) / 255 - low
        found.append(
            "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(parts[low], parts[low + 1], strict=True))
        )
    return found


def picture(
    rows: Sequence[bytes], palette: Sequence[str], x: float, y: float, width: float, height: float, *, clear: int = 0
) -> str:
    """A map: a pixel a byte, in the colour of that number; the first `clear` colours let the page shine through."""
    across = len(rows[0])
    head = struct.pack(">IIBBBBB", across, len(rows), 8, 3, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"PLTE", bytes.fromhex("".join(palette)))]
    if clear:
        chunks.append((b"tRNS", bytes(clear)))
    chunks += [(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows), 6)), (b"IEND", b"")]
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" preserveAspectRatio="none"'
    data = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return f'<image {size} style="image-rendering:pixelated" href="{data}"/>'


def scale_of_shades(x: float, y: float, height: float, name: str) -> str:
    """What the colours of `shades` stand for: parts of a whole."""
    found = [picture([bytes([255 - i]) for i in range(256)], shades(), x, y, 12, height)]
    for share in (0, 0.5, 1):
        at = y + height * (1 - share)
        found += [rule(x + 12, at, x + 16, at), words(x + 20, at + 4, f"{100 * share:g} %", anchor="start")]
    middle = y + height / 2
    more = f'transform="rotate(-90 {x + 64:g} {middle:g})"'
    found.append(words(x + 64, middle, name, more=more))
    return "".join(found)


def _log_ticks(low: float, high: float) -> list[float]:
    found = []
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        found += [part * 10.0**power for part in (1, 2, 5)]
    found = [value for value in found if low <= value <= high]
    tens = [value for value in found if round(math.log10(value), 9).is_integer()]
    return tens if len(found) > 9 and len(tens) > 2 else found


def _round_step(least: float) -> float:
    if least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(part * power for part in (1, 2, 2.5, 5, 10) if part * power >= least * (1 - 1e-9))
