"""Whether a scenario draws: whether runs of two seeds may differ, however seldom they do.

The keys say so, not a few runs: a component that fails once in years leaves most runs alike. A key that is named here
without a draw behind it costs runs that all agree; one that is missing lets a figure pass for the only one. So where
nearly everything draws, as at packet fidelity (hashes, marks, losses, credits), all of it counts.
"""

from __future__ import annotations

from typing import Any

HASHED = ("ecmp", "flowlet")
"""Balancers of which a flow's path follows from the seed at flow fidelity."""


def reads_seed(scenario: dict[str, Any]) -> bool:
    """Whether a run of `scenario`, as `engine.scenario_tree` has it, may hang on its seed."""
    cluster, jobs = _record(scenario, "cluster"), scenario.get("jobs")
    return (
        any(isinstance(rule, dict) and rule.get("log") is None for rule in _list(cluster, "faults"))
        or _record(scenario, "variation").get("kernel_noise") is not None
        or (isinstance(jobs, dict) and _source_draws(jobs))
        or _work_draws(jobs)
        or _fabric_draws(scenario, cluster, jobs)
    )


def _source_draws(source: dict[str, Any]) -> bool:
    """Jobs of a log are those of the log, unless what they do or their priorities are drawn."""
    return source.get("like") is not None or bool(_list(source, "priorities")) or len(_list(source, "workloads")) > 1


def _work_draws(jobs: object) -> bool:
    """Places at random, partners at random, sizes at random: wherever they stand."""
    if isinstance(jobs, list):
        return any(_work_draws(one) for one in jobs)
    if not isinstance(jobs, dict):
        return False
    if jobs.get("placement") == "random" or jobs.get("pattern") == "permutation" or jobs.get("bytes_to") is not None:
        return True
    return any(_work_draws(one) for one in jobs.values())


def _fabric_draws(scenario: dict[str, Any], cluster: dict[str, Any], jobs: object) -> bool:
    """Paths by a hash, and the phases at which jobs meet that share links."""
    fidelity = scenario.get("fidelity")
    if fidelity != "flow":
        return fidelity == "packet"
    balancer = _record(scenario, "network").get("load_balancer") or "ecmp"
    name = next(iter(balancer), None) if isinstance(balancer, dict) else balancer
    several = not isinstance(jobs, list) or len(jobs) > 1
    return name in HASHED or (several and _record(cluster, "episodes").get("phase") != "aligned")


def _record(tree: dict[str, Any], key: str) -> dict[str, Any]:
    found = tree.get(key)
    return found if isinstance(found, dict) else {}


def _list(tree: dict[str, Any], key: str) -> list[Any]:
    found = tree.get(key)
    return found if isinstance(found, list) else []
