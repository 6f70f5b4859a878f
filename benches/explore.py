"""How many layouts the cost model of the explorer answers in a second of processor time.

    python benches/explore.py

The line: 64 pipeline ranks of 8 chunks and 64 micro-batches, stages of different lengths, sixteen layouts at once.
The whole: layouts of a scenario from JSON to JSON, laid out, refused or priced.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

from windtunnel import engine
from windtunnel.explore.space import Space
from windtunnel.layout.job import read_job
from windtunnel.layout.priced import answers
from windtunnel.source import read_source

ROUNDS = 50
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def seconds(rounds: int) -> tuple[float, int, int]:
    """Processor time of so many rounds, with the passes of a layout and the number of layouts."""
    began = time.process_time()
    passes, layouts, _ = engine.estimate_line(64, 8, rounds)
    return time.process_time() - began, passes, layouts


def main() -> None:
    """Prints both rates."""
    few, _, first = seconds(1)
    many, passes, layouts = seconds(ROUNDS + 1)
    rate = (layouts - first) / (many - few)
    sys.stdout.write(f"line: {passes:,} passes a layout, {rate:,.0f} layouts/s, {rate * passes / 1e9:.2f} G passes/s\n")
    job = read_job(read_source(EXAMPLES / "llama3-70b-256xH100.yaml"), [])
    candidates = Space().candidates(job, Counter())
    choices = [it.choice(job.own["parallelism"], job.own["training"]) for it in candidates]
    began = time.process_time()
    answers(job.source, job.overrides, choices, ideal=True)
    spent = time.process_time() - began
    sys.stdout.write(f"whole: {len(choices):,} layouts in {spent:.2f} s, {len(choices) / spent:,.0f} layouts/s\n")


if __name__ == "__main__":
    main()
