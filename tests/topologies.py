"""Answers of the engine about topologies, made by hand, of any size: what the drawing is tested with."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

RATE = 400_000_000_000


def bundle(tier: str, count: int, length_m: float = 30.0, failed: int = 0, **ends: int) -> dict[str, Any]:
    return {"tier": tier, "count": count, "rate_bps": RATE, "length_m": length_m, "failed": failed, **ends}


def member(kind: str, tier: int | None, first: int, count: int) -> dict[str, Any]:
    return {"kind": kind, "tier": tier, "count": count, "first": f"{kind}{first}", "last": f"{kind}{first + count - 1}"}


def group(i: int, name: str, kind: str, members: list[dict[str, Any]], **keys: Any) -> dict[str, Any]:  # noqa: ANN401
    fixed: dict[str, Any] = {"tier": None, "parent": None, "repeat": 1, "inside": [], "failed_switches": 0}
    return {"id": i, "name": name, "kind": kind, "members": members, **fixed, **keys}


def answer(shape: str, groups: list[dict[str, Any]], between: list[dict[str, Any]], **keys: Any) -> dict[str, Any]:  # noqa: ANN401
    def total(of: Any) -> int:  # noqa: ANN401
        return sum(m["count"] for g in groups for m in g["members"] if of(m))

    hosts = total(lambda m: m["kind"] == "host")
    return {
        "shape": shape, "hosts": hosts, "gpus": 8 * hosts, "nics": 8 * hosts, "cables": 12 * hosts,
        "switches": total(lambda m: m["tier"] is not None), "planes": 1, "bisection_bps": hosts * RATE,
        "diameter_links": 6, "diameter_latency_ps": 4_000_000, "parameters": None, "faults": None, "paths": [],
        "drawing": {"level": "groups", "groups": groups, "between": between, "nodes": None, "cables": None}, **keys,
    }  # fmt: skip


def clos(pods: int, hosts_per_pod: int = 64, shown: int = 40) -> dict[str, Any]:
    """Three tiers; of more than `shown` pods the rest is one group, as the engine has it."""
    leaves, tops = 8, 8
    groups, between = [], []
    for pod in range(min(pods, shown)):
        times = pods - shown + 1 if pods > shown and pod == shown - 1 else 1
        members = [member("host", None, pod * hosts_per_pod, hosts_per_pod * times),
                   member("leaf", 0, pod * leaves, leaves * times),
                   member("agg", 1, pod * tops, tops * times)]  # fmt: skip
        inside = [bundle("nic", hosts_per_pod * 8 * times), bundle("leaf-up", leaves * tops * times, 50)]
        groups.append(group(pod, f"pod{pod}", "pod", members, tier=1, inside=inside, repeat=times))
        between.append(bundle("agg-up", 64 * times, 100, a=pod, b=1000))
    groups.append(group(1000, "spine", "layer", [member("spine", 2, 0, 64)], tier=2))
    return answer("clos", groups, between)


def dragonfly(count: int, shown: int = 40) -> dict[str, Any]:
    groups, between = [], []
    for i in range(min(count, shown)):
        times = count - shown + 1 if count > shown and i == shown - 1 else 1
        members = [member("host", None, 128 * i, 128 * times), member("router", 0, 16 * i, 16 * times)]
        inside = [bundle("nic", 128 * times), bundle("local", 120 * times, 5)]
        groups.append(group(i, f"group{i}", "pod", members, tier=0, inside=inside, repeat=times))
        between += [bundle("global", times, 20, a=j, b=i) for j in range(i)]
    return answer("dragonfly", groups, between)


def torus(*sizes: int, shape: str = "torus") -> dict[str, Any]:
    total = 1
    for size in sizes:
        total *= size
    members = [member("host", None, 0, total), member("router", 0, 0, total)]
    dimensions = [{"size": size, "wrap": shape == "torus", "links": 1} for size in sizes]
    return answer(shape, [group(0, "all", "pod", members, tier=0)], [], parameters={"dimensions": dimensions})


def hamming(board: tuple[int, int], boards: tuple[int, int]) -> dict[str, Any]:
    total = board[0] * board[1] * boards[0] * boards[1]
    members = [member("host", None, 0, total), member("accelerator", 0, 0, total)]
    return answer(
        "hammingmesh", [group(0, "all", "pod", members, tier=0)], [], parameters={"board": board, "boards": boards}
    )


def regions(buildings: int, pods: int = 4, length_m: float | None = None) -> dict[str, Any]:
    groups, between = [], []
    for b in range(buildings):
        groups.append(group(b, f"building{b}", "building", [], tier=2))
        for pod in range(pods):
            i = 100 + b * 100 + pod
            members = [member("host", None, 64 * (b * pods + pod), 64), member("rtsw", 0, 8 * (b * pods + pod), 8),
                       member("ctsw", 1, 8 * (b * pods + pod), 8)]  # fmt: skip
            groups.append(group(i, f"building{b}/pod{pod}", "pod", members, tier=1, parent=b))
            between.append(bundle("ctsw-up", 64, 100, a=i, b=100 + b * 100 + 50))
        groups.append(
            group(150 + b * 100, f"building{b}/atsw", "layer", [member("atsw", 2, 16 * b, 16)], tier=2, parent=b)
        )
        between += [
            bundle("cross-building", 32, length_m or 1000.0 * (b + other + 1), a=150 + other * 100, b=150 + b * 100)
            for other in range(b)
        ]
    return answer("regions", groups, between)


def leaf_spine(leaves: int = 4, spines: int = 3, hosts_per_leaf: int = 4) -> dict[str, Any]:
    """Small enough for a box a node."""
    nodes, cables, groups = [], [], []
    for leaf in range(leaves):
        groups.append(group(leaf, f"rack{leaf}", "rack", [member("host", None, leaf * hosts_per_leaf, hosts_per_leaf),
                                                          member("leaf", 0, leaf, 1)], tier=0))  # fmt: skip
        for host in range(hosts_per_leaf):
            i = leaf * hosts_per_leaf + host
            nodes.append({"id": i, "name": f"host{i}", "kind": "host", "tier": None, "group": leaf, "failed": False})
            cables.append(bundle("nic", 8, a=i, b=1000 + leaf))
        nodes.append({"id": 1000 + leaf, "name": f"leaf{leaf}", "kind": "leaf", "tier": 0, "group": leaf,
                      "failed": False, "coordinates": [leaf]})  # fmt: skip
        cables += [bundle("leaf-up", 1, 100, a=1000 + leaf, b=2000 + spine) for spine in range(spines)]
    groups.append(group(leaves, "spine", "layer", [member("spine", 1, 0, spines)], tier=1))
    nodes += [{"id": 2000 + s, "name": f"spine{s}", "kind": "spine", "tier": 1, "group": leaves, "failed": False,
               "coordinates": [s]} for s in range(spines)]  # fmt: skip
    found = answer("clos", groups, [bundle("leaf-up", spines, 100, a=leaf, b=leaves) for leaf in range(leaves)])
    found["drawing"] |= {"level": "nodes", "nodes": nodes, "cables": cables}
    return found


def with_path(found: dict[str, Any], *names: str, verdict: str = "legal") -> dict[str, Any]:
    links = [
        {
            "name": f"{a} -> {b}",
            "from": a,
            "to": b,
            "tier": "x",
            "share": 1.0,
            "rate_bps": RATE,
            "latency_ps": 650_000,
            "length_m": 30.0,
            "loss": 0.0,
        }
        for a, b in pairwise(names)
    ]
    path = {"from": names[0], "to": names[-1], "nic": 0, "entropy": 0, "balancer": "ecmp", "seed": 0, "class": "beyond",
            "verdict": verdict, "latency_ps": 2_700_000, "switches": len(names) - 2, "links": links}  # fmt: skip
    return {**found, "paths": [path]}
