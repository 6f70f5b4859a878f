"""Axes of hand-made SVG: where a value stands, and which values have a tick."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windtunnel.report.html import text

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH = 1040
"""Units across a figure, those of the page's column."""

PARTS_OF_LOG = 20.0
"""Largest over smallest from which an axis of numbers is logarithmic."""


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

    def ticks(self) -> list[Any]:
        """Values that have a mark: names, or about five round numbers."""
        if self.names is not None:
            return list(self.names)
        if self.log:
            return _log_ticks(self.low, self.high)
        step = _round_step((self.high - self.low) / 5)
        first = math.ceil(self.low / step - 1e-9)
        return [round(i * step, 12) for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


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


def svg(height: float, name: str, *content: str) -> str:
    """A figure as wide as the page."""
    box = f'viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{text(name)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-size="12">{"".join(content)}</svg>'


def words(x: float, y: float, what: object, *, anchor: str = "middle", muted: bool = True, more: str = "") -> str:
    """A text."""
    colour = "var(--muted)" if muted else "var(--ink)"
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" style="fill:{colour}" {more}>{text(what)}</text>'


def rule(x1: float, y1: float, x2: float, y2: float, colour: str = "var(--line)", width: float = 1) -> str:
    """A straight line."""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" style="stroke:{colour};stroke-width:{width:g}"/>'


def linked(content: str, link: str | None, title: str) -> str:
    """A mark that tells `title` to who points at it, and leads to `link`."""
    inner = f"<g><title>{text(title)}</title>{content}</g>"
    return inner if link is None else f'<a href="{text(link)}">{inner}</a>'


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
