"""A scheduler that spreads jobs over pods, as for power: whole hosts, one of each pod in turn."""

from __future__ import annotations

from windtunnel.policies import Need, Placement

POD = 32
GPUS = 8


class InTurn(Placement):
    """Jobs of whole hosts over all pods alike; jobs that ask for a pod in the fullest that has room."""

    def place(self, free: dict[int, list[int]], need: Need) -> list[int] | None:
        """Whole hosts, or None if there are too few."""
        pods: dict[int, list[int]] = {}
        for host in sorted(free):
            if len(free[host]) == GPUS:
                pods.setdefault(host // POD, []).append(host)
        hosts = -(-need.gpus // GPUS)
        if need.locality == "pod":
            able = [pod for pod in pods.values() if len(pod) >= hosts]
            chosen = min(able, key=len)[:hosts] if able else []
        else:
            turns = [(place, pod, host) for pod, all_of in pods.items() for place, host in enumerate(all_of)]
            chosen = [host for _, _, host in sorted(turns)[:hosts]]
        if len(chosen) < hosts:
            return None
        return [gpu for host in chosen for gpu in sorted(free[host])][: need.gpus]
