"""A picture as boxes, lines and texts with places, and its SVG.

Layouts make pictures; nothing here knows networks. Colours are classes that a style sheet inside the file sets, for
light and dark backgrounds alike; there is no script, no font and no other file. The same picture gives the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

MARGIN = 24.0

STYLE = """
svg { color-scheme: light dark; --ink: #1f2933; --muted: #616e7c; --line: #9aa5b1; --paper: #ffffff; --box: #f5f7fa;
  --bad: #d64545; --good: #2680c2; --host: #e3f8ff; --leaf: #e3f9e5; --mid: #fffbea; --top: #f2ebfe; }
@media (prefers-color-scheme: dark) { svg { --ink: #e4e7eb; --muted: #9aa5b1; --line: #616e7c; --paper: #12171d;
  --box: #1b222b; --bad: #ef6b6b; --good: #5fb3f0; --host: #113344; --leaf: #173a21; --mid: #3c3413; --top: #2d2245; } }
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: var(--ink); }
.paper { fill: var(--paper); }
.small { font-size: 10.5px; } .muted { fill: var(--muted); } .title { font-size: 16px; font-weight: 600; }
.name { font-weight: 600; } .mid { text-anchor: middle; } .end { text-anchor: end; }
.halo { paint-order: stroke; stroke: var(--paper); stroke-width: 4px; stroke-linejoin: round; }
rect.box { fill: var(--box); stroke: var(--line); } rect.host { fill: var(--host); } rect.leaf { fill: var(--leaf); }
rect.middle { fill: var(--mid); } rect.top { fill: var(--top); } rect.frame { fill: none; stroke-dasharray: 4 4; }
rect.pile { fill: var(--box); stroke: var(--line); } rect.band { fill: var(--line); opacity: .18; stroke: none; }
.wire { stroke: var(--line); fill: none; } .faint { opacity: .45; }
.failed { stroke: var(--bad) !important; } text.failed { fill: var(--bad); stroke: none !important; }
.wire.failed { stroke-dasharray: 6 4; } .path { stroke: var(--good) !important; }
rect.path { stroke-width: 2.5; } text.path { fill: var(--good); stroke: none !important; }
"""


def width_of(text: str, size: float = 12.0) -> float:
    """Width of a text, on the safe side of what system fonts take."""
    return sum(0.34 if c in " .,:;|il'" else 0.9 if c in "MWmw—" else 0.6 for c in text) * size


@dataclass(frozen=True)
class Box:
    """A rectangle; `parent` is the box that holds it."""

    x: float
    y: float
    w: float
    h: float
    kind: str = "box"
    parent: int | None = None
    flags: tuple[str, ...] = ()

    def overlaps(self, other: Box) -> bool:
        """Whether the two share more than an edge."""
        return (
            self.x < other.x + other.w - 0.01
            and other.x < self.x + self.w - 0.01
            and self.y < other.y + other.h - 0.01
            and other.y < self.y + self.h - 0.01
        )

    def holds(self, other: Box) -> bool:
        """Whether `other` lies inside."""
        return (
            self.x <= other.x + 0.01
            and self.y <= other.y + 0.01
            and other.x + other.w <= self.x + self.w + 0.01
            and other.y + other.h <= self.y + self.h + 0.01
        )

    @property
    def middle(self) -> tuple[float, float]:
        """Its centre."""
        return self.x + self.w / 2, self.y + self.h / 2


@dataclass
class Picture:
    """Boxes, lines and texts; lines are drawn under boxes, texts over both."""

    title: str = ""
    boxes: list[Box] = field(default_factory=list)
    bands: list[Box] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    right: float = 0.0
    bottom: float = 0.0

    def box(
        self, x: float, y: float, w: float, h: float, kind: str = "box", *, parent: int | None = None,
        flags: tuple[str, ...] = (),
    ) -> int:  # fmt: skip
        """Adds a box and gives its number."""
        self.boxes.append(Box(x, y, w, h, kind, parent, flags))
        self._grow(x + w, y + h)
        return len(self.boxes) - 1

    def band(self, x: float, y: float, w: float, h: float, kind: str = "band") -> None:
        """Adds a rectangle under everything: a light stripe, or one of a pile."""
        self.bands.append(Box(x, y, w, h, kind))
        self._grow(x + w, y + h)

    def text(self, x: float, y: float, text: str, classes: str = "", size: float = 12.0) -> None:
        """Adds a text whose base line is at `y`; `size` only tells how much room it takes."""
        self.texts.append(f'<text x="{x:.1f}" y="{y:.1f}"{_class(classes)}>{escape(text)}</text>')
        room = width_of(text, size)
        self._grow(x + (room / 2 if "mid" in classes.split() else 0 if "end" in classes.split() else room), y + 4)

    def line(
        self, start: tuple[float, float], end: tuple[float, float], width: float = 1.2, flags: tuple[str, ...] = ()
    ) -> None:
        """Adds a straight line."""
        place = f'x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"'
        self.lines.append(f'<line {place} stroke-width="{width:.1f}" class="{" ".join(("wire", *flags))}"/>')

    def curve(self, d: str, width: float = 1.2, flags: tuple[str, ...] = ()) -> None:
        """Adds a path of SVG commands."""
        self.lines.append(f'<path d="{d}" stroke-width="{width:.1f}" class="{" ".join(("wire", *flags))}"/>')

    def _grow(self, x: float, y: float) -> None:
        self.right, self.bottom = max(self.right, x), max(self.bottom, y)

    def elements(self) -> int:
        """How many things are drawn."""
        return len(self.boxes) + len(self.bands) + len(self.lines) + len(self.texts)

    def svg(self) -> str:
        """The whole file."""
        w, h = self.right + MARGIN, self.bottom + MARGIN
        rects = [_rect(b) for b in (*self.bands, *self.boxes)]
        first, rest = rects[: len(self.bands)], rects[len(self.bands) :]
        body = "\n".join([*first, *self.lines, *rest, *self.texts])
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w:.0f} {h:.0f}" width="{w:.0f}" height="{h:.0f}" '
            f'role="img" aria-label="{escape(self.title)}">\n<title>{escape(self.title)}</title>\n'
            f"<style>{STYLE}</style>\n"
            f'<rect class="paper" width="{w:.0f}" height="{h:.0f}"/>\n{body}\n</svg>\n'
        )


def _class(classes: str) -> str:
    return f' class="{classes}"' if classes else ""


def _rect(box: Box) -> str:
    classes = " ".join(dict.fromkeys(("box", box.kind, *box.flags)))
    place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.w:.1f}" height="{box.h:.1f}"'
    return f'<rect {place} rx="5" class="{classes}"/>'
