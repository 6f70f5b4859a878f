"""Runs of the testbed as files: JSON, a line of the testbed's shape and one for each run."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from windtunnel.engine import InputError
from windtunnel.source import read_text
from windtunnel.testbed.fabric import Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

T = TypeVar("T")


def written(shape: Shape, runs: Sequence[Any]) -> str:
    """The text of `runs`, which are dataclasses."""
    return "".join(json.dumps(one) + "\n" for one in [{"shape": asdict(shape)}, *(asdict(run) for run in runs)])


def read(path: Path, run: Callable[[dict[str, Any]], T], what: str, command: str) -> tuple[Shape, list[T]]:
    """The shape, and what `run` makes of each line.

    Raises `InputError` with file and line, which expects `what` and says that `command` writes it.
    """
    lines = read_text(path).splitlines()
    number = 1
    try:
        shape = Shape(**json.loads(lines[0])["shape"])
        runs = []
        for number, text in enumerate(lines[1:], start=2):  # noqa: B007 - told of in the message
            found = json.loads(text)
            runs.append(run({**found, "ways": [tuple(way) for way in found["ways"]]}))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(
            f"{path}:{number}: expected {what}, found what is none: {error}\n\n"
            f"hint: `windtunnel testbed {command}` writes such files"
        ) from error
    shape.check()
    return shape, runs
