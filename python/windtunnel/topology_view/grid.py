"""Regular grids: torus and mesh, full meshes in every dimension, and HammingMesh.

A plane of the last two dimensions stands for all; sides longer than eight leave their middle out. So the picture does
not grow with the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windtunnel.topology_view.picture import width_of
from windtunnel.topology_view.scene import split

if TYPE_CHECKING:
    from windtunnel.topology_view.picture import Picture
    from windtunnel.topology_view.scene import Scene

SIDE = 8
"""Most nodes of a side that are drawn."""

W, H, DX, DY = 58.0, 30.0, 92.0, 66.0

Shown = list["int | None"]
"""Numbers along a side; `None` stands for those left out."""


@dataclass(frozen=True)
class Axis:
    """A dimension."""

    name: str
    size: int
    wrap: bool
    links: int

    def shown(self, most: int = SIDE) -> Shown:
        """What is drawn of it."""
        if self.size <= most:
            return list(range(self.size))
        return [*range(most - 3), None, self.size - 2, self.size - 1]


def has_grid(scene: Scene) -> bool:
    """Whether the sizes that a grid needs are known."""
    parameters = scene.answer.get("parameters") or {}
    return bool(parameters.get("dimensions")) or {"board", "boards"} <= set(parameters)


def draw_grid(picture: Picture, scene: Scene, top: float) -> None:
    """Draws the shape's plane from `top` down."""
    parameters = scene.answer["parameters"]
    if "boards" in parameters:
        _hamming(picture, parameters, top)
        return
    axes = [
        Axis(f"dimension {i}", d["size"], bool(d.get("wrap")), d.get("links", 1))
        for i, d in enumerate(parameters["dimensions"])
    ]
    _plane(picture, scene, axes, top, full=scene.shape not in {"torus", "mesh"})


def _plane(picture: Picture, scene: Scene, axes: list[Axis], top: float, *, full: bool) -> None:
    marks = _marks(scene, len(axes))
    outer = _outer(axes, marks)
    rows = axes[-2] if len(axes) > 1 else Axis("", 1, wrap=False, links=1)
    columns = axes[-1]
    shown_rows, shown_columns = rows.shown(), columns.shown()
    x0, y0 = 24.0 + 40, top + 60.0 + (10 * min(2, len(axes) - 2) if len(axes) > 2 else 0)
    wide, high = DX * (len(shown_columns) - 1) + W, DY * (len(shown_rows) - 1) + H
    if len(axes) > 2:
        others = 1
        for axis in axes[:-2]:
            others *= axis.size
        for shift in (16.0, 8.0):
            picture.band(x0 - 18 + shift, y0 - 18 - shift, wide + 36, high + 36, "pile")
        text = " · ".join(f"{a.name}: {a.size}{_joined(a, full=full)}" for a in axes[:-2])
        picture.text(x0 - 18, y0 - 46, f"{others:,} planes like this one; {text}", "muted")
    picture.band(x0 - 18, y0 - 18, wide + 36, high + 36, "pile")
    number: dict[tuple[int, int], int] = {}
    for i, r in enumerate(shown_rows):
        for j, c in enumerate(shown_columns):
            x, y = x0 + DX * j, y0 + DY * i
            if r is None or c is None:
                picture.text(x + W / 2, y + H / 2 + 4, "⋯" if c is None else "⋮", "muted mid")
                continue
            place = (*outer, r, c) if len(axes) > 1 else (c,)
            flags = tuple(name for name, places in marks.items() if place in places)
            number[i, j] = picture.box(x, y, W, H, "leaf", flags=flags)
            label = ".".join(map(str, place))
            picture.text(x + W / 2, y + H / 2 + 4, label, "mid small" if width_of(label, 12) > W - 4 else "mid")
    if full:
        _bands(picture, x0, y0, len(shown_rows), len(shown_columns))
        words = "every row and every column is a full mesh"
        picture.text(x0 - 18, y0 + high + 40, words, "muted")
    else:
        _mesh(picture, (x0, y0), shown_rows, shown_columns, rows, columns)
    caption = f"across: {columns.size}{_joined(columns, full=full)}"
    if len(axes) > 1:
        caption += f" · down: {rows.size}{_joined(rows, full=full)}"
    picture.text(x0 - 18, y0 + high + 58, caption, "muted")


def _joined(axis: Axis, *, full: bool) -> str:
    times = f", {axis.links} links" if axis.links > 1 else ""
    if full:
        return f" in a full mesh{times}"
    return f" in a {'ring' if axis.wrap else 'line'}{times}"


def _bands(picture: Picture, x0: float, y0: float, rows: int, columns: int) -> None:
    for i in range(rows):
        picture.band(x0 - 8, y0 + DY * i + H / 2 - 5, DX * (columns - 1) + W + 16, 10)
    for j in range(columns):
        picture.band(x0 + DX * j + W / 2 - 5, y0 - 8, 10, DY * (rows - 1) + H + 16)


def _mesh(picture: Picture, corner: tuple[float, float], rows: Shown, columns: Shown, down: Axis, across: Axis) -> None:
    x0, y0 = corner
    for i in range(len(rows)):
        for j in range(len(columns)):
            x, y = x0 + DX * j, y0 + DY * i
            if rows[i] is not None and j + 1 < len(columns):
                picture.line((x + W, y + H / 2), (x + DX, y + H / 2), min(5, 0.8 + 0.5 * across.links))
            if columns[j] is not None and i + 1 < len(rows):
                picture.line((x + W / 2, y + H), (x + W / 2, y + DY), min(5, 0.8 + 0.5 * down.links))
    wide, high = DX * (len(columns) - 1), DY * (len(rows) - 1)
    if across.wrap and across.size > 2:
        for i in range(len(rows)):
            if rows[i] is not None:
                y = y0 + DY * i
                picture.curve(f"M{x0:.1f} {y + 8:.1f}C{x0 - 34:.1f} {y - 16:.1f} {x0 + wide + W + 34:.1f} {y - 16:.1f} "
                              f"{x0 + wide + W:.1f} {y + 8:.1f}")  # fmt: skip
    if down.wrap and down.size > 2:
        for j in range(len(columns)):
            if columns[j] is not None:
                x = x0 + DX * j
                picture.curve(f"M{x + 8:.1f} {y0:.1f}C{x - 18:.1f} {y0 - 34:.1f} {x - 18:.1f} {y0 + high + H + 34:.1f} "
                              f"{x + 8:.1f} {y0 + high + H:.1f}")  # fmt: skip


def _hamming(picture: Picture, parameters: dict[str, Any], top: float) -> None:
    (a, b), (rows, columns) = parameters["board"], parameters["boards"]
    inner_rows, inner_columns = Axis("", a, wrap=False, links=1).shown(5), Axis("", b, wrap=False, links=1).shown(5)
    board_rows, board_columns = (
        Axis("", rows, wrap=False, links=1).shown(5),
        Axis("", columns, wrap=False, links=1).shown(5),
    )
    cell, gap = 22.0, 8.0
    wide = len(inner_columns) * (cell + gap) - gap + 24
    high = len(inner_rows) * (cell + gap) - gap + 24 + 18
    x0, y0 = 24.0, top + 16
    dx, dy = wide + 30, high + 30
    for i, r in enumerate(board_rows):
        y = y0 + dy * i
        picture.band(x0 - 4, y + high / 2 - 4, dx * len(board_columns) + 10, 8)
        if r is not None:
            picture.box(x0 + dx * len(board_columns), y + high / 2 - 15, 104, 30, "top")
            picture.text(x0 + dx * len(board_columns) + 52, y + high / 2 + 4, f"row switch ×{a}", "mid small", 10.5)
        for j, c in enumerate(board_columns):
            x = x0 + dx * j
            if i == 0:
                picture.band(x + wide / 2 - 4, y0 - 4, 8, dy * len(board_rows) + 10)
            if r is None or c is None:
                picture.text(x + wide / 2, y + high / 2, "⋯" if c is None else "⋮", "muted mid")
                continue
            outer = picture.box(x, y, wide, high, "box")
            picture.text(x + 10, y + 15, f"board {r}.{c}", "small muted", 10.5)
            for k, p in enumerate(inner_rows):
                for m, q in enumerate(inner_columns):
                    at = (x + 12 + m * (cell + gap), y + 12 + 18 + k * (cell + gap))
                    if p is None or q is None:
                        picture.text(at[0] + cell / 2, at[1] + cell / 2 + 4, "⋯" if q is None else "⋮", "muted mid")
                        continue
                    picture.box(*at, cell, cell, "leaf", parent=outer)
    for j, c in enumerate(board_columns):
        if c is not None:
            x = x0 + dx * j + wide / 2
            picture.box(x - (dx - 6) / 2, y0 + dy * len(board_rows), dx - 6, 30, "top")
            picture.text(x, y0 + dy * len(board_rows) + 19, f"switch ×{b}", "mid small", 10.5)
    text = f"{rows} × {columns} boards of {a} × {b} accelerators; meshes inside, switches for each row and column"
    picture.text(x0, y0 + dy * len(board_rows) + 54, text, "muted")


def _marks(scene: Scene, dimensions: int) -> dict[str, set[tuple[int, ...]]]:
    """Coordinates of failed nodes and of those on the path, read from their names."""
    faults = scene.answer.get("faults") or {}
    failed = {split(name)[1] for name in faults.get("switches") or []}
    path = {split(name)[1] for name in scene.path if "host" not in name}
    keep = {"failed": failed, "path": path}
    return {name: {place for place in places if len(place) == dimensions} for name, places in keep.items()}


def _outer(axes: list[Axis], marks: dict[str, set[tuple[int, ...]]]) -> tuple[int, ...]:
    """The plane that is drawn: that of the path's start or of a failed node, otherwise the first."""
    for name in ("path", "failed"):
        for place in sorted(marks[name]):
            return place[:-2]
    return (0,) * (len(axes) - 2)
