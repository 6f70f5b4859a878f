"""Queue pairs over time: bytes in flight under their windows, pace, round trips, and the queues on their paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.report.axes import LINE, WIDTH, below, label, legend, numbers, polyline, rule, svg, time_unit, words

if TYPE_CHECKING:
    from windtunnel.results.rows import Rows

NEEDED = (
    "time_ps", "origin_s", "queue_pair", "source", "destination", "window_bytes", "rate_bps", "in_flight_bytes",
    "rtt_ps", "one_way_ps", "queue_bytes",
)  # fmt: skip
"""Columns of the table `queue_pairs` that are drawn."""

COLOURS = ("#4c78a8", "#e45756", "#54a24b", "#b279a2", "#f58518", "#72b7b2", "#9d755d", "#eeca3b")
"""Of queue pairs, the first ones; others are not drawn."""

POINTS = 1_500
"""Instants of a line at most: every second, third, … row of more."""

LEFT, RIGHT, PANEL, GAP, FOOT = 84, 24, 120, 26, 44

PANELS = (
    ("in flight, window (KB)", (("window_bytes", "3 3"), ("in_flight_bytes", "none")), 1e3),
    ("pace (Gbps)", (("rate_bps", "none"),), 1e9),
    ("round trip (µs)", (("rtt_ps", "none"),), 1e6),
    ("one way (µs)", (("one_way_ps", "none"),), 1e6),
    ("queue on its path (KB)", (("queue_bytes", "none"),), 1e3),
)
"""What a panel has: columns with their dashes, and how many of theirs its unit is. One without a figure is left out."""


def queue_pairs(rows: Rows) -> str:
    """A panel a figure, a line a queue pair; empty without rows."""
    pairs = list(dict.fromkeys(rows["queue_pair"]))[: len(COLOURS)]
    if not pairs:
        return ""
    first = rows["origin_s"][0]
    groups = []
    for pair, colour in zip(pairs, COLOURS, strict=False):
        of_pair = rows.where("queue_pair", pair)
        of_pair = of_pair.take(range(0, of_pair.height, -(-of_pair.height // POINTS)))
        origins = zip(of_pair["origin_s"], of_pair["time_ps"], strict=True)
        groups.append((colour, [(origin - first) + time / 1e12 for origin, time in origins], of_pair))
    names = [(colour, f"{own['source'][0]} → {own['destination'][0]}") for colour, _, own in groups]
    head, top = legend(names)
    instants = [at for _, times, _ in groups for at in times]
    x = numbers(instants, LEFT, WIDTH - RIGHT)
    content = [head]
    for title, columns, unit in PANELS:
        values = [v / unit for _, _, own in groups for column, _ in columns for v in own[column] if v is not None]
        if not values:
            continue
        bottom = top + PANEL
        y = numbers([0.0, max(values) or 1.0], bottom, top, from_zero=True)
        for tick in y.ticks():
            content += [rule(LEFT, y.at(tick), WIDTH - RIGHT, y.at(tick), LINE)]
            content.append(words(LEFT - 8, y.at(tick) + 4, label(tick), anchor="end"))
        turned = f'transform="rotate(-90 12 {(top + bottom) / 2:g})"'
        content.append(words(12, (top + bottom) / 2, title, more=turned))
        for (colour, times, own), (_, name) in zip(groups, names, strict=True):
            for column, dash in columns:
                known = [(x.at(t), y.at(v / unit)) for t, v in zip(times, own[column], strict=True) if v is not None]
                said = f"{name}: {column.rpartition('_')[0].replace('_', ' ')}"
                content.append(polyline(known, colour, 1.4, f";stroke-dasharray:{dash}", said))
        top = bottom + GAP
    scale, unit_name = time_unit(max(instants))
    content += below(x, top - GAP, f"time ({unit_name})", scale)
    return svg(top - GAP + FOOT, "queue pairs over time", *content)
