"""Folders of points: whole or absent, and each says enough of itself that the index can be made from it."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.results.manifest import manifest
from windtunnel.results.owner import is_gone, owner
from windtunnel.studies.index import signed
from windtunnel.studies.recipe import build, content_key, recipe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windtunnel.studies.point import Point

PART = ".run-"
"""Begin of the names of folders in the making."""

SHARED = ".scenarios"
"""Folder of scenarios' texts, beside those in the making."""

HEADLINES = ("simulated_time_s", "wall_time_s", "events", "peak_memory_bytes")
"""Figures of a summary that the index has, and those of its first job and of its cluster below."""

SUMMARY = (
    "scenario", "scenario_sha256", "inputs", "seed", "fidelity", "partial", "jobs", "cluster", *HEADLINES,
)  # fmt: skip
"""Members of a summary that are read when a run is written down and listed. The rest is evidence, for the most part."""

_OF_JOB = ("mfu", "tokens_per_s", "exposed_communication_s")

_OF_CLUSTER = ("makespan_s", "utilisation", "goodput")

_counter = itertools.count()


@cache
def _name() -> str:
    return owner()


@dataclass(frozen=True)
class Written:
    """A folder in the making."""

    name: str
    place: Path
    begun: float

    @property
    def path(self) -> Path:
        """Where it is made."""
        return Path(self.name)

    def finish(
        self,
        point: Point,
        text: str,
        summary: dict[str, Any],
        meant: str,
        read: Sequence[tuple[str, str]],
        rows: dict[str, int],
        *,
        tables: bool,
    ) -> None:
        """Writes summary, manifest and scenario, and gives the folder its place."""
        options = {"seed": point.seed, "fidelity": point.fidelity, "full": point.full}
        record = manifest(
            summary, source=point.source.name, overrides=list(point.overrides), options=options, rows=rows
        )
        record["study"] = {
            "recipe": recipe(point), "meaning": meant, "content": content_key(meant, read), "inputs": read,
            "build": build(), "varied": point.varied, "tables": tables, "begun": self.begun,
        }  # fmt: skip
        for name, content in (
            ("summary.json", text.rstrip("\n") + "\n"),
            ("manifest.json", json.dumps(record) + "\n"),
        ):
            _write(f"{self.name}/{name}", content)
        self._keep_scenario(point.source.text)
        place_at(self.name, self.place)

    def _keep_scenario(self, text: str) -> None:
        """The scenario, as a further name of a file that all points share: a file of its own costs time."""
        name = f"{_digest(text)[:32]}.yaml"
        with suppress(OSError):
            os.link(f"{os.path.dirname(self.name)}/{SHARED}/{name}", f"{self.name}/scenario.yaml")  # noqa: PTH120
            return
        path, shared = self.path / "scenario.yaml", self.path.parent / SHARED / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o444)
        with suppress(OSError):  # there already, with as many names as it may have; or no such thing here
            shared.parent.mkdir(exist_ok=True)
            shared.hardlink_to(path)


def _write(path: str, content: str) -> None:
    """A small file, with as few calls as it takes: a study of short runs makes many."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        data = memoryview(content.encode())
        while data:
            data = data[os.write(number, data) :]
    finally:
        os.close(number)


@lru_cache(maxsize=16)
def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def written(place: Path, begun: float) -> Iterator[Written]:
    """A folder for the run that belongs at `place`; what is not finished is removed."""
    # By text: of a short run, paths as objects cost more than the calls.
    store = os.path.dirname(os.path.dirname(place))  # noqa: PTH120
    fresh = f"{store}/{PART}{_name()}-{next(_counter)}"
    try:
        os.mkdir(fresh)  # noqa: PTH102
    except FileNotFoundError:
        os.makedirs(store, exist_ok=True)  # noqa: PTH103
        os.mkdir(fresh)  # noqa: PTH102
    try:
        yield Written(fresh, place, begun)
    except BaseException:
        _remove(fresh)
        raise


def _remove(folder: str | Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def placed(place: Path, files: dict[str, bytes]) -> None:
    """Makes the folder at `place` of the contents of its files, by relative path."""
    with written(place, 0.0) as folder:
        for name, content in files.items():
            path = folder.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        place_at(folder.name, place)


def place_at(fresh: str, place: Path) -> None:
    """Gives a finished folder its place, in place of what is there; two that do so leave one of both."""
    for _ in range(100):
        try:
            os.rename(fresh, place)  # noqa: PTH104
        except FileNotFoundError:
            place.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            if not place.is_dir():
                raise
            old = f"{fresh}.old"
            with suppress(FileNotFoundError):
                place.rename(old)
            _remove(old)
        else:
            return
    raise OSError(f"cannot place `{place}`")


def sweep(parent: Path) -> None:
    """Removes what processes that were killed have left in the making."""
    for folder in parent.glob(f"{PART}*"):
        if is_gone(folder.name.removeprefix(PART).partition("-")[0]):
            _remove(folder)


def headlines(summary: dict[str, Any]) -> dict[str, Any]:
    """The figures that the index has of a run: those that people look for first."""
    found = {key: summary.get(key) for key in HEADLINES}
    jobs, cluster = summary.get("jobs"), summary.get("cluster")
    if isinstance(jobs, list) and jobs and isinstance(jobs[0], dict):
        time_s = jobs[0].get("iteration_time_s")
        found["iteration_time_s"] = time_s.get("mean") if isinstance(time_s, dict) else None
        found |= {key: jobs[0].get(key) for key in _OF_JOB}
    if isinstance(cluster, dict):
        found |= {key: cluster.get(key) for key in _OF_CLUSTER}
    return {key: value for key, value in found.items() if isinstance(value, int | float)}


def columns(summary: dict[str, Any]) -> dict[str, Any]:
    """What the index has of a summary, by column."""
    return {
        "name": summary.get("scenario"), "seed": signed(summary.get("seed")), "fidelity": summary.get("fidelity"),
        "figures": headlines(summary), "peak_bytes": summary.get("peak_memory_bytes"),
    }  # fmt: skip


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Manifest and summary of a finished run, None if `folder` is none."""
    try:
        record = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return (record, summary) if isinstance(record, dict) and isinstance(summary, dict) else None


def summary_text(folder: str) -> str | None:
    """The summary of a finished run, which its begin and end tell from what is none; None if there is none."""
    try:
        number = os.open(f"{folder}/summary.json", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts = []
        while part := os.read(number, 1 << 20):
            parts.append(part)
        text = b"".join(parts).decode()
    except (OSError, UnicodeDecodeError):
        return None
    finally:
        os.close(number)
    return text if text.startswith("{") and text.endswith("}\n") else None


def finished(root: Path) -> Iterator[Path]:
    """Folders of finished runs below `root`, in order; those in the making are none."""
    for folder, inner, files in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        if "manifest.json" in files and "summary.json" in files:
            inner.clear()
            yield root / os.path.relpath(folder, root)


def modified(folder: Path) -> float:
    """When a run was finished, as far as its folder says."""
    try:
        return (folder / "manifest.json").stat().st_mtime
    except OSError:
        return time.time()
