"""Collectives of a system: what the model of NCCL is told of it, and the questions that rows ask.

The hardware comes from the system's topology and the sheets it names; what no topology says (which processor, whether
switches sum, whether LL128 may leave the host) from its section `collectives`, each with evidence and source. Constants
are the system's `nccl`, else what was fitted for it or its kin (`data/nccl`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.engine import InputError
from windtunnel.experiments.spec import parse_yaml
from windtunnel.validate.quantities import quantity
from windtunnel.validate.settings import environment
from windtunnel.validate.written import DATA
from windtunnel.validate.written import written as read_back

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from windtunnel.validate.systems import System

ARCHITECTURES = {
    "v100": "volta",
    "a100": "ampere",
    "a40": "ampere",
    "l40s": "ampere",
    "h100": "hopper",
    "h200": "hopper",
    "gh200": "hopper",
}
METRE = 5e-9
"""Seconds that light takes through a metre of cable."""
SWITCH = 300e-9
"""A switch's own latency, inferred from the sheets of `data/switches`."""
NETWORKED = 8
"""GPUs of a domain from which on switches join them, which sum on Hopper and Blackwell."""
MEMORY = 0.85
"""Share of a GPU's memory bandwidth that copies reach."""


@lru_cache(maxsize=64)
def sheet(kind: str, name: str) -> Mapping[str, Any]:
    """A data sheet by name, whatever its case."""
    path = DATA / kind / f"{name.lower()}.yaml"
    if not path.is_file():
        raise InputError(f"no sheet `{name}` in data/{kind}")
    record: dict[str, Any] = parse_yaml(path.read_text(encoding="utf-8"), str(path))
    return record


def section(system: System, key: str, default: object = None) -> Any:  # noqa: ANN401
    """The value of a figure of the section `collectives`."""
    found = (system.record.get("collectives") or {}).get(key)
    if isinstance(found, dict) and "value" in found:
        return found["value"]
    return default if found is None else found


def hardware(system: System, ranks: int = 0) -> dict[str, Any]:
    """A scale-up domain of `system` and the network that it sees, in bytes per second and seconds.

    `ranks` are those of the collective that asks (`domain_of`).
    """
    topology = system.section("topology")
    host = topology["host"]
    place = f"{system.path}: topology"
    gpu = sheet("gpus", str(host["gpu"]))
    scale_up = gpu["scale_up"]
    tiers = topology.get("tiers") or []
    rate = min(
        [quantity(tier["rate"], "rate", f"{place}.tiers") for tier in tiers[:1]]
        + ([quantity(sheet("nics", str(host["nic"]))["rate"]["value"], "rate", "data/nics")] if "nic" in host else [])
        + ([quantity(host["nic_bus"]["rate"], "rate", f"{place}.host.nic_bus")] if "nic_bus" in host else [])
    )
    if not tiers:
        raise InputError(f"{place}.tiers: expected tiers of switches, found none")
    cables = sum(quantity(tier["length"], "length", f"{place}.tiers") for tier in tiers[:2])
    wire = 2 * cables * METRE + (2 * min(2, len(tiers)) - 1) * SWITCH
    gpus = domain_of(system, ranks)
    hosts = max(1, gpus // int(host["gpus"]))
    name = str(host["gpu"]).lower().split("-")[0]
    architecture = section(system, "architecture", ARCHITECTURES.get(name, "blackwell"))
    sums = architecture in {"hopper", "blackwell"} and gpus >= NETWORKED
    found = {
        "architecture": architecture,
        "scale_up": quantity((scale_up.get("payload") or scale_up["rate"])["value"], "rate", "data/gpus"),
        "scale_up_sums": bool(section(system, "scale_up_sums", default=sums)),
        "memory": MEMORY * quantity(gpu["memory_bandwidth"]["value"], "rate", "data/gpus"),
        "nics": int(host["nics"]) * hosts,
        "nic": rate,
        "gpus": gpus,
        "wire": wire,
        "amd": section(system, "cpu") == "amd",
        "ll128_between": bool(section(system, "ll128_between_hosts", default=int(host["nics"]) >= int(host["gpus"]))),
        "simple_trees": bool(section(system, "simple_trees", default=False)),
        "network_sums": bool(section(system, "network_sums", default=False)),
    }
    if section(system, "scale_up_ranks") is not None:
        found["scale_up_ranks"] = int(section(system, "scale_up_ranks"))
        found["host_link"] = quantity(section(system, "host_link"), "rate", f"{system.path}: collectives.host_link")
    if section(system, "scale_up") is not None:
        found["scale_up"] = quantity(section(system, "scale_up"), "rate", f"{system.path}: collectives.scale_up")
    if section(system, "network_limit") is not None:
        found["uplink"] = quantity(
            section(system, "network_limit"), "rate", f"{system.path}: collectives.network_limit"
        )
    if section(system, "channel_speed") is not None:
        found["channel_speed"] = quantity(
            section(system, "channel_speed"), "rate", f"{system.path}: collectives.channel_speed"
        )
    return found


def domain_of(system: System, ranks: int = 0) -> int:
    """GPUs of a scale-up domain: those of a host, or of several whose links join them.

    `topology.host.scale_up.size` says the latter. A job of `ranks` that one rack holds is one domain (`scale_up.domain`
    of the GPU's sheet), whatever part of their racks larger jobs take.
    """
    host = system.section("topology")["host"]
    gpus = int(host["gpus"])
    size = int((host.get("scale_up") or {}).get("size", gpus))
    if size <= gpus:
        return gpus
    return -(-ranks // gpus) * gpus if size < ranks <= rack_of(host) else size


def rack_of(host: Mapping[str, Any]) -> int:
    """GPUs that scale-up links can join, by the sheet of a host's GPU; those of the host where it says nothing."""
    found = sheet("gpus", str(host["gpu"]))["scale_up"].get("domain")
    return int(host["gpus"]) if found is None else int(found["value"])


TIMES = (
    "launch", "issue", "channel", "base", "hop_scale_up", "hop_tree", "hop_ring", "rendezvous", "answer",
    "handshake", "copy_launch", "base_sums", "exchange", "peer_scale_up", "peer_network", "peer_inject",
    "proxy",
)  # fmt: skip
"""Constants that are times; those below are what they say, the others are shares."""
OTHERS = {"slow_leaf": "rate", "sustained": "size", "block": "rate"}


def generation(system: System) -> str:
    """Generation of its GPUs, as NCCL tells them apart."""
    return str(hardware(system)["architecture"])


def kind_of_network(system: System) -> str:
    """What carries messages between its hosts: the family of its NICs, or what their section `collectives` names."""
    nic = str(system.section("topology")["host"].get("nic", "other")).lower()
    return str(section(system, "transport", "connectx" if nic.startswith("bluefield") else nic.split("-")[0]))


def machine(system: System) -> str:
    """The machine it is a set-up of: itself if its section `collectives` names none."""
    return str(section(system, "machine", system.name))


def limits(system: System) -> dict[str, Any]:
    """What the system's file states of its network's library, bytes."""
    found: dict[str, Any] = {}
    for name in ("eager", "pulled", "short_message", "inject"):
        limit = section(system, name)
        if limit is not None:
            found[name] = quantity(limit, "size", f"{system.path}: collectives.{name}")
    return found


def constants(system: System, *, without: str | None = None) -> dict[str, Any]:
    """The constants of the model as the engine takes them, and the limits that the system's file states.

    Those that the system's own file gives, else the fitted ones of `data/nccl`, else those of its kin. `without` names
    a scale that they must not have seen, or is `machine` for nothing of the whole machine; a scale that no fit ever saw
    leaves nothing out.
    """
    return {**_constants(system, without), **limits(system)}


def _constants(system: System, without: str | None) -> dict[str, Any]:
    adopted = section(system, "constants")
    if adopted is not None:
        return dict(adopted)
    own = system.constant("nccl")
    if own is not None:
        return read_constants(own, f"{system.path}: constants.nccl")
    if without == "machine":
        left_out: Mapping[str, Any] = fitted("pools").get("without", {}).get(system.name, {})
        return dict(left_out or kin(system))
    record = fitted(system.name)
    if not record:
        return dict(kin(system))
    return dict(record["without"].get(without, record["constants"]))


def fitted(name: str) -> Mapping[str, Any]:
    """What `windtunnel calibrate collectives` wrote of a system, or of `pools`; empty if it never did."""
    return read_back("nccl", name)


def kin(system: System) -> Mapping[str, Any]:
    """The constants of the nearest kin: its network before its generation of GPUs."""
    wanted = (kind_of_network(system), generation(system))
    pools = fitted("pools").get("pools", [])
    if not pools:
        return {}
    best = max(pools, key=lambda pool: 2 * (pool["network"] == wanted[0]) + (pool["generation"] == wanted[1]))
    found: Mapping[str, Any] = best["constants"]
    return found


def read_constants(given: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Constants with units as the engine takes them."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in TIMES:
            values = [quantity(v, "time", f"{place}.{name}") for v in (value if isinstance(value, list) else [value])]
            found[name] = values if isinstance(value, list) else values[0]
        elif name in OTHERS:
            found[name] = quantity(value, OTHERS[name], f"{place}.{name}")
        else:
            found[name] = value
    return found


@dataclass(frozen=True)
class Ranks:
    """How ranks lie: hosts, ranks on each, and how many one process drives."""

    hosts: int
    ranks: int
    per_process: int = 1


def question(
    system: System,
    operation: str,
    size: int,
    ranks: Ranks,
    settings: Sequence[tuple[str, str]] = (),
    *,
    slow_leaf: bool = False,
    without: str | None = None,
) -> dict[str, Any]:
    """What a row asks, for its `scenario`: a collective of `size` bytes of `ranks` on `system`.

    `slow_leaf` says that ways between its hosts leave the system's slow leaf, `without` what its constants must not
    have seen (`constants`).
    """
    machine = hardware(system, ranks.hosts * ranks.ranks)
    joined = max(1, machine["gpus"] // int(system.section("topology")["host"]["gpus"]))
    domains, inside = ranks.hosts, ranks.ranks
    if joined > 1:
        domains = -(-ranks.hosts // joined)
        inside = ranks.hosts * ranks.ranks // domains
    if slow_leaf:
        machine["slow_leaf"] = True
    settings = [*environment(system, operation, size, ranks.hosts, ranks.ranks), *settings]
    version = section(system, "nccl_version")
    if version is not None and all(name != "NCCL_VERSION" for name, _ in settings):
        settings = [*settings, ("NCCL_VERSION", str(version))]
    return {
        "collective": {
            "hardware": machine,
            "settings": [list(pair) for pair in settings],
            "layout": {"domains": domains, "ranks": inside, "ranks_per_process": ranks.per_process},
            "operation": operation,
            "bytes": size,
            "constants": constants(system, without=without),
        }
    }


def dispatched(
    system: System, size: int, ranks: Ranks, routing: Mapping[str, Any], *, without: str | None = None
) -> dict[str, Any]:
    """What a row asks: `size` bytes of tokens' copies, one for each chosen expert, as `routing` says.

    `routing` has `experts`, `top_k`, `sms`, perhaps `domains` (at most as many for a token) and `combine`.
    `without` names a GPU whose runs its constants must not have seen.
    """
    asked = question(system, "alltoall", size, ranks)["collective"]
    fits = read_back("dispatchers", "deepep")
    found = fits["without"].get(without, fits["constants"]) if fits else None
    told = {**asked["constants"], **({"dispatcher": found} if found else {})}
    return {"collective": {**asked, "constants": told, "routing": dict(routing)}}


def times(
    questions: Iterable[Mapping[str, Any]], variants: Sequence[Mapping[str, Any]] | None = None
) -> list[list[float]]:
    """Seconds of `questions` (each a `collective`), for each of `variants` of the constants, else under their own."""
    asked = list(questions)
    if variants is not None:
        return _ask(asked, variants)
    groups: dict[str, list[int]] = {}
    for i, one in enumerate(asked):
        groups.setdefault(json.dumps(one["constants"], sort_keys=True), []).append(i)
    found = [0.0] * len(asked)
    for key, members in groups.items():
        (seconds,) = _ask([asked[i] for i in members], [json.loads(key)])
        for i, value in zip(members, seconds, strict=True):
            found[i] = value
    return [found]


def _ask(asked: Sequence[Mapping[str, Any]], variants: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    return Asked(asked).times(variants)


class Asked:
    """Questions made ready, to be answered under many constants."""

    def __init__(self, asked: Sequence[Mapping[str, Any]]) -> None:
        machines: dict[str, int] = {}
        environments: dict[str, int] = {}
        questions = []
        for one in asked:
            machine = machines.setdefault(json.dumps(one["hardware"], sort_keys=True), len(machines))
            environment = environments.setdefault(json.dumps(one["settings"]), len(environments))
            kept = {key: one[key] for key in ("layout", "operation", "bytes", "routing") if key in one}
            questions.append({"hardware": machine, "settings": environment, **kept})
        self._text = (
            f'"hardware": [{", ".join(machines)}], "settings": [{", ".join(environments)}], '
            f'"questions": {json.dumps(questions)}'
        )

    def answer(self, variants: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Times and choices."""
        found: dict[str, Any] = json.loads(
            engine.collective_times(f'{{{self._text}, "constants": {json.dumps(list(variants))}}}')
        )
        return found

    def times(self, variants: Sequence[Mapping[str, Any]]) -> list[list[float]]:
        """Seconds by variant and question."""
        seconds: list[list[float]] = self.answer(variants)["times"]
        return seconds
