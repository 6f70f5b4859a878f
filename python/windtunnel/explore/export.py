"""The winner for those who train: a scenario that runs, and the settings of four frameworks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.explore.frameworks import BY_NAME, told
from windtunnel.source import override_text

if TYPE_CHECKING:
    from windtunnel.explore.space import Candidate
    from windtunnel.layout.job import Job

FRAMEWORKS = tuple(BY_NAME)


def scenario(job: Job, candidate: Candidate, extra: dict[str, Any] | None = None) -> str:
    """The scenario with the job laid out as `candidate`, as YAML text."""
    values = {**candidate.values(job.place, job.own["parallelism"]), **(extra or {})}
    pairs = [*job.overrides, *((key, override_text(value)) for key, value in values.items())]
    tree = json.loads(engine.scenario_tree(job.source.text, job.source.name, pairs))
    head = f"# {job.own['model']} on {job.gpus} GPUs, laid out by `windtunnel explore {job.source.name}`.\n"
    return head + "\n".join(_yaml(tree, 0)) + "\n"


def _yaml(value: Any, depth: int) -> list[str]:  # noqa: ANN401
    """Block style for mappings and for lists of mappings, JSON for everything else, which is YAML too."""
    pad = "  " * depth
    if isinstance(value, dict) and value:
        lines = []
        for key, item in value.items():
            if item is None:
                continue
            name = key if key.replace("_", "").isalnum() else json.dumps(key)
            if _block(item):
                lines += [f"{pad}{name}:", *_yaml(item, depth + 1)]
            else:
                lines.append(f"{pad}{name}: {json.dumps(item, ensure_ascii=False)}")
        return lines
    if isinstance(value, list):
        lines = []
        for item in value:
            inner = _yaml(item, depth + 1)
            lines += [f"{pad}- {inner[0].lstrip()}", *inner[1:]]
        return lines
    return [f"{pad}{json.dumps(value, ensure_ascii=False)}"]


def _block(value: Any) -> bool:  # noqa: ANN401
    if isinstance(value, dict):
        return bool(value)
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) and item for item in value)


def settings(job: Job, candidate: Candidate, framework: str) -> str:
    """Settings of `framework` that lay the job out as `candidate`; what it cannot say stands there as a comment."""
    return told(job, candidate, framework).text()
