"""The loss of credits by the number of flows, the round trip and the largest step of an increase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from windtunnel.experiments.port import Flow, Port, shared

if TYPE_CHECKING:
    from windtunnel.experiments.check import Results

FLOWS, ROUND_TRIPS = (2, 8, 32, 100), (20, 100, 400)
WIDE: dict[str, Any] = {}
NARROW: dict[str, Any] = {"w_max": 0.05, "w_init": 0.05}
CAUSE = (
    "every flow that lost less than the target adds w of the link's rate, not of its share, and w goes to w_max after "
    "two increases in a row: so n flows add up to n w_max of the link at once, and what is too much is lost"
)
WHY = {"lost_8": CAUSE, "lost_32": CAUSE, "lost_8_long": "as many credits as one likes do not help: " + CAUSE}
"""By figure observed: why a claim on it does not hold."""


def port(count: int, rtt_us: int, parameters: dict[str, Any]) -> Port:
    """As many flows into 100 Gbps for 40 ms, which begin within 200 us; packets of 4,160 B."""
    size = round(40e-3 * 100e9 / 8 * 0.97 / count)
    flows = [Flow(start, size) for start in np.random.default_rng(1).uniform(0, 200, count)]
    network = {"parameters": parameters, "control": "64 B"}
    return Port("expresspass", flows, rtt_us=rtt_us, mtu=4_160, header=64, network=network, every=None)


def observe(_results: Results) -> dict[str, Any]:
    """Credits lost over those sent."""
    places = [(n, rtt, narrow) for n in FLOWS for rtt in ROUND_TRIPS for narrow in (False, True)]
    runs = shared([port(n, rtt, NARROW if narrow else WIDE) for n, rtt, narrow in places])
    figures = {place: run.network["transport"]["figures"] for place, run in zip(places, runs, strict=True)}
    lost = {place: each["credits_missed"] / each["credits_sent"] for place, each in figures.items()}
    return {
        "credits lost": pl.DataFrame(
            [
                {
                    "flows": n,
                    "round trip us": rtt,
                    "credits of a flow in it": round(100e9 / 8 / 4_224 * rtt * 1e-6 / n, 1),
                    "w_max 0.5": round(lost[n, rtt, False], 3),
                    "w_max 0.05": round(lost[n, rtt, True], 3),
                }
                for n in FLOWS
                for rtt in ROUND_TRIPS
            ]
        ),
        **{f"lost_{n}": lost[n, 20, False] for n in (2, 8, 32)},
        "lost_8_long": lost[8, 400, False],
        "lost_8_small": max((lost[8, rtt, True] for rtt in ROUND_TRIPS), key=lambda part: abs(part - 0.1)),
        "data_lost": sum(each["data_lost_in_network"] for each in figures.values()),
    }
