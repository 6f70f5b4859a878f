"""Groups as boxes: how many are shown, what stands in them, and how cables between them are worded."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windtunnel.text import rate
from windtunnel.topology_view.picture import width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.topology_view.picture import Picture
    from windtunnel.topology_view.scene import Bundle, Group, Member, Scene

CHIP, GAP, PAD, HEAD = 24.0, 8.0, 12.0, 26.0


@dataclass(frozen=True)
class Cell:
    """A box that stands for one group, or for several alike."""

    groups: tuple[Group, ...]
    more: bool = False

    @property
    def group(self) -> Group:
        """The group whose contents are shown."""
        return self.groups[0]

    @property
    def ids(self) -> frozenset[int]:
        """Numbers of the groups."""
        return frozenset(group.id for group in self.groups)

    @property
    def times(self) -> int:
        """How many groups of the network the box stands for."""
        return sum(group.repeat for group in self.groups)

    @property
    def failed(self) -> int:
        """Failed parts of all its groups."""
        return sum(group.failed for group in self.groups)

    @property
    def title(self) -> str:
        """What is written above its contents."""
        if not self.more:
            return self.group.name
        alike = " alike" if len({group.shape() for group in self.groups}) == 1 else ""
        return f"{self.times} more{alike}"


def cells(scene: Scene, groups: Sequence[Group], most: int = 8, first: int = 2) -> list[Cell]:
    """One box for each group.

    Of more than `most`, those with faults or on the path, the first few and the last, and one box for all others.
    """
    if len(groups) <= most:
        return [Cell((group,), group.repeat > 1) for group in groups]
    usual = Counter(group.shape() for group in groups).most_common(1)[0][0]
    cut = {end for bundle in scene.between if bundle.failed for end in bundle.ends()}
    single = [group for group in groups if group.repeat == 1]
    kept = {group.id for group in (*single[:first], *single[-1:])} | set(scene.on_path())
    for group in single:
        if len(kept) < most and (group.failed or group.id in cut or group.shape() != usual):
            kept.add(group.id)
    hidden = tuple(group for group in groups if group.id not in kept)
    shown: list[Cell] = []
    for group in groups:
        if group.id in kept:
            shown.append(Cell((group,), group.repeat > 1))
        elif group is hidden[0]:
            shown.append(Cell(hidden, more=True))
    return shown


def member_text(member: Member) -> str:
    """`8 leaf switches`, `64 hosts`; one node by its name."""
    if member.count == 1:
        return member.first
    noun = f"{member.kind}s" if member.tier is None else f"{member.kind} switches"
    if member.kind in {"router", "server", "accelerator"}:
        noun = f"{member.kind}s"
    return f"{member.count:,} {noun}"


def kind_of(tier: int | None, top: int) -> str:
    """The colour class of a tier."""
    if tier is None:
        return "host"
    return "leaf" if tier == 0 else "top" if tier >= top else "middle"


def cable_text(count: int, bundle: Bundle) -> str:
    """`64 × 400 Gbps, 100 m`."""
    length = f", {metres(bundle.length_m)}" if bundle.length_m else ""
    return f"{count:,} × {rate(bundle.rate_bps)}{length}"


def metres(length: float) -> str:
    """A length in m or km."""
    return f"{length / 1000:g} km" if length >= 1000 else f"{length:g} m"


def thickness(count: int) -> float:
    """Width of a line that stands for `count` cables."""
    return min(6.0, 1.0 + 0.4 * math.log2(max(1, count)))


def rows_of(group: Group) -> list[str | Member]:
    """What stands in a group's box, from its highest tier down: members, with cables between them."""
    members = sorted(group.members, key=lambda m: -1 if m.tier is None else m.tier, reverse=True)
    wires = [b for b in group.inside if b.count]
    rows: list[str | Member] = []
    if len(wires) == len(members) - 1:
        for i, member in enumerate(members):
            rows.append(member)
            if i < len(wires):
                rows.append(cable_text(wires[len(wires) - 1 - i].count, wires[len(wires) - 1 - i]))
        return rows
    return [*members, *(f"{cable_text(b.count, b)} {b.tier}" for b in wires)]


def size_of(cell: Cell) -> tuple[float, float]:
    """Width and height of a cell's box."""
    rows = rows_of(cell.group)
    texts = [member_text(r) if not isinstance(r, str) else r for r in rows]
    wide = max([width_of(cell.title, 13), *(width_of(t, 12) for t in texts), *(_ranges(rows))], default=60.0)
    high = HEAD + sum(CHIP + GAP if not isinstance(r, str) else 18.0 for r in rows) + (8 if cell.failed else 0)
    return wide + 2 * PAD + 10, high + (10 if cell.failed else 4)


def _ranges(rows: list[str | Member]) -> list[float]:
    return [width_of(f"{r.first} … {r.last}", 10.5) for r in rows if not isinstance(r, str)]


def draw_cell(picture: Picture, scene: Scene, cell: Cell, x: float, y: float, w: float, h: float) -> int:
    """Draws a cell's box with its contents and gives the box's number."""
    group, top = cell.group, max((g.tier or 0 for g in scene.groups), default=0)
    flags: tuple[str, ...] = ("path",) if cell.ids & set(scene.on_path()) else ()
    flags += ("failed",) if cell.failed else ()
    if cell.times > 1:
        for shift in (8.0, 4.0):
            picture.band(x + shift, y - shift, w, h, "pile")
    outer = picture.box(x, y, w, h, "box", flags=flags)
    picture.text(x + PAD, y + 17, cell.title, "name")
    at = y + HEAD
    for row in rows_of(group):
        if isinstance(row, str):
            picture.text(x + w / 2, at + 9, row, "small muted mid", 10.5)
            at += 18
            continue
        picture.box(x + PAD, at, w - 2 * PAD, CHIP, kind_of(row.tier, top), parent=outer)
        text = member_text(row)
        span = f"{row.first} … {row.last}"
        room = w - 2 * PAD - 12
        if row.count > 1 and not cell.more and width_of(f"{text}   {span}", 12) < room:
            text = f"{text}   {span}"
        picture.text(x + w / 2, at + 16, text, "mid")
        at += CHIP + GAP
    if cell.failed:
        picture.text(x + w / 2, y + h - 8, f"{cell.failed} failed", "small failed mid", 10.5)
    return outer
