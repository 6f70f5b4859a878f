"""Homa, ExpressPass and SIRD through Python: the example, what is counted, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import windtunnel
from conftest import ROOT
from windtunnel import InputError

EXAMPLE = ROOT / "examples" / "receiver-driven.yaml"
pytestmark = pytest.mark.engine


def run(transport: str, **overrides: Any) -> dict[str, Any]:  # noqa: ANN401 (values of overrides)
    given = {"network.transport": transport, **{"network." + key: value for key, value in overrides.items()}}
    return dict(windtunnel.run(EXAMPLE, overrides=given).summary)


@pytest.mark.parametrize("transport", ["homa", "sird", "expresspass"])
def test_an_incast_is_scheduled_by_its_receiver(transport: str) -> None:
    found = run(transport)
    figures = found["network"]["transport"]["figures"]
    assert figures["data_lost_in_network"] == figures["data_lost_in_hosts"] == 0
    assert figures["data_packets_sent"] == figures["data_packets_arrived"]
    flows = found["flows"]
    # All bytes with their headers through one port of 100 Gbps.
    least = figures["data_bytes_arrived"] * 8 / 100e9
    assert least < flows["fct_max_s"] < least * 1.1


def test_the_least_left_first_is_better_in_the_median_than_equal_shares() -> None:
    median = {name: run(name)["flows"]["fct_p50_s"] for name in ("homa", "sird", "expresspass")}
    assert max(median["homa"], median["sird"]) < median["expresspass"] * 0.8


@pytest.mark.parametrize(
    ("transport", "overrides", "said"),
    [
        ("homa", {"parameters": {"levels": 9}}, "expected from 2 to 8 priorities, found 9"),
        ("homa", {"parameters": {"unscheduled_levels": 8}}, "expected less than `levels`: 8, found 8"),
        ("homa", {"queues": [{"name": "all"}]}, "`network.queues` has 1 priorities, expected `levels`: 8"),
        ("homa", {"recovery": "rack"}, "this transport mends losses by rules of its own"),
        ("expresspass", {"load_balancer": "spray"}, "expected `ecmp`: credits must take the links of their data"),
        ("expresspass", {"parameters": {"w_min": 0.6}}, "expected at most `w_max`: 0.5, found 0.6"),
        (
            "expresspass",
            {"parameters": {"w_init": 0.001}},
            "expected from `w_min` to `w_max`: 0.01 to 0.5, found 0.001",
        ),
        ("expresspass", {"parameters": {"jitter": 1}}, "expected less than 1, found 1"),
        ("expresspass", {"parameters": {"target_loss": 2}}, "expected a number above 0, at most 1, found 2"),
        ("sird", {"parameters": {"least_bucket": 2}}, "expected at most 1, the first and largest bucket, found 2"),
        ("sird", {"parameters": {"receiver_policy": "lifo"}}, "expected `srpt` or `round_robin`"),
        ("sird", {"parameters": {"bucket": 0}}, "expected a number above 0, found 0"),
    ],
)
def test_bad_settings_are_refused(transport: str, overrides: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=r".*") as caught:
        run(transport, **overrides)
    assert said in str(caught.value)
