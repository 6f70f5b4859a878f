"""One case from number to verdict: drawn, run at every fidelity, held against the rules."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import windtunnel
from fuzz.draw import Case, faster, neighbours, scenario, shared, trained
from fuzz.properties import Runs, Violation, sent_again_in_vain, violations
from windtunnel.engine import InputError, RunError

if TYPE_CHECKING:
    from windtunnel.results import Result

FIDELITIES = ("job", "message", "flow", "packet")

VOLATILE = ("wall_time_s", "cpu_time_s", "peak_memory_bytes", "peak_rss_bytes")


@dataclass(frozen=True)
class Outcome:
    """What became of a case."""

    violations: list[Violation]
    runs: int


def drawn(number: int) -> Case:
    """The case of `number`; of ten in a row five have one job, two several, two train a model, one is a cluster."""
    draw = (scenario, scenario, trained, neighbours, scenario, scenario, shared, trained, neighbours, scenario)
    return draw[number % len(draw)](number)


def text(number: int) -> str:
    """The scenario of `number`. JSON is YAML."""
    return json.dumps(drawn(number).scenario, indent=1) + "\n"


def outcome(number: int) -> Outcome:
    """Runs the case of `number` at every fidelity and what the numbers ask for beside."""
    case = drawn(number)
    runs: Runs = {}
    found: list[Violation] = []
    for fidelity in FIDELITIES:
        try:
            runs[fidelity] = windtunnel.run(_taken_by(fidelity, case.scenario), fidelity=fidelity)
        except (InputError, RunError) as error:
            found.append(Violation(number, f"{type(error).__name__}", f"{fidelity}: {str(error).splitlines()[0]}"))
    found += violations(case, runs)
    count = len(FIDELITIES)
    if "packet" in runs and sent_again_in_vain(case, runs["packet"].summary):
        found += _sent_again_by_time_outs_alone(case)
        count += 1
    held = not found
    if held and number % 2 == 0:
        found += _monotone(case, runs)
        count += 2
    if held and number % 5 == 0:
        found += _same_for_any_threads(case, runs)
        count += 1
    return Outcome(found, count)


def _taken_by(fidelity: str, scenario: dict[str, Any]) -> dict[str, Any]:
    """Cables lose packets where there are packets; elsewhere such a scenario is refused."""
    return scenario if fidelity == "packet" else {key: v for key, v in scenario.items() if key != "impairments"}


def _sent_again_by_time_outs_alone(case: Case) -> list[Violation]:
    """With a time-out longer than any queue nothing is sent again of what was not lost."""
    patient = case.scenario | {"network": case.scenario["network"] | {"timeout": "10 s"}}
    summary = windtunnel.run(patient, fidelity="packet").summary
    again = sent_again_in_vain(case, summary)
    if not again:
        return []
    return [Violation(case.number, "what_is_sent_again_was_lost", f"{again} packets were sent again, none was lost")]


def _monotone(case: Case, runs: Runs) -> list[Violation]:
    """Twice the rate everywhere makes no job slower: not at all by sharing alone, by little with packets."""
    found = []
    for fidelity, slack in (("flow", 1e-6), ("packet", 0.05)):
        if fidelity == "packet" and (case.lossy or runs["packet"].summary["network"]["packets_dropped"]):
            continue
        quick = windtunnel.run(faster(_taken_by(fidelity, case.scenario)), fidelity=fidelity)
        stood, stands = _places(runs[fidelity]), _places(quick)
        for before, after in zip(runs[fidelity].summary["jobs"], quick.summary["jobs"], strict=True):
            if stood != stands:
                # One that came when another had ended, or not yet, is placed elsewhere: maybe worse.
                break
            then, now = (j["finish_s"] - j["start_s"] for j in (before, after))
            if now > then * (1 + slack) + 1e-9:
                said = f"{fidelity}: {before['name']} takes {then} s, and {now} s at twice the rates"
                found.append(Violation(case.number, "monotone_in_bandwidth", said))
    return found


def _places(result: Result) -> set[tuple[Any, ...]]:
    """The GPUs of each job; a job alone has the first ones."""
    if len(result.summary["jobs"]) == 1:
        return set()
    return set(result.table("placements").select("job", "host", "gpu").iter_rows())


def _figures(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in summary.items() if key not in VOLATILE}


def _same_for_any_threads(case: Case, runs: Runs) -> list[Violation]:
    again = windtunnel.run(case.scenario, fidelity="packet", threads=3)
    if _figures(again.summary) == _figures(runs["packet"].summary):
        return []
    return [Violation(case.number, "same_for_any_threads", "packet: three threads give another summary")]
