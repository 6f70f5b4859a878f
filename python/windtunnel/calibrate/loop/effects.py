"""Which kinds of measurements stand for others, and what a step in each group of constants does to them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windtunnel.calibrate.loop.drift import groups, strongest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windtunnel.calibrate.loop.drift import Detector
    from windtunnel.calibrate.loop.ledger import Ledger, Set
    from windtunnel.calibrate.loop.models import Models

MOST_KINDS = 2000
"""Kinds whose baselines are kept: those heard last."""
JUDGED = 400
"""Kinds of one class, spread over all of them, by which its constants are told apart."""
OWN = 4
"""Sizes of an octave that have baselines of their own; further ones have one together, as sizes of flows are drawn."""
AGAIN = 1.05
"""Growth of a class's kinds from which its constants are told apart anew."""
SIZE_AT = {"collective": 2, "transfer": 2}


def class_of(kind: Sequence[Any]) -> str:
    """What shares its constants: all collectives, a class of transfers, a job."""
    return "collective" if kind[0] == "collective" else f"{kind[0]} {kind[1]}"


BANDS = {1 << 16: "small", 1 << 20: "middle", 1 << 24: "large"}
"""Bytes below which sizes have about the same noise: from latencies, which bind small ones, to rates."""


def band_of(kind: Sequence[Any]) -> str:
    """What has about the same noise, and is slow together in one run: a class's sizes of one of `BANDS`."""
    if kind[0] not in SIZE_AT:
        return class_of(kind)
    size = kind[SIZE_AT[kind[0]]]
    return f"{class_of(kind)} {next((name for below, name in BANDS.items() if size < below), 'huge')}"


def _octave(kind: Sequence[Any]) -> str:
    at = SIZE_AT.get(kind[0])
    return json.dumps([value.bit_length() if i == at else value for i, value in enumerate(kind)])


class Effects:
    """What is known of the kinds of one detector."""

    def __init__(self, ledger: Ledger, models: Models, detector: Detector) -> None:
        self._ledger, self._models = ledger, models
        self._octaves: dict[str, list[str]] = {}
        self._classes: dict[str, dict[str, None]] = {}
        self._judged: dict[str, _Judged] = {}
        self._set = ""
        self._current: Set | None = None
        for key in detector.kinds:
            kind = json.loads(key)
            self._octaves.setdefault(_octave(kind), []).append(key)
            self._classes.setdefault(class_of(kind), {})[key] = None

    def standing(self, kind: list[Any]) -> str:
        """The kind that stands for one in the detector: itself, or the one of further sizes of its octave."""
        key = json.dumps(kind)
        known = self._octaves.setdefault(_octave(kind), [])
        if key not in known:
            if len(known) > OWN:
                return known[OWN]
            known.append(key)
        return key

    def dropped(self, key: str, detector: Detector) -> str | None:
        """Keeps the kinds that were heard last, of which `key` is one; the one that goes for it."""
        if key in detector.kinds:
            detector.kinds[key] = detector.kinds.pop(key)
        if len(detector.kinds) <= MOST_KINDS:
            return None
        oldest = next(iter(detector.kinds))
        del detector.kinds[oldest]
        kind = json.loads(oldest)
        for known in (self._octaves.get(_octave(kind), []), self._classes.get(class_of(kind), {})):
            if oldest in known:
                known.remove(oldest) if isinstance(known, list) else known.pop(oldest)
        return oldest

    def of(self, kind: list[Any], key: str, current: Set) -> dict[str, float]:
        """What a step in each group of constants does to a kind, for which `key` stands.

        It is what a step in the group's strongest constant does.
        """
        self._current = current
        if self._set != current.id:
            self._set, self._judged = current.id, {}
        name = class_of(kind)
        kinds = self._classes.setdefault(name, {})
        kinds[key] = None
        own = self._models.effects(kind, current.constants, current.id)
        judged = self._judged.get(name)
        # Few kinds more tell no more of a class that has many, unless they depend on what no other did.
        if judged is None or len(kinds) > judged.kinds * AGAIN or not own.keys() <= judged.constants:
            judged = self._judged[name] = self._judge(sorted(kinds), current)
            self._say()
        found = {group: own.get(strongest(group), 0.0) for group in judged.told_apart}
        return {group: effect for group, effect in found.items() if effect}

    def known(self, key: str) -> tuple[str, dict[str, float]]:
        """The band of a kind that stands for others, and what a step in each group does to it."""
        kind = json.loads(key)
        judged = self._judged.get(class_of(kind))
        if judged is None or self._current is None:
            return band_of(kind), {}
        own = self._models.effects(kind, self._current.constants, self._current.id)
        return band_of(kind), {group: own.get(strongest(group), 0.0) for group in judged.told_apart}

    def _judge(self, kinds: list[str], current: Set) -> _Judged:
        spread = kinds[:: -(-len(kinds) // JUDGED)]
        every = [self._models.effects(json.loads(k), current.constants, current.id) for k in spread]
        columns = {name: [e.get(name, 0.0) for e in every] for name in sorted({n for e in every for n in e})}
        found, weak = groups(columns)
        return _Judged(len(kinds), frozenset(columns), sorted(found), weak)

    def _say(self) -> None:
        """What is known of the measurements says what they tell."""
        apart = sorted(group for judged in self._judged.values() for group in judged.told_apart)
        weak = sorted(name for judged in self._judged.values() for name in judged.weak)
        self._ledger.put("groups", {"told_apart": apart, "not_seen": weak})


@dataclass(frozen=True)
class _Judged:
    """A class of kinds as its constants were told apart."""

    kinds: int
    constants: frozenset[str]
    told_apart: list[str]
    weak: list[str]
