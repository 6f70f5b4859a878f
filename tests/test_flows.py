"""`simulate_flows`: what it refuses, and what it gives against closed forms and recorded cases."""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np
import pytest

import windtunnel
from conftest import ROOT

LINKS = {"left": (8e9, 1e-6), "right": (16e9, 2e-6)}
GOLDEN = ROOT.parent / "shared" / "data" / "golden" / "maxmin"


@pytest.mark.parametrize(
    ("flow", "message"),
    [
        (
            {"path": ["left", "rigth"], "bytes": 1},
            "flows[1].path[1]: no such link: `rigth`\n\nhint: did you mean `right`?",
        ),
        ({"path": ["left", 3], "bytes": 1}, "flows[1].path[1]: expected the name of a link, found `3`"),
        ({"path": "left", "bytes": 1}, "flows[1].path: expected a list of link names, found `'left'`"),
        ({"path": ["left"]}, "flows[1]: `bytes` is missing"),
        ({"bytes": 1}, "flows[1]: `path` is missing"),
        ({"path": [], "bytes": -1}, "flows[1].bytes: expected a number of at least 0, found `-1`"),
        ({"path": [], "bytes": "1"}, "flows[1].bytes: expected a number of at least 0, found `'1'`"),
        ({"path": [], "bytes": True}, "flows[1].bytes: expected a number of at least 0, found `True`"),
        ({"path": [], "bytes": float("nan")}, "flows[1].bytes: expected a number of at least 0, found `nan`"),
        ({"path": [], "bytes": 1, "start": -0.5}, "flows[1].start: expected a time of at least 0 s, found `-0.5`"),
        ({"path": [], "bytes": 1, "start": None}, "flows[1].start: expected a time of at least 0 s, found `None`"),
        ({"path": [], "bytes": 1, "weight": 0}, "flows[1].weight: expected a number above 0, found `0`"),
        ({"path": [], "bytes": 1, "weight": np.inf}, "flows[1].weight: expected a number above 0, found `inf`"),
        ({"path": [], "bytes": 1, "wieght": 2}, "flows[1]: unknown key `wieght`\n\nhint: did you mean `weight`?"),
        (["left"], "flows[1]: expected a mapping, found `['left']`"),
        (None, "flows[1]: expected a mapping, found `None`"),
    ],
)
def test_a_bad_flow_is_named(flow: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(windtunnel.InputError) as error:
        windtunnel.simulate_flows(LINKS, [{"path": ["left"], "bytes": 1}, flow])
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ((0, 0), "links['x'][0]: expected a rate above 0 bit/s, found `0`"),
        ((np.inf, 0), "links['x'][0]: expected a rate above 0 bit/s, found `inf`"),
        ((1, -1e-9), "links['x'][1]: expected a latency of at least 0 s, found `-1e-09`"),
        ((1,), "links['x']: expected (bit/s, s), found `(1,)`"),
        ("ab", "links['x']: expected (bit/s, s), found `'ab'`"),
        (None, "links['x']: expected (bit/s, s), found `None`"),
    ],
)
def test_a_bad_link_is_named(link: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(windtunnel.InputError) as error:
        windtunnel.simulate_flows({"x": link}, [])
    assert str(error.value) == message


@pytest.mark.engine
def test_closed_forms() -> None:
    flows: list[dict[str, Any]] = [
        {"path": [], "bytes": 100, "start": 0.5},
        {"path": ["left", "right"], "bytes": 0, "start": 0.25},
        {"path": ["left"], "bytes": 1e6, "start": 10},
        {"path": ["left"], "bytes": 1e6, "start": 20, "weight": 3},
        {"path": ["left"], "bytes": 1e6, "start": 20},
        {"path": ["left", "left"], "bytes": 1e6, "start": 30},
        {"path": ["left", "right"], "bytes": 1e6, "start": 40},
    ]
    finish = windtunnel.simulate_flows(LINKS, flows)
    assert finish.dtype == np.float64
    expected = [
        0.5,  # an empty path has no latency
        0.25 + 3e-6,  # no bytes: the latencies only
        10 + 1e-3 + 1e-6,  # alone on 8 Gbit/s
        20 + 4 / 3 * 1e-3 + 1e-6,  # three quarters of the rate
        20 + 2e-3 + 1e-6,  # one quarter, then all: the link is never idle
        30 + 2e-3 + 2e-6,  # named twice, counts twice
        40 + 1e-3 + 3e-6,  # the slower link
    ]
    np.testing.assert_allclose(finish, expected, rtol=1e-12)


@pytest.mark.engine
def test_no_flows_give_no_times() -> None:
    assert windtunnel.simulate_flows(LINKS, []).shape == (0,)


@pytest.mark.engine
@pytest.mark.parametrize(
    "name", ["a_perm32_2to1", "b_a2a16_2to1", "c_perm128_2to1_staggered", "e_perm1024_2to1", "f_rand64_3level"]
)
def test_recorded_cases(name: str) -> None:
    path = GOLDEN / f"{name}.json.gz"
    if not path.is_file():
        print(f"not compared: {path} is absent")
        return
    with gzip.open(path) as file:
        case = json.load(file)
    links = {link["name"]: (8.0 * link["bw_Bps"], float(link["lat_s"])) for link in case["links"]}
    flows = [{"path": f["path"], "bytes": f["size_B"], "start": f["start_s"]} for f in case["flows"]]
    finish = windtunnel.simulate_flows(links, flows)
    np.testing.assert_allclose(finish, [f["finish_s"] for f in case["flows"]], rtol=1e-9)
