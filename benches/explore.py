"""How many layouts the cost model of the explorer answers in a second of processor time.

    python benches/explore.py

The line: 64 pipeline ranks of 8 chunks and 64 micro-batches, stages of different lengths, sixteen layouts at once; this
is the part of the model that grows with stages, chunks and micro-batches. The deep: whole configurations of that size
from JSON to JSON (parsed, laid out over the fabric, memory, kernels, the line), whose stages have different layers. The
space: all layouts of a scenario, as a search first asks for them (`line`: bounds where exchanges would be followed).
A search then follows some of them (`apart`), and of these the best closely; that takes longer, and is not measured.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from windtunnel import engine
from windtunnel.explore.space import Candidate, Space
from windtunnel.layout.job import Job, read_job
from windtunnel.layout.priced import Estimates
from windtunnel.source import read_source

ROUNDS = 50
DEEP = 2000
STAGES, CHUNKS = 64, 8
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
MODEL = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": STAGES * CHUNKS, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
}  # fmt: skip
SCENARIO = """
windtunnel: 1
name: deep
fidelity: flow
topology:
  shape: clos
  hosts: 512
  tiers:
    - {ports_down: 64, oversubscription: 1, rate: 400 Gbps, length: 30 m}
    - {ports_down: 128, rate: 400 Gbps, length: 100 m}
  host: {gpu: H100-SXM, gpus: 8, nics: 8, nic: ConnectX-7, rails: true}
network: {mtu: 4150 B, header: 66 B, load_balancer: spray}
memory: ignore
jobs:
  - name: pretrain
    workload: {model: ./model.json, global_batch: 512, micro_batch: 1, sequence: 4096, training: {framework: nemo}}
    parallelism: {tp: 8, pp: 64, dp: 8, zero: 1, order: [tp, cp, ep, dp, pp], schedule: {name: interleaved, chunks: 8}}
"""


def seconds(rounds: int) -> tuple[float, int, int]:
    """Processor time of so many rounds, with the passes of a layout and the number of layouts."""
    began = time.process_time()
    passes, layouts, _ = engine.estimate_line(STAGES, CHUNKS, rounds)
    return time.process_time() - began, passes, layouts


def deep(job: Job) -> list[dict[str, object]]:
    """One configuration of 64 stages x 8 chunks after another, each with a layer moved elsewhere."""
    draw = random.Random(1)  # noqa: S311
    plain = Candidate(8, 1, 1, STAGES, 8, 1, 1, "pp-out", "interleaved", CHUNKS, 0, 1, "none")
    found = []
    for _ in range(DEEP):
        layers = [1] * (STAGES * CHUNKS)
        layers[0] = 0
        layers[draw.randrange(1, len(layers))] += 1
        choice = plain.choice(job.own["parallelism"], job.own["training"])
        found.append({**choice, "layers_per_stage": layers})
    return found


def priced(name: str, job: Job, choices: list[dict[str, object]], first: int = 1) -> None:
    """Prints how fast the choices are answered; what all of them share is worked out before the clock starts."""
    estimates = Estimates(job.source, job.overrides, threads=1)
    estimates.answers(choices[:first], depth="line")
    began = time.process_time()
    told = estimates.answers(choices, depth="line", fitting=True)
    spent = time.process_time() - began
    timed = sum(answer.iteration_s is not None for answer in told)
    rate = f"{len(choices) / spent:,.0f} layouts/s"
    sys.stdout.write(f"{name}: {len(choices):,} layouts, {timed:,} with a time, in {spent:.2f} s, {rate}\n")


def main() -> None:
    """Prints the rates."""
    few, _, first = seconds(1)
    many, passes, layouts = seconds(ROUNDS + 1)
    rate = (layouts - first) / (many - few)
    sys.stdout.write(f"line: {passes:,} passes a layout, {rate:,.0f} layouts/s, {rate * passes / 1e9:.2f} G passes/s\n")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.json").write_text(json.dumps(MODEL), encoding="utf-8")
        path = Path(folder) / "deep.yaml"
        path.write_text(SCENARIO, encoding="utf-8")
        job = read_job(read_source(path), [])
        priced("deep", job, deep(job))
    job = read_job(read_source(EXAMPLES / "llama3-70b-256xH100.yaml"), [])
    candidates = Space().candidates(job, Counter())
    priced("space", job, [it.choice(job.own["parallelism"], job.own["training"]) for it in candidates])


if __name__ == "__main__":
    main()
