"""What is wrong with a study, found before it runs: keys that meet, seeds, and values that no scenario takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from windtunnel.engine import InputError, RunError, explain, names
from windtunnel.source import override_text

if TYPE_CHECKING:
    from windtunnel.studies.point import Point
    from windtunnel.studies.study import Study

MOST_CHECKED = 100
"""Ways in which values are written that are tried before a study begins."""

NO_VALUES = (
    "unknown key", "there is no [", "a unit is missing", "a number is missing", "unknown value", " is written `",
    " is not one of `", "expected a finite number",
)  # fmt: skip
"""What the engine says of a key or value that is wrong at every point, whatever the others are."""


def check_keys(study: Study, place: str) -> None:
    """Refuses a key that is varied in two ways, cases that are equal, and seeds that a varied seed would meet.

    Each would give equal points, whose runs would count as further seeds. `place` is what messages call the study.
    """
    seeds: object = study.seeds  # Python hands on what it was given
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise InputError(f"{place}: seeds: expected a whole number from 1, found `{seeds}`")
    where: dict[str, str] = {}
    for key in dict.fromkeys(key for case in study.cases for key in case):
        where[key] = "in `cases`"
    for key in [key for axis in study.axes for key in axis.keys]:
        _check_new(where, key, "varied", place)
    for key in study.derive:
        _check_new(where, key, "derived", place)
    if seeds > 1 and "seed" in where:
        raise InputError(
            f"{place}: `seed` is {where['seed']}, and each point has {seeds} seeds of its own\n\n"
            "hint: leave out `seeds` (`--seeds`, `--follow`), or what varies `seed`"
        )


def _check_new(where: dict[str, str], key: str, how: str, place: str) -> None:
    if key in where:
        said = "varied twice" if where[key] == how == "varied" else f"{where[key]} and {how} too"
        hint = "one list has all values of a key" if said == "varied twice" else "leave one of both out"
        raise InputError(f"{place}: `{key}` is {said}\n\nhint: {hint}")
    where[key] = how


def check_fidelity(fidelity: str | None, where: str) -> None:
    """Refuses a fidelity that there is not."""
    known = [name for name, _ in names("fidelities")]
    if fidelity is not None and fidelity not in known:
        raise InputError(f"{where}: expected one of {', '.join(f'`{one}`' for one in known)}, found `{fidelity}`")


def check_values(study: Study, first: Point) -> None:
    """Refuses a key that no scenario has and a value without its unit. `first` is the first point of the plan.

    Of values that are written alike (numbers, quantities of one unit, names) one stands for all.
    """
    rows = [dict(zip(axis.keys, row, strict=True)) for axis in study.axes for row in axis.values]
    alike = {tuple((key, _kind(value)) for key, value in row.items()): row for row in (*rows, *study.cases)}
    for row in ({}, *list(alike.values())[:MOST_CHECKED]):
        changed = [(key, override_text(value)) for key, value in row.items()]
        _check(first, [*first.overrides, *changed])


def _kind(value: object) -> str:
    """How a value is written: a number by its type, a quantity by its unit, a name as it is."""
    found = re.fullmatch(r"\s*[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?\s*(\D*)", value) if isinstance(value, str) else None
    if found is not None:
        return f"quantity {found[1].strip()}"
    return f"text {value}" if isinstance(value, str) else type(value).__name__


def _check(point: Point, overrides: list[tuple[str, str]]) -> None:
    source = point.source
    options = {"threads": 1, "fidelity": point.fidelity}
    try:
        explain(source.text, source.name, str(source.base), overrides, options)
    except InputError as error:
        if any(said in str(error) for said in NO_VALUES):
            raise
    except RunError:
        pass
