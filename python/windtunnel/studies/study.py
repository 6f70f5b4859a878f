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
from windtunnel.studies.check import check_fidelity, check_keys
from windtunnel.studies.expression import Expression
from windtunnel.studies.point import Point
from windtunnel.studies.rows import DEFAULT_METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
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
    def read(path: Path, text: str | None = None) -> Study:
        """The study in a YAML file, of which `text` is what it holds if that was read before (standard input is gone).

        Raises `InputError` with the key that is wrong.
        """
        return _read(path, read_text(path) if text is None else text)

    def varied_keys(self) -> list[str]:
        """The varied keys, in order of the columns of the table."""
        found = [key for case in self.cases for key in case]
        found += [key for axis in self.axes for key in axis.keys]
        return list(dict.fromkeys([*found, *self.derive]))

    def plan(self, say: Callable[[str], None] | None = None) -> list[Point]:
        """The points, in order: those of one combination differ in the seed and stand together.

        A combination that a design draws again is left out, of which `say` hears. Raises `InputError` for a study that
        has no point or too many, and for what `check_keys` refuses.
        """
        place = self.place or self.name
        check_keys(self, place)
        total = design.size(self.kind, self.axes, self.cases, self.count) * self.seeds
        if total > design.LARGEST:
            raise InputError(f"{place}: the design has {total:,} points, and {design.LARGEST:,} is the most")
        tree = self._tree()
        first = int(tree.get("seed") or 0) if isinstance(tree, dict) else 0
        short = short_names(self.varied_keys())
        found = []
        for drawn in self._combinations(first, say):
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

    def _combinations(self, seed: int, say: Callable[[str], None] | None) -> Iterable[design.Values]:
        """What the design gives; of one that draws each combination once."""
        found = design.points(self.kind, self.axes, self.cases, self.count, seed)
        if self.kind not in design.DRAWING:
            return found
        drawn = list(found)
        kept = design.different(drawn)
        if say is not None and len(kept) < len(drawn):
            say(f"of {len(drawn):,} points that `{self.kind}` drew {len(kept):,} differ: the others are left out")
        return kept

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


def default_name(path: Path) -> str:
    """What a study is called that has no name: its file without the ending."""
    return path.stem.strip("<>") or "study"


def check_name(name: str, where: str) -> None:
    """Refuses a name of which no file can be called, before anything is run."""
    length = len(name.encode())
    if length > LONGEST_NAME:
        raise InputError(f"{where}: expected at most {LONGEST_NAME} bytes, found {length}")


def _read(path: Path, text: str) -> Study:
    given = _yaml(text, path)
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
    draws = kind in design.DRAWING
    if draws and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        raise InputError(f"{path}: points: `design: {kind}` needs a number of points, found `{count}`")
    if not draws and count is not None:
        raise InputError(f"{path}: points: goes with a design that draws, and `design: {kind}` takes all")
    cases = _cases(given.get("cases"), path)
    if not merged and not cases:
        raise InputError(f"{path}: expected `vary` or `cases`, found neither: there is nothing to study")
    seeds = given.get("seeds", 1)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise InputError(f"{path}: seeds: expected a whole number from 1, found `{seeds}`")
    overrides = _mapping(given, "set", path)
    fidelity = overrides.pop("fidelity", None)
    fidelity = None if fidelity is None else str(fidelity)
    check_fidelity(fidelity, f"{path}: set.fidelity")
    derive = _mapping(given, "derive", path)
    filters = given.get("filter") or []
    filters = filters if isinstance(filters, list) else [filters]
    name = str(given.get("name") or default_name(path))
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
        derive={key: Expression(str(one), f"{path}: derive.{key}") for key, one in derive.items()},
        filters=tuple(Expression(str(one), f"{path}: filter") for one in filters),
        constants=_mapping(given, "let", path),
        seeds=seeds,
        metrics=metric_names(given.get("metrics"), f"{path}: metrics"),
        fidelity=fidelity,
    )


def metric_names(given: object, where: str) -> tuple[str, ...]:
    """Metrics as they are asked for: paths of the summary in a list, or one alone. None is no metric."""
    listed = [given] if isinstance(given, str) else [] if given is None else given
    if isinstance(listed, list | tuple) and all(isinstance(one, str) for one in listed):
        return tuple(listed)
    hint = f"such as `{DEFAULT_METRICS[0]}`"
    raise InputError(f"{where}: expected a list of figures of the summary, found `{given}`\n\nhint: {hint}")


def _cases(given: object, path: Path) -> list[design.Values]:
    """The records of `cases`, of which none is empty and none there twice."""
    if given is None:
        return []
    if not isinstance(given, list) or not all(isinstance(case, dict) for case in given):
        raise InputError(f"{path}: cases: expected a list of records, found `{given}`")
    seen: dict[str, int] = {}
    for i, case in enumerate(given):
        where = f"{path}: cases[{i}]"
        if not case:
            raise InputError(f"{where}: expected keys with their values, found none")
        _check_record(case, where)
        first = seen.setdefault(design.text_of(case), i)
        if first != i:
            hint = "`seeds: N` runs each point with more seeds"
            raise InputError(f"{where}: the same as cases[{first}], `{case}`\n\nhint: {hint}")
    return given


def _check_record(record: Mapping[Any, Any], where: str, *, axes: bool = False) -> None:
    """Refuses keys that are no text, and numbers that are not finite; those of `axes` are told by the axis."""
    for key, value in record.items():
        if not isinstance(key, str):
            raise InputError(f"{where}: expected a key of the scenario, found `{key}`")
        if not axes:
            design.check_finite(value, f"{where}.{key}")


def _mapping(given: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    value = given.get(key) or {}
    if not isinstance(value, dict):
        raise InputError(f"{path}: {key}: expected a record of keys, found `{value}`")
    _check_record(value, f"{path}: {key}", axes=key == "vary")
    return dict(value)


def _zip(axes: dict[str, design.Axis], groups: object, path: Path) -> list[design.Axis]:
    """The axes, those of each group in `groups` made one, at the place of the group's first."""
    lists = isinstance(groups, list) and all(isinstance(group, list) and group for group in groups)
    if not isinstance(groups, list) or not lists or not all(isinstance(key, str) for group in groups for key in group):
        raise InputError(f"{path}: zip: expected a list of lists of keys, found `{groups}`")
    named = [key for group in groups for key in group]
    twice = next((key for key in named if named.count(key) > 1), None)
    if twice is not None:
        raise InputError(f"{path}: zip: `{twice}` is named twice")
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
