"""The runner: many points, as many at once as cores and memory allow; outcomes in order.

Life cycle of a point: asked of the store → handed to a worker of the executor → its folder placed → noted in the store
→ given out, in the order of the points. Equal points are run once. A run whose worker dies is tried once more, alone,
and fails if it takes that one along too; when a whole machine is lost, its runs are begun again elsewhere. Closing the
generator (Ctrl-C) ends the workers, notes what was done and leaves the rest undone.

Invariants: no outcome depends on the executor, the number of workers or what ran beside it; a finished point is never
run again unless `fresh`.
"""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from windtunnel.engine import InputError
from windtunnel.studies import memory
from windtunnel.studies.executor import Answer, Death, Executor, Task, over
from windtunnel.studies.point import Outcome, Point, first_line
from windtunnel.studies.recipe import recipe
from windtunnel.studies.store import Ended, is_full

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from windtunnel.studies.store import Store

TICK = 0.2
"""Seconds between two looks at limits and memory."""

CHUNK_S = 0.2
"""Processor seconds of short runs that a worker gets at a time, so that it need not ask for each."""

MACHINES = 5
"""Times that a point is begun again because its machine was lost."""


@dataclass(frozen=True)
class Limits:
    """What the runs may take."""

    workers: int | None = None
    """Runs at once, at most; as many as cores if None."""
    seconds: float | None = None
    """Wall time of a run, which fails when it takes longer."""
    memory_bytes: int | None = None
    """Memory of a run's process, which fails when it takes more."""
    threads: int | None = None
    """Of each run; one, or as many as leave no core idle where there are fewer runs than cores, if None."""
    together_bytes: int | None = None
    """Memory that all runs may take together; most of what is free if None. Of runs on this machine alone."""
    engine: str = "local"
    """Where they are run: `local`, `ray` or `ray:ADDRESS`."""

    def executor(self) -> Executor:
        """Who runs them: processes of this machine, or a Ray cluster. Raises `InputError` as `check` does."""
        self.check()
        if self.engine == "local":
            from windtunnel.studies.local import LocalExecutor

            return LocalExecutor(self.workers)
        from windtunnel.studies.on_ray import RayExecutor

        return RayExecutor(self.engine.partition(":")[2] or None, self.workers)

    def check(self) -> None:
        """Raises `InputError` where `engine` is none, or what is asked cannot be kept there."""
        if self.engine == "local":
            return
        if self.engine.partition(":")[0] != "ray":
            raise InputError(f"--engine: expected `local`, `ray` or `ray:ADDRESS`, found `{self.engine}`")
        if self.together_bytes is not None:
            raise InputError(
                "--memory: Ray keeps runs apart by the memory of its machines\n\n"
                "hint: `ray start --memory BYTES` says what a machine gives, and `--memory-limit` bounds each run"
            )


@dataclass(frozen=True)
class Progress:
    """Where a study stands."""

    done: int
    total: int
    stored: int
    running: int
    slowest: Point | None
    """The point that has run longest of those that run now."""
    slowest_s: float
    at_once: int = 0
    """The most that ran beside each other until now."""
    asked: int = 0
    """How many might have."""
    gave_way: int = 0
    """Runs that were put off because memory ran out."""
    alike: int = 0
    """Points that are equal to another and took its result: they never waited for memory."""
    longest: Point | None = None
    """The point that took longest of those that ended."""
    longest_s: float = 0.0


@dataclass
class _State:
    waiting: deque[int] = field(default_factory=deque)
    alone: deque[int] = field(default_factory=deque)
    """Points that took their worker along, to be run once more with nothing beside them."""
    retried: set[int] = field(default_factory=set)
    moved: dict[int, int] = field(default_factory=dict)
    """How often a point lost its machine."""
    ready: dict[int, Outcome] = field(default_factory=dict)
    twins: dict[int, list[int]] = field(default_factory=dict)
    """Points that are equal to one that runs."""
    begun: list[Point] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    """What the store is not told yet."""


def run_points(
    points: Sequence[Point],
    store: Store,
    *,
    limits: Limits | None = None,
    fresh: bool = False,
    tables: bool = False,
    progress: Callable[[Progress], None] | None = None,
    executor: Executor | None = None,
) -> Iterator[Outcome]:
    """Outcomes of `points`, in their order, each as soon as all before it are known.

    `fresh` runs what is stored anew, `tables` keeps the tables of each run. `executor` runs them: that of `limits` if
    None. Raises `InputError` when the store cannot take more; what was done by then is kept.
    """
    limits = limits or Limits()
    runner = _Runner(
        points, store, limits, executor or limits.executor(), fresh=fresh, tables=tables, progress=progress
    )
    try:
        yield from runner.outcomes()
    finally:
        runner.close()


class _Runner:
    def __init__(
        self,
        points: Sequence[Point],
        store: Store,
        limits: Limits,
        executor: Executor,
        *,
        fresh: bool,
        tables: bool,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.points, self.store, self.limits, self.executor = points, store, limits, executor
        self.fresh, self.tables, self.progress = fresh, tables, progress
        self.state = _State()
        self.room = memory.Room(executor.most, limits.together_bytes)
        self.estimates: dict[int, int] = {}
        self.done = self.stored = self.at_once = self.gave_way = self.made = self.alike = 0
        self.made_s = 0.0
        self.longest: tuple[float, Point | None] = (0.0, None)
        self.used = 0
        self.threads = 1
        self.looked = self.flushed = time.monotonic()

    def outcomes(self) -> Iterator[Outcome]:
        self._ask()
        given = 0
        while given < len(self.points):
            while given in self.state.ready:
                yield self.state.ready.pop(given)
                given += 1
            if given < len(self.points):
                self._hand_out()
                self._collect()
        self._flush()
        self._tell()

    def _ask(self) -> None:
        """Takes what the store has, and queues the rest."""
        known = [None] * len(self.points) if self.fresh else self.store.find_all(self.points, tables=self.tables)
        first: dict[str, int] = {}
        for i, (point, outcome) in enumerate(zip(self.points, known, strict=True)):
            if outcome is not None:
                self.stored += 1
                self._settle(i, outcome)
                self._learn(i, outcome.peak_bytes)
                continue
            original = first.setdefault(recipe(point), i)
            if original == i:
                self.state.waiting.append(i)
            else:
                self.state.twins.setdefault(original, []).append(i)
                self.alike += 1
        self.threads = self.limits.threads or max(1, self.executor.most // max(1, len(self.state.waiting)))
        self._write(lambda: self.store.queue([self.points[i] for i in self.state.waiting]))

    def close(self) -> None:
        """Ends the workers; points under way are forgotten, to be run another time."""
        self.executor.close()
        try:
            self._flush()
            if self.done < len(self.points):
                self.store.forget(self.points)
            self.store.sweep()
        except (InputError, sqlite3.Error):
            return  # what ended has its folder, and the next who asks finds it

    def _estimate(self, number: int) -> int:
        if number not in self.estimates:
            self.estimates[number] = memory.estimate(self.points[number])
        return self.estimates[number]

    def _learn(self, number: int, peak: object) -> None:
        if isinstance(peak, int):
            self.room.learn(self._estimate(number), peak)

    def _settle(self, number: int, outcome: Outcome) -> None:
        for i in (number, *self.state.twins.pop(number, ())):
            self.state.ready[i] = outcome
            self.done += 1

    # Handing out

    def _hand_out(self) -> None:
        running = self.executor.running()
        if self.state.alone:
            if not running:
                self._give([self.state.alone.popleft()])
            return
        if any(number in self.state.retried for number in running):
            return
        beside = [self._estimate(number) for number in running]
        while self.state.waiting:
            if len(beside) >= self.executor.most:
                return
            if self.executor.local and not self.room.fits(self._estimate(self.state.waiting[0]), beside):
                return
            chunk = [self.state.waiting.popleft() for _ in range(self._chunk(len(beside)))]
            beside.append(self._estimate(chunk[0]))
            self._give(chunk)
            self.at_once = max(self.at_once, len(beside))

    def _chunk(self, busy: int) -> int:
        """How many a worker gets: one, or as many short ones as leave the others some."""
        if self.made < 4 or self.limits.seconds is not None or self.limits.memory_bytes is not None:
            return 1
        share = len(self.state.waiting) // (2 * max(1, self.executor.most - busy))
        return max(1, min(int(CHUNK_S * self.made / max(self.made_s, 1e-9)), share))

    def _give(self, numbers: list[int]) -> None:
        points = [self.points[number] for number in numbers]
        root = self.store.root.absolute()
        self.state.begun.append(points[0])  # the others wait behind it
        self.executor.start(
            [
                Task(
                    number,
                    point,
                    self.store.place(point, root),
                    self.tables,
                    self.threads,
                    self.room.need(self._estimate(number)),
                    self.limits.seconds,
                    self.limits.memory_bytes,
                )
                for number, point in zip(numbers, points, strict=True)
            ]
        )

    # Collecting

    def _collect(self) -> None:
        found = self.executor.wait(TICK)
        if len(found) > 1 and all(isinstance(one, Answer) for one in found):
            self._hand_out()  # of short runs, before anything is made of their answers: who gave them waits
        for what in found:
            if isinstance(what, Death):
                self._mourn(what)
            else:
                self._hear(what)
        now = time.monotonic()
        if now - self.looked >= TICK:
            self.looked = now
            self._look()
            self._tell()
        if now - self.flushed >= TICK:
            self._flush()

    def _hear(self, answer: Answer) -> None:
        point = self.points[answer.number]
        if answer.full_disk:
            raise self._full()
        self._learn(answer.number, answer.listed.get("peak_bytes"))
        folder = None if answer.text is None else self.store.place(point)
        self.made += 1
        self.made_s += answer.cpu_s
        self.longest = max(self.longest, (answer.wall_s, point), key=lambda one: one[0])
        self.state.ended.append((point, answer))
        self._settle(
            answer.number,
            Outcome(
                answer.state,
                answer.text,
                first_line(answer.message),
                folder,
                answer.wall_s,
                answer.cpu_s,
                stored=False,
                detail=answer.message,
            ),
        )

    def _mourn(self, death: Death) -> None:
        """A worker is gone: killed for memory, most likely. Its point gets another chance, alone."""
        undone = [number for number in (death.number, *death.behind) if not self._is_placed(number)]
        self.state.waiting.extendleft(reversed([number for number in undone if number != death.number]))
        number = death.number
        if number not in undone:
            return
        if death.machine:
            lost = self.state.moved[number] = self.state.moved.get(number, 0) + 1
            if lost <= MACHINES:
                self.state.waiting.appendleft(number)
            else:
                self._fail(number, f"the machine that ran it was lost ({death.how}), {lost} times", 0.0)
        elif number not in self.state.retried:
            self.state.retried.add(number)
            self.state.alone.append(number)
        else:
            self._fail(number, f"the process that ran it died ({death.how}), twice; out of memory?", 0.0)

    def _is_placed(self, number: int) -> bool:
        """Whether a worker that is gone had written a point down before it could say so: then that is its outcome."""
        if self.fresh:  # what is there may be of another time
            return False
        found = self.store.find(self.points[number], tables=self.tables)
        if found is None:
            return False
        self._settle(number, replace(found, stored=False))
        return True

    def _look(self) -> None:
        """Ends runs that take too long or too much, and the youngest where memory runs out."""
        if not self.executor.local:
            return
        used: dict[int, int] = {}
        running = self.executor.running()
        for number, seconds in running.items():
            used[number] = self.executor.used_bytes(number)
            message = over(seconds, used[number], self.limits.seconds, self.limits.memory_bytes)
            if message is not None:
                del used[number]
                self._dismiss(number, message, seconds)
                continue
            self.room.grow(self._estimate(number), used[number] - memory.INTERPRETER)
        self._give_way(used, running)

    def _give_way(self, used: dict[int, int], running: Mapping[int, float]) -> None:
        """Puts off the youngest runs until what is left has room to grow as it did since the last look, twice."""
        total, together = sum(used.values()), self.limits.together_bytes
        growth = max(0, total - self.used)
        left = memory.available_bytes() - max(memory.RESERVE * memory.total_bytes(), 2 * growth)
        if together is not None:
            left = min(left, together - total)
        while left < 0 and len(used) > 1:
            youngest = min(used, key=lambda number: running[number])
            left += used.pop(youngest)
            self.state.waiting.extendleft(reversed([youngest, *self.executor.stop(youngest)]))
            self.gave_way += 1
        self.used = sum(used.values())

    def _dismiss(self, number: int, message: str, seconds: float) -> None:
        self.state.waiting.extendleft(reversed(self.executor.stop(number)))
        self._fail(number, message, seconds)

    def _fail(self, number: int, message: str, wall_s: float) -> None:
        answer = Answer(number, "failed", None, message, wall_s, 0.0)
        self.state.ended.append((self.points[number], answer))
        self._settle(number, Outcome("failed", None, message, None, wall_s, 0.0, stored=False))

    # What others are told

    def _flush(self) -> None:
        self.flushed = time.monotonic()
        begun, ended = self.state.begun, self.state.ended
        over = {id(point) for point, _ in ended}
        begun = [point for point in begun if id(point) not in over]
        if begun or ended:
            self._write(lambda: self.store.note(begun, ended, tables=self.tables))
            self.state.begun, self.state.ended = [], []

    def _write(self, change: Callable[[], None]) -> None:
        try:
            change()
        except sqlite3.OperationalError as error:
            if is_full(error):
                raise self._full() from None
            raise InputError(f"cannot write the index of `{self.store.root}`: {error}") from None
        except OSError as error:
            raise InputError(f"cannot write `{self.store.root}`: {error.strerror}") from None

    def _full(self) -> InputError:
        return InputError(
            f"no space is left in `{self.store.root}`: {self.done} of {len(self.points)} points are kept\n\n"
            "hint: make room (`windtunnel runs gc` removes what is stale); the same command goes on"
        )

    def _tell(self) -> None:
        if self.progress is None:
            return
        running = self.executor.running()
        slowest = max(running, key=lambda number: running[number], default=None)
        self.progress(
            Progress(
                done=self.done,
                total=len(self.points),
                stored=self.stored,
                running=len(running),
                slowest=None if slowest is None else self.points[slowest],
                slowest_s=0.0 if slowest is None else running[slowest],
                at_once=self.at_once,
                asked=self.executor.most,
                gave_way=self.gave_way,
                alike=self.alike,
                longest=self.longest[1],
                longest_s=self.longest[0],
            )
        )
