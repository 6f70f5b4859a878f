"""Small fabrics switch by switch; hosts that hang on the same switches are one box."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windtunnel.topology_view.cells import kind_of, thickness
from windtunnel.topology_view.picture import width_of

if TYPE_CHECKING:
    from windtunnel.topology_view.picture import Picture
    from windtunnel.topology_view.scene import Node, Scene

MOST = 24
"""Most boxes of a row; wider fabrics are drawn by groups."""

HIGH, APART, ABOVE = 26.0, 10.0, 74.0


@dataclass(frozen=True)
class Item:
    """A box: a switch, or hosts on the same switches."""

    nodes: tuple[Node, ...]

    @property
    def label(self) -> str:
        """What is written in it."""
        first = self.nodes[0]
        return first.name if len(self.nodes) == 1 else f"{len(self.nodes)} {first.kind}s"

    @property
    def width(self) -> float:
        """How wide it must be."""
        return max(30.0, width_of(self.label, 12) + 12)


def fits(scene: Scene) -> bool:
    """Whether the nodes are few enough for a box each."""
    return bool(scene.nodes) and max((len(row) for row in _rows(scene).values()), default=0) <= MOST


def draw_nodes(picture: Picture, scene: Scene, top: float) -> None:
    """Draws rows of nodes, the highest tier on top; nodes of a pod stand under each other."""
    rows = _rows(scene)
    tiers = sorted(rows, reverse=True)
    columns = _columns(scene)
    wide = {
        column: max(_span([item for item in rows[t] if columns[item.nodes[0].group] == column]) for t in tiers)
        for column in sorted({c for c in columns.values() if c >= 0})
    }
    total = max([sum(wide.values()) + 30 * max(0, len(wide) - 1), *(_span(rows[t]) for t in tiers)])
    left, x = {}, 24 + (total - sum(wide.values()) - 30 * max(0, len(wide) - 1)) / 2
    for column, width in wide.items():
        left[column] = x
        x += width + 30
    boxes: dict[int, int] = {}
    highest = max((t for t in tiers if t >= 0), default=0)
    y = top + 10
    for tier in tiers:
        for column in sorted({columns[item.nodes[0].group] for item in rows[tier]}):
            items = [item for item in rows[tier] if columns[item.nodes[0].group] == column]
            room, start = (total, 24.0) if column < 0 else (wide[column], left[column])
            gap = APART if column >= 0 else max(APART, (room - sum(i.width for i in items)) / (len(items) + 1))
            at = start + (room - sum(i.width for i in items) - gap * (len(items) - 1)) / 2
            for item in items:
                flags: tuple[str, ...] = ("failed",) if any(n.failed for n in item.nodes) else ()
                flags += ("path",) if any(_on_path(scene, n) for n in item.nodes) else ()
                kind = kind_of(None if tier < 0 else tier, highest)
                number = picture.box(at, y, item.width, HIGH, kind, flags=flags)
                picture.text(at + item.width / 2, y + 17, item.label, "mid")
                boxes.update(dict.fromkeys((n.id for n in item.nodes), number))
                at += item.width + gap
        y += HIGH + ABOVE
    _cables(picture, scene, boxes)


def _cables(picture: Picture, scene: Scene, boxes: dict[int, int]) -> None:
    name = {node.id: node.name.split("/")[0] for node in scene.nodes}
    steps = {frozenset((a.split("/")[0], b.split("/")[0])) for a, b in zip(scene.path, scene.path[1:], strict=False)}
    joined: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for cable in scene.cables:
        a, b = sorted((boxes[cable.a], boxes[cable.b]), key=lambda n: (picture.boxes[n].y, n))
        entry = joined[a, b]
        entry[0] += cable.count
        entry[1] += cable.failed
        entry[2] |= frozenset((name[cable.a], name[cable.b])) in steps
    for (upper, lower), (count, failed, path) in sorted(joined.items()):
        above, below = picture.boxes[upper], picture.boxes[lower]
        width = max(2.4, thickness(count)) if path else thickness(count)
        flags = (("failed",) if failed and not path else ()) + (("path",) if path else ())
        if above.y == below.y:
            y = above.y + above.h
            across = below.middle[0] - above.middle[0]
            picture.curve(f"M{above.middle[0]:.1f} {y:.1f}q{across / 2:.1f} 34 {across:.1f} 0", width, flags)
        else:
            picture.line((above.middle[0], above.y + above.h), (below.middle[0], below.y), width, flags)


def _on_path(scene: Scene, node: Node) -> bool:
    return any(node.name == name or name.startswith(f"{node.name}/") for name in scene.path)


def _rows(scene: Scene) -> dict[int, list[Item]]:
    """Boxes by tier; hosts have tier -1."""
    near: dict[int, set[int]] = defaultdict(set)
    for cable in scene.cables:
        near[cable.a].add(cable.b)
        near[cable.b].add(cable.a)
    rows: dict[int, list[Item]] = {}
    hosts: dict[tuple[int, frozenset[int]], list[Node]] = {}
    for node in scene.nodes:
        if node.tier is None:
            hosts.setdefault((node.group, frozenset(near[node.id])), []).append(node)
        else:
            rows.setdefault(node.tier, []).append(Item((node,)))
    if hosts:
        few = sum(len(nodes) for nodes in hosts.values()) <= MOST // 2
        rows[-1] = [Item((n,)) for nodes in hosts.values() for n in nodes] if few else [
            Item(tuple(nodes)) for nodes in hosts.values()
        ]  # fmt: skip
    return rows


def _columns(scene: Scene) -> dict[int, int]:
    """The column of each group; layers span all of them (-1)."""
    below = [g.id for g in scene.groups if g.kind != "layer"]
    return {g.id: below.index(g.id) if g.id in below else -1 for g in scene.groups}


def _span(items: list[Item]) -> float:
    return sum(item.width for item in items) + APART * max(0, len(items) - 1)
