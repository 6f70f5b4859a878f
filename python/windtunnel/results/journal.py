"""The journal of a run: a file beside its folder, `FOLDER.journal`, with which a run that was killed goes on.

The engine writes it and removes nothing; whoever asked for the run removes it once the run has its folder. It begins
with what was asked for, so `resume` needs nothing but the folder's name.
"""

from __future__ import annotations

import errno
import json
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel import engine
from windtunnel.engine import InputError
from windtunnel.policies import class_name, is_own
from windtunnel.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windtunnel._engine import RunOptions

SUFFIX = ".journal"
POLICIES = ("scheduler", "placement")


@dataclass(frozen=True)
class Unfinished:
    """A run that was killed: what it was asked for, and the folder that it was to have."""

    source: Source
    overrides: list[tuple[str, str]]
    options: RunOptions
    target: Path
    report: bool


def journal_of(target: Path) -> Path:
    """The journal of the run that is to have the folder `target`."""
    return target.with_name(target.name + SUFFIX)


@contextmanager
def kept_if_of_use(journal: Path | None) -> Iterator[None]:
    """Where the disk gets full within it: a journal that a run can go on with stays and is told of, another goes."""
    try:
        yield
    except OSError as error:
        if journal is not None and error.errno == errno.ENOSPC:
            try:
                engine.journal_request(str(journal))
            except InputError:
                with suppress(OSError):
                    journal.unlink(missing_ok=True)
            else:
                goes_on = f"`windtunnel run --resume {journal.with_suffix('')}` goes on with it"
                error.add_note(f"`{journal}` was left: once there is space, {goes_on}")
        raise


def request_text(
    source: Source, overrides: list[tuple[str, str]], options: RunOptions, target: Path, *, report: bool
) -> str:
    """What a run is asked for, as `unfinished` reads it."""
    given: dict[str, Any] = dict(options)
    for kind in POLICIES:
        given[kind] = _lasting(given.get(kind))
    return json.dumps(
        {
            "text": source.text,
            "name": source.name,
            "base": str(source.base.resolve()),
            "overrides": overrides,
            "options": given,
            "target": str(target.absolute()),
            "report": report,
        }
    )


def unfinished(folder: Path, **policies: type | str | None) -> Unfinished:
    """The run that was killed before it had `folder`, or whose journal that is; `policies` are its classes.

    Raises `InputError` if there is no journal, or if a run writes it.
    """
    target = folder.with_name(folder.name.removesuffix(SUFFIX))
    asked = json.loads(engine.journal_request(str(journal_of(target))))
    options = asked["options"]
    for kind in POLICIES:
        given = policies.get(kind)
        if given is not None:
            options[kind] = given
        elif isinstance(options[kind], dict):
            raise InputError(
                f"`{journal_of(target)}`: the run had a {kind} of its own, the class `{options[kind]['class']}`\n\n"
                f"hint: `windtunnel.resume(FOLDER, {kind}=CLASS)` goes on with it"
            )
    source = Source(asked["text"], asked["name"], Path(asked["base"]))
    pairs = [(path, value) for path, value in asked["overrides"]]
    return Unfinished(source, pairs, options, target, bool(asked["report"]))


def _lasting(policy: str | type | None) -> str | dict[str, str] | None:
    """A policy by a name that holds from any folder; a class, which no name stands for, by what it is called."""
    if policy is None or (isinstance(policy, str) and not is_own(policy)):
        return policy
    if isinstance(policy, type):
        return {"class": class_name(policy)}
    path, separator, name = policy.partition(":") if policy.endswith(".py") else policy.rpartition(":")
    return f"{Path(path).absolute()}{separator}{name}"
