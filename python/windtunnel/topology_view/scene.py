"""The engine's `drawing` as records, and which group a node's name belongs to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Member:
    """Nodes of one kind in a group: `first` to `last`."""

    kind: str
    tier: int | None
    count: int
    first: str
    last: str

    def holds(self, name: str) -> bool:
        """Whether a node called `name` is one of them. Names count up with their numbers."""
        stem, numbers = split(name)
        first_stem, first = split(self.first)
        last_stem, last = split(self.last)
        return stem == first_stem == last_stem and first <= numbers <= last


@dataclass(frozen=True)
class Bundle:
    """Cables of one kind inside a group or between two."""

    tier: str
    count: int
    rate_bps: int
    length_m: float
    failed: int
    a: int = -1
    b: int = -1

    def ends(self) -> tuple[int, int]:
        """Both groups, in order."""
        return min(self.a, self.b), max(self.a, self.b)


@dataclass(frozen=True)
class Group:
    """Nodes drawn as one box."""

    id: int
    name: str
    kind: str
    tier: int | None
    parent: int | None
    repeat: int
    members: tuple[Member, ...]
    inside: tuple[Bundle, ...]
    failed_switches: int

    def shape(self) -> tuple[Any, ...]:
        """What two groups have alike that may stand for each other."""
        members = tuple((member.kind, member.count) for member in self.members)
        inside = tuple((bundle.tier, bundle.count, bundle.rate_bps, bundle.failed) for bundle in self.inside)
        return (self.kind, self.tier, self.parent, members, inside, self.failed_switches)

    @property
    def failed(self) -> int:
        """Failed switches and cables inside."""
        return self.failed_switches + sum(bundle.failed for bundle in self.inside)


@dataclass(frozen=True)
class Node:
    """One switch or host."""

    id: int
    name: str
    kind: str
    tier: int | None
    group: int
    failed: bool
    coordinates: tuple[int, ...]


@dataclass(frozen=True)
class Scene:
    """Everything a picture is made of."""

    shape: str
    groups: tuple[Group, ...]
    between: tuple[Bundle, ...]
    nodes: tuple[Node, ...]
    cables: tuple[Bundle, ...]
    path: tuple[str, ...]
    """Names of the nodes on the path that was asked for."""
    answer: dict[str, Any]

    def group_of(self, name: str) -> int | None:
        """The group that the node called `name` is drawn in."""
        found = [group.id for group in self.groups if any(member.holds(name) for member in group.members)]
        if found:
            return found[0]
        stem = split(name)[0]
        alike = [g.id for g in self.groups if g.repeat > 1 and any(split(m.first)[0] == stem for m in g.members)]
        return alike[0] if alike else None

    def on_path(self) -> list[int]:
        """Groups that the path goes through, one after the other."""
        groups: list[int] = []
        for name in self.path:
            group = self.group_of(name)
            if group is not None and (not groups or groups[-1] != group):
                groups.append(group)
        return groups


def split(name: str) -> tuple[str, tuple[int, ...]]:
    """`leaf3.2` as its stem and its numbers; of `host3/gpu1` the host alone."""
    name = name.split("/", maxsplit=1)[0] if re.fullmatch(r"host\d+/.*", name) else name
    numbers = tuple(int(n) for n in re.findall(r"\d+", name))
    return re.sub(r"\d+", "#", name), numbers


def read_scene(answer: dict[str, Any]) -> Scene:
    """The scene of an answer that holds a drawing."""
    drawing = answer["drawing"]
    groups = tuple(
        Group(
            id=g["id"], name=g["name"], kind=g["kind"], tier=g["tier"], parent=g["parent"], repeat=g["repeat"],
            members=tuple(_member(m, g["repeat"]) for m in g["members"]),
            inside=tuple(_bundle(b, g["repeat"]) for b in g["inside"]), failed_switches=g["failed_switches"],
        )
        for g in drawing["groups"]
    )  # fmt: skip
    nodes = tuple(
        Node(n["id"], n["name"], n["kind"], n["tier"], n["group"], n["failed"], tuple(n.get("coordinates") or ()))
        for n in drawing["nodes"] or []
    )
    return Scene(
        shape=answer["shape"],
        groups=groups,
        between=tuple(_bundle(b) for b in drawing["between"]),
        nodes=nodes,
        cables=tuple(_bundle(b) for b in drawing["cables"] or []),
        path=_path(answer),
        answer=answer,
    )


def _member(m: dict[str, Any], repeat: int) -> Member:
    """Of a group that stands for several, what each of them has."""
    return Member(m["kind"], m["tier"], m["count"] // repeat, m["first"], m["last"])


def _bundle(b: dict[str, Any], repeat: int = 1) -> Bundle:
    ends = b.get("a", -1), b.get("b", -1)
    return Bundle(b["tier"], b["count"] // repeat, b["rate_bps"], b["length_m"], b["failed"], *ends)


def _path(answer: dict[str, Any]) -> tuple[str, ...]:
    for path in answer.get("paths") or []:
        links = [link for link in path["links"] if link["share"] == 1.0]
        if links:
            return (links[0]["from"], *(link["to"] for link in links))
    return ()
