"""Ways to fit: constants that were put in come out, what cannot be told is said, equation 3 by hand, alignment."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from windtunnel.calibrate.equation3 import LAMBDAS, choose, equation_3, hill_climb, reversals, sigma, sweep
from windtunnel.calibrate.methods import Alignment, by_runs, fit, identified, least_squares
from windtunnel.calibrate.problem import Problem
from windtunnel.source import read_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from conftest import Command

TRUE = {"latency": 8e-6, "rate": 21e9, "launch": 5e-6, "fixed": 3e-6}
START = {"latency": 6e-6, "rate": 25e9, "launch": 7e-6, "fixed": 3e-6}
SIZES = np.array([2.0**k for k in range(8, 28, 2)])
HOPS = np.array([1.0, 2.0, 4.0])


def times(one: Mapping[str, float]) -> np.ndarray:
    """Sizes by hops; `launch` and `fixed` always come together, so only their sum can be told."""
    found = one["launch"] + one["fixed"] + HOPS[:, None] * one["latency"] + SIZES / one["rate"]
    flat: np.ndarray = found.ravel()
    return flat


def problem(noise: float = 0.003, bias: float = 0.0, seed: int = 4) -> Problem:
    draws = np.random.default_rng(seed)
    off = noise * draws.standard_normal(len(SIZES) * len(HOPS)) + bias * draws.standard_normal(len(SIZES) * len(HOPS))
    return Problem(
        START,
        {name: value / 4 for name, value in START.items()},
        {name: value * 4 for name, value in START.items()},
        times(TRUE) * np.exp(off),
        lambda sets: np.array([times(one) for one in sets]),
        np.full(len(off), noise),
    )


@pytest.mark.parametrize("method", ["least-squares", "bayes", "cma", "hill"])
def test_what_was_put_in_comes_out_or_is_said_to_be_unknown(method: str) -> None:
    if method == "cma":
        pytest.importorskip("cma", reason="cma is not installed")
    answer, known, unknown = identified(problem(), method)
    assert set(unknown) >= {"launch", "fixed"}
    if method != "hill":
        assert set(known) == {"latency", "rate"}
    for name, interval in known.items():
        value = answer.values[name]
        assert value == pytest.approx(TRUE[name], rel=0.02)
        assert value * interval.low <= TRUE[name] * 1.003
        assert value * interval.high >= TRUE[name] / 1.003
    if method != "hill":
        # Equation 3 counts errors in seconds: large transfers alone matter to it.
        assert answer.values["launch"] + answer.values["fixed"] == pytest.approx(8e-6, rel=0.1)


@pytest.mark.parametrize("said", [0.003, 0.02, 0.001])
def test_intervals_hold_what_was_put_in_whatever_noise_the_rows_are_said_to_have(said: float) -> None:
    """Nineteen in twenty of a hundred draws with 0.3% of noise; what is said to be determined is within 2%."""
    inside, within = [], []
    for seed in range(100):
        whole = problem(seed=seed)
        _, known, _ = found = identified(replace(whole, noise=np.full(len(whole.noise), said)), "least-squares")
        for name, interval in known.items():
            value = found[0].values[name]
            inside.append(value * interval.low <= TRUE[name] <= value * interval.high)
            if interval.determined:
                within.append(abs(value / TRUE[name] - 1) <= 0.02)
    assert len(inside) >= 190
    assert np.mean(inside) >= 0.91
    # Noise that is said to be far too large counts as ten rows of thirty.
    assert np.mean(inside) <= 0.985 or said > 0.01
    assert len(within) >= 95 or said > 0.01
    assert np.mean(within) >= 0.95


def test_bounds_hold() -> None:
    whole = problem()
    tight = Problem(START, whole.low, {**whole.high, "latency": 6.5e-6}, whole.measured, whole.predict, whole.noise)
    assert least_squares(tight).values["latency"] <= 6.5e-6 * (1 + 1e-6)


def test_bayes_finds_the_models_own_error() -> None:
    exact, biased = fit(problem(), "bayes"), fit(problem(bias=0.05), "bayes")
    assert exact.discrepancy <= 0.003
    assert 0.02 <= biased.discrepancy <= 0.1
    assert biased.deviations["rate"] > 3 * exact.deviations["rate"]


def test_equation_3_by_hand() -> None:
    one = Problem({}, {}, {}, np.array([1.0, 2.0, 5.0]), lambda sets: np.zeros((len(sets), 3)), np.ones(3))
    # Scaled by least 1 and span 4: 0.5, 0.25, 1 against 0, 0.25, 1. The first pair is out of order by 0.25.
    predicted = np.array([3.0, 2.0, 5.0])
    assert equation_3(one, predicted, 0.0) == pytest.approx(0.25)
    assert equation_3(one, predicted, 2.0) == pytest.approx(0.25 + 2 * 0.25)
    assert reversals(predicted, one.measured) == pytest.approx(1 / 3)


def test_the_sweep_of_lambda_judges_on_groups_left_out() -> None:
    groups = [f"{int(hops)} hops" for hops in HOPS for _ in SIZES]
    found = sweep(problem(), groups)
    assert [one.multiple for one in found] == [0.0, 0.1, 0.3, 0.5, 1.0, 2.0, 5.0]
    assert all(math.isfinite(one.left_out) and one.reversed_ < 0.1 for one in found)


def test_lambda_is_the_largest_that_the_error_does_not_notice() -> None:
    """Section C.1: sigma is that of the residuals without lambda, and the largest multiple of it is taken."""
    whole = problem()
    chosen = choose(whole)
    free = hill_climb(whole, 0.0)
    own = sigma(whole, free.values)
    span = float(np.ptp(whole.measured))
    off = (whole.predict([free.values])[0] - whole.measured) / span
    assert own == pytest.approx(float(off.std()))
    assert chosen.multiple in LAMBDAS
    assert chosen.penalty == pytest.approx(chosen.multiple * own)

    def error(values: Mapping[str, float]) -> float:
        return float(np.abs(whole.predict([values])[0] / whole.measured - 1).mean())

    assert error(chosen.values) <= 1.02 * error(free.values)
    assert choose(whole, 0.5).penalty == pytest.approx(0.5 * own)
    assert choose(whole, 0.0).penalty == 0.0


def test_alignment_recovers_its_own_terms_and_extrapolates() -> None:
    draws = np.random.default_rng(6)
    gpus = np.array([8.0, 16, 24, 32, 48, 64, 96, 128, 256, 512])
    initial = 1.0 + draws.random(len(gpus))
    truth = 1e-4 * gpus + 2e-4 * gpus * initial + 0.03 * np.log(gpus) + 0.5 / gpus + 1.1 * initial + 0.02
    small = gpus <= 128
    found = Alignment.of(gpus[small], initial[small], truth[small])
    assert found.seconds(gpus, initial) == pytest.approx(truth, rel=1e-6)


SCENARIO = """
windtunnel: 1
name: pair
fidelity: flow
topology:
  shape: clos
  hosts: 2
  tiers: [{ports_down: 2, rate: 100 Gbps, length: 5 m}]
  host: {gpus: 1, nics: 1, overhead: 2 us}
network: {mtu: 4096 B, header: 64 B}
jobs: [{name: a, workload: {flows: {pattern: ring, bytes: 1 MiB}}}]
"""


def test_sequences_of_sets_are_asked_at_once() -> None:
    asked: list[int] = []
    whole = problem()

    def predict(sets: Sequence[Mapping[str, float]]) -> np.ndarray:
        asked.append(len(sets))
        return whole.predict(sets)

    fit(Problem(START, whole.low, whole.high, whole.measured, predict, whole.noise), "hill")
    assert max(asked) == 2 * len(START)


@pytest.mark.engine
def test_the_command_fits_keys_and_leaves_groups_out(tmp_path: Path, command: Command) -> None:
    (tmp_path / "pair.yaml").write_text(SCENARIO)
    sizes = ("64 KiB", "1 MiB", "16 MiB")
    cases = [{"jobs[0].workload.flows.bytes": size} for size in sizes]
    units = {"topology.host.overhead": "us", "topology.tiers[0].rate": "Gbps"}
    source = read_source(tmp_path / "pair.yaml")
    predict = by_runs(source, cases, "jobs[0].finish_s", units, tmp_path / "runs")
    (measured,) = predict([{"topology.host.overhead": 3.0, "topology.tiers[0].rate": 80.0}])
    lines = [f"{size},{value:.9f},{group}" for size, value, group in zip(sizes, measured, "aab", strict=True)]
    (tmp_path / "rows.csv").write_text("jobs[0].workload.flows.bytes,measured,group\n" + "\n".join(lines) + "\n")
    asked = ["calibrate", "network", "pair.yaml", "rows.csv", "--metric", "jobs[0].finish_s"]
    asked += ["--constant", "topology.host.overhead=1..10 us", "--constant", "topology.tiers[0].rate=40..160 Gbps"]
    told = command(*asked).stdout
    found = {line.split(": ")[0]: float(line.split(": ")[1].split()[0]) for line in told.splitlines()[:2]}
    assert found["topology.host.overhead"] == pytest.approx(3.0, rel=0.02)
    assert found["topology.tiers[0].rate"] == pytest.approx(80.0, rel=0.02)
    assert "b left out: " in told
    bad = command("calibrate", "network", "pair.yaml", "rows.csv", "--constant", "x=5..1 us", check=2)
    assert "expected KEY=FROM..TO UNIT" in bad.stderr
    (tmp_path / "rows.csv").write_text("jobs[0].workload.flows.bytes,measured\n1 MiB,soon\n")
    assert "rows.csv:2: `measured`: expected a positive number" in command(*asked, check=2).stderr
