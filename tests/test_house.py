"""Arrows of the house point down, and no circle has more than four files (docs/architecture.md)."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

import pytest

import house
from conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CRATES = ROOT / "crates"
FLOOR = {
    "kernel": 1, "tables": 1, "topology": 2, "workload": 2, "import": 3, "fabric": 3, "cluster": 4, "backend": 4,
    "plan": 5, "config": 6, "run": 6, "scenario": 7, "python": 8, "routing": 8,
}  # fmt: skip
MOST = 4
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

# What names a key of a scenario once it is read, and where its word means something else.
WALKS = {
    "network.ack_every": (r"\back_every\b", ()),
    "topology.host.nic_bus": (r"\bnic_bus\b|\.bus\b|\bbus:|\bbus_links\b", ()),
    "topology.tiers[].oversubscription": (r"\boversubscription\b", ()),
    "jobs[].checkpoint": (r"(?i)checkpoint(?!ing)", ("fabric", "workload")),
}


def test_every_crate_stands_above_those_that_it_takes_from() -> None:
    assert {path.parent.name for path in CRATES.glob("*/Cargo.toml")} == set(FLOOR)
    for name, floor in FLOOR.items():
        told = tomllib.loads((CRATES / name / "Cargo.toml").read_text(encoding="utf-8"))
        for other in told.get("dependencies", {}):
            below = FLOOR.get(other.removeprefix("windtunnel-")) if other.startswith("windtunnel-") else None
            assert below is None or below < floor, f"`{name}` takes from `{other}`"


def test_the_page_says_the_floors() -> None:
    told = re.findall(r"^\| (\d) \| `(\w+)` \|", _section("Rooms and arrows"), flags=re.MULTILINE)
    assert {name: int(floor) for floor, name in told} == FLOOR


@pytest.mark.parametrize("key", WALKS)
def test_the_page_says_every_file_of_a_walk(key: str) -> None:
    row = re.search(rf"^\| `{re.escape(key)}` \|(.*)\|$", _section("The walk of a key"), flags=re.MULTILINE)
    assert row is not None
    told = [file for path in re.findall(r"`([^`]+\.rs)`", row[1]) for file in _spread(path)]
    name, apart = WALKS[key]
    found = {
        path.relative_to(CRATES).as_posix().replace("/src/", "/", 1)
        for path in CRATES.glob("*/src/**/*.rs")
        if path.relative_to(CRATES).parts[0] not in apart and re.search(name, house.code(path))
    }
    assert sorted(told) == sorted(found)


def _section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def _spread(path: str) -> list[str]:
    """`a/{b,c}.rs` as the files that it names."""
    braces = re.search(r"\{([^}]*)\}", path)
    if braces is None:
        return [path]
    return [
        file for one in braces[1].split(",") for file in _spread(path[: braces.start()] + one + path[braces.end() :])
    ]


@pytest.mark.parametrize("crate", sorted(FLOOR))
def test_no_circle_of_a_crate_has_more_than_four_files(crate: str) -> None:
    arrows = house.rust(CRATES / crate)
    assert arrows
    assert [found for found in house.circles(arrows) if len(found) > MOST] == []


def test_no_file_of_the_package_is_in_a_circle() -> None:
    assert house.circles(house.python(ROOT / "python" / "windtunnel")) == []


def test_circles_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a page that hands names on, through groups of names, and not through tests or comments."""
    monkeypatch.setattr(house, "ROOT", tmp_path)
    source = tmp_path / "src"
    (source / "room").mkdir(parents=True)
    (source / "lib.rs").write_text("mod a;\nmod room;\npub use a::A;\n")
    (source / "a.rs").write_text("use super::room::{self, inner::{B as Other, C}};\n")
    (source / "room" / "mod.rs").write_text("pub mod inner;\npub use inner::B;\n")
    (source / "room" / "inner.rs").write_text(
        "// use crate::a::A;\nuse crate::room::D;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n"
    )
    assert house.circles(house.rust(tmp_path)) == []
    (source / "room" / "inner.rs").write_text("fn f() -> crate::A {}\n")
    assert house.circles(house.rust(tmp_path)) == [["src/a.rs", "src/room/inner.rs"]]
