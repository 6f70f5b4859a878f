"""Run folders appear whole or not at all: they are written beside their place and renamed."""

from __future__ import annotations

import re
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.engine import InputError
from windtunnel.results.owner import is_gone, owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


INDEX = "index.sqlite"
"""What makes a folder of runs a store."""

LONGEST_NAME = 255
"""Bytes of a file's name, on the file systems there are."""


TABLES = (".parquet", ".csv")
"""Endings of files that a table can be written to."""


def default_name(scenario: str, fidelity: str) -> str:
    """`NAME-FIDELITY`, fit for a file name."""
    return re.sub(r"[^\w.+-]+", "-", f"{scenario}-{fidelity}").strip("-.") or "run"


def check_name(name: str, where: str) -> None:
    """Refuses a name that no file system takes, before a run has cost anything."""
    length = len(name.encode())
    if length > LONGEST_NAME:
        raise InputError(
            f"{where}: expected a name of at most {LONGEST_NAME} bytes for the run's folder, found {length}\n\n"
            "hint: a shorter `name`, or `--out FOLDER`"
        )


@contextmanager
def written_beside(parent: Path) -> Iterator[tuple[Path, Callable[[Path], None]]]:
    """A fresh folder in `parent`, and a function that renames it to its place. Unplaced, it is removed at the end."""
    made = [folder for folder in (parent, *parent.parents) if not folder.exists()]
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent)
    fresh = Path(tempfile.mkdtemp(prefix=f".run-{owner()}-", dir=parent))
    fresh.chmod(0o755)
    try:
        yield fresh, lambda target: _place(fresh, target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        with suppress(OSError):  # a parent that holds the run, or another one
            for folder in made:
                folder.rmdir()


def _sweep(parent: Path) -> None:
    """Removes what processes that were killed have left in the making."""
    for kind in (".run-", ".old-"):
        for folder in parent.glob(f"{kind}*"):
            if is_gone(folder.name.removeprefix(kind).rpartition("-")[0]):
                shutil.rmtree(folder, ignore_errors=True)


def check_replaceable(target: Path) -> None:
    """Refuses to replace anything but a run folder or an empty one: a mistyped `--out` must not delete a home."""
    if target.is_dir() and (_is_run(target) or not any(target.iterdir())):
        return
    if target.exists():
        raise InputError(
            f"`{target}` is there and is not a run folder\n\nhint: give `--out` a new folder, or remove this one"
        )


def _is_run(folder: Path) -> bool:
    """Whether a run has left it: other programs write a `summary.json` too."""
    return all((folder / name).is_file() for name in ("summary.json", "manifest.json"))


def check_file(path: Path | None, option: str, endings: tuple[str, ...] = ()) -> None:
    """Refuses a place where no file can be written, before what is to be written there has cost anything.

    Makes nothing: of folders that are not there yet, the one that they go into is tried. `endings` are those that the
    name may have; all if there are none. Nothing is refused where `path` is None.
    """
    if path is None:
        return
    if endings and path.suffix not in endings:
        known = " or ".join(f"`{ending}`" for ending in endings)
        raise InputError(f"{option}: expected a file that ends in {known}, found `{path}`")
    if path.is_dir():
        raise InputError(f"{option}: expected a file, found the folder `{path}`")
    folder = path.parent
    try:
        # A file of so long a name, and the one beside it that gets its place (`write_beside`).
        path.with_name(f".{path.name}.part").exists()
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{option}: cannot write `{path}`: {(error.strerror or str(error)).lower()}") from None


def check_files(places: Mapping[str, Path | None]) -> None:
    """`check_file` of the places that options name."""
    for option, path in places.items():
        check_file(path, option)


def write_beside(path: Path, data: bytes) -> None:
    """Writes a file beside its place and renames it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.part")
    try:
        fresh.write_bytes(data)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _place(fresh: Path, target: Path) -> None:
    check_replaceable(target)
    if not target.exists():
        fresh.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".old-{owner()}-", dir=target.parent))
    target.rename(old / target.name)
    fresh.rename(target)
    shutil.rmtree(old, ignore_errors=True)
