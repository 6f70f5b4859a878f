"""What predicts a measurement: by kind, from a set of constants.

- `collective`: the closed form of NCCL's model on the system; constants `nccl.NAME`, of three `nccl.NAME.0` to `.2`
- `transfer`: latency + bytes / rate of its class; `latency.CLASS`, `rate.CLASS`
- `iteration`: the job's scenario, simulated once, or where there is none its first measurement, over `pace.JOB`
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.calibrate.loop.gpus import another
from windtunnel.calibrate.nccl import flat, names, whole
from windtunnel.engine import InputError
from windtunnel.experiments.runs import Asked as Run
from windtunnel.experiments.runs import run_all
from windtunnel.validate.collectives import Asked, Ranks, constants, hardware, limits, question
from windtunnel.validate.quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windtunnel.validate.systems import System

NUDGE = 1e-3
NCCL = "nccl."
MOST_KEPT = 20_000
"""Answers that are kept in memory."""
LATENCY = 5e-6
"""Prior latency of a class of transfers, which its first measurements teach."""


class Models:
    """Predictions on a system; what was asked before is kept."""

    def __init__(self, system: System, scenarios: Mapping[str, str] | None = None) -> None:
        self.system = system
        self._scenarios = dict(scenarios or {})
        self._kept: dict[tuple[str, str], float] = {}
        self._effects: dict[tuple[str, str], dict[str, float]] = {}
        self._simulated: dict[str, float] = {}
        self._asked: tuple[str, Asked] | None = None

    def first(self) -> dict[str, float]:
        """The set that the system's files give."""
        known = "gpu" in self.system.section("topology").get("host", {})
        return {f"{NCCL}{name}": value for name, value in self._nccl().items()} if known else {}

    def _nccl(self) -> dict[str, float]:
        given = {name: value for name, value in constants(self.system).items() if name not in limits(self.system)}
        return {name: value for name, value in flat(whole(flat(given), {})).items() if name in set(names())}

    def priors(self, kind: Sequence[Any], seconds: float) -> dict[str, float]:
        """Constants that a kind needs and that no file gives: taken from the sheets, or from its first measurement."""
        if kind[0] == "transfer":
            return {f"latency.{kind[1]}": LATENCY, f"rate.{kind[1]}": self._rate()}
        if kind[0] == "iteration":
            job = str(kind[1])
            if job in self._scenarios:
                return {f"pace.{job}": 1.0}
            return {f"pace.{job}": 1.0, f"first.{job}": seconds}
        return {}

    def refused(self, kind: Sequence[Any], gpus: Sequence[str]) -> str | None:
        """Why a measurement is not of this system; None where nothing speaks against it."""
        host = self.system.section("topology").get("host") or {}
        for told in gpus if "gpu" in host else ():
            if another(str(host["gpu"]), told):
                return f"measured on `{told}`, and the GPU of {self.system.name} is `{host['gpu']}`"
        if kind[0] == "collective" and kind[4] > int(host.get("gpus", kind[4])):
            return f"{kind[4]} ranks on a host, and a host of {self.system.name} has {host['gpus']} GPUs"
        return None

    def _rate(self) -> float:
        topology = self.system.section("topology")
        if "tiers" in topology:
            return quantity(topology["tiers"][0]["rate"], "rate", f"{self.system.path}: topology.tiers")
        if "rate_gbps" in topology:
            return float(topology["rate_gbps"]) / 8 * 1e9
        return float(hardware(self.system)["nic"])

    def seconds(self, kinds: Sequence[Sequence[Any]], values: Mapping[str, float], version: str) -> list[float]:
        """Predictions of `kinds` by the set `values`, which goes by `version`."""
        asked = {json.dumps(kind): kind for kind in kinds}
        missing = {key: kind for key, kind in asked.items() if (key, version) not in self._kept}
        if missing:
            (found,) = self.times(list(missing.values()), [values])
            if len(self._kept) > MOST_KEPT:
                self._kept.clear()
            self._kept.update({(key, version): value for key, value in zip(missing, found, strict=True)})
        lost = [key for key in asked if (key, version) not in self._kept]
        if lost:
            return self.seconds(kinds, values, version)
        return [self._kept[json.dumps(kind), version] for kind in kinds]

    def effects(self, kind: Sequence[Any], values: Mapping[str, float], version: str) -> dict[str, float]:
        """The derivative d ln(seconds) / d ln(constant) of a kind, of the constants that it depends on."""
        key = (json.dumps(kind), version)
        if key not in self._effects:
            if len(self._effects) > MOST_KEPT:
                self._effects.clear()
            of, (changed,) = self.derivatives([kind], values)
            self._effects[key] = {name: float(c) for name, c in zip(of, changed, strict=True) if abs(c) > 1e-6}
        return self._effects[key]

    def derivatives(self, kinds: Sequence[Sequence[Any]], values: Mapping[str, float]) -> tuple[list[str], np.ndarray]:
        """Constants, and d ln(seconds) / d ln(constant) by kind and constant, of kinds that share their constants."""
        of = [name for name in values if self.concerns(kinds[0], name)]
        sets = [dict(values), *({**values, name: values[name] * (1 + NUDGE)} for name in of)]
        times = np.array(self.times(kinds, sets))
        return of, (np.log(times[1:] / times[0]) / np.log1p(NUDGE)).T

    @staticmethod
    def concerns(kind: Sequence[Any], name: str) -> bool:
        """Whether a kind can depend on a constant."""
        if kind[0] == "collective":
            return name.startswith(NCCL)
        if kind[0] == "transfer":
            return name in {f"latency.{kind[1]}", f"rate.{kind[1]}"}
        return name == f"pace.{kind[1]}"

    def times(self, kinds: Sequence[Sequence[Any]], sets: Sequence[Mapping[str, float]]) -> list[list[float]]:
        """Seconds by set and kind, whatever was asked before."""
        found = np.zeros((len(sets), len(kinds)))
        collectives = [i for i, kind in enumerate(kinds) if kind[0] == "collective"]
        if collectives:
            asked = self._questions([kinds[i] for i in collectives])
            stated = limits(self.system)
            variants = [
                whole({n[len(NCCL) :]: v for n, v in values.items() if n.startswith(NCCL)}, stated) for values in sets
            ]
            found[:, collectives] = np.array(asked.times(variants))
        for i, kind in enumerate(kinds):
            for at, values in enumerate(sets):
                if kind[0] == "transfer":
                    found[at, i] = values[f"latency.{kind[1]}"] + kind[2] / values[f"rate.{kind[1]}"]
                elif kind[0] == "iteration":
                    base = values.get(f"first.{kind[1]}") or self._simulate(str(kind[1]))
                    found[at, i] = base / values[f"pace.{kind[1]}"]
        return found.tolist()

    def _questions(self, kinds: Sequence[Sequence[Any]]) -> Asked:
        """Questions made ready; the last ones are kept, as a fit asks the same again and again."""
        key = json.dumps(kinds)
        if self._asked is None or self._asked[0] != key:
            asked = [
                question(self.system, op, size, Ranks(hosts, per))["collective"] for _, op, size, hosts, per in kinds
            ]
            self._asked = (key, Asked(asked))
        return self._asked[1]

    def _simulate(self, job: str) -> float:
        if job not in self._scenarios:
            raise InputError(
                f"no scenario of job `{job}`, and its set has no first iteration of it\n\n"
                f"hint: `windtunnel calibrate watch … --scenario {job}=FILE`"
            )
        if job not in self._simulated:
            (result,) = run_all([Run(self._scenarios[job])])
            self._simulated[job] = float(result.summary["jobs"][0]["iteration_time_s"]["mean"])
        return self._simulated[job]
