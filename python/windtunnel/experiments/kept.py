"""What an experiment observed, kept beside the runs: asked again with nothing changed, it is not worked out anew.

Life cycle: `Observed` is written as `observed/NAME.json` of the store when an experiment has been concluded, and taken
when it is concluded again and everything that it was worked out from is as it was: the engine's build, this package,
the data sheets, the variables `WINDTUNNEL_…` of the environment, the experiment's own folder, the runs that its file
asks for, the files that runs asked for by `observe` read, and the folders of measured tables that it looked for. Files
of this project count as changed when their size or time of writing differs, files that a run read when their contents
differ.

Invariants: what cannot be written as JSON, or is no table, is left out, and such an entry is only used where no claim
asks for what is missing. The file is whole or absent.

Failure modes: a file that is damaged or of another version is as good as none.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import windtunnel
from windtunnel.results.folder import write_beside
from windtunnel.shipped import SHIPPED
from windtunnel.studies.recipe import engine_build, recipe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windtunnel.experiments.spec import Experiment
    from windtunnel.studies.noted import Read
    from windtunnel.studies.point import Point
    from windtunnel.studies.store import Store

VERSION = 1

PACKAGE = Path(windtunnel.__file__).resolve().parent

IGNORED = ("__pycache__", ".so")
"""Ends of the names of what a folder holds beside what was written by hand. The engine counts by its build."""


@dataclass(frozen=True)
class Observed:
    """What `observe` returned, and the figure as it was drawn, if one was."""

    values: Mapping[str, Any]
    figure: bytes | None = None
    missing: frozenset[str] = frozenset()
    """Names of what was returned and could not be kept."""

    def serves(self, experiment: Experiment, *, drawn: bool) -> bool:
        """Whether claims can be judged by it, and a figure be had if one is to be `drawn`."""
        asked = {claim.observe for claim in experiment.claims}
        return not asked & self.missing and (self.figure is not None or not drawn)


def find(store: Store, experiment: Experiment, points: Sequence[Point]) -> Observed | None:
    """What was observed when nothing was different; None if something was, or nobody has looked."""
    try:
        record = json.loads(_place(store, experiment).read_text(encoding="utf-8"))
        if record["key"] != _key(experiment, points):
            return None
        if any(stamp(Path(folder)) != known for folder, known in record["folders"]):
            return None
        if not all(store.unchanged(Path(base), inputs) for base, inputs in record["inputs"]):
            return None
        values = record["values"] | {name: _frame(text) for name, text in record["tables"].items()}
        figure = None if record["figure"] is None else record["figure"].encode()
        return Observed({name: values[name] for name in record["order"]}, figure, frozenset(record["missing"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(store: Store, experiment: Experiment, points: Sequence[Point], found: Observed, read: Read) -> None:
    """Writes down what was found. A store that cannot be written to is no reason to lose it."""
    import polars as pl  # noqa: PLC0415

    observed = found.values
    tables = {name: value for name, value in observed.items() if isinstance(value, pl.DataFrame)}
    plain = {name: _plain(value) for name, value in observed.items() if name not in tables}
    values = {name: value for name, value in plain.items() if value is not None or observed[name] is None}
    record = {
        "key": _key(experiment, points),
        "folders": [[str(folder), stamp(folder)] for folder in sorted(read.folders)],
        "inputs": sorted(read.inputs(store)),
        "order": [name for name in observed if name in tables or name in values],
        "missing": sorted(observed.keys() - tables.keys() - values.keys()),
        "values": values,
        "tables": {name: _text(frame) for name, frame in tables.items()},
        "figure": None if found.figure is None else found.figure.decode(),
    }
    with suppress(OSError):
        place = _place(store, experiment)
        place.parent.mkdir(exist_ok=True)
        write_beside(place, json.dumps(record).encode())


def stamp(folder: Path) -> str:
    """Digest of the names, sizes and times of all files in `folder`, or of one file; of nothing if there is none."""
    found = hashlib.sha256()
    paths = [folder] if folder.is_file() else sorted(folder.rglob("*"))
    for path in paths:
        if path.name.endswith(IGNORED) or path.parent.name in IGNORED or not path.is_file():
            continue
        stat = path.stat()
        found.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return found.hexdigest()


def _key(experiment: Experiment, points: Sequence[Point]) -> str:
    # Sheets and examples are where the experiments are: of a checkout, or of an installed package, which counts as one.
    home = experiment.folder.resolve().parent.parent
    folders = [PACKAGE, experiment.folder.resolve()]
    folders += [home / part for part in ("data", "examples")] if home != SHIPPED else []
    settings = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("WINDTUNNEL_"))
    parts = [str(VERSION), engine_build(), *settings, *map(stamp, folders), *map(recipe, points)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _place(store: Store, experiment: Experiment) -> Path:
    return store.root / "observed" / f"{experiment.name}.json"


def _plain(value: Any) -> Any:  # noqa: ANN401
    """`value` if JSON gives it back as it is, a single number of numpy's as one of Python's; None if not."""
    value = (
        value.item() if hasattr(value, "item") and hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0 else value
    )
    with suppress(TypeError, ValueError):
        again = json.loads(json.dumps(value))
        if again == value or (isinstance(value, float) and math.isnan(value)):
            return value
    return None


def _text(frame: Any) -> str:  # noqa: ANN401
    buffer = io.BytesIO()
    frame.write_ipc(buffer)
    return base64.b64encode(buffer.getvalue()).decode()


def _frame(text: str) -> Any:  # noqa: ANN401
    import polars as pl  # noqa: PLC0415

    return pl.read_ipc(io.BytesIO(base64.b64decode(text, validate=True)))
