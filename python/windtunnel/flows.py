"""`simulate_flows`: weighted max-min shares of links by flows, without a scenario."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from windtunnel import engine
from windtunnel.engine import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

Links = Mapping[str, tuple[float, float]]
Flow = Mapping[str, Any]

_KEYS = frozenset({"path", "bytes", "start", "weight"})
_NUMBERS = frozenset({int, float})


def simulate_flows(links: Links, flows: Iterable[Flow]) -> NDArray[np.float64]:
    """Finish times of flows that share links max-min fairly by weight, in seconds, in the order of `flows`.

    `links` maps a name to (rate in bit/s, latency in s); a link is directed. A flow has `path` (names of links; one
    named twice counts twice), `bytes` (payload; nothing is added), `start` in s (default 0) and `weight` (default 1).
    A flow finishes when its last byte leaves the bottleneck, plus the sum of the latencies of its path; with an empty
    path or 0 bytes, at start + latency. Latency never changes a share.

    Raises `InputError` that names the place, such as `flows[3].path[1]`.
    """
    if not isinstance(links, Mapping):
        raise InputError(f"links: expected a mapping of name to (bit/s, s), found {_found(links)}")
    flows = list(flows)
    names = list(links)
    rates, latencies = _link_arrays(links)
    try:
        paths = _paths(flows)
        index = {name: i for i, name in enumerate(names)}
        path_links = np.fromiter((index[name] for name in chain.from_iterable(paths)), dtype=np.uint32)
        offsets = np.zeros(len(flows) + 1, dtype=np.uint32)
        np.cumsum([len(path) for path in paths], out=offsets[1:], dtype=np.uint32)
        sizes = _numbers([flow["bytes"] for flow in flows])
        starts = _numbers([flow.get("start", 0.0) for flow in flows])
        weights = _numbers([flow.get("weight", 1.0) for flow in flows])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        _explain(links, flows)
    if not (_all_at_least_0(sizes) and _all_at_least_0(starts) and _all_at_least_0(weights) and weights.all()):
        _explain(links, flows)
    return engine.simulate_flows(rates, latencies, offsets, path_links, sizes, starts, weights)


def _link_arrays(links: Mapping[Any, Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    values = np.empty((len(links), 2))
    for i, (name, link) in enumerate(links.items()):
        if not isinstance(name, str):
            raise InputError(f"links: expected a name, found {_found(name)}")
        if isinstance(link, str) or not isinstance(link, (Sequence, np.ndarray)) or len(link) != 2:
            raise InputError(f"links[{name!r}]: expected (bit/s, s), found {_found(link)}")
        rate, latency = link
        if not _is_number(rate) or not rate > 0:
            raise InputError(f"links[{name!r}][0]: expected a rate above 0 bit/s, found {_found(rate)}")
        if not _is_number(latency) or latency < 0:
            raise InputError(f"links[{name!r}][1]: expected a latency of at least 0 s, found {_found(latency)}")
        values[i] = float(rate), float(latency)
    return values[:, 0].copy(), values[:, 1].copy()


def _paths(flows: list[Flow]) -> list[Sequence[str]]:
    keys: set[str] = set()
    for flow in flows:
        keys.update(flow)
    if not keys <= _KEYS:
        raise ValueError
    paths: list[Sequence[str]] = [flow["path"] for flow in flows]
    if not set(map(type, paths)) <= {list, tuple}:
        raise TypeError
    return paths


def _numbers(values: list[Any]) -> NDArray[np.float64]:
    if not set(map(type, values)) <= _NUMBERS and not all(map(_is_number, values)):
        raise TypeError
    return np.array(list(map(float, values)), dtype=np.float64)


def _all_at_least_0(values: NDArray[np.float64]) -> bool:
    return bool(np.all((values >= 0) & np.isfinite(values)))


def _explain(links: Links, flows: list[Flow]) -> NoReturn:
    """Finds the first bad value, flow by flow, and raises for it."""
    for i, flow in enumerate(flows):
        if not isinstance(flow, Mapping):
            raise InputError(f"flows[{i}]: expected a mapping, found {_found(flow)}")
        for key in flow:
            if key not in _KEYS:
                raise InputError(f"flows[{i}]: unknown key `{key}`{_nearest(str(key), _KEYS)}")
        for key in ("path", "bytes"):
            if key not in flow:
                raise InputError(f"flows[{i}]: `{key}` is missing")
        _check_path(links, flow["path"], f"flows[{i}].path")
        _check_numbers(flow, f"flows[{i}]")
    raise AssertionError("a value was refused that each check accepts")


def _check_path(links: Links, path: object, place: str) -> None:
    if not isinstance(path, (list, tuple)):
        raise InputError(f"{place}: expected a list of link names, found {_found(path)}")
    for j, name in enumerate(path):
        if not isinstance(name, str):
            raise InputError(f"{place}[{j}]: expected the name of a link, found {_found(name)}")
        if name not in links:
            raise InputError(f"{place}[{j}]: no such link: `{name}`{_nearest(name, links)}")


def _check_numbers(flow: Flow, place: str) -> None:
    for key, least in (("bytes", "a number of at least 0"), ("start", "a time of at least 0 s")):
        value = flow.get(key, 0.0)
        if not _is_number(value) or value < 0:
            raise InputError(f"{place}.{key}: expected {least}, found {_found(value)}")
    weight = flow.get("weight", 1.0)
    if not _is_number(weight) or not weight > 0:
        raise InputError(f"{place}.weight: expected a number above 0, found {_found(weight)}")


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond the largest float
        return False


def _found(value: object) -> str:
    text = repr(value)
    return f"`{text if len(text) <= 60 else text[:57] + '...'}`"


def _nearest(name: str, known: Iterable[str]) -> str:
    near = nearest(name, list(known))
    return f"\n\nhint: did you mean `{near}`?" if near else ""
