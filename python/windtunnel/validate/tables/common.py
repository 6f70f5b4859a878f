"""What the readers of training tables share: CSV with checked columns, and a scenario from a system and a layout."""

from __future__ import annotations

import csv
import gzip
import io
import math
from typing import TYPE_CHECKING, Any

from windtunnel.engine import InputError
from windtunnel.validate.collectives import rack_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from windtunnel.validate.systems import System


TRAINING_CONSTANTS = ("dispatch", "straggle", "compute_share", "reserved")
"""Constants of a system that a job's `training` takes."""

TOLD = ("dispatch", "straggle", "compute_share")
"""Those of which a job says how they are known."""


class Line:
    """A line of a table; its figures are checked as they are asked for."""

    def __init__(self, path: Path, number: int, cells: Mapping[str, str]) -> None:
        self.path, self.number, self._cells = path, number, cells

    def text(self, column: str) -> str:
        """A cell as it is."""
        return (self._cells[column] or "").strip()

    def optional(self, column: str) -> str:
        """A cell of a column that a table may lack; empty then."""
        return (self._cells.get(column) or "").strip()

    def number_in(self, column: str) -> float:
        """A positive number. Raises `InputError` with file and line."""
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (value > 0 and math.isfinite(value)):
            raise InputError(f"{self.path}:{self.number}: `{column}`: expected a positive number, found `{text}`")
        return value

    def count(self, column: str) -> int:
        """A positive whole number. Raises `InputError` with file and line."""
        value = self.number_in(column)
        if value != int(value):
            raise InputError(
                f"{self.path}:{self.number}: `{column}`: expected a whole number, found `{self.text(column)}`"
            )
        return int(value)


def lines(path: Path, columns: Sequence[str]) -> Iterator[Line]:
    """The lines of a CSV file, perhaps under gzip, with at least `columns`. Raises `InputError` if one is not."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        yield from _lines(path, columns)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a table: {error}") from error


def _lines(path: Path, columns: Sequence[str]) -> Iterator[Line]:
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as raw:
        # Spreadsheets write a byte order mark.
        file = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
        reader = csv.DictReader(file)
        names = [name.strip() for name in reader.fieldnames or []]
        missing = [column for column in columns if column not in names]
        if missing:
            raise InputError(f"{path}:1: column `{missing[0]}` is missing\n\nhint: it has {', '.join(names)}")
        reader.fieldnames = names
        for cells in reader:
            yield Line(path, reader.line_num, cells)


def gpt(
    layers: int, hidden: int, heads: int, sequence: int, vocabulary: int, feedforward: int | None = None
) -> dict[str, Any]:
    """A `config.json` of a GPT-2 shape."""
    return {
        "model_type": "gpt2",
        "n_embd": hidden,
        "n_layer": layers,
        "n_head": heads,
        "n_inner": feedforward or 4 * hidden,
        "n_positions": sequence,
        "vocab_size": vocabulary,
    }


def racks(scenario: dict[str, Any], gpus: int) -> None:
    """Fits a scale-up domain of several hosts to a job: as large as it if one rack holds it, else whole domains."""
    topology = scenario["topology"]
    host = topology["host"]
    size = (host.get("scale_up") or {}).get("size")
    if size is None:
        return
    if gpus <= rack_of(host):
        host["scale_up"]["size"] = size = max(int(host["gpus"]), -(-gpus // int(host["gpus"])) * int(host["gpus"]))
    hosts = size // int(host["gpus"])
    topology["hosts"] = max(2, -(-topology["hosts"] // hosts)) * hosts if hosts > 1 else topology["hosts"]


def training_scenario(
    system: System,
    *,
    gpus: int,
    workload: Mapping[str, Any],
    parallelism: Mapping[str, Any],
    training: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A job that trains on the first `gpus` GPUs of `system`: iterations are equal, so one is simulated."""
    per_host = int(system.section("topology")["host"]["gpus"])
    # A fabric needs a second host to be one.
    topology = system.topology(max(2, -(-gpus // per_host)))
    merged = {**system.section("training"), **(training or {})}
    for constant in TRAINING_CONSTANTS:
        value = system.constant(constant)
        if value is not None and constant not in merged:
            merged[constant] = value
            if constant in TOLD:
                merged.setdefault("evidence", {})[constant] = system.evidence(constant)
    return {
        "windtunnel": 1,
        "name": system.name,
        "seed": 1,
        "fidelity": "flow",
        "topology": topology,
        # An all-to-all that runs whole is a few flows instead of one message for each pair of ranks.
        "network": {"exchange": "hosts", **system.section("network")},
        "memory": "ignore",
        "jobs": [
            {
                "name": "job",
                "workload": {**workload, "training": merged},
                "parallelism": {**system.section("parallelism"), **parallelism},
                "iterations": 1,
            }
        ],
        "cluster": {"episodes": {"iterations": 1}},
        "results": {"operations": "none", "flows": "none", "ideal": False},
    }
