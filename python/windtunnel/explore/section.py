"""What is asked of the explorer: the section `explore` of a scenario, and options, which go before it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.engine import InputError
from windtunnel.explore.search import SETTLED, Settings
from windtunnel.explore.space import Space

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windtunnel.source import Source

DEFAULTS: dict[str, Any] = {
    "context_least": 2048, "divisors": False, "uneven": False, "keep": 1000, "perturb": 100, "ratio": 3.0,
    "objective": "time", "prove": 5, "packet": 0, "advise": False,
}  # fmt: skip
"""What neither the section nor an option says."""
LISTS = ("order", "schedule", "recompute")
LEAST = {"tp": 1, "cp": 1, "ep": 1, "pp": 1, "zero": 0, "replicate": 1, "chunks": 1, "run_length": 0, "micro_batch": 1}
"""The least number that each list may have."""


@dataclass(frozen=True)
class Wanted:
    """What is asked, by the names of the section."""

    said: Mapping[str, Any]

    def _of(self, name: str) -> Any:  # noqa: ANN401
        found = self.said.get(name)
        return DEFAULTS.get(name) if found is None else found

    def _list(self, name: str) -> tuple[Any, ...] | None:
        found = self.said.get(name)
        return None if found is None else tuple(found)

    @property
    def job(self) -> str | None:
        """Name of the job."""
        return self.said.get("job")

    @property
    def gpus(self) -> tuple[int, ...]:
        """Numbers of GPUs that it is laid out on; none: those of the job."""
        found = self.said.get("gpus")
        return () if found is None else (found,) if isinstance(found, int) else tuple(dict.fromkeys(found))

    def place(self, name: str) -> str:
        """Where `name` was said: the option, or the key of the section."""
        return str(self.said[f"at_{name}"])

    @property
    def objective(self) -> str:
        """One of `search.OBJECTIVES`."""
        return str(self._of("objective"))

    @property
    def prove(self) -> int:
        """Layouts that run as flows."""
        return int(self._of("prove"))

    @property
    def packet(self) -> int:
        """Layouts that run packet by packet."""
        return int(self._of("packet"))

    @property
    def advise(self) -> bool:
        """Whether settings of the network are tried."""
        return bool(self._of("advise"))

    def space(self) -> Space:
        """Values to try."""
        return Space(
            tp=self._list("tp"), cp=self._list("cp"), ep=self._list("ep"), pp=self._list("pp"), zero=self._list("zero"),
            replicate=self._list("replicate"), orders=self._list("order"), schedules=self._list("schedule"),
            chunks=self._list("chunks"), run_lengths=self._list("run_length"),
            micro_batches=self._list("micro_batch"), recompute=self._list("recompute"),
            context_least=self._of("context_least"), divisors=self._of("divisors"),
        )  # fmt: skip

    def settings(self, *, seed: int, ideal: bool, shown: int) -> Settings:
        """How the space is searched, of which so many layouts are shown."""
        budget = self.said.get("budget")
        return Settings(
            keep=self._of("keep"), perturb=self._of("perturb"), ratio=self._of("ratio"), uneven=self._of("uneven"),
            seed=seed, ideal=ideal, objective=self.objective, settled=max(SETTLED, shown, self.prove),
            budget_bytes=None if budget is None else size(self.place("budget"), budget),
        )  # fmt: skip


def section(source: Source, overrides: Sequence[tuple[str, str]], given: Mapping[str, Any]) -> Wanted:
    """The section of `source`, under what of `given` is not None.

    Raises `InputError` for values of the section that mean nothing; its keys and types the engine has checked.
    """
    tree = json.loads(engine.scenario_tree(source.text, source.name, list(overrides)))
    own = tree.get("explore") if isinstance(tree, dict) else None
    own = own if isinstance(own, dict) else {}
    place = f"{source.name}: explore"
    _check_gpus(own.get("gpus"), f"{place}.gpus")
    for name, values in own.items():
        if name in (*LEAST, *LISTS) and values is not None and not isinstance(values, list):
            raise InputError(f"{place}.{name}: expected a list, such as `[{values}]`, found `{values}`")
        if values == []:
            raise InputError(f"{place}.{name}: expected at least one value, for without any there is no layout")
        for value in values if name in LEAST and values else ():
            if not isinstance(value, int) or value < LEAST[name]:
                raise InputError(f"{place}.{name}: expected whole numbers from {LEAST[name]}, found {value}")
    for name in ("context_least", "keep", "perturb"):
        value = own.get(name)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise InputError(f"{place}.{name}: expected a whole number from 1, found {value}")
    ratio = own.get("ratio")
    if ratio is not None and (not isinstance(ratio, int | float) or ratio < 1):
        raise InputError(f"{place}.ratio: expected a number from 1, the longest stage over the shortest, found {ratio}")
    said = {key: value for key, value in given.items() if value is not None}
    options = ("budget", "gpus", "objective")
    at = {f"at_{name}": f"--{name}" if name in said else f"{place}.{name}" for name in options}
    wanted = Wanted({**own, **said, **at})
    if wanted.packet > wanted.prove and "prove" in {**own, **said}:
        raise InputError(
            f"{place if 'packet' in own else '--packet'}: {wanted.packet} layouts packet by packet are more than the "
            f"{wanted.prove} that run as flows\n\nhint: the fastest as flows are run packet by packet"
        )
    return wanted


def _check_gpus(gpus: object, place: str) -> None:
    """Raises `InputError` unless `gpus` is one number from 1, or a list of these."""
    if gpus == []:
        raise InputError(f"{place}: expected at least one number of GPUs, found an empty list")
    for number in gpus if isinstance(gpus, list) else [] if gpus is None else [gpus]:
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise InputError(f"{place}: expected whole numbers from 1, found {number}")


def size(place: str, text: object) -> int:
    """A size with its unit, above 0, in bytes; `place` is told where it is none."""
    units = dict(engine.units("size"))
    if re.fullmatch(r"\s*0+(?:\.0*)?\s*", str(text)):
        # Nothing is nothing in any unit.
        raise InputError(f"{place}: expected more than 0, for nothing fits in no memory")
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*", str(text))
    if found is None or found.group(2) not in units:
        raise InputError(f"{place}: expected a size with its unit, such as `72 GiB`, found `{text}`")
    number = int(float(found.group(1)) * units[found.group(2)])
    if number <= 0:
        raise InputError(f"{place}: expected more than 0, for nothing fits in no memory")
    return number
