"""Whatever a key holds, the message is about the file: no words of the YAML reader or of the engine's language."""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from windtunnel import engine
from windtunnel.engine import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

Path = tuple[str | int, ...]

TIER = {"ports_down": 8, "rate": "400 Gbps", "length": "20 m", "loss": 0.0}
PACKETS: dict[str, Any] = {
    "windtunnel": 1,
    "name": "packets",
    "seed": 1,
    "fidelity": "packet",
    "memory": "ignore",
    "topology": {
        "shape": "clos",
        "hosts": 8,
        "tiers": [TIER, {"ports_down": 4, "rate": "400 Gbps", "length": "50 m"}],
        "host": {"gpu": "H100-SXM", "gpus": 1, "nics": 1, "nic": "ConnectX-7", "rails": False},
    },
    "network": {
        "transport": "dctcp",
        "load_balancer": {"ecmp": {"hash": "crc16"}},
        "mtu": "4 KiB",
        "queue_pairs": 2,
        "ecn": {"kmin": "100 KB", "kmax": "400 KB"},
        "buffers": [{"size": "16 MB", "alpha": 1.0}],
        "parameters": {"g": 0.0625},
    },
    "impairments": {"loss": [{"on": ["leaf-up"], "rate": 0.001}], "down": [{"part": "leaf0 -> spine1", "at": "1 ms"}]},
    "jobs": [{"name": "a", "workload": {"flows": {"pattern": "ring", "bytes": "1 MB"}}, "iterations": 2}],
    "results": {"flows": "none", "ideal": False},
}
TRAINING: dict[str, Any] = {
    "windtunnel": 1,
    "name": "training",
    "fidelity": "flow",
    "topology": {**PACKETS["topology"], "host": {"gpu": "A100-80", "gpus": 4, "nics": 4}},
    "variation": {"kernel_noise": {"distribution": "lognormal", "cv": 0.02}, "speeds": [{"host": 0, "speed": 0.9}]},
    "jobs": [
        {
            "name": "model",
            "workload": {
                "model": "llama3-8b",
                "global_batch": 16,
                "micro_batch": 1,
                "sequence": 2048,
                "training": {"recompute": "full", "fused": False, "dispatch": "5 us", "layers_per_stage": [16, 16]},
            },
            "parallelism": {
                "tp": 4,
                "pp": 2,
                "dp": 2,
                "schedule": {"name": "1f1b"},
                "order": ["tp", "cp", "ep", "dp", "pp"],
            },
            "checkpoint": {"every": "1 h", "write": "30 s"},
        },
        {
            "name": "reduce",
            "workload": {"collective": {"kind": "all_reduce", "bytes": "1 MiB", "form": "steps"}},
        },
    ],
    "cluster": {
        "scheduler": "easy",
        "faults": [{"class": "host", "mtbf": "30 d", "repair": "1 h"}],
    },
}

ODD: tuple[Any, ...] = (3, -1, 2.5, 1e30, "x", "", True, None, [], [1], {}, {"a": 1})

STRANGE = re.compile(
    r"\b(?:[iuf](?:8|16|32|64|128)|usize|struct|enum|tuple|Option|serde|variant|untagged|tagged|newtype|visitor|scalar|from_str\w*|"
    r"deserializ\w*|sequence (?:start|end)|mapping (?:start|end)|unit value|string or map|data did not match)\b|::"
)


def places(tree: object, at: Path = ()) -> Iterator[Path]:
    """Paths of all keys and items of a tree."""
    if at:
        yield at
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in pairs:
        yield from places(value, (*at, key))


def held(tree: Any, at: Path) -> Any:  # noqa: ANN401
    for key in at:
        tree = tree[key]
    return tree


def written(at: Path) -> str:
    """A path as `--set` takes it."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in at).removeprefix(".")


def message(text: str, overrides: list[tuple[str, str]]) -> str | None:
    try:
        engine.explain(text, "a.yaml", ".", overrides, {})
    except InputError as error:
        return str(error)
    return None


@pytest.mark.engine
@pytest.mark.parametrize("tree", [PACKETS, TRAINING], ids=lambda tree: tree["name"])
def test_messages_are_about_the_file(tree: dict[str, Any]) -> None:
    whole = json.dumps(tree)
    assert message(whole, []) is None
    told = 0
    for at in places(tree):
        for odd in ODD:
            changed = copy.deepcopy(tree)
            held(changed, at[:-1])[at[-1]] = odd
            in_file = message(json.dumps(changed), [])
            by_option = message(whole, [(written(at), json.dumps(odd))])
            for said in (in_file, by_option):
                assert said is None or not STRANGE.search(said), f"{written(at)} = {odd!r}: {said}"
                told += said is not None
            # Nothing (`null`) takes a key out for `--set`.
            if odd is not None:
                assert (in_file is None) == (by_option is None), f"{written(at)} = {odd!r}: {in_file} / {by_option}"
            if (
                isinstance(odd, list)
                and isinstance(held(tree, at), dict)
                and at[-1] not in ("load_balancer", "parameters")
            ):
                assert in_file is not None, f"{written(at)}: a list for a mapping"
    assert told > 500


@pytest.mark.engine
@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("jobs[0].workload.flows.bytes", "0.3 B", "it would count as 0 B, and parts of 1 B do not count"),
        ("jobs[0].workload.flows.bytes", "1e30 B", "it exceeds the most that fits, 18446744073709551615 B"),
        ("jobs[0].workload.flows.bytes", "010 B", "it begins with a 0"),
        ("jobs[0].iterations", "010", "a whole number is written in plain digits"),
        ("jobs[0].iterations", "1e30", "expected a whole number from 0 to 18446744073709551615"),
        ("jobs[0].iterations", "1e2", "a whole number is written in plain digits"),
        ("topology.hosts", "4294967296", "expected a whole number from 0 to 4294967295, found `4294967296`"),
        ("seed", "18446744073709551616", "expected a whole number from 0 to 18446744073709551615"),
        ("name", "", "--set name: expected a value, found nothing"),
        ("name", '""', "name: expected a name, found an empty text"),
        ("jobs[0].name", '"  "', "jobs[0].name: expected a name, found an empty text"),
        ("network", "[]", "expected a mapping of keys to values"),
        ("fidelity", "3", "expected a name, found `3`"),
        ("impairments.loss[0].on", "3", "expected a tier, a link, a switch or `all`, or a list of these"),
    ],
)
def test_slips_are_told(key: str, value: str, said: str) -> None:
    found = message(json.dumps(PACKETS), [(key, value)])
    assert found is not None
    assert said in found


@pytest.mark.engine
def test_powers_of_ten_are_quantities() -> None:
    found = json.dumps(PACKETS)
    assert message(found, [("jobs[0].workload.flows.bytes", "1e6 B"), ("network.timeout", "2.5e-3 s")]) is None
