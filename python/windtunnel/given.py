"""What callers give as arguments, as the engine and JSON take it: NumPy's numbers too, and what is none is said.

Keys of a scenario are the engine's to judge; here is what comes beside them.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING

from windtunnel.engine import InputError
from windtunnel.source import override_text

if TYPE_CHECKING:
    from windtunnel._engine import RunOptions

MOST_THREADS = (1 << 32) - 1
MOST_SEED = (1 << 64) - 1


def override_pairs(overrides: Mapping[str, object] | None) -> list[tuple[str, str]]:
    """Keys and the YAML text of what they are set to. Raises `InputError` for anything but a mapping of such keys."""
    if overrides is None:
        return []
    if not isinstance(overrides, Mapping):
        raise InputError(f"overrides: expected a mapping such as `{{'seed': 7}}`, found `{overrides!r}`")
    for path in overrides:
        if not isinstance(path, str):
            raise InputError(f"overrides: expected a key such as `jobs[0].parallelism.tp`, found `{path!r}`")
    return [(path, override_text(value)) for path, value in overrides.items()]


def plain_options(options: RunOptions) -> RunOptions:
    """The options with Python's own values. Raises `InputError` for a seed, threads or a fidelity that are none."""
    plain: RunOptions = {**options}
    if "seed" in plain:
        plain["seed"] = _whole("seed", plain["seed"], 0, MOST_SEED)
    if "threads" in plain:
        plain["threads"] = _whole("threads", plain["threads"], 1, MOST_THREADS)
    if "full" in plain:
        plain["full"] = bool(plain["full"])
    if "allow_native" in plain:
        plain["allow_native"] = bool(plain["allow_native"])
    fidelity = plain.get("fidelity")
    if fidelity is not None and not isinstance(fidelity, str):
        raise InputError(f"fidelity: expected a name such as `flow`, found `{fidelity!r}`")
    return plain


def _whole(name: str, value: object, least: int, most: int) -> int | None:
    """A whole number within bounds, of Python's or NumPy's; None where nothing is given."""
    if value is None:
        return None
    try:
        # True is a number to Python, and none to who reads it.
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        raise InputError(f"{name}: expected a whole number from {least:,} to {most:,}, found `{value!r}`")
    return number
