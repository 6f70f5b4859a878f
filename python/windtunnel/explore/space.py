"""The space of the explorer: which layouts there are, and which rules leave some of them out.

A *candidate* is a layout with everything that the explorer chooses: sizes, sharding, order, schedule with its chunks
and run length, micro-batch, recomputation, and layers by stage. Rules of the paper (Li et al. 2026, section 6.2):
tensor parallelism is innermost, context parallelism next, and a context-parallel rank has 2,048 tokens at least.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.engine import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windtunnel.layout.job import Job

ORDERS = {"pp-out": ("tp", "cp", "ep", "dp", "pp"), "dp-out": ("tp", "cp", "ep", "pp", "dp")}
"""Which dimension is outermost: over buildings it is what crosses between them."""
CHUNKED = ("interleaved", "zb1p", "dorapp")
"""Schedules that take any number of chunks."""
FIXED = {"zbv": 2, "dualpipe": 2, "dualpipev": 2}
"""Chunks of those that have their own; of `zbv` unless others are named, and then even numbers (interleaved ZBV)."""
RECOMPUTE = ("none", "selective", "operations", "full")
LARGEST_ZERO = 3
SCHEDULES = ("1f1b", "interleaved", "zb-h1", "dorapp", "zbv")
MOST_CHUNKS = 8
LARGEST = 400_000
"""Candidates at most."""


@dataclass(frozen=True, order=True)
class Candidate:
    """A layout. `chunks` is 1 where the schedule has none; `run_length` 0 leaves it to the schedule."""

    tp: int
    cp: int
    ep: int
    pp: int
    dp: int
    zero: int
    replicate: int
    order: str
    schedule: str
    chunks: int
    run_length: int
    micro_batch: int
    recompute: str
    layers: tuple[int, ...] = ()
    """Layers of each stage; empty: equal ones."""

    @property
    def gpus(self) -> int:
        """Ranks, one a GPU."""
        return self.tp * self.cp * self.ep * self.pp * self.dp

    @property
    def stages(self) -> int:
        """Pieces of the model that follow one another."""
        return self.pp if self.schedule == "dualpipe" else self.pp * self.chunks

    def parallelism(self, own: dict[str, Any]) -> dict[str, Any]:
        """The section of the scenario that says it; what the explorer does not choose stays as it is."""
        schedule = {
            **{key: value for key, value in (own.get("schedule") or {}).items() if key in ("warm_up", "w_delay")},
            "name": self.schedule,
        }
        if self.chunks > 1 and (self.schedule in CHUNKED or self.chunks != FIXED.get(self.schedule, 1)):
            schedule["chunks"] = self.chunks
            if self.run_length:
                schedule["run_length"] = self.run_length
        return {
            **own,
            "tp": self.tp, "cp": self.cp, "ep": self.ep, "pp": self.pp, "dp": self.dp, "zero": self.zero,
            "replicate": self.replicate, "order": list(ORDERS[self.order]), "schedule": schedule,
        }  # fmt: skip

    def choice(self, own: dict[str, Any], training: dict[str, Any]) -> dict[str, Any]:
        """As the cost model is asked."""
        return {
            "parallelism": self.parallelism(own),
            "training": {**training, "recompute": self.recompute},
            "micro_batch": self.micro_batch,
            "layers_per_stage": list(self.layers) or None,
        }

    def values(self, place: str, own: dict[str, Any]) -> dict[str, Any]:
        """The keys of the scenario that say it, for the job at `place`; a null takes a key out."""
        return {
            f"{place}.parallelism": self.parallelism(own),
            f"{place}.workload.micro_batch": self.micro_batch,
            f"{place}.workload.training.recompute": self.recompute,
            f"{place}.workload.training.layers_per_stage": list(self.layers) or None,
        }

    def record(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {
            "gpus": self.gpus,
            **self.__dict__,
            "layers": list(self.layers) or None,
            "run_length": self.run_length or None,
        }


@dataclass(frozen=True)
class Space:
    """Values to try; None: those that the job suggests."""

    tp: tuple[int, ...] | None = None
    cp: tuple[int, ...] | None = None
    ep: tuple[int, ...] | None = None
    pp: tuple[int, ...] | None = None
    zero: tuple[int, ...] | None = None
    replicate: tuple[int, ...] | None = None
    orders: tuple[str, ...] | None = None
    schedules: tuple[str, ...] | None = None
    chunks: tuple[int, ...] | None = None
    run_lengths: tuple[int, ...] | None = None
    micro_batches: tuple[int, ...] | None = None
    recompute: tuple[str, ...] | None = None
    context_least: int = 2048
    """Tokens of a context-parallel rank at least."""
    divisors: bool = False

    def check(self, job: Job, gpus: Sequence[int] = ()) -> None:
        """Raises `InputError` for values that contradict each other or the job, on each number of `gpus`."""
        for name, values, least in (
            ("--tp", self.tp, 1), ("--cp", self.cp, 1), ("--ep", self.ep, 1), ("--pp", self.pp, 1),
            ("--replicate", self.replicate, 1), ("--chunks", self.chunks, 1), ("--micro-batch", self.micro_batches, 1),
        ):  # fmt: skip
            for value in values or ():
                if value < least:
                    raise InputError(f"{name}: expected whole numbers from {least}, found {value}")
        for name, values in (("--tp", self.tp), ("--cp", self.cp), ("--ep", self.ep), ("--pp", self.pp)):
            if values and all(number % value for value in values for number in gpus or (job.gpus,)):
                shown, whole = ", ".join(map(str, values)), _or(tuple(gpus) or (job.gpus,))
                raise InputError(f"{name}: none of {shown} divides the {whole} GPUs")
        for value in self.zero or ():
            if not 0 <= value <= LARGEST_ZERO:
                raise InputError(f"--zero: expected 0 to {LARGEST_ZERO}, found {value}")
        if self.ep and not job.experts and set(self.ep) != {1}:
            raise InputError(f"--ep: `{job.own['model']}` has no experts to share out, so only 1 is left")
        self._check_names()

    def _check_names(self) -> None:
        known = [name for name, _ in engine.names("schedules")]
        for option, what, given, names in (
            ("--order", "order", self.orders, list(ORDERS)),
            ("--recompute", "recomputation", self.recompute, list(RECOMPUTE)),
            ("--schedule", "schedule", self.schedules, known),
        ):
            for value in given or ():
                if value not in names:
                    raise InputError(_unknown(option, what, value, names))
        if self.chunks and self.schedules and not any(_takes(name, n) for name in self.schedules for n in self.chunks):
            named = ", ".join(f"`{name}`" for name in self.schedules)
            raise InputError(f"--chunks: {_or(self.chunks)} chunks are none that {named} can have")

    def candidates(self, job: Job, left_out: Counter[str], gpus: Sequence[int] = ()) -> list[Candidate]:
        """The candidates, in order, on the GPUs of the job or on each number of `gpus`.

        `left_out` counts those that a rule leaves out, by the rule.
        Raises `InputError` if there are more than `LARGEST`.
        """
        found: list[Candidate] = []
        jobs = [replace(job, gpus=number) for number in gpus or (job.gpus,)]
        for each, sizes in [(on, sizes) for on in jobs for sizes in self._sizes(on, left_out)]:
            found += self._of(each, sizes, left_out)
            if len(found) > LARGEST:
                raise InputError(
                    f"the space has more than {LARGEST:,} layouts\n\n"
                    "hint: name fewer values, such as `--tp 8` or `--schedule interleaved,dorapp`"
                )
        return found

    def _sizes(self, job: Job, left_out: Counter[str]) -> Iterator[tuple[int, int, int, int, int]]:
        def of(name: str, number: int, given: tuple[int, ...] | None) -> list[int]:
            """Values that divide the GPUs that are left; of those given, others are accounted for."""
            if given is None:
                return [n for n in range(1, number + 1) if number % n == 0 and (self.divisors or n & (n - 1) == 0)]
            for n in given:
                if number % n:
                    inner = {"cp": "tp", "ep": "tp x cp", "pp": "tp x cp x ep"}.get(name)
                    left = f"the {number} that {inner} leaves of {job.gpus} GPUs" if inner else f"{job.gpus} GPUs"
                    left_out[f"`{name}` {n} does not divide {left} (`--{name}`)"] += 1
            return [n for n in given if number % n == 0]

        gpus = job.gpus
        for tp in of("tp", gpus, self.tp):
            for cp in of("cp", gpus // tp, self.cp):
                for ep in of("ep", gpus // (tp * cp), self.ep) if job.experts else [1]:
                    for pp in of("pp", gpus // (tp * cp * ep), self.pp):
                        if pp <= job.layers:
                            yield tp, cp, ep, pp, gpus // (tp * cp * ep * pp)
                        else:
                            left_out[f"more pipeline stages than the {job.layers} layers of the model"] += 1

    def _of(self, job: Job, sizes: tuple[int, int, int, int, int], left_out: Counter[str]) -> Iterator[Candidate]:
        tp, cp, ep, pp, dp = sizes
        if cp > 1 and job.sequence // cp < self.context_least:
            left_out[f"a context-parallel rank has fewer than {self.context_least:,} tokens (`--context-least`)"] += 1
            return
        shared = dp * cp * ep > 1
        zeros = self.zero or tuple(sorted({job.own["zero"] or 1, 1, 3}))
        orders = self.orders or (("pp-out", "dp-out") if job.own["buildings"] > 1 else (job.own["order"],))
        orders = orders if pp > 1 and dp > 1 else orders[:1]
        for micro in self.micro_batches or tuple(sorted({job.own["micro_batch"], 1, 2, 4})):
            if job.global_batch % (micro * dp * ep):
                left_out[f"the global batch of {job.global_batch} is no multiple of micro-batch x ep x dp"] += 1
                continue
            batches = job.global_batch // (micro * dp * ep)
            for zero in zeros if shared else zeros[:1]:
                for replicate in self._replicas(job, zero, dp, left_out):
                    for order in orders:
                        for schedule, chunks, run in self._schedules(pp, job.layers, batches, left_out):
                            for recompute in self.recompute or _recompute(job.own):
                                yield Candidate(
                                    tp, cp, ep, pp, dp, zero, replicate, order, schedule, chunks, run, micro, recompute
                                )

    def _replicas(self, job: Job, zero: int, dp: int, left_out: Counter[str]) -> tuple[int, ...]:
        if self.replicate is None:
            buildings = job.own["buildings"]
            return (1, buildings) if zero and buildings > 1 and dp % buildings == 0 else (1,)
        for n in self.replicate:
            if n > 1 and zero == 0:
                left_out["ZeRO 0 has no shards to have replicas of (`--replicate`)"] += 1
            elif dp % n:
                left_out[f"{n} replicas of shards do not divide {dp} data-parallel ranks (`--replicate`)"] += 1
        return tuple(n for n in self.replicate if n == 1 or (zero and dp % n == 0))

    def _schedules(self, pp: int, layers: int, batches: int, left_out: Counter[str]) -> Iterator[tuple[str, int, int]]:
        if pp == 1:
            yield "1f1b", 1, 0
            return
        for name in self.schedules or SCHEDULES:
            if name in FIXED and name != "zbv" and batches < 2 * pp:
                left_out[f"`{name}` needs twice as many micro-batches as stages"] += 1
                continue
            for chunks in self._chunks(name, pp, layers):
                # One chunk interleaves nothing: that is 1F1B, which is there of its own.
                if name == "interleaved" and chunks == 1 and not self.chunks:
                    continue
                if not _takes(name, chunks):
                    left_out[f"`{name}` cannot have {chunks} chunks (`--chunks`)"] += 1
                    continue
                for run in self._runs(name, pp, chunks, batches, left_out):
                    yield name, chunks, run

    def _chunks(self, name: str, pp: int, layers: int) -> tuple[int, ...]:
        if name not in CHUNKED and name not in FIXED:
            return (1,)
        if self.chunks:
            return self.chunks
        if name in FIXED:
            return (FIXED[name],)
        most = max(1, layers // pp)
        return tuple(n for n in range(1, min(MOST_CHUNKS, most) + 1) if most % n == 0)

    def _runs(self, name: str, pp: int, chunks: int, batches: int, left_out: Counter[str]) -> tuple[int, ...]:
        if chunks == 1 or name not in CHUNKED:
            return (0,)
        if self.run_lengths is not None:
            fit = tuple(n for n in self.run_lengths if n in (0, batches) or pp <= n <= batches)
            for n in self.run_lengths:
                if n not in fit:
                    left_out[f"a run length of {n} is none from the pipeline's ranks to its micro-batches"] += 1
            return fit
        # Depth first, twice as long, and breadth first.
        longer = {n for n in (2 * pp, batches) if pp < n <= batches and (batches % n == 0 or batches % n >= pp)}
        return (0, *sorted(longer))


def _takes(name: str, chunks: int) -> bool:
    """Whether the schedule can have so many chunks."""
    if name == "zbv":
        return chunks % 2 == 0
    if name in FIXED:
        return chunks == FIXED[name]
    return chunks > 1 if name == "interleaved" else name in CHUNKED or chunks == 1


def _unknown(option: str, what: str, value: str, known: list[str]) -> str:
    near = nearest(value, known)
    hint = f"did you mean `{near}`?" if near else f"there are {', '.join(f'`{n}`' for n in known)}"
    return f"{option}: no {what} `{value}`\n\nhint: {hint}"


def _or(values: tuple[int, ...]) -> str:
    return " or ".join(map(str, values))


def _recompute(own: dict[str, Any]) -> tuple[str, ...]:
    kinds = ["none", "selective", "full"] if own["attention"] == "unfused" else ["none", "full"]
    return tuple(kinds if own["recompute"] in (None, *kinds) else [*kinds, own["recompute"]])


@dataclass
class Accounts:
    """What became of candidates that have no time, by the reason."""

    left_out: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    too_large: int = 0
    smallest: int | None = None
    """Bytes of the layout that needs least, of those that do not fit."""
    capacity: int = 0
