"""`experiment.yaml`, read and checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError, nearest
from windtunnel.source import read_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_EXPERIMENT = ("title", "also", "source", "scenario", "scenarios", "cases", "vary", "options", "claims", "figure")
_CLAIM = ("claim", "source", "observe", "at", "over", "expected", "tolerance")
_AXIS = ("name", "path", "values")
_FIGURE = ("x", "y", "series", "kind", "label", "log")
_OPTIONS = ("fidelity", "seed", "threads", "full")


@dataclass(frozen=True)
class Axis:
    """What is varied: the key at `path` takes each of `values`."""

    name: str
    path: str
    values: list[Any]


@dataclass(frozen=True)
class Claim:
    """A claim: what is observed, where, and what is expected of it."""

    claim: str
    source: str
    observe: str
    at: dict[str, Any]
    over: dict[str, Any] | None
    expected: Any
    tolerance: float
    relative: bool


@dataclass(frozen=True)
class Point:
    """One run of an experiment: its place (scenario, case, values of axes) and the overrides that bring it there."""

    place: dict[str, Any]
    scenario: Path
    overrides: dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """An experiment as its file has it."""

    name: str
    folder: Path
    title: str
    source: str
    scenarios: dict[str, Path]
    cases: dict[str, dict[str, Any]]
    axes: list[Axis]
    options: dict[str, Any]
    claims: list[Claim]
    figure: dict[str, Any] | None
    also: tuple[str, ...] = ()
    """Other names that it goes by."""

    def points(self) -> list[Point]:
        """Every run: scenarios × cases × values of the axes, the last axis fastest."""
        points = []
        for (scenario, path), (case, overrides) in product(self.scenarios.items(), self.cases.items()):
            for values in product(*(axis.values for axis in self.axes)):
                place: dict[str, Any] = {"scenario": scenario, "case": case}
                place.update(zip((axis.name for axis in self.axes), values, strict=True))
                varied = {axis.path: value for axis, value in zip(self.axes, values, strict=True)}
                points.append(Point(place, path, {**overrides, **varied}))
        return points


def read_experiment(folder: Path) -> Experiment:
    """Reads `folder/experiment.yaml`. Raises `InputError` with the place of what is wrong."""
    path = folder / "experiment.yaml"
    data = parse_yaml(read_text(path), str(path))
    where = _Where(str(path))
    root = where.record(data, "", _EXPERIMENT)
    measured = not {"scenario", "scenarios"} & set(root) and (folder / "experiment.py").is_file()
    files = {} if measured else root.get("scenarios") or {"scenario": root.get("scenario")}
    where.check(isinstance(files, dict) and all(isinstance(f, str) for f in files.values()), "scenario",
                "expected a file, or `scenarios` with a file by name", root.get("scenario"))  # fmt: skip
    cases = root.get("cases") or {"": {}}
    where.check(isinstance(cases, dict) and all(isinstance(c, dict) for c in cases.values()), "cases",
                "expected overrides by name", cases)  # fmt: skip
    axes = [_axis(where, item, f"vary[{i}]") for i, item in enumerate(root.get("vary") or [])]
    source = str(root.get("source", ""))
    claims = [_claim(where, item, f"claims[{i}]", source) for i, item in enumerate(root.get("claims") or [])]
    where.check(bool(claims), "claims", "expected at least one claim", root.get("claims"))
    figure = root.get("figure")
    also = root.get("also") or []
    where.check(isinstance(also, list) and all(isinstance(name, str) for name in also), "also",
                "expected a list of names", also)  # fmt: skip
    return Experiment(
        name=folder.name,
        folder=folder,
        title=str(root.get("title", folder.name)),
        source=source,
        scenarios={name: folder / file for name, file in files.items()},
        cases=cases,
        axes=axes,
        options=where.record(root.get("options") or {}, "options", _OPTIONS),
        claims=claims,
        figure=where.record(figure, "figure", _FIGURE) if figure is not None else None,
        also=tuple(also),
    )


def parse_yaml(text: str, name: str) -> Any:  # noqa: ANN401
    """YAML 1.2, in which `off` is a word and `1e9` a number."""
    from ruamel.yaml import YAML  # noqa: PLC0415
    from ruamel.yaml.error import MarkedYAMLError, YAMLError  # noqa: PLC0415

    try:
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise InputError(f"{name}{place}: {error.problem}") from None
    except YAMLError as error:
        raise InputError(f"{name}: {str(error).partition(chr(10))[0]}") from None


@dataclass(frozen=True)
class _Where:
    """Complains with the file and the path of a key."""

    file: str

    def check(self, good: bool, path: str, expected: str, found: object) -> None:
        if not good:
            raise InputError(f"{self.file}: {path}: {expected}, found `{found}`")

    def record(self, value: object, path: str, known: Iterable[str]) -> dict[str, Any]:
        known = list(known)
        at = f"{path}: " if path else ""
        if not isinstance(value, dict):
            raise InputError(f"{self.file}: {at}expected keys and values, found `{value}`")
        for key in value:
            if key not in known:
                near = nearest(str(key), known)
                hint = f"did you mean `{near}`?" if near else f"known are {', '.join(f'`{k}`' for k in known)}"
                raise InputError(f"{self.file}: {at}unknown key: `{key}`\n\nhint: {hint}")
        return value


def _axis(where: _Where, item: object, path: str) -> Axis:
    record = where.record(item, path, _AXIS)
    values = record.get("values")
    where.check(isinstance(values, list) and bool(values), f"{path}.values", "expected a list", values)
    key = record.get("path")
    where.check(isinstance(key, str), f"{path}.path", "expected the path of a key", key)
    return Axis(str(record.get("name", key)), str(key), list(values or []))


def _claim(where: _Where, item: object, path: str, source: str) -> Claim:
    record = where.record(item, path, _CLAIM)
    for key in ("claim", "observe", "expected"):
        where.check(key in record, path, f"expected `{key}`", ", ".join(record))
    expected = record["expected"]
    if isinstance(expected, dict):
        where.record(expected, f"{path}.expected", ("min", "max", "order"))
    tolerance, relative = _tolerance(where, record.get("tolerance", 0), f"{path}.tolerance")
    return Claim(
        claim=str(record["claim"]),
        source=str(record.get("source", source)),
        observe=str(record["observe"]),
        at=where.record(record.get("at") or {}, f"{path}.at", record.get("at") or {}),
        over=record.get("over"),
        expected=expected,
        tolerance=tolerance,
        relative=relative,
    )


def _tolerance(where: _Where, value: object, path: str) -> tuple[float, bool]:
    if isinstance(value, str) and (match := re.fullmatch(r"\s*([0-9.eE+-]+)\s*%\s*", value)):
        return float(match[1]) / 100, True
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    where.check(good, path, "expected a number or a percentage", value)
    return float(value) if isinstance(value, (int, float)) else 0.0, False
