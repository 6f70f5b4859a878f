"""The experiments on the papers' packet figures: their quick runs, and that the page says what fails."""

from __future__ import annotations

import dataclasses
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from conftest import ROOT
from windtunnel.experiments import find, run_experiment
from windtunnel.experiments.check import Results, judge
from windtunnel.experiments.runner import module_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from windtunnel.experiments.check import Verdict
    from windtunnel.experiments.spec import Experiment

NAMES = (
    "scaleacross-loss",
    "scaleacross-spray",
    "scaleacross-ecn",
    "atlahs-microbenchmarks",
    "arcadia-qp-scaling",
    "arcadia-buffers",
)


Values: TypeAlias = dict[str, list[Any]]
"""What axes take instead of all their values."""


def experiment(name: str) -> Experiment:
    return find(str(ROOT / "experiments" / name))


def verdicts(
    whole: Experiment,
    keep: Callable[[str], bool],
    values: Values,
    observed: set[str] | None = None,
    scenarios: tuple[str, ...] | None = None,
) -> dict[str, Verdict]:
    """Runs the cases that `keep` names at `values` of the axes; the claims on `observed`, or those it can decide."""
    axes = [dataclasses.replace(axis, values=values.get(axis.name, axis.values)) for axis in whole.axes]
    cases = {name: case for name, case in whole.cases.items() if keep(name)}
    files = {name: file for name, file in whole.scenarios.items() if scenarios is None or name in scenarios}
    claims = whole.claims
    if observed is not None:
        claims = [claim for claim in claims if claim.observe in observed]
    if scenarios is not None:
        claims = [
            claim
            for claim in claims
            if claim.at.get("scenario") in scenarios
            and claim.at.get("oversubscription") in values["oversubscription"]
            and claim.at.get("case") in cases
            and (claim.over or {}).get("case", claim.at["case"]) in cases
        ]
    some = dataclasses.replace(whole, cases=cases, axes=axes, claims=claims, scenarios=files)
    return {verdict.claim: verdict for verdict in run_experiment(some).verdicts}


@pytest.mark.engine
def test_latency_costs_more_where_packets_are_lost() -> None:
    whole = experiment("scaleacross-loss")
    kept = {f"PP-out, {latency} us, {loss}" for latency in (50, 1000) for loss in ("0.02 %", "no loss")}
    found = verdicts(whole, kept.__contains__, {"seed": [1]}, {"pp_lossless_1000_over_50", "pp_amplification"})
    assert len(found) == 2
    assert all(verdict.holds for verdict in found.values())


@pytest.mark.engine
def test_far_clusters_wait_for_light_and_for_no_more() -> None:
    found = {verdict.claim: verdict.holds for verdict in run_experiment(experiment("scaleacross-fig17")).verdicts}
    assert len(found) == 10
    (failed,) = (claim for claim, holds in found.items() if not holds)
    assert failed.startswith("AllReduce of 2 GB")


def test_figures_of_the_paper_go_by_their_numbers() -> None:
    for figure, name in ((18, "loss"), (20, "spray"), (21, "ecn")):
        assert find(f"scaleacross-fig{figure}").name == f"scaleacross-{name}"


@pytest.mark.engine
def test_a_limit_in_flight_costs_spraying_its_lead_over_a_long_way() -> None:
    whole = experiment("scaleacross-spray")
    out: Values = {"outermost": [["tp", "cp", "ep", "pp", "dp"]], "queue_pairs": [1]}
    near = verdicts(whole, {"ecmp, 50 us", "spray, 50 us"}.__contains__, out, {"spray_over_ecmp_50us_1"})
    far = verdicts(whole, {"ecmp, 1000 us", "spray, 1000 us"}.__contains__, out, {"spray_over_ecmp_1000us_1"})
    (near_ratio,) = (verdict.observed for verdict in near.values())
    (far_ratio,) = (verdict.observed for verdict in far.values())
    assert near_ratio < 1 < far_ratio


@pytest.mark.engine
def test_congestion_control_marks_and_costs_where_a_cable_is_narrow() -> None:
    whole = experiment("scaleacross-ecn")
    out: Values = {"outermost": [["tp", "cp", "ep", "dp", "pp"]], "cables": [4], "length": ["10 km"]}
    found = verdicts(whole, {"none", "ecn"}.__contains__, out, {"ecn_over_none_1to16_50us"})
    (ratio,) = (verdict.observed for verdict in found.values())
    assert 1.0 <= ratio < 1.5


@pytest.mark.engine
def test_micro_benchmarks_at_message_and_packet_fidelity() -> None:
    whole = experiment("atlahs-microbenchmarks")
    values: Values = {"oversubscription": [1]}
    found = verdicts(whole, lambda name: name != "mprdma, spray", values, scenarios=("incast", "permutation"))
    assert len(found) == 5
    assert all(verdict.holds for verdict in found.values())


@pytest.mark.engine
@pytest.mark.parametrize(("name", "claims"), [("atlahs-storage", 5), ("atlahs-trace-size", 3)])
def test_storage_traffic_and_sizes_of_traces(name: str, claims: int) -> None:
    found = run_experiment(experiment(name)).verdicts
    assert len(found) == claims
    assert all(verdict.holds for verdict in found)


@pytest.mark.engine
def test_messages_do_not_see_oversubscription() -> None:
    whole = experiment("atlahs-oversubscription")
    own = dataclasses.replace(whole, claims=[claim for claim in whole.claims if claim.at["case"] == "message"][1:])
    (verdict,) = verdicts(own, "message".__eq__, {}).values()
    assert verdict.holds


@pytest.mark.parametrize("name", ["atlahs-storage", "atlahs-oversubscription", "atlahs-placement"])
def test_case_studies_of_atlahs_are_on_the_page(name: str) -> None:
    page = (ROOT / "docs" / "experiments.md").read_text()
    assert f"| `{name}` |" in page
    assert re.search(rf"### .*`{name}`", page)
    assert all(case for case in experiment(name).cases)


@pytest.mark.engine
def test_queue_pairs_without_congestion_control_follow_the_drawn_load() -> None:
    whole = experiment("arcadia-qp-scaling")
    values: Values = {"transport": ["none"], "hash": ["mixed"], "queue_pairs": [1, 32]}
    (verdict,) = verdicts(whole, "64 GPUs".__eq__, values, {"over_drawn_load_64_32"}).values()
    assert verdict.holds


def test_the_drawn_load_is_that_of_the_closed_form() -> None:
    module = module_of(ROOT / "experiments" / "arcadia-qp-scaling")
    assert module is not None
    # Two parts on two links: both on one link half of the time.
    assert module.drawn_load(1, 2, uplinks=2, draws=40_000) == pytest.approx(1.5, abs=0.02)
    # One part on any number of links lies on one of them.
    assert module.drawn_load(3, 1) == 4.0


@pytest.mark.engine
def test_buffers_of_aggregation_switches_shorten_an_all_to_all() -> None:
    whole = experiment("arcadia-buffers")
    kept = {f"all-to-all, 400 Gbps, aggregation {size} MB" for size in (1, 2, 16)}
    observed = {"first_step_minus_rest_400", "up_over_down_400"}
    found = verdicts(whole, kept.__contains__, {}, observed)
    assert len(found) == 2
    assert all(verdict.holds for verdict in found.values())


@pytest.mark.parametrize("name", NAMES)
def test_every_claim_is_decided_and_described(name: str) -> None:
    """All runs stood in for: each claim finds its figure, and the page has its section."""
    whole = experiment(name)
    runs: list[Any] = []
    for number, point in enumerate(whole.points()):
        paused = {"nic-up": 4e-3, "leaf-up": 3e-3, "leaf-down": 2e-3, "tier1-up": 2e-3, "tier1-down": 1e-3}
        network = {"packets_dropped": 1, "retransmissions": 2, "ecn_marked": 3, "pfc_pause_by_tier_s": paused}
        job = {"iteration_time_s": {"mean": 1 + number / 100}, "ideal_iteration_time_s": 0.5, "ranks": 64}
        summary = {"jobs": [job], "network": network, "flows": {"fct_mean_s": 1.0}}
        runs.append((point, SimpleNamespace(summary=summary)))
    results = Results(runs)
    module = module_of(whole.folder)
    observed = module.observe(results) if module is not None else {}
    for claim in whole.claims:
        assert judge(claim, results, observed).observed is not None, claim.claim
        assert re.search(r"figure|section|closed form", claim.source), claim.claim
    page = (ROOT / "docs" / "experiments.md").read_text()
    assert f"### `{name}`" in page
    assert f"| `{name}` |" in page
