"""Tiers one above the other: pods and racks below, the layers that join them above."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from windtunnel.topology_view.cells import Cell, cable_text, cells, draw_cell, size_of, thickness

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.topology_view.picture import Box, Picture
    from windtunnel.topology_view.scene import Bundle, Group, Scene

APART, ABOVE = 34.0, 84.0
"""Between boxes of a row, and between rows."""


def draw_layered(picture: Picture, scene: Scene, top: float) -> None:
    """Draws the groups from `top` down."""
    rows = [cells(scene, row) for row in _rows(scene.groups)]
    sizes = [[size_of(cell) for cell in row] for row in rows]
    widths = [sum(w for w, _ in row) + APART * (len(row) - 1) for row in sizes]
    widest = max(widths, default=0.0)
    # A layer is as wide as half of what it joins, so that its lines spread.
    y = top + 10
    placed: list[dict[int, int]] = []
    for row, size, width in zip(rows, sizes, widths, strict=True):
        layer = row[0].group.kind == "layer"
        stretch = max(1.0, 0.62 * (widest - APART * (len(row) - 1)) / max(1.0, width - APART * (len(row) - 1)))
        factor = stretch if layer else 1.0
        full = sum(w * factor for w, _ in size) + APART * (len(row) - 1)
        x, high = 24 + (widest - full) / 2, max(h for _, h in size)
        boxes: dict[int, int] = {}
        for cell, (w, _) in zip(row, size, strict=True):
            number = draw_cell(picture, scene, cell, x, y, w * factor, high)
            boxes.update(dict.fromkeys(cell.ids, number))
            x += w * factor + APART
        placed.append(boxes)
        y += high + ABOVE
    _wires(picture, scene, rows, placed)


def _rows(groups: Sequence[Group]) -> list[list[Group]]:
    """Layers from the highest tier down, then everything else."""
    tiers = sorted({g.tier or 0 for g in groups if g.kind == "layer"}, reverse=True)
    rows = [[g for g in groups if g.kind == "layer" and (g.tier or 0) == tier] for tier in tiers]
    rest = [g for g in groups if g.kind != "layer"]
    return [row for row in [*rows, rest] if row]


def _wires(picture: Picture, scene: Scene, rows: list[list[Cell]], placed: list[dict[int, int]]) -> None:
    """Lines between boxes, one for each pair, and above each box what leaves it upwards."""
    box_of = {group: number for row in placed for group, number in row.items()}
    level = {group: i for i, row in enumerate(placed) for group in row}
    pairs: dict[tuple[int, int], list[Bundle]] = {}
    for bundle in scene.between:
        if bundle.a in box_of and bundle.b in box_of:
            a, b = sorted((bundle.a, bundle.b), key=lambda g: (level[g], g))
            if box_of[a] != box_of[b]:
                pairs.setdefault((box_of[a], box_of[b]), []).append(bundle)
    path = scene.on_path()
    steps = {frozenset((box_of[a], box_of[b])) for a, b in itertools.pairwise(path) if {a, b} <= set(box_of)}
    for (upper, lower), bundles in sorted(pairs.items()):
        flags: tuple[str, ...] = ("path",) if frozenset((upper, lower)) in steps else ()
        flags += ("failed",) if any(b.failed for b in bundles) else ()
        join(picture, upper, lower, sum(b.count for b in bundles), flags)
    for i, row in enumerate(rows):
        for cell in row:
            up = [b for b in scene.between if _leaves(b, cell.group.id, level, i)]
            if up:
                number = box_of[cell.group.id]
                _label(picture, picture.boxes[number], cell, up)


def _leaves(bundle: Bundle, group: int, level: dict[int, int], own: int) -> bool:
    if group not in {bundle.a, bundle.b}:
        return False
    other = bundle.b if bundle.a == group else bundle.a
    return level.get(other, own) < own


def _label(picture: Picture, box: Box, cell: Cell, bundles: list[Bundle]) -> None:
    by_kind: dict[tuple[int, float], list[Bundle]] = {}
    for bundle in bundles:
        by_kind.setdefault((bundle.rate_bps, bundle.length_m), []).append(bundle)
    x, y = box.x + box.w / 2, box.y - (16 if cell.times > 1 else 9)
    failed = sum(b.failed for b in bundles)
    if failed:
        picture.text(x, y - 14 * len(by_kind), f"{failed} failed", "small failed halo mid", 10.5)
    each = " each" if cell.times > 1 else ""
    for i, kind in enumerate(by_kind.values()):
        repeat = cell.group.repeat
        count = sum(b.count for b in kind) // repeat
        picture.text(x, y - 14 * i, cable_text(count, kind[0]) + each, "small muted halo mid", 10.5)


def join(picture: Picture, upper: int, lower: int, count: int, flags: tuple[str, ...]) -> None:
    """A line between two boxes, from the lower one's top to the upper one's bottom, at about the same place across."""
    a, b = picture.boxes[upper], picture.boxes[lower]
    x = b.x + b.w / 2
    across = min(max(x, a.x + 12), a.x + a.w - 12)
    picture.line((across, a.y + a.h), (x, b.y), thickness(count), flags)
