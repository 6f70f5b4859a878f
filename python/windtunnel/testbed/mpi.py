"""Open MPI over the testbed: a rank on every host, and collectives whose algorithms are asked for by name.

`mpirun` stands in the first rank's namespace and starts its daemons by `ip netns exec` where it would use `ssh`; each
daemon has a host name of its own (`unshare --uts`), so that ranks know no shared memory. Messages go by TCP over the
testbed's interface. The program is `collectives.c`, compiled here.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError, RunError
from windtunnel.testbed import kept
from windtunnel.testbed.fabric import OWNER, Shape, alive, built, congestions
from windtunnel.testbed.flows import HOST_BOUND
from windtunnel.testbed.schedules import SETS
from windtunnel.testbed.shell import call, demand, launch
from windtunnel.testbed.training import placed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windtunnel.testbed.fabric import Fabric

SIZES = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20)
MOST = 1 << 25
"""Bytes of the program's vectors."""
SCRATCH = "windtunnel-testbed-"
"""Folders of what is compiled and of what daemons leave; the number of their process follows."""
WARM = 2
"""Repetitions before those that count: TCP's windows are open by then, and pages are there."""
COUNTED = 5


@dataclass(frozen=True)
class Operation:
    """A collective with its bytes, or `compute` with its microseconds."""

    kind: str
    amount: int


@dataclass(frozen=True)
class Measured:
    """A program of a launch: its operations, and seconds after the agreed instant, repetition by repetition."""

    operations: Sequence[Operation]
    begins: Sequence[Sequence[float]]
    """When each rank began."""
    ends: Sequence[float]
    """When the last rank ended."""

    @property
    def name(self) -> str:
        """Such as `all_reduce 65536`."""
        if len(self.operations) > 1:
            return f"iteration {sum(op.amount for op in self.operations if op.kind != 'compute')}"
        return f"{self.operations[0].kind} {self.operations[0].amount}"

    @property
    def median(self) -> float:
        """Seconds of a repetition."""
        return statistics.median(self.ends)

    @property
    def late(self) -> list[float]:
        """When each rank begins, the median of the repetitions: some wait for the cores that others begin on."""
        return [statistics.median(times) for times in zip(*self.begins, strict=True)]


@dataclass(frozen=True)
class Launched:
    """A start of `mpirun`: its algorithms, where its ranks stood, and what it measured."""

    name: str
    algorithms: str
    """A name of `SETS`."""
    congestion: str
    hosts: Sequence[int]
    """The host of each rank."""
    ways: Sequence[tuple[int, int, int]]
    """From host, to host, and the spine between them; -1 inside a leaf."""
    measured: Sequence[Measured]

    @property
    def usual(self) -> float:
        """Seconds by which the last rank begins late as a rule: all of them share this machine's cores."""
        return statistics.median(max(times) for one in self.measured for times in one.begins)

    def host_bound(self, one: Measured) -> bool:
        """Whether the last rank began later than usual by more than `HOST_BOUND` of the time, in most repetitions."""
        over = [max(times) - self.usual > HOST_BOUND * one.median for times in one.begins]
        return 2 * sum(over) > len(over)


def programs(algorithms: str, sizes: Sequence[int]) -> list[list[Operation]]:
    """What a launch measures: each collective at each size, then iterations that compute and have several."""
    kinds = [kind for kind in SETS[algorithms] if kind != "barrier"]
    found = [[Operation(kind, size)] for kind in kinds for size in sizes]
    if "barrier" in SETS[algorithms]:
        found.append([Operation("barrier", 0)])
    for size in sizes[-4:-1]:
        steps = [Operation("compute", 20_000)]
        for kind in kinds:
            if kind != "broadcast":
                steps += [Operation(kind, size), Operation("compute", 5_000)]
        found.append(steps)
    return found


def tools() -> tuple[str, str]:
    """Paths of Open MPI's `mpirun` and `mpicc`. Raises `InputError` without them."""
    found = [shutil.which(f"{tool}.openmpi") or shutil.which(tool) for tool in ("mpirun", "mpicc")]
    if found[0] is None or found[1] is None or shutil.which("unshare") is None:
        missing = "mpirun" if found[0] is None else "mpicc" if found[1] is None else "unshare"
        raise InputError(
            f"`{missing}` is not installed\n\nhint: Debian has it: `apt install openmpi-bin libopenmpi-dev`"
        )
    said = call(found[0], "--version", check=False)
    version = re.search(r"\(Open(?: MPI|RTE)\) (\d+)", said)
    if version is None or int(version[1]) != 4:
        words = said.strip().splitlines() or ["nothing"]
        raise InputError(f"expected Open MPI 4, `{found[0]} --version` says: {words[0]}")
    return found[0], found[1]


def launches(
    shape: Shape, names: Sequence[str], sizes: Sequence[int], runs: int, congestion: str = "cubic"
) -> Iterator[Launched]:
    """Launches over a testbed that stands as long as they are asked for: of each set of algorithms on drawn hosts.

    Raises `InputError` where there can be no testbed or no MPI; `RunError` if a launch fails.
    """
    ranks = shape.leaves * shape.hosts
    if ranks.bit_count() != 1:
        raise InputError(f"expected as many hosts as a power of two, found {ranks}: the algorithms are written so")
    for size in sizes:
        if not 0 < size <= MOST or size % (4 * ranks):
            raise InputError(
                f"expected a multiple of {4 * ranks} B (a number for each rank) of at most {MOST} B, found {size} B"
            )
    demand()
    congestions([congestion])
    mpirun, mpicc = tools()
    with built(shape, congestion) as fabric, tempfile.TemporaryDirectory(prefix=f"{SCRATCH}{fabric.prefix}-") as folder:
        scratch = Path(folder)
        call(mpicc, "-std=gnu11", "-O2", "-o", str(scratch / "rank"), str(Path(__file__).with_name("collectives.c")))
        for host in range(shape.leaves * shape.hosts):
            call("ip", "netns", "exec", fabric.host(host), "sysctl", "-qw", "net.ipv4.tcp_slow_start_after_idle=0")
        for seed in range(runs):
            for name in names:
                hosts = placed(shape.leaves * shape.hosts, seed)
                yield _launched(
                    fabric, scratch, mpirun, Launched(f"{name}-{seed}", name, congestion, hosts, [], []), sizes
                )


def _launched(fabric: Fabric, scratch: Path, mpirun: str, asked: Launched, sizes: Sequence[int]) -> Launched:
    plan = programs(asked.algorithms, sizes)
    text = "".join(
        f"{WARM + COUNTED} " + " ".join(f"{op.kind}:{op.amount}" for op in program) + "\n" for program in plan
    )
    (scratch / "plan").write_text(text, encoding="ascii")
    agent = scratch / "agent"
    agent.write_text(_agent(fabric, scratch), encoding="ascii")
    agent.chmod(0o700)
    parameters = {
        "plm_rsh_agent": str(agent), "plm_rsh_no_tree_spawn": "1", "oob_tcp_if_include": "e0",
        "btl": "self,tcp", "btl_tcp_if_include": "e0", "pml": "ob1", "coll": "self,basic,libnbc,tuned",
        "mpi_yield_when_idle": "1", "coll_tuned_use_dynamic_rules": "1",
    }  # fmt: skip
    for one in SETS[asked.algorithms].values():
        parameters[f"coll_tuned_{one.parameter}_algorithm"] = str(one.number)
    command = [
        mpirun, "--allow-run-as-root", "--bind-to", "none", "-np", str(len(asked.hosts)),
        "--host", ",".join(fabric.address(host) for host in asked.hosts),
        *(word for name, value in parameters.items() for word in ("--mca", name, value)),
        str(scratch / "rank"), str(scratch / "plan"),
    ]  # fmt: skip
    told = [
        json.loads(line) for line in launch(fabric.host(asked.hosts[0]), command, folder(scratch), 1800).splitlines()
    ]
    measured = []
    for program, one in zip(plan, told[1:], strict=True):
        counted = one["times"][WARM:]
        begins, ends = [[[times[i] for times in again] for again in counted] for i in range(2)]
        measured.append(Measured(program, begins, [max(again) for again in ends]))
    return replace(asked, ways=_ways(fabric, asked.hosts, told[0]["ways"]), measured=measured)


def folder(scratch: Path) -> str:
    """Where `mpirun` leaves its own files."""
    own = scratch / "mpirun"
    own.mkdir(exist_ok=True)
    return str(own)


def _agent(fabric: Fabric, scratch: Path) -> str:
    """What starts a program on a host, as `ssh` would: a script that is given an address and a command."""
    every = range(fabric.shape.leaves * fabric.shape.hosts)
    known = "".join(f"{fabric.address(host)}) space={fabric.host(host)} ;;\n" for host in every)
    return (
        "#!/bin/sh\nto=$1\nshift\ncase $to in\n" + known + '*) echo "no such host: $to" >&2; exit 1 ;;\nesac\n'
        f'mkdir -p "{scratch}/$space"\n'
        'exec ip netns exec "$space" unshare --uts sh -c \\\n'
        f'  "echo $space > /proc/sys/kernel/hostname; export TMPDIR={scratch}/$space; $*"\n'
    )


def _ways(fabric: Fabric, hosts: Sequence[int], told: Sequence[Sequence[Any]]) -> list[tuple[int, int, int]]:
    """The spine from each host to each other, of the one connection between their ranks."""
    numbers = {fabric.address(host): host for host in hosts}
    ports = {(hosts[rank], numbers[to]): (own, other) for rank, to, own, other in told if to in numbers}
    pairs = [(source, to) for source in hosts for to in hosts if source != to]
    missing = [pair for pair in pairs if pair not in ports]
    if missing:
        raise RunError(f"{len(missing)} of {len(pairs)} pairs of ranks have no connection")
    spines = fabric.spines([(*pair, *ports[pair]) for pair in pairs])
    return [(*pair, -1 if spine is None else spine) for pair, spine in zip(pairs, spines, strict=True)]


def swept() -> list[str]:
    """Takes folders away whose process has ended, and returns their names."""
    gone = []
    for place in sorted(Path(tempfile.gettempdir()).glob(f"{SCRATCH}wtb*")):
        if OWNER.search(place.name) is not None and not alive(place.name):
            shutil.rmtree(place, ignore_errors=True)
            gone.append(place.name)
    return gone


def read(path: Path) -> tuple[Shape, list[Launched]]:
    """Launches as `kept.written` writes them. Raises `InputError` with file and line."""
    return kept.read(path, _made, "a launch of MPI", "mpi")


def _made(found: dict[str, Any]) -> Launched:
    if found["algorithms"] not in SETS:
        raise ValueError(f"no algorithms `{found['algorithms']}`")
    measured = [
        Measured([Operation(**op) for op in one["operations"]], one["begins"], one["ends"]) for one in found["measured"]
    ]
    return Launched(**{**found, "measured": measured})
