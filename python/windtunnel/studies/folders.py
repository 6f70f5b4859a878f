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
from typing import TYPE_CHECKING, Any

from windtunnel.results.manifest import manifest
from windtunnel.results.owner import is_gone, owner
from windtunnel.studies.recipe import content_key, engine_build, recipe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from windtunnel.studies.point import Point

PART = ".run-"
"""Begin of the names of folders in the making."""

SHARED = ".scenarios"
"""Folder of scenarios' texts, beside those in the making."""

HEADLINES = ("simulated_time_s", "wall_time_s", "events", "peak_memory_bytes")
"""Figures of a summary that the index has, and those of its first job and of its cluster below."""

_OF_JOB = ("mfu", "tokens_per_s", "exposed_communication_s")

_OF_CLUSTER = ("makespan_s", "utilisation", "goodput")

_counter = itertools.count()


@cache
def _name() -> str:
    return owner()


@dataclass(frozen=True)
class Written:
    """A folder in the making."""

    path: Path
    place: Path
    begun: float

    def finish(
        self,
        point: Point,
        text: str,
        summary: dict[str, Any],
        meant: str,
        read: list[tuple[str, str]],
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
            "build": engine_build(), "varied": point.varied, "tables": tables, "begun": self.begun,
        }  # fmt: skip
        for name, content in (
            ("summary.json", text.rstrip("\n") + "\n"),
            ("manifest.json", json.dumps(record) + "\n"),
        ):
            _write(f"{self.path}/{name}", content)
        self._keep_scenario(point.source.text)
        place_at(self.path, self.place)

    def _keep_scenario(self, text: str) -> None:
        """The scenario, as a further name of a file that all points share: a file of its own costs time."""
        name = f"{_digest(text)[:32]}.yaml"
        path, shared = self.path / "scenario.yaml", self.path.parent / SHARED / name
        with suppress(OSError):
            os.link(shared, path)
            return
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
    fresh = place.parent.parent / f"{PART}{_name()}-{next(_counter)}"
    try:
        fresh.mkdir()
    except FileNotFoundError:
        fresh.parent.mkdir(parents=True, exist_ok=True)
        fresh.mkdir()
    try:
        yield Written(fresh, place, begun)
    except BaseException:
        _remove(fresh)
        raise


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def placed(place: Path, files: dict[str, bytes]) -> None:
    """Makes the folder at `place` of the contents of its files, by relative path."""
    with written(place, 0.0) as folder:
        for name, content in files.items():
            path = folder.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        place_at(folder.path, place)


def place_at(fresh: Path, place: Path) -> None:
    """Gives a finished folder its place, in place of what is there; two that do so leave one of both."""
    for _ in range(100):
        try:
            os.rename(fresh, place)  # noqa: PTH104
        except FileNotFoundError:
            place.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            if not place.is_dir():
                raise
            old = fresh.with_name(f"{fresh.name}.old")
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


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Manifest and summary of a finished run, None if `folder` is none."""
    try:
        record = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return (record, summary) if isinstance(record, dict) and isinstance(summary, dict) else None


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
