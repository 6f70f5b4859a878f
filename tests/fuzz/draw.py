"""Random scenarios: a number in, a small scenario that any fidelity takes out.

Everything is drawn from the number alone, so that a failure is one number. Sizes are kept small (at most 18 hosts and
some ten thousand packets), kinds are not: every shape by rule, every transport and balancer, every pattern and
collective, one job or several, ranks that run ahead, hosts that are slow, packets that are lost.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Mapping = dict[str, Any]

RATES = ("25 Gbps", "100 Gbps", "200 Gbps", "400 Gbps")
LENGTHS = ("2 m", "5 m", "30 m", "100 m", "2 km")
SENDERS = ("dcqcn", "dctcp", "swift", "newreno", "cubic", "mprdma", "uec", "rccc", "eqds")
"""Transports that need no other key."""

CODED = ("dcqcn", "dctcp", "swift", "newreno", "cubic", "bbr", "mprdma", "uec", "hpcc")
"""Transports over which parity may go."""


@dataclass(frozen=True)
class Case:
    """A scenario, with what the properties need to know of how it was drawn."""

    number: int
    scenario: Mapping
    one_path: bool
    """Whether packets of a queue pair keep their order: one path each, and nothing goes down or is lost."""
    lossy: bool
    """Whether cables lose packets at random."""

    @property
    def shares_nics(self) -> bool:
        """Whether GPUs of a host share NICs."""
        host = self.scenario["topology"]["host"]
        return bool(host["nics"] < host["gpus"])


def _cable(rng: random.Random) -> Mapping:
    return {"rate": rng.choice(RATES), "length": rng.choice(LENGTHS)}


def _clos(rng: random.Random) -> Mapping:
    gpus = rng.choice([1, 1, 1, 2, 4])
    nics = rng.choice([1, gpus, gpus, min(2 * gpus, 4)])
    host: Mapping = {"gpus": gpus, "nics": nics}
    if nics > 1 and rng.random() < 0.5:
        host["rails"] = True
    if gpus > 1:
        host["scale_up"] = {"rate": "1600 Gbps", "latency": "500 ns"}
    tiers = rng.choice([1, 2, 2, 3])
    if tiers == 1:
        # A rail is a leaf, and one tier has a single switch.
        host.pop("rails", None)
    per_leaf = rng.choice([2, 4])
    width = nics if nics > 1 and "rails" not in host else 1
    if tiers == 1:
        hosts = rng.randint(2, 10)
        return {"shape": "clos", "hosts": hosts, "host": host, "tiers": [{"ports_down": hosts * width, **_cable(rng)}]}
    rate = rng.choice(RATES)
    lower: Mapping = {"ports_down": per_leaf * width, "rate": rate, "length": rng.choice(LENGTHS)}
    if rng.random() < 0.4:
        lower["oversubscription"] = rng.choice([2, per_leaf * width])
    middle: Mapping = {"ports_down": 4, "rate": rate, "length": rng.choice(LENGTHS)}
    if tiers == 2:
        return {
            "shape": "clos",
            "hosts": per_leaf * rng.randint(2, 4),
            "host": host,
            "tiers": [lower, {**middle, "ports_down": 16}],
        }
    return {
        "shape": "clos", "hosts": per_leaf * 4, "host": host,
        "tiers": [lower, {**middle, "ports_down": 2}, {**middle, "ports_down": 16}],
    }  # fmt: skip


def _grid(rng: random.Random, shape: str) -> Mapping:
    sizes = rng.choice([[4], [3, 3], [2, 4], [2, 2, 3], [4, 4]])
    rate = rng.choice(RATES)
    return {
        "shape": shape, "host": {"gpus": 1, "nics": 1}, "nic_link": {"rate": rate, "length": "2 m"},
        "dimensions": [{"size": size, "rate": rate, "length": rng.choice(LENGTHS)} for size in sizes],
    }  # fmt: skip


def topology(rng: random.Random) -> Mapping:
    """A topology of some shape by rule, of 2 to 18 hosts."""
    shape = rng.choice(["clos"] * 6 + ["fat-tree", "torus", "mesh", "full-mesh", "dragonfly", "dragonfly-plus", "bcube",
                                       "hamming-mesh", "regions"])  # fmt: skip
    one = {"gpus": 1, "nics": 1}
    if shape == "clos":
        return _clos(rng)
    if shape == "fat-tree":
        return {"shape": shape, "k": 4, "host": {"gpus": rng.choice([1, 2]), "nics": 1}, **_cable(rng)}
    if shape in ("torus", "mesh", "full-mesh"):
        return _grid(rng, shape)
    if shape == "dragonfly":
        return {
            "shape": shape, "groups": rng.choice([2, 3, 5]), "routers": 2, "global_links": 2, "hosts_per_router": 1,
            "host": one, "nic_link": _cable(rng), "local": _cable(rng), "global": _cable(rng),
            "routing": rng.choice(["minimal", "valiant"]),
        }  # fmt: skip
    if shape == "dragonfly-plus":
        return {
            "shape": shape, "groups": 3, "leaves": 2, "spines": 2, "global_links": 1, "hosts_per_router": 2,
            "host": one, "nic_link": _cable(rng), "local": _cable(rng), "global": _cable(rng),
        }  # fmt: skip
    if shape == "bcube":
        levels, ports = rng.choice([(1, 4), (2, 2), (2, 3), (2, 4)])
        return {"shape": shape, "ports": ports, "levels": levels, "link": _cable(rng), "host": {"gpus": 1, "nics": 1}}
    if shape == "hamming-mesh":
        return {
            "shape": shape, "board": [2, 2], "boards": rng.choice([[1, 2], [2, 2]]), "board_link": _cable(rng),
            "switch_link": _cable(rng), "host": one,
        }  # fmt: skip
    rate = rng.choice(RATES)
    building = [{"ports_down": 2, "rate": rate, "length": "5 m"}, {"ports_down": 4, "rate": rate, "length": "50 m"}]
    return {
        "shape": "regions", "host": one,
        "buildings": [{"name": name, "hosts": 4, "tiers": building} for name in ("a", "b")],
        "cross": [{"between": ["a", "b"], "count": rng.choice([1, 4]), "rate": rate,
                   "length": rng.choice(["1 km", "20 km"])}],
    }  # fmt: skip


def network(rng: random.Random, shape: str) -> Mapping:
    """How packets behave: a transport with what it needs, a balancer, buffers."""
    transport = rng.choice([*SENDERS, "none", "hpcc", "ndp"])
    # By a stream of its own, so that numbers whose scenarios are known for something keep them.
    if transport in ("newreno", "cubic") and random.Random(f"bbr {rng.getstate()[1][:4]}").random() < 0.4:  # noqa: S311
        transport = "bbr"
    found: Mapping = {"transport": transport}
    if transport in CODED and random.Random(f"erasure {rng.getstate()[1][:4]}").random() < 0.15:  # noqa: S311
        found["recovery"] = random.Random(f"block {rng.getstate()[1][:4]}").choice(  # noqa: S311
            ["erasure", {"erasure": {"data": 4, "parity": 1}}, {"erasure": {"data": 40, "parity": 24}}]
        )
    if shape in ("clos", "fat-tree", "regions"):
        found["load_balancer"] = rng.choice(["ecmp", "ecmp", "destination_modulo", "spray", "adaptive", "reps"])
    if transport == "hpcc":
        found["telemetry"] = True
    if transport == "ndp":
        found["trimming"] = {"queue": "33 KB"}
    if rng.random() < 0.5:
        found["ack_every"] = rng.choice([1, 2, 4, 16])
    if rng.random() < 0.3:
        found["mtu"] = rng.choice(["1500 B", "9000 B"])
    if rng.random() < 0.2:
        found["queue_pairs"] = rng.choice([2, 4])
    if rng.random() < 0.2:
        found["forwarding"] = "cut_through"
    if rng.random() < 0.3 and transport not in ("none", "ndp"):
        found["buffers"] = [{"size": rng.choice(["300 KB", "1 MB", "4 MB"])}]
    return found


def _flows(rng: random.Random) -> Mapping:
    pattern = rng.choice(["ring", "permutation", "incast", "outcast", "all-to-all"])
    found: Mapping = {"pattern": pattern, "bytes": rng.choice(["1 KB", "4 KiB", "100 KB", "1 MiB", "3 MB"])}
    if rng.random() < 0.2 and found["bytes"] != "3 MB":
        found["bytes_to"] = "3 MB"
    return {"flows": found}


def _collective(rng: random.Random) -> Mapping:
    kind, algorithms = rng.choice([
        ("all_reduce", ["auto", "ring", "double_binary_tree", "recursive", "hierarchical"]),
        ("all_gather", ["auto", "ring", "recursive", "bruck"]),
        ("reduce_scatter", ["auto", "ring", "recursive"]),
        ("broadcast", ["auto", "ring", "binomial"]),
        ("all_to_all", ["auto", "direct", "pairwise"]),
        ("barrier", ["auto"]),
    ])  # fmt: skip
    found: Mapping = {"kind": kind, "algorithm": rng.choice(algorithms)}
    found["bytes"] = rng.choice(["8 B", "4 KiB", "256 KiB", "1 MiB", "8 MiB"])
    if rng.random() < 0.3:
        found["form"] = "steps"
    return {"collective": found}


def job(rng: random.Random, name: str) -> Mapping:
    """A job over all GPUs, of a pattern of messages or a collective."""
    workload = _flows(rng) if rng.random() < 0.5 else _collective(rng)
    found: Mapping = {"name": name, "workload": workload}
    if rng.random() < 0.6:
        found["iterations"] = rng.choice([2, 3, 5, 12, 40])
    return found


def scenario(number: int) -> Case:
    """The scenario of `number`: one job on an otherwise idle fabric."""
    rng = random.Random(number)  # noqa: S311
    shape = topology(rng)
    net = network(rng, shape["shape"])
    found: Mapping = {
        "windtunnel": 1, "name": f"fuzz-{number}", "seed": number, "fidelity": "flow", "topology": shape,
        "network": net, "jobs": [job(rng, "a")],
    }  # fmt: skip
    lossy = rng.random() < 0.15 and net["transport"] != "none"
    if lossy:
        found["impairments"] = {"loss": [{"on": "all", "rate": rng.choice([1e-4, 1e-3])}]}
    spread = net.get("load_balancer") in ("spray", "adaptive", "reps")
    return Case(number, found, one_path=not spread and shape.get("routing") != "valiant", lossy=lossy)


def neighbours(number: int) -> Case:
    """The scenario of `number` with two or three jobs that share a fabric, arrivals and placements drawn."""
    rng = random.Random(-number - 1)  # noqa: S311
    shape = _clos(rng)
    net = network(rng, "clos")
    gpus = shape["hosts"] * shape["host"]["gpus"]
    count = rng.choice([2, 2, 3])
    jobs = []
    for i in range(count):
        found = job(rng, "abc"[i])
        of = next(iter(found["workload"].values()))
        of["ranks"] = max(2, gpus // count)
        found["placement"] = rng.choice(["packed", "spread"])
        if i and rng.random() < 0.5:
            found["submit"] = f"{rng.randint(1, 2000)} us"
        jobs.append(found)
    found = {
        "windtunnel": 1, "name": f"fuzz-{number}", "seed": number, "fidelity": "flow", "topology": shape,
        "network": net, "jobs": jobs,
    }  # fmt: skip
    spread = net.get("load_balancer") in ("spray", "adaptive", "reps")
    return Case(number, found, one_path=not spread, lossy=False)


def trained(number: int) -> Case:
    """The scenario of `number` that trains a tiny model, dense or with experts, in some layout; hosts may be slow."""
    rng = random.Random(f"trained {number}")  # noqa: S311
    shape = _clos(rng)
    while shape["hosts"] * shape["host"]["gpus"] < 4:
        shape = _clos(rng)
    shape["host"]["gpu"] = "H100-SXM"
    sparse = rng.random() < 0.4
    tp, pp = rng.choice([1, 2]), rng.choice([1, 2])
    ep = rng.choice([1, 2]) if sparse and tp * pp <= 2 else 1
    gpus = shape["hosts"] * shape["host"]["gpus"]
    dp = max(1, min(4, gpus // (tp * pp * ep)))
    zero = rng.choice([0, 1, 3]) if pp == 1 else rng.choice([0, 1])
    layout: Mapping = {"tp": tp, "pp": pp, "ep": ep, "dp": dp, "zero": zero}
    if pp > 1:
        layout["schedule"] = {"name": rng.choice(["1f1b", "gpipe", "zb-h1"])}
    micro = rng.choice([1, 2])
    model = Path(__file__).with_name("tiny-moe.json" if sparse else "tiny-dense.json")
    job: Mapping = {
        "name": "a",
        "workload": {"model": str(model), "global_batch": ep * dp * micro * rng.choice([2, 4]), "micro_batch": micro,
                     "sequence": 256},
        "parallelism": layout, "placement": rng.choice(["packed", "spread"]), "iterations": rng.choice([1, 3, 6]),
    }  # fmt: skip
    modules = random.Random(f"predicted {number}").choice([0, 0, 1, 2])  # noqa: S311
    if modules:
        job["workload"]["training"] = {"multi_token_prediction": modules}
    net = network(rng, "clos")
    found: Mapping = {
        "windtunnel": 1, "name": f"fuzz-{number}", "seed": number, "fidelity": "flow", "topology": shape,
        "network": net, "jobs": [job], "memory": "ignore",
    }  # fmt: skip
    if rng.random() < 0.3:
        found["variation"] = {"speeds": [{"host": rng.randrange(shape["hosts"]), "speed": rng.choice([0.5, 0.9])}]}
    elif rng.random() < 0.3:
        found["variation"] = {"kernel_noise": {"distribution": "lognormal", "cv": 0.05}}
    spread = net.get("load_balancer") in ("spray", "adaptive", "reps")
    return Case(number, found, one_path=not spread, lossy=False)


def shared(number: int) -> Case:
    """The scenario of `number` with jobs that come and go on a fabric, write checkpoints and are interrupted."""
    rng = random.Random(f"shared {number}")  # noqa: S311
    shape = _clos(rng)
    shape["hosts"] = max(4, shape["hosts"])
    if len(shape["tiers"]) == 1:
        width = 1 if "rails" in shape["host"] else shape["host"]["nics"]
        shape["tiers"][0]["ports_down"] = shape["hosts"] * width
    gpus = shape["hosts"] * shape["host"]["gpus"]
    jobs = []
    for i in range(rng.choice([2, 3, 4])):
        found = job(rng, "abcd"[i])
        next(iter(found["workload"].values()))["ranks"] = rng.randint(2, max(2, gpus // 2))
        found["iterations"] = rng.choice([5, 12, 40])
        found["placement"] = rng.choice(["packed", "spread"])
        if i:
            found["submit"] = f"{rng.randint(1, 3000)} us"
        if rng.random() < 0.5:
            found["checkpoint"] = {"iterations": rng.choice([2, 5]), "write": f"{rng.randint(1, 200)} us"}
        jobs.append(found)
    cluster: Mapping = {"scheduler": rng.choice(["fcfs", "easy", "first-fit"]), "restart": "50 us"}
    if rng.random() < 0.6:
        part = f"host{rng.randrange(shape['hosts'])}"
        at, lasts = f"{rng.randint(10, 2000)} us", f"{rng.randint(10, 500)} us"
        cluster["maintenance"] = [{"part": part, "at": at, "for": lasts}]
    net = network(rng, "clos")
    scene: Mapping = {
        "windtunnel": 1, "name": f"fuzz-{number}", "seed": number, "fidelity": "flow", "topology": shape,
        "network": net, "jobs": jobs, "cluster": cluster,
    }  # fmt: skip
    spread = net.get("load_balancer") in ("spray", "adaptive", "reps")
    return Case(number, scene, one_path=not spread, lossy=False)


def faster(scenario: Mapping) -> Mapping:
    """The same with every rate doubled, and buffers of twice the bytes, which hold as much time."""

    def doubled(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, dict):
            return {key: doubled(v) for key, v in value.items()}
        if isinstance(value, list):
            return [doubled(v) for v in value]
        for unit in (" Gbps", " KB", " MB"):
            if isinstance(value, str) and value.endswith(unit):
                return f"{2 * int(value.removesuffix(unit))}{unit}"
        return value

    network = {key: doubled(v) if key == "buffers" else v for key, v in scenario["network"].items()}
    return {**scenario, "topology": doubled(scenario["topology"]), "network": network}
