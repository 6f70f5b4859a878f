"""Questions that run nothing: `explain`, `topology`, and `compare` of two finished runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.given import override_pairs
from windtunnel.policies import engine_options
from windtunnel.source import read_source
from windtunnel.topology_view.request import Asked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from windtunnel.comparison import Comparison
    from windtunnel.results import Result


def explain(
    scenario: str | Path | Mapping[str, Any],
    *,
    overrides: Mapping[str, object] | None = None,
    fidelity: str | None = None,
) -> dict[str, Any]:
    """What a scenario makes of itself, as `run --explain --json` prints it; nothing runs.

    Stages, FLOPs, bytes, memory by pipeline rank and communicators of each job. Raises `InputError` on a bad scenario.
    """
    source = read_source(scenario)
    pairs = override_pairs(overrides)
    text = engine.explain(source.text, source.name, str(source.base), pairs, engine_options({"fidelity": fidelity}))
    found: dict[str, Any] = json.loads(text)
    return found


def topology(
    scenario: str | Path | Mapping[str, Any],
    *,
    overrides: Mapping[str, object] | None = None,
    path: tuple[str, str] | None = None,
    fail: list[str] | None = None,
    check: bool = False,
) -> dict[str, Any]:
    """What a topology is made of and costs, as `windtunnel topology --json` prints it.

    `path` asks for the way between two parts, `fail` names cables and switches that are out (`switch:spine0`), `check`
    proves wiring and routes. Raises `InputError` on a bad topology.
    """
    source = read_source(scenario)
    text = source.text
    if overrides:
        text = engine.scenario_tree(source.text, source.name, override_pairs(overrides))
    asked = Asked(path=path, fail=fail or [], check=check, whole=True)
    found: dict[str, Any] = json.loads(
        engine.topology(text, source.name, str(source.base), json.dumps(asked.request()))
    )
    return found


def compare(now: Result | str | Path, then: Result | str | Path) -> Comparison:
    """How run `now` differs from run `then`: keys of the scenario first, then every figure (`--compare`)."""
    from windtunnel.comparison import compare as compared  # noqa: PLC0415
    from windtunnel.results import Result  # noqa: PLC0415

    runs = [run if isinstance(run, Result) else Result(run) for run in (now, then)]
    for run in runs:
        run.check()
    return compared(runs[0], runs[1])
