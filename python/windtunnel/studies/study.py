"""A study: a scenario, what is varied in it, and which figures are asked for.

From a file (`Study.read`) or put together by the command line or Python (`Study`). `plan` makes the points: every
combination of the design, derived keys worked out, those that a filter leaves out gone, each with every seed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.engine import InputError, nearest
from windtunnel.source import Source, override_text, read_source, read_text
from windtunnel.studies import design
from windtunnel.studies.expression import Expression
from windtunnel.studies.point import Point

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LONGEST_NAME = 200
"""Bytes of a study's name, of which files are called."""

KEYS = ("study", "name", "scenario", "set", "vary", "zip", "cases", "design", "points", "derive", "filter", "seeds",
        "metrics", "let")  # fmt: skip


@dataclass(frozen=True)
class Study:
    """What is asked. Keys of `vary`, `cases`, `derive` are keys of the scenario."""

    name: str
    source: Source
    overrides: tuple[tuple[str, str], ...] = ()
    axes: tuple[design.Axis, ...] = ()
    cases: tuple[design.Values, ...] = ()
    kind: design.Kind = "grid"
    count: int | None = None
    """Points of a design that draws."""
    derive: dict[str, Expression] = field(default_factory=dict)
    filters: tuple[Expression, ...] = ()
    constants: dict[str, object] = field(default_factory=dict)
    seeds: int = 1
    metrics: tuple[str, ...] = ()
    fidelity: str | None = None
    place: str = ""
    """What messages call it: its file, if it has one."""

    @staticmethod
    def read(path: Path) -> Study:
        """The study in a YAML file. Raises `InputError` with the key that is wrong."""
        return _read(path)

    def varied_keys(self) -> list[str]:
        """The varied keys, in order of the columns of the table."""
        found = [key for case in self.cases for key in case]
        found += [key for axis in self.axes for key in axis.keys]
        return list(dict.fromkeys([*found, *self.derive]))

    def plan(self) -> list[Point]:
        """The points, in order: those of one combination differ in the seed and stand together."""
        place = self.place or self.name
        total = design.size(self.kind, self.axes, self.cases, self.count) * self.seeds
        if total > design.LARGEST:
            raise InputError(f"{place}: the design has {total:,} points, and {design.LARGEST:,} is the most")
        tree = self._tree()
        first = int(tree.get("seed") or 0) if isinstance(tree, dict) else 0
        short = short_names(self.varied_keys())
        found = []
        for drawn in design.points(self.kind, self.axes, self.cases, self.count, first):
            values = self._derived(drawn, short, tree)
            if values is None:
                continue
            overrides = (*self.overrides, *((key, override_text(value)) for key, value in values.items()))
            found += [
                Point(self.source, overrides, first + i if self.seeds > 1 else None, self.fidelity, varied=values)
                for i in range(self.seeds)
            ]
        if not found:
            raise InputError(f"{place}: the design has no point: every combination is left out by a filter")
        return found

    def _tree(self) -> Any:  # noqa: ANN401
        return json.loads(engine.scenario_tree(self.source.text, self.source.name, list(self.overrides)))

    def _derived(self, drawn: design.Values, short: Mapping[str, str], tree: object) -> design.Values | None:
        """The values with those that follow from them, or None where a filter leaves the point out."""
        values = dict(drawn)
        names: dict[str, object] = {**self.constants}

        def known() -> dict[str, object]:
            return {**names, **values, **{short[key]: value for key, value in values.items() if key in short}}

        for key, expression in self.derive.items():
            found = expression.value(known(), tree)
            values[key] = int(found) if isinstance(found, float) and found.is_integer() else found
        return values if all(each.value(known(), tree) for each in self.filters) else None


def short_names(keys: list[str]) -> dict[str, str]:
    """Key → its last part, where no other key ends alike: `jobs[0].parallelism.tp` is `tp` in expressions."""
    last = {key: key.rpartition(".")[2] for key in keys}
    return {key: name for key, name in last.items() if list(last.values()).count(name) == 1 and name.isidentifier()}


def check_name(name: str, where: str) -> None:
    """Refuses a name of which no file can be called, before anything is run."""
    length = len(name.encode())
    if length > LONGEST_NAME:
        raise InputError(f"{where}: expected at most {LONGEST_NAME} bytes, found {length}")


def _read(path: Path) -> Study:
    given = _yaml(read_text(path), path)
    unknown = [key for key in given if key not in KEYS]
    if unknown:
        near = nearest(str(unknown[0]), list(KEYS))
        hint = f"did you mean `{near}`?" if near else f"known are {', '.join(f'`{key}`' for key in KEYS)}"
        raise InputError(f"{path}: unknown key `{unknown[0]}`\n\nhint: {hint}")
    if given.get("study") != 1:
        raise InputError(f"{path}: study: expected `1`, the version of the format, found `{given.get('study')}`")
    scenario = given.get("scenario")
    if not isinstance(scenario, str):
        raise InputError(f"{path}: scenario: expected the path of a scenario, found `{scenario}`")
    source = read_source(path.parent / scenario)
    vary = _mapping(given, "vary", path)
    axes = {key: design.axis(key, value, f"{path}: vary.{key}") for key, value in vary.items()}
    merged = _zip(axes, given.get("zip") or [], path)
    kind = given.get("design", "grid")
    if kind not in design.KINDS:
        raise InputError(f"{path}: design: expected one of {', '.join(f'`{k}`' for k in design.KINDS)}, found `{kind}`")
    count = given.get("points")
    if kind in ("random", "sobol", "latin-hypercube") and (not isinstance(count, int) or count < 1):
        raise InputError(f"{path}: points: `design: {kind}` needs a number of points, found `{count}`")
    cases = given.get("cases") or []
    if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases):
        raise InputError(f"{path}: cases: expected a list of records, found `{cases}`")
    if not merged and not cases:
        raise InputError(f"{path}: expected `vary` or `cases`, found neither: there is nothing to study")
    seeds = given.get("seeds", 1)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise InputError(f"{path}: seeds: expected a whole number from 1, found `{seeds}`")
    overrides = _mapping(given, "set", path)
    fidelity = overrides.pop("fidelity", None)
    derive = _mapping(given, "derive", path)
    filters = given.get("filter") or []
    filters = filters if isinstance(filters, list) else [filters]
    metrics = given.get("metrics") or []
    name = str(given.get("name") or path.stem)
    check_name(name, f"{path}: name")
    return Study(
        name=name,
        place=str(path),
        source=source,
        overrides=tuple((key, override_text(value)) for key, value in overrides.items()),
        axes=tuple(merged),
        cases=tuple(cases),
        kind=kind,
        count=count,
        derive={key: Expression(str(text), f"{path}: derive.{key}") for key, text in derive.items()},
        filters=tuple(Expression(str(text), f"{path}: filter") for text in filters),
        constants=_mapping(given, "let", path),
        seeds=seeds,
        metrics=tuple(metrics if isinstance(metrics, list) else [metrics]),
        fidelity=None if fidelity is None else str(fidelity),
    )


def _mapping(given: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    value = given.get(key) or {}
    if not isinstance(value, dict):
        raise InputError(f"{path}: {key}: expected a record of keys, found `{value}`")
    return dict(value)


def _zip(axes: dict[str, design.Axis], groups: object, path: Path) -> list[design.Axis]:
    """The axes, those of each group in `groups` made one, at the place of the group's first."""
    if not isinstance(groups, list) or not all(isinstance(group, list) for group in groups):
        raise InputError(f"{path}: zip: expected a list of lists of keys, found `{groups}`")
    left = dict(axes)
    for group in groups:
        absent = [key for key in group if key not in axes]
        if absent:
            raise InputError(f"{path}: zip: `{absent[0]}` is not in `vary`")
        joined = design.zipped([axes[key] for key in group], f"{path}: zip")
        left = {key: joined if key == group[0] else axis for key, axis in left.items() if key not in group[1:]}
    return list(left.values())


def _yaml(text: str, path: Path) -> dict[str, Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        found = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        raise InputError(f"{path}{place}: {error.problem}") from None
    except YAMLError as error:
        raise InputError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: expected a study, a record with `study: 1`, found {type(found).__name__}")
    return found
