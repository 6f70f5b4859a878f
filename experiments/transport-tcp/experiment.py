"""NewReno and Cubic against the laws of their windows under random loss, and the buffers that they need."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import polars as pl

from windtunnel.experiments.loads import Load, by_load, table
from windtunnel.experiments.port import Flow, Port, shared

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results

PACKET, PAYLOAD = 1_500, 1_434
NEVER = {"kmin": "1 GB", "kmax": "2 GB"}
LOADS = (0.3, 0.5, 0.8)


def lossy(transport: str, gbps: float, rtt_ms: float, loss: float, window: float, losses: int) -> Port:
    """A flow that loses so many packets at random, of which `window` are expected to be under way."""
    size = round(losses / loss * PAYLOAD)
    network = {"ecn": NEVER, "parameters": {"initial_packets": round(window), "max_window": 4}}
    return Port(transport, [Flow(0, size)], gbps, rtt_ms * 1e3, network=network, loss=loss, every=None)


def window(port: Port, end_us: float) -> float:
    """Packets under way, in the mean: what arrived over the round trips that it took."""
    return port.flows[0].size / PAYLOAD / (end_us / port.rtt_us)


def buffered(transport: str, part: float, flows: int = 1) -> Port:
    """Flows over 1 ms at 1 Gbps, with room for `part` of the bandwidth-delay product, for 4 s."""
    rtt_us = 1_000.0
    each = Flow(0, round(4 * 1e9 / 8 * PAYLOAD / PACKET / flows))
    apart = [replace_start(each, 7_000 * turn) for turn in range(flows)]
    room = round(part * 1e9 / 8 * rtt_us * 1e-6)
    network = {"ecn": NEVER, "parameters": {"max_window": 16}}
    return Port(
        transport, apart, 1, rtt_us, network=network, buffer=room, faster=10, every="1 ms", senders_every="10 ms"
    )


def replace_start(flow: Flow, start_us: float) -> Flow:
    """The same, later."""
    return Flow(start_us, flow.size)


def reno_use(part: float) -> float:
    """Use of a link by a window that rises by a packet a round trip from half of BDP (1 + part) to all of it."""
    top = 1 + part
    return 0.375 * top**2 / ((1 - part) / 2 + (top**2 - 1) / 2)


def observe(_results: Results) -> dict[str, Any]:
    """Windows under loss, use of a link by its buffer, shares, slowdowns."""
    mathis = {loss: sqrt(1.5 / loss) for loss in (1e-3, 1e-4)}
    cubic = 1.054 * 0.1**0.75 / 1e-4**0.75
    losing = {
        ("newreno", 1e-3): lossy("newreno", 10, 1, 1e-3, mathis[1e-3], 600),
        ("newreno", 1e-4): lossy("newreno", 10, 1, 1e-4, mathis[1e-4], 150),
        ("cubic", 1e-3): lossy("cubic", 10, 1, 1e-3, mathis[1e-3], 600),
        ("cubic", 1e-4): lossy("cubic", 1, 100, 1e-4, cubic, 200),
        ("newreno over 100 ms", 1e-4): lossy("newreno", 1, 100, 1e-4, mathis[1e-4], 200),
    }
    rooms = {
        ("newreno", 0.1): buffered("newreno", 0.1),
        ("newreno", 0.5): buffered("newreno", 0.5),
        ("newreno", 1.0): buffered("newreno", 1.1),
        ("cubic", 0.1): buffered("cubic", 0.1),
        ("cubic", 3 / 7): buffered("cubic", 3.3 / 7),
        ("newreno, two", 1.0): buffered("newreno", 1, 2),
        ("cubic, two", 1.0): buffered("cubic", 1, 2),
    }
    found = dict(zip([*losing, *rooms], shared([*losing.values(), *rooms.values()]), strict=True))
    windows = {key: window(port, float(found[key].ends_us[0])) for key, port in losing.items()}
    span = (500_000, 3_500_000)
    use = {key: found[key].used(*span) for key in rooms}
    base = Load("newreno", network={"buffers": [{"size": "4 MB"}], "ecn": NEVER}, span_us=15_000)
    web = by_load({"newreno": base, "cubic": replace(base, transport="cubic")}, "websearch", LOADS)
    return {
        "window under random loss": pl.DataFrame(
            [{"transport": name, "lost": loss, "packets": round(value, 1)} for (name, loss), value in windows.items()]
        ),
        "use of a link by its buffer": pl.DataFrame(
            [
                {
                    "transport": name,
                    "buffer, BDP": round(part, 2),
                    "in use": round(use[name, part], 4),
                    "Jain": round(found[name, part].jain(*span), 4),
                }
                for name, part in rooms
            ]
        ),
        "slowdown by load, web search, tail drop": table("transport", web),
        **{f"newreno_{power}": windows["newreno", 10.0**-power] / mathis[10.0**-power] for power in (3, 4)},
        "cubic_long": windows["cubic", 1e-4] / cubic,
        "cubic_over_newreno": windows["cubic", 1e-4] / windows["newreno over 100 ms", 1e-4],
        "cubic_friendly": windows["cubic", 1e-3] / windows["newreno", 1e-3],
        **{f"use_{int(part * 10)}": use["newreno", part] / reno_use(part) for part in (0.1, 0.5)},
        "use_10": use["newreno", 1.0],
        "cubic_use": use["cubic", 3 / 7],
        "cubic_over_newreno_use": use["cubic", 0.1] / use["newreno", 0.1],
        "jain": found["newreno, two", 1.0].jain(*span),
        "jain_cubic": found["cubic, two", 1.0].jain(*span),
    }
