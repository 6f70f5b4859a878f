"""Groups that are joined each to each, on a circle: dragonfly, and buildings with their distances."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from windtunnel.text import rate
from windtunnel.topology_view.cells import Cell, cable_text, cells, draw_cell, metres, size_of, thickness
from windtunnel.topology_view.scene import Group, Member

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.topology_view.picture import Picture
    from windtunnel.topology_view.scene import Bundle, Scene

LABELLED = 10
"""Most lines with a label each; of more, what they are is listed below."""


def draw_circle(picture: Picture, scene: Scene, top: float) -> None:
    """Draws the groups of a dragonfly."""
    _ring(picture, scene, cells(scene, scene.groups, most=12, first=7), {g.id: g.id for g in scene.groups}, top)


def draw_buildings(picture: Picture, scene: Scene, top: float) -> None:
    """Draws buildings, each with what it holds, and the cables between them."""
    parents = {g.id: g.id if g.parent is None else g.parent for g in scene.groups}
    whole = [_whole(group, [g for g in scene.groups if g.parent == group.id]) for group in scene.groups
             if group.parent is None]  # fmt: skip
    _ring(picture, scene, [Cell((group,), group.repeat > 1) for group in whole], parents, top)


def _whole(building: Group, children: Sequence[Group]) -> Group:
    """A building with the members of its pods."""
    if not children:
        return building
    found: dict[tuple[str, int | None], list[Member]] = {}
    for member in (m for g in (building, *children) for m in g.members):
        found.setdefault((member.kind, member.tier), []).append(member)
    members = tuple(
        Member(kind, tier, sum(m.count for m in alike), alike[0].first, alike[-1].last)
        for (kind, tier), alike in found.items()
    )
    failed = building.failed_switches + sum(g.failed for g in children)
    return Group(building.id, building.name, building.kind, building.tier, None, building.repeat, members, (), failed)


def _ring(picture: Picture, scene: Scene, shown: list[Cell], parents: dict[int, int], top: float) -> None:
    sizes = [size_of(cell) for cell in shown]
    w, h = max(s[0] for s in sizes), max(s[1] for s in sizes)
    n = len(shown)
    rx, ry = _radii(n, w, h)
    cx, cy = 24 + rx + w / 2 + 8, top + 24 + ry + h / 2
    number: dict[int, int] = {}
    for i, cell in enumerate(shown):
        angle = 2 * math.pi * i / n - math.pi / 2 if n != 2 else math.pi * (1 - i)
        x, y = cx + rx * math.cos(angle), cy + ry * math.sin(angle)
        box = draw_cell(picture, scene, cell, x - w / 2, y - h / 2, w, h)
        number.update(dict.fromkeys(cell.ids, box))
    number.update({child: number[parent] for child, parent in parents.items() if parent in number})
    pairs: dict[tuple[int, int], list[Bundle]] = {}
    for bundle in scene.between:
        if bundle.a in number and bundle.b in number and number[bundle.a] != number[bundle.b]:
            a, b = sorted((number[bundle.a], number[bundle.b]))
            pairs.setdefault((a, b), []).append(bundle)
    path = [number[g] for g in scene.on_path() if g in number]
    steps = {frozenset(pair) for pair in itertools.pairwise(path)}
    for (a, b), bundles in sorted(pairs.items()):
        flags: tuple[str, ...] = ("path",) if frozenset((a, b)) in steps else ()
        flags += ("failed",) if any(bundle.failed for bundle in bundles) else ()
        faint = ("faint",) if len(pairs) > 30 and not flags else ()
        ends = picture.boxes[a].middle, picture.boxes[b].middle
        picture.line(ends[0], ends[1], thickness(sum(bundle.count for bundle in bundles)), flags + faint)
    _words(picture, pairs, shown, number, (cx, cy))


def _radii(n: int, w: float, h: float) -> tuple[float, float]:
    """Half axes of an ellipse on which `n` boxes of w · h do not touch; found by trying."""
    if n == 1:
        return 0.0, 0.0
    if n == 2:
        return w / 2 + 110, 0.0
    scale = 1.4 if n <= 5 else 1.0
    while True:
        rx, ry = scale * (w * 0.75 + 40), scale * (h * 0.75 + 60)
        places = [
            (rx * math.cos(2 * math.pi * i / n - math.pi / 2), ry * math.sin(2 * math.pi * i / n - math.pi / 2))
            for i in range(n)
        ]
        apart = all(
            abs(a[0] - b[0]) >= w + 26 or abs(a[1] - b[1]) >= h + 26
            for i, a in enumerate(places) for b in places[i + 1 :]
        )  # fmt: skip
        if apart:
            return rx, ry
        scale *= 1.08


def _words(
    picture: Picture,
    pairs: dict[tuple[int, int], list[Bundle]],
    shown: list[Cell],
    number: dict[int, int],
    centre: tuple[float, float],
) -> None:
    """Labels on few lines; for many alike one in the middle, otherwise a list below."""
    texts = {pair: _pair_text(bundles) for pair, bundles in pairs.items()}
    alike = {(b.count // _times(b, shown), b.rate_bps, b.length_m) for bundles in pairs.values() for b in bundles}
    if len(pairs) > 1 and len(alike) == 1:
        count, speed, length = next(iter(alike))
        text = f"{count:,} × {rate(speed)}{f', {metres(length)}' if length else ''} between each two"
        if len(pairs) == len(shown) * (len(shown) - 1) // 2:
            picture.text(centre[0], centre[1] + 4, text, "halo mid")
            return
    if len(pairs) <= LABELLED:
        for i, (pair, text) in enumerate(sorted(texts.items())):
            (x1, y1), (x2, y2) = picture.boxes[pair[0]].middle, picture.boxes[pair[1]].middle
            at = 0.5 if len(pairs) <= 3 else (0.5, 0.42, 0.58)[i % 3]
            classes = "small halo mid" + (" failed" if any(b.failed for b in pairs[pair]) else "")
            picture.text(x1 + at * (x2 - x1), y1 + at * (y2 - y1) + 4, text, classes, 10.5)
        return
    title = {box: cell.title for cell in shown for box in {number[i] for i in cell.ids if i in number}}
    lines = [f"{title[a]} – {title[b]}: {texts[a, b]}" for a, b in sorted(pairs)]
    columns = 3
    high = -(-len(lines) // columns)
    y = picture.bottom + 26
    wide = max(6.2 * len(line) for line in lines) + 20
    for i, line in enumerate(lines[: columns * 20]):
        picture.text(24 + wide * (i // min(high, 20)), y + 16 * (i % min(high, 20)), line, "small", 10.5)
    if len(lines) > columns * 20:
        picture.text(24, y + 16 * 20, f"… and {len(lines) - columns * 20} more pairs", "small muted", 10.5)


def _times(bundle: Bundle, shown: list[Cell]) -> int:
    """Pairs of groups of the network that a bundle stands for."""
    repeat = {group.id: group.repeat for cell in shown for group in cell.groups}
    return max(1, repeat.get(bundle.a, 1) * repeat.get(bundle.b, 1))


def _pair_text(bundles: list[Bundle]) -> str:
    failed = sum(b.failed for b in bundles)
    kinds: dict[tuple[int, float], list[Bundle]] = {}
    for bundle in bundles:
        kinds.setdefault((bundle.rate_bps, bundle.length_m), []).append(bundle)
    text = " + ".join(cable_text(sum(b.count for b in alike), alike[0]) for alike in kinds.values())
    return f"{text}, {failed} failed" if failed else text
