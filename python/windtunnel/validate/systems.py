"""Systems: the machines that tables were measured on, as files `data/systems/NAME.yaml`.

A system has the hosts, NICs and fabric of a scenario, what its software does (`training`, `parallelism`), and constants
with their evidence; a calibrated constant names the rows that it was fitted on (`fitted`).
"""

from __future__ import annotations

import copy
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError
from windtunnel.experiments.spec import parse_yaml
from windtunnel.validate.written import DATA, written

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

OWN = DATA / "systems"
"""The systems of the checkout."""

FITTED = "fitted"
"""Folder of `data` with the rows that figures of sheets were fitted on: KIND/SHEET.json."""

KEYS = {
    "name",
    "title",
    "source",
    "evidence",
    "topology",
    "larger",
    "network",
    "training",
    "parallelism",
    "constants",
    "notes",
    "collectives",
}

SECTIONS = ("topology", "larger", "network", "training", "parallelism", "constants", "collectives")
"""Those of them that hold keys of their own."""


@dataclass(frozen=True)
class System:
    """A machine and its software. `path` is where it was read."""

    name: str
    path: Path
    record: Mapping[str, Any]

    @property
    def fitted(self) -> frozenset[str]:
        """Ids of the rows that a constant was fitted on, its GPU's and its framework's among them."""
        constants = dict(self.record.get("constants") or {})
        gpu = (self.record["topology"].get("host") or {}).get("gpu")
        framework = (self.record.get("training") or {}).get("framework")
        for kind, name in (("gpus", gpu), ("frameworks", framework)):
            constants |= {f"{kind}.{key}": figure for key, figure in fitted_of(kind, name).items()}
        return frozenset(str(row) for constant in constants.values() for row in constant.get("fitted", []))

    def constant(self, name: str) -> Any:  # noqa: ANN401
        """The value of a constant, None if the system has none of that name."""
        found = (self.record.get("constants") or {}).get(name)
        return None if found is None else found["value"]

    def evidence(self, name: str) -> dict[str, str]:
        """How a constant is known, as a scenario says it."""
        found = self.record["constants"][name]
        return {"kind": str(found["evidence"]), "source": str(found["source"])}

    def topology(self, hosts: int) -> dict[str, Any]:
        """The fabric with `hosts` hosts, with the levels of `larger` where those of `topology` reach fewer."""
        found = self.section("topology")
        larger = self.section("larger").get("tiers")
        if larger is not None and hosts > _reach(found):
            found["tiers"] = larger
        found["hosts"] = hosts
        return found

    def section(self, name: str) -> dict[str, Any]:
        """A copy of a section, empty if it has none."""
        return copy.deepcopy(dict(self.record.get(name) or {}))


def _reach(topology: Mapping[str, Any]) -> int:
    """Hosts that a Clos of `topology`'s tiers reaches."""
    ports = math.prod(int(tier["ports_down"]) for tier in topology["tiers"])
    return ports // int(topology["host"].get("nics", 1))


def fitted_of(kind: str, name: str | None) -> dict[str, Any]:
    """What was fitted of sheet `name` of `kind` (`gpus`, `frameworks`), by figure; nothing where nothing was."""
    return dict(written(FITTED, kind, str(name).lower()))


def with_constant(system: System, name: str, value: object) -> System:
    """`system` with another value of a constant."""
    constants = dict(system.record.get("constants") or {})
    constants[name] = {"evidence": "calibrated", "source": "tried", **(constants.get(name) or {}), "value": value}
    return System(system.name, system.path, {**system.record, "constants": constants})


def read_systems(data: Path | None) -> dict[str, System]:
    """The systems of `data/systems` (of a validation folder), then the checkout's own, by name."""
    folders = [folder / "systems" for folder in [data] if folder is not None] + [OWN]
    found: dict[str, System] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            system = read_system(path)
            found.setdefault(system.name, system)
    return found


def read_system(path: Path) -> System:
    """The system in the file `path`. Raises `InputError` with file and key."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a system: {error}") from error
    record = parse_yaml(text, str(path))
    if not isinstance(record, dict):
        raise InputError(f"{path}: expected a system, found {type(record).__name__}")
    for key in ("name", "topology"):
        if key not in record:
            raise InputError(f"{path}: `{key}` is missing")
    for key in record:
        if key not in KEYS:
            raise InputError(f"{path}: unknown key `{key}`\n\nhint: a system has {', '.join(sorted(KEYS))}")
    for key in SECTIONS:
        if record.get(key) is not None and not isinstance(record[key], dict):
            raise InputError(f"{path}: {key}: expected keys and values, found `{record[key]}`")
    _check_larger(path, record)
    with_calibrated(path, record)
    for name, constant in (record.get("constants") or {}).items():
        missing = {"value", "evidence", "source"} - set(constant if isinstance(constant, dict) else ())
        if missing:
            raise InputError(f"{path}: constants.{name}: `{min(missing)}` is missing")
    return System(str(record["name"]), path, record)


def _check_larger(path: Path, record: dict[str, Any]) -> None:
    """Refuses levels for larger jobs that do not say where they are from, or that replace none."""
    larger = record.get("larger")
    if larger is None:
        return
    wanted = {"evidence", "source", "tiers"}
    if set(larger) != wanted:
        found = ", ".join(sorted(larger))
        raise InputError(f"{path}: larger: expected {', '.join(sorted(wanted))}, found {found}")
    if "tiers" not in record["topology"]:
        raise InputError(f"{path}: larger: a `topology` without `tiers` has no levels to replace")


def with_calibrated(path: Path, record: dict[str, Any]) -> None:
    """Adds the constants that `windtunnel calibrate` wrote beside the file, in `constants/NAME.json`."""
    beside = path.parent / "constants" / f"{path.stem}.json"
    if not beside.is_file():
        return
    try:
        added = json.loads(beside.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{beside}: {error}") from error
    if not isinstance(added, dict):
        raise InputError(f"{beside}: expected constants, found {type(added).__name__}")
    record["constants"] = {**(record.get("constants") or {}), **added}
