"""`make fuzz`: random scenarios against the rules, on all cores; prints each violation with what repeats it.

    python -m fuzz [--first N] [--count N] [--seconds S]
    python -m fuzz --show N          the scenario of a number, as YAML

Exit status 1 if a rule was broken or a run failed.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from fuzz.cases import Outcome, outcome, text


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=None, help="stop after so long")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--show", type=int, default=None)
    arguments = parser.parse_args()
    if arguments.show is not None:
        sys.stdout.write(text(arguments.show))
        return 0
    begun = time.monotonic()
    numbers = range(arguments.first, arguments.first + arguments.count)
    broken: collections.Counter[str] = collections.Counter()
    cases = runs = 0
    # A worker that is killed, for memory say, ends it with an error; a `Pool` would wait for ever.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.processes, mp_context=context) as pool:
        for found in pool.map(outcome, numbers, chunksize=4):
            cases += 1
            runs += found.runs
            report(found, broken)
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{cases} of {len(numbers)} scenarios, {sum(broken.values())} violations ")
            if arguments.seconds is not None and time.monotonic() - begun > arguments.seconds:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    print(f"{cases} scenarios, {runs} runs, {time.monotonic() - begun:.0f} s")
    for name, count in broken.most_common():
        print(f"{name}: {count}")
    return 1 if broken else 0


def report(found: Outcome, broken: collections.Counter[str]) -> None:
    """Counts violations, and prints them."""
    for violation in found.violations:
        broken[violation.rule] += 1
        print(violation, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
