"""The Gantt chart of one pipeline: what each rank's streams do over an iteration.

A stream's operations are laid on a grid of `COLUMNS` pixels; each pixel shows the kind of work that fills most of it.
The picture is as large for a hundred operations as for a million.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windtunnel.breakdown import PART, PARTS
from windtunnel.report.axes import WIDTH, Axis, below, box, legend, rule, svg, time_unit, words
from windtunnel.results.streams import stream_name
from windtunnel.text import duration, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.results.rows import Rows

COLUMNS = 2600
"""Pixels across the chart."""

NEEDED = ("stage", "rank", "stream", "label", "kind", "dimension", "start_ps", "finish_ps", "iteration")
"""Columns of `operations` that it is made of."""

MOST_LANES = 64
"""Most rows drawn; of more ranks, the first are shown."""

NOTHING = 255
"""A pixel where nothing is done."""

LEAST = 0.1
"""Part of a pixel that has to be filled to show."""

KINDS = {
    "forward": ("forward", "#4a57ff"),
    "backward": ("backward", "#14102c"),
    "weight": ("weight gradient", "#b491be"),
    "compute": ("compute", PART["compute"].colour),
    **{part.key: (part.name.replace("exposed ", ""), part.colour) for part in PARTS if part.name.startswith("exposed")},
}
"""Kind of work → name and colour."""

_KEYS = list(KINDS)
_NUMBER = {key: number for number, key in enumerate(_KEYS)}
_PASS = re.compile(r"(?:([F])|([BI])|([W]))\d")
"""A computation by its label: the letter of its pass, then chunk and microbatch, such as `F0.3 attention`."""

_RUN = re.compile(rb"(.)\1*", re.DOTALL)


@dataclass(frozen=True)
class Lane:
    """A row of the chart: a rank's stream, and per pixel the kind of work (index into `KINDS`) or `NOTHING`."""

    label: str
    first_of_rank: bool
    pixels: bytearray
    said: str


def gantt(operations: Rows) -> str:
    """The chart of the `operations` rows of one job and iteration, by stage and stream; empty if nothing takes time."""
    begin, end = min(operations["start_ps"]), max(operations["finish_ps"])
    span = max(end - begin, 1) / 1e12
    rows = lanes(operations, begin, max(end - begin, 1))
    runs_of = [runs(lane.pixels) for lane in rows]
    if not any(runs_of):
        return ""
    used = sorted({kind for found in runs_of for kind, _, _ in found})
    content, top = legend([(KINDS[_KEYS[kind]][1], KINDS[_KEYS[kind]][0]) for kind in used])
    step = min(18.0, max(11.0, 620 / len(rows)))
    left = 24 + 6.6 * max(len(lane.label) for lane in rows)
    x = Axis(0.0, span, left, WIDTH - 20)
    bottom = top + step * len(rows)
    paths: dict[int, list[str]] = {kind: [] for kind in used}
    for number, (lane, found) in enumerate(zip(rows, runs_of, strict=True)):
        y = top + step * number
        content += words(left - 8, y + step / 2 + 4, lane.label, anchor="end", muted=False)
        if lane.first_of_rank and number:
            content += rule(left, y, x.end, y)
        for kind, first, count in found:
            paths[kind].append(f"M{first} {number}.1h{count}v.8h-{count}z")
    # One path a kind, in pixels and lanes: thousands of elements would make the page slow.
    areas = "".join(f'<path d="{"".join(path)}" style="fill:{KINDS[_KEYS[k]][1]}"/>' for k, path in paths.items())
    content += (
        f'<g transform="translate({x.start:g} {top:g}) scale({(x.end - x.start) / COLUMNS:.6g} {step:g})">{areas}</g>'
    )
    for number, lane in enumerate(rows):
        content += box(x.start, top + step * number, x.end - x.start, step, "transparent", lane.said)
    scale, unit = time_unit(span)
    content += "".join(below(x, bottom, f"time in the iteration ({unit})", scale))
    return svg(bottom + 42, "Gantt chart of one pipeline", content)


def lanes(operations: Rows, begin: int, span: int) -> list[Lane]:
    """One lane per rank and stream, in the order of stage, rank and stream, of the `span` ps from `begin` on."""
    groups: dict[tuple[int, int, int], list[int]] = {}
    for i, key in enumerate(operations.each("stage", "rank", "stream")):
        groups.setdefault(key, []).append(i)
    names = sorted(groups)
    several = len({(s, r) for s, r, _ in names}) > len({s for s, _, _ in names})
    staged = len({s for s, _, _ in names}) > 1
    streams = len({t for _, _, t in names}) > 1
    result: list[Lane] = []
    before = None
    for s, r, t in names[:MOST_LANES]:
        mine = operations.take(groups[s, r, t])
        first = before != (s, r)
        before = (s, r)
        # Without a pipeline a stage says nothing, as a stream does where there is one.
        where = (f"stage {s} (rank {r})" if several else f"stage {s}") if staged else f"rank {r}"
        name = stream_name(t, mine.each("kind", "label", "dimension"))
        label = "   ".join(part for part in (where if first else "", name if streams else "") if part)
        kinds = kinds_of(mine)
        start = [(value - begin) / span for value in mine["start_ps"]]
        finish = [(value - begin) / span for value in mine["finish_ps"]]
        result.append(Lane(label, first, rasterise(start, finish, kinds), _said(f"{where}, {name}", mine, kinds, span)))
    return result


def _said(name: str, operations: Rows, kinds: Sequence[int], span: int) -> str:
    """What a lane tells to who points at it: how long it does what."""
    took: dict[int, int] = {}
    for kind, start, finish in zip(kinds, operations["start_ps"], operations["finish_ps"], strict=True):
        took[kind] = took.get(kind, 0) + finish - start
    parts = [f"{KINDS[_KEYS[k]][0]} {duration(took[k] / 1e12)} ({percent(took[k] / span)})" for k in sorted(took)]
    return f"{name}: {len(kinds):,} operations; {', '.join(parts)}"


def kinds_of(operations: Rows) -> list[int]:
    """Kind of work of each operation, as an index into `KINDS`."""
    known: dict[tuple[str, str, str], int] = {}
    found = []
    for one in operations.each("kind", "dimension", "label"):
        number = known.get(one)
        if number is None:
            number = known[one] = _kind(*one)
        found.append(number)
    return found


def _kind(kind: str, dimension: str, label: str) -> int:
    if kind != "calc":
        return _NUMBER.get(dimension if dimension in ("tp", "cp", "ep", "pp", "dp") else "other", 0)
    found = _PASS.match(label)
    return (
        _NUMBER["compute"] if found is None else _NUMBER[("forward", "backward", "weight")[(found.lastindex or 1) - 1]]
    )


def rasterise(start: Sequence[float], finish: Sequence[float], kinds: Sequence[int]) -> bytearray:
    """Per pixel the kind that fills most of it, or `NOTHING` where less than a tenth is filled."""
    pixels = bytearray([NOTHING]) * COLUMNS
    ends: dict[int, dict[int, float]] = {}
    for a, b, kind in zip(start, finish, kinds, strict=True):
        left, right = a * COLUMNS, b * COLUMNS
        first, last = int(left), int(right)
        if first == last:
            parts = ends.setdefault(first, {})
            parts[kind] = parts.get(kind, 0.0) + right - left
            continue
        # Whole pixels at once, the two ends by their fractions.
        pixels[first + 1 : last] = bytes([kind]) * (last - first - 1)
        for pixel, part in ((first, first + 1 - left), (last, right - last)):
            parts = ends.setdefault(pixel, {})
            parts[kind] = parts.get(kind, 0.0) + part
    for pixel, parts in ends.items():
        if pixel < COLUMNS and pixels[pixel] == NOTHING:
            most = max(parts.values())
            if most >= LEAST - 1e-9:
                pixels[pixel] = min(kind for kind, part in parts.items() if part == most)
    return pixels


def runs(pixels: bytearray) -> list[tuple[int, int, int]]:
    """Runs of one kind as (kind, first pixel, pixels); empty pixels are left out."""
    return [(run[0][0], run.start(), len(run[0])) for run in _RUN.finditer(pixels) if run[0][0] != NOTHING]
