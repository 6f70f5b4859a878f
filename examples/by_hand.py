"""A workload written in Python: what overlapping the gradient all-reduce with the backward pass is worth.

Run it with the Python of `.venv`: `.venv/bin/python examples/by_hand.py`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import windtunnel

SCENARIO = """
windtunnel: 1
name: by-hand
fidelity: flow
topology:
  shape: clos
  hosts: 4
  tiers: [{ports_down: 4, rate: 400 Gbps, length: 10 m}, {ports_down: 2, rate: 400 Gbps, length: 30 m}]
  host: {gpu: H100-SXM, gpus: 2, nics: 2, nic: ConnectX-7, rails: true}
jobs:
  - name: step
    workload: {file: FILE}
    iterations: 2
"""


def step(layers: int, *, overlap: bool) -> windtunnel.Workload:
    """Backward passes of `layers`, each with gradients of 32 MiB, reduced beside the next pass or after the last."""
    workload = windtunnel.Workload(ranks=8)
    dp = workload.communicator("dp", range(8))
    passes: list[str] = []
    for layer in range(layers):
        passes.append(workload.compute("all", "4 ms", after=passes[-1:], id=f"backward {layer}"))
    for layer in range(layers):
        after = [passes[layer if overlap else -1]]
        workload.collective("all", "all_reduce", dp, "32 MiB", after=after, stream=1, dimension="dp")
    return workload


def iteration_ms(*, overlap: bool) -> float:
    """Runs the step and returns its iteration time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.jsonl"
        step(8, overlap=overlap).write(path)
        result = windtunnel.run(SCENARIO.replace("FILE", str(path)))
        return 1e3 * float(result.summary["jobs"][0]["iteration_time_s"]["mean"])


if __name__ == "__main__":
    print(f"reduced after the last pass: {iteration_ms(overlap=False):.2f} ms")
    print(f"reduced beside the backward: {iteration_ms(overlap=True):.2f} ms")
