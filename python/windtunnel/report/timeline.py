"""A cluster over time: what its GPUs did, who waited, which job was on which host, which links were full."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import TYPE_CHECKING

from windtunnel.report.axes import (
    INK,
    MUTED,
    WIDTH,
    Axis,
    below,
    box,
    label,
    legend,
    picture,
    polyline,
    rule,
    shades,
    svg,
    words,
)
from windtunnel.report.heatmap import panels
from windtunnel.text import duration, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.results.rows import Rows

STATES = {
    "busy": "#4c78a8",
    "stranded": "#e45756",
    "draining": "#f2cf5b",
    "failed": "#7b4b94",
    "idle": "#e4e7eb",
}
"""What a GPU does and its colour, from the bottom of the chart up."""

COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#72b7b2", "#eeca3b", "#9d755d", "#ff9da6", "#86a9cf", "#bab0ac")
"""Of jobs, in turn."""

COLUMNS = 1300
"""Pixels across the chart of jobs over hosts."""

MOST_LANES = 1024
"""Pixels down."""

MOST_CROSSES = 500
"""Faults marked; of more, none is."""

MOST_DOTS = 4096
"""Jobs drawn one by one."""

BINS = 60
"""Waiting times that are told apart where jobs are counted."""

SHORTEST_S = 1e-3
"""Waiting times below are drawn there."""

WAITS = {
    SHORTEST_S: "0", 1.0: "1 s", 60.0: "1 min", 3_600.0: "1 h", 86_400.0: "1 d", 864_000.0: "10 d",
    8_640_000.0: "100 d",
}  # fmt: skip
"""Marks of an axis of waiting times in seconds, from what stands for none on."""

DAY_S = 86_400.0

LEFT, RIGHT = 70, 20


def calendar_unit(longest_s: float) -> tuple[str, float]:
    """What an axis of the calendar is called, and the seconds of its unit."""
    for scale, unit in ((DAY_S, "days"), (3_600.0, "hours"), (60.0, "minutes")):
        if longest_s >= 2 * scale:
            return f"time ({unit})", scale
    return "time (s)", 1.0


def usage_chart(usage: Rows) -> str:
    """What the GPUs did and how many jobs waited and ran."""
    edges = [*usage["from_s"], usage["from_s"][-1] + usage["span_s"][-1]]
    x = Axis(0.0, edges[-1] or 1.0, LEFT, WIDTH - RIGHT)
    shown = [state for state in STATES if any(usage[state])]
    content, top = legend([(STATES[state], state) for state in shown])
    gpus = Axis(0.0, 1.0, top + 170, top)
    base = [0.0] * usage.height
    for state in shown:
        over = [a + b for a, b in zip(base, usage[state], strict=True)]
        ring = _steps(x, gpus, edges, over) + _steps(x, gpus, edges, base)[::-1]
        path = " ".join(f"{a:g},{b:g}" for a, b in ring)
        content += f'<polygon points="{path}" style="fill:{STATES[state]}"/>'
        base = over
    for share in (0.0, 0.5, 1.0):
        content += words(LEFT - 8, gpus.at(share) + 4, f"{100 * share:g} %", anchor="end")
    content += words(LEFT - 8, gpus.at(0.78) + 4, "GPUs", anchor="end", muted=False)
    lines = {"running": "#4c78a8", "waiting": "#e45756"}
    counts = {name: usage[f"{name}_jobs"] for name in lines}
    most = max(max(values, default=0) for values in counts.values())
    names, after = legend([(colour, f"{name} jobs") for name, colour in lines.items()], LEFT, gpus.start + 26)
    jobs = Axis(0.0, 1.06 * most or 1.0, after + 90, after)
    content += names
    for tick in jobs.ticks():
        if tick == int(tick):
            content += rule(LEFT, jobs.at(tick), x.end, jobs.at(tick))
            content += words(LEFT - 8, jobs.at(tick) + 4, label(int(tick)), anchor="end")
    for name, colour in lines.items():
        content += polyline(_steps(x, jobs, edges, counts[name]), colour, 1.6)
    for i, (begin, end) in enumerate(pairwise(edges)):
        states = ", ".join(f"{state} {percent(usage[state][i])}" for state in shown if usage[state][i])
        waits = f"{counts['running'][i]:g} jobs running, {counts['waiting'][i]:g} waiting"
        said = f"from {duration(begin)}: GPUs {states}; {waits}"
        content += box(x.at(begin), gpus.end, x.at(end) - x.at(begin), jobs.start - gpus.end, "transparent", said)
    content += "".join(below(x, jobs.start, *calendar_unit(edges[-1])))
    return svg(jobs.start + 42, "GPUs and jobs over time", content)


def _steps(x: Axis, y: Axis, edges: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    """A line that keeps each value from its edge to the next."""
    found = []
    for begin, end, value in zip(edges, edges[1:], values, strict=False):
        found += [(x.at(begin), y.at(value)), (x.at(end), y.at(value))]
    return found


def hosts_chart(placements: Rows, end_s: float, faults: Rows | None = None) -> str:
    """Jobs over hosts: a lane for each GPU, a colour for each job; what failed, and a cross where it hit a job."""
    hosts, lanes = gpu_lanes(placements, end_s, faults)
    x = Axis(0.0, end_s or 1.0, LEFT, WIDTH - RIGHT)
    top, height = 6.0, min(560.0, 3.0 * len(hosts) + 90)
    palette = [colour.removeprefix("#") for colour in ("#ffffff", STATES["failed"], *COLOURS)]
    content = picture([bytes(lane) for lane in lanes], palette, x.start, top, x.end - x.start, height, clear=1)
    step = height / len(hosts)
    every = max(1, -(-len(hosts) // 8))
    for number in range(0, len(hosts), every):
        content += words(LEFT - 8, top + step * (number + 0.5) + 4, hosts[number], anchor="end")
    content += words(LEFT - 8, top + height + 36, "host", anchor="end")
    content += _job_boxes(placements, hosts, x, top, step)
    if faults is not None:
        place = {host: number for number, host in enumerate(hosts)}
        hits = [
            (time_s, _host(component)) for time_s, component, jobs in faults.each("time_s", "component", "jobs") if jobs
        ]
        if len(hits) <= MOST_CROSSES:
            marks = [(x.at(t), top + step * (place[host] + 0.5)) for t, host in hits if host in place]
            path = "".join(f"M{a - 3:.1f} {b - 3:.1f}l6 6m0 -6l-6 6" for a, b in marks)
            content += f'<path d="{path}" style="stroke:{INK};stroke-width:1.1;fill:none"/>' if marks else ""
    content += "".join(below(x, top + height, *calendar_unit(end_s)))
    return svg(top + height + 42, "jobs over hosts", content)


MOST_BOXES = 1_000
"""Stays that say whose they are to who points at them; of more, none does."""


def _job_boxes(placements: Rows, hosts: Sequence[int], x: Axis, top: float, step: float) -> str:
    if placements.height > MOST_BOXES:
        return ""
    place = {host: number for number, host in enumerate(hosts)}
    per_host = _per_host(placements)
    found = ""
    for job, host, gpu, gpus, start, finish in placements.each("job", "host", "gpu", "gpus", "start_s", "finish_s"):
        end = finish if _is_known(finish) else x.high
        said = f"{job} on host {host}: {gpus} GPUs from {duration(start)} for {duration(end - start)}"
        y = top + step * (place[host] + gpu / per_host)
        found += box(x.at(start), y, max(0.5, x.at(end) - x.at(start)), step * gpus / per_host, "transparent", said)
    return found


def _is_known(instant: float | None) -> bool:
    return instant is not None and not math.isnan(instant)


def _per_host(placements: Rows) -> int:
    return max(int(gpu + gpus) for gpu, gpus in placements.each("gpu", "gpus"))


def gpu_lanes(placements: Rows, end_s: float, faults: Rows | None = None) -> tuple[list[int], list[bytearray]]:
    """The hosts that are told of, and a grid of GPUs × time: 0 nothing, 1 failed, 2 and more the colour of a job.

    A pixel shows what is there at its middle, so that the part of the picture in a colour is the part of the time,
    whatever the number of rows. Of more GPUs than `MOST_LANES` every k-th has a lane.
    """
    step = max(math.gcd(*set(placements["host"])), 1)
    hosts = list(range(0, max(placements["host"]) + 1, step))
    per_host = _per_host(placements)
    every = -(-len(hosts) * per_host // MOST_LANES)
    lanes = [bytearray(COLUMNS) for _ in range(-(-len(hosts) * per_host // every))]
    scale = COLUMNS / end_s if end_s else 0.0
    full = [bytes([colour]) * COLUMNS for colour in range(2 + len(COLOURS))]

    def paint(first: int, count: int, start: float, finish: float, colour: int) -> None:
        top, bottom = -(-first // every), -(-(first + count) // every)
        left, right = max(math.ceil(start * scale - 0.5), 0), min(math.ceil(finish * scale - 0.5), COLUMNS)
        if right > left:
            for lane in range(top, bottom):
                lanes[lane][left:right] = full[colour][: right - left]

    known = set(hosts)
    if faults is not None:
        for cause, component, time_s, repair_s in faults.each("cause", "component", "time_s", "repair_s"):
            host, gpu = _host(component), _gpu(component)
            if cause in ("gpu", "host") and host in known:
                first = host // step * per_host + (gpu or 0)
                paint(first, per_host if gpu is None else 1, time_s, time_s + repair_s, 1)
    colours: dict[object, int] = {}
    for job, host, gpu, gpus, start, finish in placements.each("job", "host", "gpu", "gpus", "start_s", "finish_s"):
        colour = colours.setdefault(job, len(colours) % len(COLOURS) + 2)
        paint(host // step * per_host + gpu, gpus, start, finish if _is_known(finish) else end_s, colour)
    return hosts, lanes


def _host(component: str) -> int | None:
    found = re.search(r"host(\d+)", component)
    return None if found is None else int(found[1])


def _gpu(component: str) -> int | None:
    found = re.search(r"gpu(\d+)", component)
    return None if found is None else int(found[1])


def waiting_chart(jobs: Rows) -> str:
    """Waiting time against the GPUs of a job: a dot each, or how many there are of each kind where they are many."""
    size_of = "ranks" if "ranks" in jobs else "gpus"
    found = [
        (size, max(start - submit, SHORTEST_S))
        for size, start, submit in jobs.each(size_of, "start_s", "submit_s")
        if _is_known(start) and _is_known(submit)
    ]
    longest = max((wait for _, wait in found), default=SHORTEST_S)
    most = max((size for size, _ in found), default=1)
    top, bottom = 10.0, 210.0
    x = Axis(2**-0.5, 2.0 ** (math.floor(math.log2(most)) + 1), LEFT, WIDTH - 100, log=True)
    y = Axis(SHORTEST_S / 1.5, max(longest, 10 * SHORTEST_S) * 1.5, bottom, top, log=True)
    content = rule(x.start, bottom, x.end, bottom)
    for at, name in WAITS.items():
        if at <= y.high:
            content += rule(x.start, y.at(at), x.end, y.at(at)) + words(LEFT - 8, y.at(at) + 4, name, anchor="end")
    powers = range(math.floor(math.log2(most)) + 2)
    for power in powers:
        if 2**power <= x.high and power % max(1, len(powers) // 12) == 0:
            content += words(x.at(2**power), bottom + 18, label(2**power))
    content += words((x.start + x.end) / 2, bottom + 36, "GPUs of the job")
    content += words(LEFT - 8, bottom + 36, "waited", anchor="end")
    content += _dots(found, x, y) if len(found) <= MOST_DOTS else _counts(found, x, y)
    return svg(bottom + 42, "waiting time by size", content)


def _dots(found: Sequence[tuple[int, float]], x: Axis, y: Axis) -> str:
    there: dict[tuple[float, float], list[tuple[int, float]]] = {}
    for size, wait in found:
        there.setdefault((x.at(size), y.at(wait)), []).append((size, wait))
    dots = ""
    for (a, b), jobs in there.items():
        size, wait = jobs[0]
        said = f"{len(jobs):,} jobs of {size:,} GPUs: {'no wait' if wait <= SHORTEST_S else duration(wait)}"
        dots += f'<circle cx="{a:g}" cy="{b:g}" r="3.2"><title>{said}</title></circle>'
    return f'<g style="fill:#4c78a8;fill-opacity:.55">{dots}</g>'


def _counts(found: Sequence[tuple[int, float]], x: Axis, y: Axis) -> str:
    """Jobs counted by powers of two of GPUs, and by waiting times."""
    factor = math.log(y.high / SHORTEST_S) / BINS
    counts: dict[tuple[int, int], int] = {}
    for size, wait in found:
        key = math.floor(math.log2(size) + 0.5), int(math.log(wait / SHORTEST_S) / factor)
        counts[key] = counts.get(key, 0) + 1
    most, colours = max(counts.values()), shades()
    content = ""
    for (power, number), count in sorted(counts.items()):
        left, right = x.at(max(2 ** (power - 0.5), x.low)), x.at(min(2 ** (power + 0.5), x.high))
        low, high = (SHORTEST_S * math.exp(factor * k) for k in (number, number + 1))
        colour = colours[round(255 * (math.log(count) / math.log(most) if most > 1 else 1.0))]
        said = f"{count:,} jobs of about {2**power:,} GPUs waited {duration(low)} to {duration(high)}"
        content += box(left, y.at(high), right - left, y.at(low) - y.at(high), f"#{colour}", said)
    top, height = y.end, y.start - y.end - 60
    content += picture([bytes([255 - i]) for i in range(256)], colours, x.end + 18, top, 12, height)
    content += words(x.end + 36, top + 9, f"{most:,}", anchor="start")
    content += words(x.end + 36, top + height, "1", anchor="start")
    return content + words(x.end + 18, top + height + 18, "jobs", anchor="start", colour=MUTED)


def heat_chart(heat: Rows, end_s: float) -> str:
    """Mean utilisation of the most used links over the calendar, by tier."""
    return panels(heat, end_s, float(heat["bin_span_s"][0]), "links over the calendar", calendar_unit(end_s))
