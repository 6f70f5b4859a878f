"""What experiments on transports stand on: flows at one port, and flows of published sizes at a load."""

from __future__ import annotations

import re

import numpy as np
import pytest

import windtunnel
from conftest import ROOT
from windtunnel.experiments.check import Results, judge
from windtunnel.experiments.loads import Load, Message, many, published
from windtunnel.experiments.matrix import (
    ASKS,
    FABRICS,
    TRANSPORTS,
    WORKLOADS,
    asked,
    best_of,
    mean_over,
    measure,
)
from windtunnel.experiments.port import Flow, Port, jain, shared
from windtunnel.experiments.reproduction import markdown
from windtunnel.experiments.runner import Outcome
from windtunnel.experiments.spec import read_experiment


class Given(Load):
    """Messages that are written down."""

    def messages(self, seed: int) -> list[Message]:
        """One at a time: within a leaf and across, of one packet, of two and of many."""
        del seed
        sizes = (1, 1_434, 1_500, 100_000, 1_000_000)
        apart = [(0, 1), (0, 9), (3, 30)]
        given = [(a, b, size) for size in sizes for a, b in apart]
        return [Message(a, b, size, 200_000_000 * turn) for turn, (a, b, size) in enumerate(given)]


@pytest.mark.engine
def test_a_flow_alone_is_not_slowed_down() -> None:
    found = many({"given": Given("none", span_us=0)})["given"]
    assert len(found.sizes) == 15
    assert found.slowdowns == pytest.approx(np.ones(15), rel=1e-6)


@pytest.mark.parametrize("sizes", ["websearch", "fb-hadoop"])
def test_the_traffic_has_its_load_and_its_sizes(sizes: str) -> None:
    load = Load("none", sizes=sizes, load=0.5, span_us=200_000 if sizes == "websearch" else 20_000)
    messages = load.messages(1)
    wire = sum(one.size * 1_500 / 1_434 for one in messages)
    assert wire * 8e-3 / load.gbps / load.hosts / load.span_us == pytest.approx(0.5, rel=0.05)
    points = np.array(published(sizes))
    drawn = np.sort([one.size for one in messages])
    for share in (0.25, 0.5, 0.9):
        expected = np.interp(share, points[:, 1], points[:, 0])
        assert np.quantile(drawn, share) == pytest.approx(expected, rel=0.1)
    assert all(one.source != one.destination for one in messages)
    assert messages == Load("dctcp", sizes=sizes, load=0.5, span_us=load.span_us).messages(1)


@pytest.mark.engine
def test_flows_at_a_port_are_seen_as_they_are() -> None:
    size = 5_000_000
    (run,) = shared([Port("none", [Flow(0, size), Flow(100, size)], senders_every="50 us")])
    wire_us = 2 * size * 1_500 / 1_434 * 8e-3 / 100
    assert float(run.ends_us.max()) == pytest.approx(wire_us, rel=0.02)
    assert run.used(200, 700) == pytest.approx(1, abs=0.01)
    rates = run.rates_gbps(200, 700)
    assert len(rates) == 2
    assert float(rates.sum()) == pytest.approx(100 * 1_434 / 1_500, rel=0.01)
    assert run.jain(200, 700) == jain(rates)
    assert run.queue_bytes(200, 700).max() > 0


@pytest.mark.engine
def test_a_port_slower_than_its_senders_queues_and_drops() -> None:
    buffer, unmarked = 30_000, {"ecn": {"kmin": "1 GB", "kmax": "2 GB"}}
    flow = Flow(0, 3_000_000)
    (run,) = shared([Port("newreno", [flow], gbps=10, faster=4, buffer=buffer, network=unmarked, every="1 us")])
    assert run.network["packets_dropped"] > 0
    assert 0.9 * buffer < run.queue_bytes().max() <= buffer
    assert float(run.ends_us[0]) > 3_000_000 * 1_500 / 1_434 * 8e-3 / 10


def test_jain_is_one_over_n_if_one_has_all() -> None:
    assert jain(np.array([1.0, 0, 0, 0])) == 0.25
    assert jain(np.full(7, 3.0)) == pytest.approx(1)


@pytest.mark.parametrize("name", ["dctcp", "dcqcn", "hpcc", "swift", "tcp", "choosing"])
def test_each_page_has_the_claims_of_its_experiment(name: str) -> None:
    folder = "transports" if name == "choosing" else f"transport-{name}"
    experiment = read_experiment(ROOT / "experiments" / folder)
    page = (ROOT / "docs" / "transports" / f"{name}.md").read_text(encoding="utf-8")
    for claim in experiment.claims:
        assert f"| {claim.claim}" in page, claim.claim
    for verdict in re.findall(r"\| (?:does not hold)(:?)", page):
        assert verdict == ":", "a claim that does not hold stands with its cause"


def test_a_page_says_bounds_tolerances_and_sources() -> None:
    experiment = read_experiment(ROOT / "experiments" / "transport-dctcp")
    claims = experiment.claims
    verdicts = [judge(claim, Results([]), {claim.observe: 42.0}) for claim in claims]
    text = markdown("T", "I", [Outcome(experiment, verdicts, {}, None)])
    assert "*(section 3.3, equation 10; figure 12)* | 42 ± 5% | 42 | holds |" in text
    assert "| at least 0.99, at most 1.01 | 42 | does not hold |" in text


@pytest.mark.engine
def test_cells_are_told_over_the_best_of_their_fabric_and_workload() -> None:
    cells = measure(["dctcp", "ndp", "homa"], ["full"], ["permutation", "web search"], seeds=1, part=8)
    assert len(cells) == 6
    for workload in ("permutation", "web search"):
        overs = {name: cells[name, "full", workload].over_best for name in ("dctcp", "ndp", "homa")}
        assert min(overs.values()) == 1
        first = best_of(cells, "full", workload)[0]
        assert overs[first] == 1
        assert best_of(cells, "full", workload, within=float("inf")) == sorted(overs, key=lambda name: overs[name])
    both = [cells["ndp", "full", workload].over_best for workload in ("permutation", "web search")]
    assert mean_over(cells, "ndp", "full", None) == pytest.approx(float(np.sqrt(np.prod(both))))
    # A permutation of 500 KB takes its packets at line rate at least.
    assert min(cell.time for (_, _, w), cell in cells.items() if w == "permutation") > 500_000 * 8e-3 / 400


@pytest.mark.parametrize("fabric", FABRICS)
def test_every_transport_is_taken_on_every_fabric(fabric: str) -> None:
    assert set(TRANSPORTS) == set(ASKS)
    assert (len(TRANSPORTS), len(FABRICS), len(WORKLOADS)) == (20, 6, 5)
    for transport in TRANSPORTS:
        text = asked(transport, FABRICS[fabric], WORKLOADS["incast"], 1, 1).scenario
        assert isinstance(text, dict)
        windtunnel.explain(text)
