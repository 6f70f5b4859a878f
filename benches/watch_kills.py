"""Kills a watch at random instants while measurements come in, and counts what it took.

Run by `python benches/watch_kills.py [MEASUREMENTS] [KILLS]` (100,000 and 1,000 if left out); prints figures and never
fails. Each watch is a process of its own that scans until it is ended by SIGKILL; all were forked from one that has
imported what a watch needs, so that a kill meets the work and not the start.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from windtunnel.calibrate.loop.ledger import Ledger
from windtunnel.calibrate.loop.models import Models
from windtunnel.calibrate.loop.watch import Watch
from windtunnel.validate.systems import read_systems

SIZES = (4096, 65536, 1 << 20, 1 << 24)
LONGEST_S = 0.25
"""The longest time that a watch has, and a part of the rest comes in before each."""


def write(path: Path, first: int, count: int) -> None:
    """Completion times over a link of 10 GB/s, each line a measurement."""
    draws = np.random.default_rng(11 + first)
    with path.open("a", encoding="utf-8") as file:
        if first == 0:
            file.write("bytes,fct_us,class\n")
        for number in range(first, first + count):
            size = SIZES[number % len(SIZES)]
            time_us = (5 + size / 10e3) * float(np.exp(0.005 * draws.standard_normal()))
            file.write(f"{size},{time_us:.4f},leaf\n")


def watch(place: Path, store: Path, models: Models, *, once: bool) -> None:
    """Scans the folder, again and again unless `once`."""
    with Ledger(store) as ledger:
        ledger.put("system", models.system.name)
        watching = Watch(ledger, models, lambda _: None)
        while True:
            watching.scan(str(place))
            if once:
                return
            time.sleep(0.01)


def begun(place: Path, store: Path, models: Models, *, once: bool) -> int:
    """The number of a process that watches."""
    process = os.fork()
    if process == 0:
        try:
            watch(place, store, models, once=once)
        finally:
            os._exit(0)
    return process


def main() -> None:
    """Prints what was taken, lost and taken twice."""
    given = [int(text) for text in sys.argv[1:]]
    count, kills = (*given, *(100_000, 1_000)[len(given) :])
    draw = random.Random(3)  # noqa: S311 - instants, not secrets
    models = Models(read_systems(None)["polaris"])
    with tempfile.TemporaryDirectory() as folder:
        place, store = Path(folder) / "in", Path(folder) / "store"
        place.mkdir()
        begin, met, largest = time.perf_counter(), 0, 0
        for number in range(kills):
            before, after = (count * n // kills for n in (number, number + 1))
            write(place / "flows.csv", before, after - before)
            process = begun(place, store, models, once=False)
            time.sleep(draw.uniform(0.0, LONGEST_S))
            os.kill(process, signal.SIGKILL)
            _, status, used = os.wait4(process, 0)
            met += os.WIFSIGNALED(status)
            largest = max(largest, used.ru_maxrss)
        process = begun(place, store, models, once=True)
        _, status, used = os.wait4(process, 0)
        largest = max(largest, used.ru_maxrss)
        with Ledger(store, create=False) as ledger:
            lines = [line for (line,) in ledger.db.execute("select line from measurements")]
        lost, twice = count - len(set(lines)), len(lines) - len(set(lines))
        print(f"{count:,} measurements, {met:,} of {kills:,} watches killed in {time.perf_counter() - begin:.0f} s")
        print(f"lost {lost}, taken twice {twice}")
        print(f"largest process {max(largest / 1024, imported()):.0f} MB (200 wanted)")


def imported() -> float:
    """Megabytes of this process, which all watches were forked from."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
