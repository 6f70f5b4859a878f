"""The drawing of topologies: valid, bounded, legible, nothing on top of anything else, the same bytes each time."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET  # our own output
from typing import Any

import pytest

import topologies as t
from windtunnel.topology_view.draw import compose, draw
from windtunnel.topology_view.picture import MARGIN, Picture
from windtunnel.topology_view.scene import read_scene, split

LARGEST = 300_000
MOST_ELEMENTS = 1_000

PICTURES: dict[str, dict[str, Any]] = {
    "leaf-spine": t.leaf_spine(),
    "clos": t.clos(6),
    "clos of 10,240 hosts": t.clos(160),
    "clos of 1,048,576 hosts": t.clos(1 << 14),
    "dragonfly": t.dragonfly(9),
    "dragonfly of 25,600 hosts": t.dragonfly(200),
    "torus": t.torus(8, 8),
    "ring": t.torus(5),
    "torus of 32,768 hosts": t.torus(32, 32, 32),
    "mesh": t.torus(4, 12, shape="mesh"),
    "full mesh of 16,384 hosts": t.torus(8, 8, 16, 16, shape="full_mesh"),
    "hammingmesh": t.hamming((2, 3), (4, 4)),
    "hammingmesh of 65,536 hosts": t.hamming((4, 4), (64, 64)),
    "2 buildings": t.regions(2),
    "3 buildings": t.regions(3),
    "8 buildings": t.regions(8, pods=20),
}


@pytest.fixture(params=PICTURES)
def picture(request: pytest.FixtureRequest) -> Picture:
    return compose(PICTURES[request.param])


def test_it_is_small_valid_and_the_same_each_time(picture: Picture) -> None:
    text = picture.svg()
    root = ET.fromstring(text)  # noqa: S314
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(text.encode()) < LARGEST
    assert picture.elements() <= MOST_ELEMENTS
    assert "url(" not in text
    assert "<script" not in text
    assert "@font-face" not in text
    assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize("name", PICTURES)
def test_the_same_bytes_each_time(name: str) -> None:
    assert draw(PICTURES[name]) == draw(PICTURES[name])


def test_no_box_covers_another(picture: Picture) -> None:
    for i, box in enumerate(picture.boxes):
        if box.parent is not None:
            assert picture.boxes[box.parent].holds(box), (box, picture.boxes[box.parent])
        for other in picture.boxes[:i]:
            related = picture.boxes.index(other) == box.parent or other.parent == i
            assert related or not box.overlaps(other), (box, other)


def test_everything_is_inside_the_frame(picture: Picture) -> None:
    for box in (*picture.boxes, *picture.bands):
        assert box.x >= 4
        assert box.y >= 56
        assert box.x + box.w <= picture.right
        assert box.y + box.h <= picture.bottom
    for text in picture.texts:
        place = re.match(r'<text x="([\d.-]+)" y="([\d.-]+)"', text)
        assert place is not None
        assert 0 <= float(place[1]) <= picture.right
        assert 0 <= float(place[2]) <= picture.bottom + MARGIN


def words(answer: dict[str, Any]) -> str:
    return "\n".join(re.sub("<[^>]*>", "", text) for text in compose(answer).texts)


def test_labels_say_what_is_there() -> None:
    shown = words(t.clos(160))
    for label in ("clos: 10,240 hosts, 81,920 GPUs, 2,624 switches", "pod0", "64 hosts", "8 leaf switches",
                  "8 agg switches", "64 spine switches", "64 × 400 Gbps, 100 m each", "157 more alike"):  # fmt: skip
        assert label in shown, label
    assert "group0" in words(t.dragonfly(9))
    assert "1 × 400 Gbps, 20 m between each two" in words(t.dragonfly(9))
    shown = words(t.torus(16, 8, 4))
    assert "16 planes like this one; dimension 0: 16 in a ring" in shown
    assert "0.7.3" in shown
    assert "across: 4 in a ring · down: 8 in a ring" in shown
    assert "64 × 64 boards of 4 × 4 accelerators" in words(t.hamming((4, 4), (64, 64)))
    shown = words(t.regions(3))
    assert "32 × 400 Gbps, 2 km" in shown
    assert "32 × 400 Gbps, 4 km" in shown
    # Too many for a label each: they are listed.
    assert "building0 – building7: 32 × 400 Gbps, 8 km" in words(t.regions(8))


def test_a_path_is_marked_and_spelt_out() -> None:
    names = ("host0/nic0", "leaf0", "agg2", "spine17", "agg90", "leaf88", "host720/nic0")
    answer = t.with_path(t.clos(160), *names)
    picture = compose(answer)
    shown = words(answer)
    assert "path host0/nic0 → host720/nic0: 2.700 µs" in shown
    for name in names:
        assert name in shown
    # The pods of both ends, the spines between them, and the seven boxes below.
    assert sum("path" in box.flags for box in picture.boxes) == 3 + 7
    assert sum("path" in line for line in picture.lines) == 2 + 6
    scene = read_scene(answer)
    assert scene.on_path() == [0, 1000, 11]


def test_nodes_on_a_path_are_marked() -> None:
    answer = t.with_path(t.leaf_spine(), "host0/nic0", "leaf0", "spine1", "leaf3", "host13/nic2")
    marked = [box for box in compose(answer).boxes if "path" in box.flags]
    assert len(marked) == 5 + 5
    torus = t.with_path(t.torus(16, 16, 16), "host0/nic0", "router3.0.0", "router3.0.1", "host1/nic0")
    picture = compose(torus)
    assert sum("path" in box.flags for box in picture.boxes) == 2 + 4
    assert "3.0.1" in words(torus)


def test_what_failed_is_red_and_named() -> None:
    answer = t.clos(160)
    answer["drawing"]["groups"][5]["failed_switches"] = 2
    answer["drawing"]["between"][20]["failed"] = 3
    answer["faults"] = {"switches": ["agg40", "agg41"], "links": [f"agg{i} -> spine0" for i in range(9)]}
    shown = words(answer)
    # Groups with faults are never among those that are left out.
    listed = "failed: agg40, agg41, agg0 -> spine0, agg1 -> spine0, agg2 -> spine0, agg3 -> spine0 and 5 more"
    for label in ("pod5", "pod20", "2 failed", "3 failed", "155 more alike", listed):
        assert label.replace(">", "&gt;") in shown, label
    picture = compose(answer)
    assert sum("failed" in box.flags for box in picture.boxes) == 1
    assert sum("failed" in line for line in picture.lines) == 1


def test_names_are_told_apart_by_stem_and_numbers() -> None:
    assert split("leaf3.2") == ("leaf#.#", (3, 2))
    assert split("host3/nic1") == split("host3/gpu0") == ("host#", (3,))
    scene = read_scene(t.clos(160))
    assert scene.group_of("agg17") == 2
    assert scene.group_of("leaf1200") == 39
    assert scene.group_of("spine63") == 1000
    assert scene.group_of("router0") is None
