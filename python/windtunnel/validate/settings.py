"""NCCL's settings on a system: the environment that its maker asks for, and the rules of its tuner plug-in.

A plug-in (NCCL's tuner API) takes the choice from NCCL where one of its rules holds: for so many hosts, ranks a host
and bytes of the buffer, and for some operations. A rule says the algorithm, and channels where it does; the first that
holds counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windtunnel.engine import InputError
from windtunnel.validate.quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windtunnel.validate.systems import System

RULE = frozenset({"hosts", "ranks", "operations", "bytes", "algorithm", "channels"})


def environment(system: System, operation: str, size: int, hosts: int, ranks: int) -> list[tuple[str, str]]:
    """Variables that runs of `ranks` on each of `hosts` have on `system` before their own.

    Raises `InputError` at a rule that is none.
    """
    section = system.record.get("collectives") or {}
    place = f"{system.path}: collectives"
    stated = (section.get("environment") or {}).get("value") or {}
    if not isinstance(stated, dict):
        raise InputError(f"{place}.environment: expected names and values, found `{stated}`")
    found = [(str(name), str(value)) for name, value in stated.items()]
    for at, rule in enumerate((section.get("tuner") or {}).get("value") or []):
        if _holds(rule, f"{place}.tuner[{at}]", operation, size, hosts, ranks):
            found.append(("NCCL_ALGO", str(rule["algorithm"])))
            if "channels" in rule:
                found += [(name, str(rule["channels"])) for name in ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS")]
            break
    return found


def _holds(rule: Mapping[str, object], place: str, operation: str, size: int, hosts: int, ranks: int) -> bool:
    if not isinstance(rule, dict) or "algorithm" not in rule or not rule.keys() <= RULE:
        raise InputError(f"{place}: expected `algorithm` and perhaps {', '.join(sorted(RULE))}, found `{rule}`")
    operations = rule.get("operations")
    return (
        _within(rule.get("hosts"), hosts, place, "hosts")
        and _within(rule.get("ranks"), ranks, place, "ranks")
        and _within(rule.get("bytes"), size, place, "bytes")
        and (operations is None or operation in operations)
    )


def _within(limits: object, value: int, place: str, key: str) -> bool:
    """Whether `value` is in `[least, most]`; of bytes the most is not in it, and a bound that is `~` is none."""
    if limits is None:
        return True
    if not isinstance(limits, list) or len(limits) != 2:
        raise InputError(f"{place}.{key}: expected two bounds, found `{limits}`")
    if key == "bytes":
        least, most = (None if b is None else quantity(b, "size", f"{place}.{key}") for b in limits)
        return (least is None or value >= least) and (most is None or value < most)
    if any(not isinstance(bound, int | None) for bound in limits):
        raise InputError(f"{place}.{key}: expected two whole numbers, found `{limits}`")
    least, most = limits
    return (least is None or value >= least) and (most is None or value <= most)
