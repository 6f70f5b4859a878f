"""Collectives of a workload as the messages that NCCL makes of them, by the tuner of a system."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from windtunnel import engine
from windtunnel.recording.explain import scenario_of
from windtunnel.recording.opened import as_workload


def decompose(
    file: Path,
    out: Path,
    *,
    environment: dict[str, str] | None = None,
    chunk: int | None = None,
    reduce_bps: int | None = None,
    launch: bool = False,
    switches: bool = False,
    on: Path | None = None,
    gpus: int | None = None,
    rate: str = "400 Gbps",
) -> dict[str, Any]:
    """Writes `out` (`.goal`, `.bin` or `.wtw`), rank by rank, and says how each collective is done.

    `environment` has NCCL's variables, `chunk` the most data of a step in bytes, `reduce_bps` what the threads of a
    channel sum or copy in bit/s (they take no time if it is left out). The system is that of the scenario `on`; else
    hosts of `gpus` H100 with a NIC of `rate` each. With `switches` ranks behind those of `file` stand for switches that
    sum, one of each scale-up domain and one of the network; the tuner's next best does it otherwise.

    Raises:
        InputError: the workload cannot be read, does not fit the system, or its settings leave no algorithm.

    """
    with as_workload(file) as own:
        scenario = scenario_of(own, on=on, gpus=gpus, rate=rate)
        return _decomposed(
            scenario,
            named=file,
            out=out,
            environment=environment or {},
            base=(on.parent if on is not None else Path()).resolve(),
            rules={"chunk": chunk, "reduce_bps": reduce_bps, "launch": launch, "switches": switches},
        )


def _decomposed(
    scenario: dict[str, Any], *, named: Path, out: Path, environment: dict[str, str], base: Path, rules: dict[str, Any]
) -> dict[str, Any]:
    network = dict(scenario.get("network") or {})
    collectives = dict(network.get("collectives") or {})
    given = dict(collectives.get("environment") or {}) | environment
    # The rule by size knows nothing of channels.
    collectives |= {"tuner": "nccl", "environment": given}
    scenario["network"] = network | {"collectives": collectives}
    request = {
        "do": "decompose",
        "file": str(named),
        "out": str(out),
        "scenario": json.dumps(scenario),
        "base": str(base),
        **rules,
    }
    answer: dict[str, Any] = json.loads(engine.edit_workload(json.dumps(request)))
    return answer
