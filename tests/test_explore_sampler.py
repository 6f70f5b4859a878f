"""A sampler that knows nothing of the explorer's space confirms what the exhaustive search finds."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.optimize import differential_evolution

from test_explore import job
from windtunnel.explore.search import Settings, search
from windtunnel.explore.space import Candidate, Space
from windtunnel.layout.priced import Estimates, answers

if TYPE_CHECKING:
    from numpy.typing import NDArray

GPUS = 8
SIZES = (1, 2, 4, 8)
MICRO = (1, 2, 4)
SCHEDULES = (("1f1b", 1), ("zb-h1", 1), ("zbv", 2), ("dorapp", 1), ("dorapp", 2), ("interleaved", 2))
ZERO = (1, 3)
RECOMPUTE = ("none", "full")
KNOBS: tuple[tuple[object, ...], ...] = (SIZES, SIZES, MICRO, SCHEDULES, ZERO, RECOMPUTE)


class _Asked:
    """The cost model as a function of places in `KNOBS`: `times` takes a matrix, knobs by samples, gives seconds."""

    def __init__(self) -> None:
        self.job = job()
        self.known: dict[tuple[int, ...], float] = {}

    def candidate(self, places: tuple[int, ...]) -> Candidate | None:
        tp, pp, micro = SIZES[places[0]], SIZES[places[1]], MICRO[places[2]]
        (schedule, chunks), zero, recompute = SCHEDULES[places[3]], ZERO[places[4]], RECOMPUTE[places[5]]
        if tp * pp > GPUS or self.job.global_batch % (micro * (GPUS // (tp * pp))):
            return None
        schedule, chunks = (schedule, chunks) if pp > 1 else ("1f1b", 1)
        dp = GPUS // (tp * pp)
        return Candidate(tp, 1, 1, pp, dp, zero, 1, self.job.own["order"], schedule, chunks, 0, micro, recompute)

    def times(self, matrix: NDArray[np.float64]) -> list[float]:
        asked = [tuple(round(value) for value in sample) for sample in matrix.T]
        new = {places: self.candidate(places) for places in asked if places not in self.known}
        own, training = self.job.own["parallelism"], self.job.own["training"]
        real = {places: candidate for places, candidate in new.items() if candidate}
        choices: list[dict[str, Any]] = [candidate.choice(own, training) for candidate in real.values()]
        found = answers(self.job.source, self.job.overrides, choices) if choices else []
        for places in new:
            self.known[places] = math.inf
        for places, answer in zip(real, found, strict=True):
            if answer.iteration_s is not None and answer.fits:
                self.known[places] = answer.iteration_s
        # What cannot run is worse than all that can; a finite number, so that samples can be compared.
        return [min(self.known[places], 1e6) for places in asked]


def test_zero_stages_asked_together_do_not_share_their_kernels() -> None:
    asked = _Asked()
    # Without whole gradients (ZeRO 3) none are added up: a backward pass of other kernels.
    both = [Candidate(1, 1, 1, 1, GPUS, zero, 1, asked.job.own["order"], "1f1b", 1, 0, 2, "none") for zero in (1, 3)]
    own, training = asked.job.own["parallelism"], {**asked.job.own["training"], "framework": "none"}
    choices = [candidate.choice(own, training) for candidate in both]
    alone = [answers(asked.job.source, asked.job.overrides, [choice])[0] for choice in choices]
    assert answers(asked.job.source, asked.job.overrides, choices) == alone
    assert answers(asked.job.source, asked.job.overrides, choices[::-1]) == alone[::-1]
    assert alone[1].compute_s < alone[0].compute_s


def test_answers_are_the_same_for_any_number_of_threads() -> None:
    asked = _Asked()
    own, training = asked.job.own["parallelism"], asked.job.own["training"]
    every = Space(micro_batches=(1, 2)).candidates(asked.job, Counter())[:70]
    choices = [candidate.choice(own, training) for candidate in every]
    heard: list[int] = []
    one = answers(asked.job.source, asked.job.overrides, choices, depth="apart", threads=1)
    estimates = Estimates(asked.job.source, asked.job.overrides, threads=7)
    several = estimates.answers(choices, depth="apart", told=lambda lot: heard.append(len(lot)))
    assert several == one
    # Each core a share of a lot.
    assert sum(heard) == 70
    assert max(heard) == 10
    # Nor on what was asked before: closely, then apart again.
    close = answers(asked.job.source, asked.job.overrides, choices, threads=1)
    assert estimates.answers(choices) == close
    assert estimates.answers(choices[::-1], depth="apart") == one[::-1]


def test_what_hears_the_answers_ends_the_search_of_all_threads() -> None:
    asked = _Asked()
    own, training = asked.job.own["parallelism"], asked.job.own["training"]
    choices = [Candidate(1, 1, 1, 1, GPUS, 1, 1, asked.job.own["order"], "1f1b", 1, 0, 2, "none").choice(own, training)]

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Estimates(asked.job.source, asked.job.overrides, threads=4).answers(choices * 40, told=stop)


@pytest.mark.parametrize("seed", [1, 2])
def test_differential_evolution_finds_the_same_best(seed: int) -> None:
    asked = _Asked()
    space = Space(cp=(1,), zero=ZERO, run_lengths=(0,), chunks=(1, 2), micro_batches=MICRO, recompute=RECOMPUTE)
    whole = search(asked.job, space, Settings())
    assert whole.whole
    bounds = [(0, len(knob) - 1) for knob in KNOBS]
    found = differential_evolution(
        asked.times, bounds, integrality=[True] * len(KNOBS), vectorized=True, updating="deferred", polish=False,
        popsize=12, maxiter=25, tol=0.0, rng=seed,
    )  # fmt: skip
    # It has not looked at everything.
    assert len(asked.known) < 0.8 * math.prod(map(len, KNOBS))
    assert found.fun == whole.rows[0][1].iteration_s


def _own_best(asked: _Asked) -> float:
    space = Space(cp=(1,), zero=ZERO, run_lengths=(0,), chunks=(1, 2), micro_batches=MICRO, recompute=RECOMPUTE)
    whole = search(asked.job, space, Settings())
    assert whole.whole
    best = whole.rows[0][1].iteration_s
    assert best is not None
    return best


@pytest.mark.parametrize("seed", [1, 2])
def test_cma_es_finds_the_same_best(seed: int) -> None:
    cma: Any = pytest.importorskip("cma", reason="cma is not installed: `pip install 'windtunnel[fit]'`")
    asked = _Asked()
    # Knobs are places in lists; CMA-ES draws in [0, 1] and each place has an equal part of it.
    size = np.array([len(knob) for knob in KNOBS], dtype=np.float64)
    found = math.inf
    for restart in range(4):
        options = {
            "bounds": [0, 1], "popsize": 24, "maxiter": 12, "seed": 100 * seed + restart, "verbose": -9,
            "CMA_stds": [1.0] * len(KNOBS),
        }  # fmt: skip
        strategy = cma.CMAEvolutionStrategy([0.5] * len(KNOBS), 0.35, options)
        while not strategy.stop():
            samples = strategy.ask()
            places = np.minimum(np.floor(np.array(samples) * size), size - 1).T
            times = asked.times(places)
            strategy.tell(samples, times)
            found = min(found, *times)
    # It has not looked at everything.
    assert len(asked.known) < 0.8 * math.prod(map(len, KNOBS))
    assert found == _own_best(asked)


@pytest.mark.parametrize("seed", [1, 2])
def test_tree_of_parzen_estimators_finds_the_same_best(seed: int) -> None:
    optuna: Any = pytest.importorskip("optuna", reason="optuna is not installed")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    asked = _Asked()

    def seconds(trial: Any) -> float:  # noqa: ANN401
        places = [trial.suggest_categorical(f"knob{i}", list(range(len(knob)))) for i, knob in enumerate(KNOBS)]
        return asked.times(np.array([places], dtype=np.float64).T)[0]

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=60))
    study.optimize(seconds, n_trials=250)
    assert len(asked.known) < 0.4 * math.prod(map(len, KNOBS))
    assert study.best_value == _own_best(asked)
