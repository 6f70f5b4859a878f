"""Schedulers and placements of one's own, written in Python: `windtunnel run SCENARIO --scheduler my.py:Mine`.

In Python the class itself will do: `windtunnel.run(scenario, scheduler=Mine)`. A scheduler derives from `Scheduler` and
says in `decide` what is to be done now; a placement derives from `Placement` and says in `place` which free GPUs a job
gets. Both are asked once per decision. `docs/policies.md` explains them.
"""

from __future__ import annotations

import inspect
import operator
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from windtunnel.engine import InputError, nearest
from windtunnel.native import native_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

__all__ = ["Job", "Need", "Placement", "Running", "Scheduler", "Start", "Stop"]


@dataclass(frozen=True)
class Job:
    """A job as it was submitted. Times are seconds."""

    id: int
    gpus: int
    submit_s: float
    estimate_s: float
    """How long it is expected to run."""
    priority: int
    done_s: float
    """How long it has run before, if it was stopped."""
    deadline_s: float | None = None
    """When it should have ended; `None`: whenever it does."""


@dataclass(frozen=True)
class Running:
    """A job that runs."""

    job: Job
    gpus: tuple[int, ...]
    """GPU of each rank; GPU g is on host g // `Scheduler.gpus_per_host`."""
    start_s: float

    @property
    def expected_end_s(self) -> float:
        """When it should be done."""
        return self.start_s + max(self.job.estimate_s - self.job.done_s, 0.0)


@dataclass(frozen=True)
class Start:
    """Start a waiting job: on these GPUs, or on those that its placement finds in `region`."""

    job: int
    gpus: Sequence[int] | None = None
    region: int = 0


@dataclass(frozen=True)
class Stop:
    """Stop a running job. It keeps its work, waits again, and pays `cluster.restart` when it goes on."""

    job: int


class Scheduler(ABC):
    """Decides which waiting jobs start. Derive from it and write `decide`."""

    now_s: float = 0.0
    """The present in seconds."""
    gpus_per_host: int = 1
    waiting: dict[int, Job]
    """Jobs that wait by id, in order of submission; one that was stopped stands at the end."""
    running: dict[int, Running]
    """Jobs that run by id."""
    free: list[set[int]]
    """Free GPUs of each region; what has failed, is drained or is kept back as a spare is not among them."""
    refused: set[int]
    """Waiting jobs for which the placement has found no GPUs since anything changed."""

    @abstractmethod
    def decide(self) -> Start | Stop | None:
        """What is to be done now. Asked again after each decision, until there is none."""


@dataclass(frozen=True)
class Need:
    """What a job needs."""

    gpus: int
    locality: str
    """`anywhere`, `fewest-hosts`, `leaf` or `pod`."""
    key: int
    """A number drawn for this job and start, for random choices that can be repeated."""


class Placement(ABC):
    """Chooses the GPUs of a job. Derive from it and write `place`."""

    @abstractmethod
    def place(self, free: Mapping[int, Sequence[int]], need: Need) -> Sequence[int] | None:
        """`need.gpus` of the free GPUs, given by host, in rank order; None if no choice is legal.

        Asked too, without consequence, what it would choose if all were free, and whether the head of the queue fits.
        """


class _PolicyError(Exception):
    """What the engine shows to the user."""


class _Own:
    """A user's class and where it stands."""

    made: type
    text: str
    path: Path

    kinds: ClassVar[dict[str, type]] = {"scheduler": Scheduler, "placement": Placement}
    asked: ClassVar[dict[str, str]] = {"scheduler": "(self)", "placement": "(self, free, need)"}

    def __init__(self, given: str | type, kind: str) -> None:
        self.method = "decide" if kind == "scheduler" else "place"
        if isinstance(given, type):
            self._take(given, kind)
            return
        if not isinstance(given, str):
            raise InputError(f"{kind}: expected a name, FILE.py:CLASS or a class, found `{given!r}`")
        text = given
        file, _, name = text.rpartition(":")
        self.text, self.path = text, Path(file)
        if not file or not name:
            raise InputError(f"--{kind}: expected FILE.py:CLASS, found `{text}`")
        if not self.path.is_file():
            raise InputError(f"--{kind}: there is no file `{file}`")
        module = self._module(kind)
        found = getattr(module, name, None)
        base = self.kinds[kind]
        if not isinstance(found, type):
            known = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, base)]
            known = [key for key in known if key != base.__name__]
            near = nearest(name, known)
            hint = f"\n\nhint: did you mean `{near}`?" if near else ""
            raise InputError(f"--{kind}: `{file}` has no class `{name}`{hint}")
        if not issubclass(found, base):
            raise InputError(f"{file}: `{name}` is no {kind}: derive it from `windtunnel.policies.{base.__name__}`")
        if inspect.isabstract(found):
            raise InputError(self._lacks(name, found, kind))
        self.made = found
        code = getattr(getattr(found, self.method), "__code__", None)
        own = code is not None and Path(code.co_filename) == self.path.resolve()
        self.place = f"{file}:{code.co_firstlineno}" if own and code is not None else file
        self.name = f"{self.place}: {name}.{self.method}"

    def _take(self, found: type, kind: str) -> None:
        """Takes a class that stands in the caller's program or notebook."""
        base, name = self.kinds[kind], found.__qualname__
        self.text = class_name(found)
        if not issubclass(found, base):
            raise InputError(f"{kind}: `{name}` is no {kind}: derive it from `windtunnel.policies.{base.__name__}`")
        if inspect.isabstract(found):
            raise InputError(
                f"{kind}: `{name}` has no method `{self.method}`: write `def {self.method}{self.asked[kind]}`"
            )
        self.made = found
        code = getattr(found, self.method).__code__
        self.path = Path(code.co_filename)
        self.place = f"{code.co_filename}:{code.co_firstlineno}"
        self.name = f"{self.place}: {name}.{self.method}"

    def _lacks(self, name: str, found: type, kind: str) -> str:
        """What a class without the method that it is asked by is told."""
        if found.__module__ != f"windtunnel_own_{kind}":
            return f"--{kind}: `{name}` is only what {kind}s derive from\n\nhint: name a class of `{self.path}`"
        line = inspect.getsourcelines(found)[1]
        near = nearest(self.method, [key for key in vars(found) if not key.startswith("__")])
        hint = f"is `{near}` meant to be it?" if near else f"write `def {self.method}{self.asked[kind]}`"
        return f"{self.path}:{line}: {kind} `{name}` has no method `{self.method}`\n\nhint: {hint}"

    def _module(self, kind: str) -> ModuleType:
        import importlib.util  # noqa: PLC0415 - every run comes by this module, and few have classes of their own

        name = f"windtunnel_own_{kind}"
        spec = importlib.util.spec_from_file_location(name, self.path.resolve())
        if spec is None or spec.loader is None:
            raise InputError(f"--{kind}: `{self.path}` is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise InputError(self.explain(error)) from error
        return module

    def explain(self, error: BaseException, job: int | None = None) -> str:
        """`file:line: error (job 3)`, at the last line of the user's file that took part."""
        if isinstance(error, SyntaxError) and error.lineno is not None:
            return f"{self.path}:{error.lineno}: {error.msg}"
        import traceback  # noqa: PLC0415

        frames = traceback.extract_tb(error.__traceback__)
        files = (self.path, self.path.resolve())
        lines = [frame.lineno for frame in frames if Path(frame.filename) in files]
        place = f"{self.path}:{lines[-1]}" if lines else self.place_of_class()
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return f"{place}: {what}" + ("" if job is None else f" (job {job})")

    def place_of_class(self) -> str:
        return getattr(self, "place", str(self.path))

    def digest(self) -> str:
        import hashlib  # noqa: PLC0415

        if self.path.is_file():
            return f"{self.text} {hashlib.sha256(self.path.read_bytes()).hexdigest()}"
        # Of a notebook's cell there is no file: what its methods do stands for it.
        codes = [(key, value.__code__) for key, value in sorted(vars(self.made).items()) if inspect.isfunction(value)]
        told = repr([(key, code.co_code, code.co_names, repr(code.co_consts)) for key, code in codes])
        return f"{self.text} {hashlib.sha256(told.encode()).hexdigest()}"


STOPS = 100
"""How many times a job may be stopped at one instant: who starts it again each time never comes to an end."""


def _whole(value: object) -> int | None:
    """A whole number of at least 0, of Python's or NumPy's; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
    return number if 0 <= number < 1 << 32 else None


class _SchedulerAdapter:
    """Keeps a scheduler's view up to date and its answers in order."""

    def __init__(self, own: _Own, regions: list[list[int]], per_host: int) -> None:
        self._own = own
        self._region = {gpu: number for number, gpus in enumerate(regions) for gpu in gpus}
        self._jobs: dict[int, Job] = {}
        self._now_s = 0.0
        self._stops: dict[int, int] = {}
        """How many times each job has been stopped at this instant."""
        try:
            scheduler = own.made()
        except Exception as error:
            raise _PolicyError(own.explain(error)) from error
        scheduler.gpus_per_host = per_host
        scheduler.waiting, scheduler.running, scheduler.refused = {}, {}, set()
        scheduler.free = [set(gpus) for gpus in regions]
        self._scheduler: Scheduler = scheduler

    def queued(self, facts: tuple[int, int, float, float, int, float, float | None]) -> None:
        """Facts are the fields of `Job`, in their order."""
        known = Job(*facts)
        self._jobs[known.id] = known
        self._scheduler.waiting[known.id] = known
        self._scheduler.refused.clear()

    def started(self, job: int, gpus: list[int], now_s: float) -> None:
        scheduler = self._scheduler
        scheduler.waiting.pop(job, None)
        scheduler.running[job] = Running(self._jobs[job], tuple(gpus), now_s)
        for gpu in gpus:
            scheduler.free[self._region[gpu]].discard(gpu)
        scheduler.refused.clear()

    def released(self, job: int, gpus: list[int]) -> None:
        scheduler = self._scheduler
        scheduler.running.pop(job, None)
        for gpu in gpus:
            scheduler.free[self._region[gpu]].add(gpu)
        scheduler.refused.clear()

    def found_free(self, free: list[list[int]]) -> None:
        """What is free now, where GPUs have gone out of service or come back."""
        self._scheduler.free = [set(gpus) for gpus in free]
        self._scheduler.refused.clear()

    def refused(self, job: int) -> None:
        self._scheduler.refused.add(job)

    def decide(self, now_s: float) -> tuple[str, int, list[int] | None, int] | None:
        scheduler = self._scheduler
        if now_s != self._now_s:
            self._now_s = now_s
            self._stops.clear()
        scheduler.now_s = now_s
        try:
            decision = scheduler.decide()
        except Exception as error:
            head = next(iter(scheduler.waiting), None)
            raise _PolicyError(self._own.explain(error, head)) from error
        if decision is None:
            return None
        if not isinstance(decision, Start | Stop):
            raise self._wrong(f"expected `Start`, `Stop` or None, found `{decision!r}`")
        job = _whole(decision.job)
        if job is None or job not in self._jobs:
            raise self._wrong(f"there is no job `{decision.job!r}`")
        if isinstance(decision, Stop):
            self._check_stop(job, now_s)
            return "stop", job, None, 0
        if job not in scheduler.waiting:
            raise self._wrong(f"job {job} is to start, but does not wait")
        region = _whole(decision.region)
        if region is None or region >= len(scheduler.free):
            regions = len(scheduler.free)
            raise self._wrong(f"job {job} is to start in region `{decision.region!r}`, expected less than {regions}")
        if decision.gpus is None:
            if job in scheduler.refused:
                raise self._wrong(
                    f"job {job} is to start again, but its placement has just found no GPUs\n\n"
                    "hint: look at `self.refused`, or return None"
                )
            return "start", job, None, region
        return "start", job, self._gpus(job, decision.gpus), region

    def _check_stop(self, job: int, now_s: float) -> None:
        if job not in self._scheduler.running:
            raise self._wrong(f"job {job} is to stop, but does not run")
        self._stops[job] = self._stops.get(job, 0) + 1
        if self._stops[job] > STOPS:
            raise self._wrong(
                f"job {job} is stopped more than {STOPS} times at one instant, {now_s:g} s\n\n"
                "hint: time goes on once the answer is None"
            )

    def _gpus(self, job: int, given: Sequence[int]) -> list[int]:
        gpus = _numbers(given)
        if gpus is None:
            raise self._wrong(f"the GPUs of job {job}: expected whole numbers, found `{given!r}`")
        return gpus

    def _wrong(self, message: str) -> _PolicyError:
        return _PolicyError(f"{self._own.name}: {message}")


class _PlacementAdapter:
    """Hands a placement what is free and puts its answer in order."""

    def __init__(self, own: _Own) -> None:
        self._own = own
        try:
            self._placement: Placement = own.made()
        except Exception as error:
            raise InputError(own.explain(error)) from error

    def place(self, gpus: list[int], per_host: int, count: int, locality: str, key: int) -> list[int] | None:
        free: dict[int, list[int]] = {}
        for gpu in gpus:
            free.setdefault(gpu // per_host, []).append(gpu)
        need = Need(count, locality, key)
        try:
            given = self._placement.place(free, need)
        except Exception as error:
            raise _PolicyError(f"{self._own.explain(error)}, asked for {count} GPUs") from error
        if given is None:
            return None
        numbers = _numbers(given)
        if numbers is None:
            raise _PolicyError(
                f"{self._own.name}: asked for {count} GPUs, expected whole numbers or None, found `{given!r}`"
            )
        return numbers


def _numbers(given: object) -> list[int] | None:
    """Whole numbers, if they are."""
    try:
        numbers = [_whole(value) for value in given]  # type: ignore[attr-defined]
    except TypeError:
        return None
    return None if None in numbers else [number for number in numbers if number is not None]


def is_own(given: str | type) -> bool:
    """Whether a policy is a class, or its name stands for one in a file."""
    return not isinstance(given, str) or ":" in given or given.endswith(".py")


def class_name(found: type) -> str:
    """What manifests call a class: `module:Class`."""
    return f"{found.__module__}:{found.__qualname__}"


def engine_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run as the engine takes them: classes of the user's own instead of names, and consent."""
    given = dict(options)
    given.update(native_options(allow=bool(given.pop("allow_native", False))))
    digests: list[str] = []
    scheduler, placement = given.pop("scheduler", None), given.pop("placement", None)
    if scheduler is not None:
        own = _Own(scheduler, "scheduler")
        given["scheduler"] = (_maker(own), own.name)
        digests.append(own.digest())
    if placement is not None and is_own(placement):
        own = _Own(placement, "placement")
        given["placement"] = (_PlacementAdapter(own), own.name)
        digests.append(own.digest())
    elif placement is not None:
        given["placement_name"] = placement
        digests.append(placement)
    given["policies"] = " ".join(digests)
    return given


def _maker(own: _Own) -> Callable[[list[list[int]], int], _SchedulerAdapter]:
    return lambda regions, per_host: _SchedulerAdapter(own, regions, per_host)
