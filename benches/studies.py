"""Times studies: many short runs against bare loops over the engine, the same asked again, a long list.

Run by `python benches/studies.py [RUNS]`; prints figures and never fails. What others do on the machine takes from wall
time, so processor seconds of all processes stand beside it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.source import read_source
from windtunnel.studies import index
from windtunnel.studies.executor import Answer
from windtunnel.studies.folders import columns
from windtunnel.studies.point import Point
from windtunnel.studies.runner import Limits, run_points
from windtunnel.studies.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
SCENARIO = ROOT / "examples" / "ring-all-reduce.yaml"
BUSY = (("jobs[0].workload.collective.form", "steps"), ("topology.hosts", "4"))
"""What makes a run take about 5 ms."""
WORKERS = 2
LISTED = 100_000


def overrides(number: int) -> tuple[tuple[str, str], ...]:
    """A point of its own, of about 5 ms: a ring of 32 GPUs step by step."""
    return (("fidelity", "flow"), ("seed", str(number)), *BUSY)


def points(count: int) -> list[Point]:
    """So many points."""
    source = read_source(SCENARIO)
    return [Point(source, overrides(number), varied={"seed": number}) for number in range(count)]


def bare(first: int, count: int) -> None:
    """A loop over the engine and nothing else, whose results nobody keeps."""
    source = read_source(SCENARIO)

    def ignore(*_: object) -> None:
        pass

    for number in range(first, first + count):
        pairs = list(overrides(number))
        engine.run(source.text, source.name, str(source.base), pairs, {"threads": 1}, None, ignore)


@contextmanager
def timed(found: dict[str, float]) -> Iterator[None]:
    """Wall and processor seconds of what is done within, of this process and of children that ended by then."""

    def cpu() -> float:
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    wall, before = time.perf_counter(), cpu()
    yield
    found |= {"wall_s": time.perf_counter() - wall, "cpu_s": cpu() - before}


def in_process(target: Any, *arguments: Any) -> dict[str, float]:  # noqa: ANN401
    """Times `target` in a process of its own, so that its children have ended and count."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_measured, args=(queue, target, arguments))
    process.start()
    found: dict[str, float] = queue.get()
    process.join()
    return found


def _measured(queue: Any, target: Any, arguments: tuple[Any, ...]) -> None:  # noqa: ANN401
    found: dict[str, float] = {}
    with timed(found):
        target(*arguments)
    queue.put(found)


def two_loops(count: int) -> None:
    """As many runs in two bare loops."""
    context = multiprocessing.get_context("spawn")
    loops = [context.Process(target=bare, args=(i * count, count // WORKERS)) for i in range(WORKERS)]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join()


def study(root: str, count: int) -> None:
    """As many runs as a study."""
    with Store(Path(root)) as store:
        for _ in run_points(points(count), store, limits=Limits(WORKERS)):
            pass
    from windtunnel.studies import local  # noqa: PLC0415

    local.end_idle()


def answer(number: int, meant: str) -> Answer:
    """What a worker says of a run that is done."""
    summary = {"scenario": "ring", "seed": 1, "fidelity": "flow", "events": 2, "peak_memory_bytes": 1000}
    return Answer(number, "done", None, None, 0.005, 0.005, meant, listed=columns(summary))


FILTERS = (
    ("number=77777", "--json"),
    ("state=done", "--limit", "20"),
    ("name=ring", "--limit", "5"),
    ("tp=3", "--json"),
    ("tp=3",),
    ("tp=3", "state=done", "--limit", "20", "--json"),
    ("name=nobody",),
)
"""What is asked of a long list: one run, the newest of nearly all, a seventh of them, none."""


def listing(root: Path) -> Iterator[tuple[str, float]]:
    """Seconds of `runs list` with each of the filters, over many runs: the least of five."""
    with Store(root) as store:
        source = read_source(SCENARIO)
        made = [(Point(source, overrides(n), varied={"number": n, "jobs[0].tp": n % 7}), n) for n in range(LISTED)]
        for begin in range(0, LISTED, 10_000):
            some = made[begin : begin + 10_000]
            ended = [(p, answer(n, str(n))) for p, n in some]
            store.note([], ended)
    for asked in FILTERS:
        call = [sys.executable, "-m", "windtunnel", "runs", "list", *asked, "--store", str(root)]
        times = []
        for _ in range(5):
            began = time.perf_counter()
            done = subprocess.run(call, check=True, capture_output=True, text=True)
            times.append(time.perf_counter() - began)
        if "number=77777" in asked and len(json.loads(done.stdout)["runs"]) != 1:
            raise RuntimeError("the list lacks the run that was asked for")
        yield " ".join(asked), min(times)


def index_alone(root: Path, count: int) -> float:
    """Milliseconds a run of queueing and noting it."""
    made = points(count)
    with Store(root) as store:
        began = time.perf_counter()
        store.queue(made)
        for begin in range(0, count, 20):
            some = made[begin : begin + 20]
            answers = [(p, answer(i, "m")) for i, p in enumerate(some)]
            store.note(some, answers)
        return 1e3 * (time.perf_counter() - began) / count


def main() -> None:
    """Prints one line per figure."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    print(f"{count:,} runs of {SCENARIO.name}, {WORKERS} workers, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        before = in_process(two_loops, count)
        whole = in_process(study, f"{folder}/runs", count)
        after = in_process(two_loops, count)
        loops = {key: (before[key] + after[key]) / 2 for key in before}
        again = in_process(study, f"{folder}/runs", count)
        for name, one in (("two bare loops", loops), ("as a study", whole), ("asked again", again)):
            print(f"{name}: {one['wall_s']:.1f} s, {one['cpu_s']:.1f} s of processors")
        share = {key: 100 * loops[key] / whole[key] for key in loops}
        print(
            f"study over bare loops: {share['wall_s']:.0f}% by wall, {share['cpu_s']:.0f}% by processors (95% wanted)"
        )
        print(f"index alone: {index_alone(Path(folder) / 'index', min(count, 10_000)):.3f} ms a run (2 ms wanted)")
        for asked, seconds in listing(Path(folder) / "list"):
            print(f"`runs list {asked}` of {LISTED:,} runs: {seconds:.2f} s (0.3 s wanted)")
        size = (Path(folder) / "runs" / index.NAME).stat().st_size
        print(f"index: {size / count:.0f} bytes a run")


if __name__ == "__main__":
    main()
