"""Options that take several values in one text, with commas between them: `--tp 1,2,4`."""

from __future__ import annotations

from windtunnel.engine import InputError


def names(text: str | None) -> tuple[str, ...] | None:
    """The parts of a text, without the spaces around them; None where the option was not given."""
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def numbers(option: str, text: str | None, least: int) -> tuple[int, ...] | None:
    """The whole numbers of a text; None where the option was not given.

    Raises `InputError`, with the name of the option, where a part is no whole number from `least`, or there is no part.
    """
    parts = names(text)
    if parts is None:
        return None
    wrong = next((part for part in parts if not part.isdigit() or int(part) < least), None)
    if wrong is not None or not parts:
        raise InputError(f"{option}: expected whole numbers from {least}, such as `1,2,4`, found `{wrong or text}`")
    return tuple(int(part) for part in parts)
