"""Options of the command as the engine's request, and the few that are refused before it is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from windtunnel.engine import InputError, nearest

DETOURS = ("allow", "forbid")
REPAIRS = ("converged", "local")
BALANCERS = ("ecmp", "destination_modulo", "spray", "ideal")
HASHES = ("mixed", "crc16", "crc32", "xor")
EXPORTS = ("graphml", "csv", "topo", "ns3")

CHECKED_PAIRS = 10_000
"""Pairs that `--check` compares; all of them if there are no more."""


@dataclass(frozen=True)
class Asked:
    """What the command was asked for."""

    path: tuple[str, str] | None = None
    ecmp: tuple[str, str] | None = None
    nic: int = 0
    entropy: int = 0
    seed: int = 0
    balancer: str = "ecmp"
    fail: list[str] = field(default_factory=list)
    detour: str | None = None
    repair: str = "converged"
    weighted: bool | None = None
    check: bool = False
    export: str | None = None
    draw: bool = False
    whole: bool = False
    """Whether the analysis is wanted beside answers, too."""
    hash: str = "mixed"
    switch_seeds: bool | None = None

    @property
    def questions(self) -> bool:
        """Whether anything is asked but what the topology is made of."""
        return self.path is not None or self.ecmp is not None or self.check

    def in_options(self, message: str) -> str:
        """A message of the engine with its place in the request as the option that put it there."""
        for key, option, ends in (("paths[0]", "--path", self.path), ("ecmp[0]", "--ecmp", self.ecmp)):
            if ends is not None:
                given = f"{option} {ends[0]} {ends[1]}: "
                for end in ("from", "to"):
                    message = message.replace(f"{key}.{end}: ", given, 1)
                message = message.replace(f"{key}.nic: ", "--nic: ", 1)
        return message

    def request(self) -> dict[str, Any]:
        """The request; keys that were not given are left out, so that the file's own values hold."""
        one_of("--detour", self.detour, DETOURS)
        one_of("--repair", self.repair, REPAIRS)
        one_of("--balancer", self.balancer, BALANCERS)
        one_of("--hash", self.hash, HASHES)
        one_of("--export", self.export, EXPORTS)
        for name in self.fail:
            if not name.startswith(("link:", "switch:")):
                raise InputError(
                    f"--fail: expected link:NAME or switch:NAME, found `{name}`\n\n"
                    "hint: such as `--fail switch:spine0` or `--fail 'link:leaf0 -> spine1'`"
                )
        request: dict[str, Any] = {"repair": self.repair}
        if self.fail:
            request["fail"] = self.fail
        if self.detour is not None:
            request["detour"] = self.detour
        keys = {"hash": self.hash, "switch_seeds": self.switch_seeds}
        request["hash"] = {key: value for key, value in keys.items() if value is not None}
        if self.weighted is not None:
            request["weighted"] = self.weighted
        if self.path is not None:
            ends = {"from": self.path[0], "to": self.path[1]}
            flow = {"nic": self.nic, "entropy": self.entropy, "balancer": self.balancer, "seed": self.seed}
            request["paths"] = [{**ends, **flow}]
        if self.ecmp is not None:
            request["ecmp"] = [{"from": self.ecmp[0], "to": self.ecmp[1], "nic": self.nic}]
        if self.check:
            request["check"] = {"pairs": CHECKED_PAIRS}
        if self.whole or not self.questions:
            request["analyse"] = True
        if self.draw:
            request["draw"] = True
        if self.export is not None:
            request["export"] = self.export
        return request


def one_of(option: str, value: str | None, known: tuple[str, ...]) -> None:
    """Refuses a value that is not among `known`, with the nearest."""
    if value is None or value in known:
        return
    near = nearest(value, known)
    hint = f"\n\nhint: did you mean `{near}`?" if near else ""
    raise InputError(f"{option}: expected one of `{'`, `'.join(known)}`, found `{value}`{hint}")
