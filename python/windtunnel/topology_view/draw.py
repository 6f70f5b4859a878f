"""The drawing of a topology: a heading, the layout that suits the shape, the path, what failed, a legend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windtunnel.text import count, counted_words, duration, rate
from windtunnel.topology_view.circle import draw_buildings, draw_circle
from windtunnel.topology_view.grid import draw_grid, has_grid
from windtunnel.topology_view.layered import draw_layered
from windtunnel.topology_view.nodes import draw_nodes, fits
from windtunnel.topology_view.picture import MARGIN, Picture, width_of
from windtunnel.topology_view.scene import read_scene

if TYPE_CHECKING:
    from windtunnel.topology_view.scene import Scene

HEADING = 62.0
NAMED_FAULTS = 6
"""Most failed parts that are named; of more, how many."""


def draw(answer: dict[str, Any]) -> str:
    """The SVG of an engine's answer that holds a `drawing`."""
    return compose(answer).svg()


def compose(answer: dict[str, Any]) -> Picture:
    """The picture of an engine's answer that holds a `drawing`."""
    scene = read_scene(answer)
    picture = Picture(title=_title(answer))
    picture.text(MARGIN, 32, _title(answer), "title", 16)
    picture.text(MARGIN, 50, _subtitle(answer), "muted")
    if any(group.kind == "building" for group in scene.groups):
        draw_buildings(picture, scene, HEADING)
    elif "dragonfly" in scene.shape:
        draw_circle(picture, scene, HEADING)
    elif has_grid(scene):
        draw_grid(picture, scene, HEADING)
    elif fits(scene):
        draw_nodes(picture, scene, HEADING)
    else:
        draw_layered(picture, scene, HEADING)
    _path(picture, scene)
    _faults(picture, answer)
    return picture


def _title(answer: dict[str, Any]) -> str:
    parts = [
        counted_words(answer[key], word) for key, word in (("hosts", "host"), ("gpus", "GPU"), ("switches", "switch"))
    ]
    return f"{str(answer['shape']).replace('_', ' ')}: {', '.join(parts)}"


def _subtitle(answer: dict[str, Any]) -> str:
    words = []
    if answer.get("cables"):
        words.append(f"{count(answer['cables'])} cables")
    if answer.get("bisection_bps"):
        words.append(f"bisection {rate(answer['bisection_bps'])}")
    if answer.get("planes", 1) > 1:
        words.append(f"{answer['planes']} planes")
    words.append(f"longest path {answer['diameter_links']} links, {duration(answer['diameter_latency_ps'] / 1e12)}")
    return " · ".join(words)


def _path(picture: Picture, scene: Scene) -> None:
    """The path that was asked for, hop by hop, below the network."""
    if not scene.path:
        return
    answer = next(p for p in scene.answer["paths"] if p["links"])
    y, x, widest = picture.bottom + 34, MARGIN, max(picture.right, 640.0)
    verdict = "" if answer["verdict"] == "legal" else f", {answer['verdict']}"
    picture.text(
        MARGIN, y, f"path {answer['from']} → {answer['to']}: {duration(answer['latency_ps'] / 1e12)}{verdict}", "name"
    )
    y += 12
    last = -1
    for i, name in enumerate(scene.path):
        w = width_of(name, 12) + 20
        if x + w > widest and i:
            x, y, last = MARGIN + 20, y + 40, -1
        number = picture.box(x, y, w, 26, "box", flags=("path",))
        picture.text(x + w / 2, y + 17, name, "mid")
        if last >= 0:
            before = picture.boxes[last]
            picture.line((before.x + before.w, y + 13), (x, y + 13), 2.0, ("path",))
        last = number
        x += w + 26


def _faults(picture: Picture, answer: dict[str, Any]) -> None:
    faults = answer.get("faults")
    if not faults:
        return
    names = [*faults.get("switches", []), *faults.get("links", [])]
    shown = ", ".join(names[:NAMED_FAULTS])
    more = f" and {len(names) - NAMED_FAULTS} more" if len(names) > NAMED_FAULTS else ""
    picture.text(MARGIN, picture.bottom + 30, f"failed: {shown}{more}", "failed")
