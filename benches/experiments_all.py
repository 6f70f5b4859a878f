"""Times experiments one by one, all together with two workers, and all together a second time.

Run by `python benches/experiments_all.py [--all]`: some independent ones that take a minute together, or all there are.
It prints figures and what is wanted of them; exit status 1 means that a claim was judged otherwise. On a machine with
fewer than two idle cores the figure of two workers says nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from windtunnel.experiments import names

SOME = (
    "pipeline-bubbles", "incast-loggops", "atlahs-storage", "arcadia-fibre", "atlahs-placement",
    "atlahs-oversubscription", "mrc-planes", "transport-tcp", "arcadia-buffers",
)  # fmt: skip
"""Experiments of 1 to 20 s that need no measured data."""

FASTER = 1.8
"""How many times as fast two workers are wanted to be as one experiment after the other with one."""

AGAIN_S = 30
"""Seconds that a second call of all experiments may take, which runs nothing."""

TOGETHER = """
import json, sys
from pathlib import Path
from windtunnel.experiments import Broken, find, run_experiments
from windtunnel.studies.runner import Limits

names, folder, workers = sys.argv[3:], Path(sys.argv[1]), int(sys.argv[2])
found = run_experiments(
    [find(name) for name in names], out=folder / "figures", store=folder / "runs", limits=Limits(workers)
)
judged = {
    one.experiment.name: one.message if isinstance(one, Broken) else [verdict.holds for verdict in one.verdicts]
    for one in found
}
print(json.dumps(judged))
"""
"""What `experiments run --all` does, for the experiments that are named."""


def run(folder: Path, workers: int, asked: list[str]) -> tuple[float, dict[str, object]]:
    """Seconds of one call, and how the claims were judged."""
    began = time.perf_counter()
    call = [sys.executable, "-c", TOGETHER, str(folder), str(workers), *asked]
    done = subprocess.run(call, check=True, capture_output=True, text=True)
    judged: dict[str, object] = json.loads(done.stdout)
    return time.perf_counter() - began, judged


def main() -> int:
    """Prints a line per way, and what is wanted."""
    asked = names() if "--all" in sys.argv[1:] else list(SOME)
    print(f"{len(asked)} experiments, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as made:
        alone: dict[str, object] = {}
        one_by_one = 0.0
        for name in asked:
            seconds, judged = run(Path(made) / "alone" / name, 1, [name])
            print(f"  {name}: {seconds:.1f} s", flush=True)
            one_by_one += seconds
            alone |= judged
        print(f"one by one, one worker: {one_by_one:.1f} s")
        together, judged = run(Path(made) / "together", 2, asked)
        faster = one_by_one / together
        print(f"together, two workers: {together:.1f} s, {faster:.2f} times as fast ({FASTER:.1f} wanted)")
        again, kept = run(Path(made) / "together", 2, asked)
        print(f"a second call: {again:.1f} s (less than {AGAIN_S} s wanted of all experiments)")
    if not alone == judged == kept:
        print("claims were judged otherwise")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
