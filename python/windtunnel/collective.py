"""One collective over sizes, as nccl-tests prints it: times, bandwidths and NCCL's choice on a machine.

The closed form of the model that runs have (docs/collectives.md, As NCCL does it), for a system of `data/systems`, or
for GPUs and NICs by name with the constants of their kin.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.engine import InputError
from windtunnel.validate.collectives import (
    Asked,
    Ranks,
    fitted,
    generation,
    hardware,
    kind_of_network,
    question,
    sheet,
)
from windtunnel.validate.systems import System, read_systems

if TYPE_CHECKING:
    from collections.abc import Sequence

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv")
LENGTHS = ("5 m", "30 m")
"""Cables to leaves and spines where nothing is said of them."""


@dataclass(frozen=True)
class Line:
    """A size: bytes as nccl-tests counts them, seconds, bytes per second, and NCCL's choice."""

    size: int
    seconds: float
    algbw: float
    busbw: float
    algorithm: str
    protocol: str
    channels: int

    def record(self) -> dict[str, Any]:
        """As `--json` has it."""
        return asdict(self)


def system_of(name: str) -> System:
    """A system by name. Raises `InputError` with the nearest one."""
    known = read_systems(None)
    if name in known:
        return known[name]
    usable = sorted(name for name, system in known.items() if "gpu" in (system.record["topology"].get("host") or {}))
    near = engine.nearest(name, usable)
    hint = f"did you mean `{near}`?" if near else f"there are {', '.join(usable)}"
    raise InputError(f"no system `{name}` in data/systems\n\nhint: {hint}")


def machine_of(gpu: str, gpus: int, nic: str | None, host: int | None) -> tuple[System, Ranks]:
    """`gpus` GPUs by the names of their sheets, on whole hosts with a NIC for each GPU.

    `host` is a host's GPUs, the scale-up domain of the sheet if None (at most 8 of a host). Raises `InputError` where a
    sheet is not known, or ranks fill no whole hosts.
    """
    domain = int(sheet("gpus", gpu).get("scale_up", {}).get("domain", {}).get("value", 8))
    whole = host or min(gpus, domain)
    if gpus < 2 or whole < 1 or gpus % whole:
        raise InputError(
            f"--gpus: expected at least 2 GPUs on whole hosts of {whole}, found {gpus}\n\nhint: `--per-host` says how "
            "many a host has"
        )
    if gpus > whole and nic is None:
        raise InputError(
            f"--nic: {gpus} GPUs are {gpus // whole} hosts of {whole}, and nothing says what joins them\n\nhint: name "
            "a sheet of data/nics, for example `--nic ConnectX-7`"
        )
    rate = str(sheet("nics", nic)["rate"]["value"]) if nic else "400 Gbps"
    tiers = [{"ports_down": 32, "rate": rate, "length": length} for length in LENGTHS]
    of_host: dict[str, Any] = {"gpu": gpu, "gpus": whole, "nics": whole, "rails": True}
    if nic:
        of_host["nic"] = nic
    record = {"name": gpu, "topology": {"shape": "clos", "tiers": tiers, "host": of_host}, "collectives": {}}
    return System("", Path("command line"), record), Ranks(gpus // whole, whole)


def ranks_of(system: System, gpus: int | None, host: int | None) -> Ranks:
    """How `gpus` ranks lie on a system: on whole hosts, all GPUs of one if None."""
    each = host or int(system.section("topology")["host"]["gpus"])
    total = gpus or each
    each = min(each, total)
    if total < 2 or total % each:
        raise InputError(
            f"--gpus: expected at least 2 GPUs on whole hosts of {each}, found {total}\n\nhint: `--per-host` says how "
            "many of a host's GPUs take part"
        )
    return Ranks(total // each, each)


def sizes(least: int, most: int, factor: int = 2) -> list[int]:
    """`least` and what follows it by `factor`, up to `most`. Raises `InputError` where there is none."""
    if factor < 2 or least < 1 or most < least:
        raise InputError(f"--from, --to: expected bytes that grow by {max(factor, 2)}, found {least} to {most}")
    found = [least]
    while found[-1] * factor <= most:
        found.append(found[-1] * factor)
    return found


def table(
    system: System, ranks: Ranks, operation: str, of: Sequence[int], environment: Sequence[tuple[str, str]] = ()
) -> list[Line]:
    """A line for each size. Raises `InputError` for an operation or variable that is not known."""
    if operation not in OPERATIONS:
        near = engine.nearest(operation, list(OPERATIONS))
        hint = f"did you mean `{near}`?" if near else f"there are {', '.join(OPERATIONS)}"
        raise InputError(f"no operation `{operation}`\n\nhint: {hint}")
    hardware(system)
    asked = [question(system, operation, size, ranks, environment)["collective"] for size in of]
    answer = Asked(asked).answer([asked[0]["constants"]])
    n = ranks.hosts * ranks.ranks
    factor = {"all_reduce": 2 * (n - 1) / n, "broadcast": 1.0, "reduce": 1.0, "sendrecv": 1.0}.get(
        operation, (n - 1) / n
    )
    found = []
    for size, seconds, choice in zip(of, answer["times"][0], answer["choices"], strict=True):
        algorithm, protocol, channels = choice.split("/")
        rate = size / seconds
        found.append(Line(size, seconds, rate, rate * factor, algorithm, protocol, int(channels)))
    return found


def text(lines: Sequence[Line]) -> str:
    """The table as people read it: bytes, microseconds, GB/s."""
    head = f"{'size':>12}  {'time':>11}  {'algbw':>8}  {'busbw':>8}  {'algorithm':<15} {'protocol':<8} channels"
    units = f"{'B':>12}  {'us':>11}  {'GB/s':>8}  {'GB/s':>8}"
    rows = [
        f"{line.size:>12}  {line.seconds * 1e6:>11.2f}  {line.algbw / 1e9:>8.2f}  {line.busbw / 1e9:>8.2f}  "
        f"{line.algorithm:<15} {line.protocol:<8} {line.channels:>8}"
        for line in lines
    ]
    return "\n".join([head, units, *rows])


def known_by(system: System) -> str:
    """A line that says what the constants are from."""
    own = system.constant("nccl")
    record = fitted(system.name) if system.name else {}
    if own is not None:
        return f"constants of {system.name}: {system.evidence('nccl')['source']}"
    if record:
        median, p95 = record["errors"]["without_scale"]
        return f"constants: {record['source']}; scales left out: {median:.0%} off (median), {p95:.0%} (95th percentile)"
    kin = f"{generation(system)} GPUs, network {kind_of_network(system)}"
    return f"constants of the nearest kin ({kin}): nobody has fitted this machine"
