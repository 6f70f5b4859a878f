"""`docs/scenario.md` is what the schema says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windtunnel import engine
from windtunnel.cli.schema_docs import HEAD, render

ROOT = Path(__file__).resolve().parents[1]

SCHEMA = {
    "type": "object",
    "required": ["name", "topology"],
    "properties": {
        "receiver": {"$ref": "#/$defs/Receiver", "default": "held", "description": "Whether a message holds it."},
        "network": {"$ref": "#/$defs/Network", "default": {"mtu": "9 KB"}},
        "name": {"type": "string", "description": "Name of the\nscenario."},
        "seed": {"type": "integer", "format": "uint64", "default": 1, "description": "Seed."},
        "topology": {"$ref": "#/$defs/Topology"},
        "jobs": {"type": "array", "items": {"$ref": "#/$defs/Job"}, "description": "Jobs."},
    },
    "$defs": {
        "Receiver": {
            "oneOf": [
                {"type": "string", "const": "held", "description": "For its length."},
                {"type": "string", "const": "free", "description": "For o and g only."},
            ]
        },
        "Network": {
            "type": "object",
            "description": "Packets.",
            "properties": {
                "mtu": {
                    "type": ["string", "null"],
                    "format": "size",
                    "default": "9 KB",
                    "description": "Largest packet.",
                },
            },
        },
        "Rate": {"type": "string", "format": "rate", "description": "A rate."},
        "Job": {
            "type": "object",
            "description": "A job.",
            "properties": {
                "mode": {"enum": ["a", "b"], "default": "a"},
                "other": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Job"}]},
            },
        },
        "Topology": {
            "description": "The fabric.",
            "oneOf": [
                {
                    "type": "object",
                    "description": "Folded Clos.",
                    "required": ["shape", "rate"],
                    "properties": {
                        "shape": {"const": "clos"},
                        "rate": {"$ref": "#/$defs/Rate", "description": "Rate of a link | port."},
                    },
                },
                {"type": "object", "required": ["file"], "properties": {"file": {"type": ["string", "null"]}}},
            ],
        },
    },
}


def test_a_page_has_every_key_with_type_unit_default_and_meaning() -> None:
    assert render(SCHEMA) == HEAD + "\n".join([
        "| key | type | unit | default | meaning |",
        "|---|---|---|---|---|",
        ("| `receiver` | `held`, `free` |  | `held` | Whether a message holds it. "
        "`held`: For its length; `free`: For o and g only. |"),
        "| `network` | record |  | as below | Packets. |",
        "| `name` | text |  |  | Name of the scenario. |",
        "| `seed` | whole number |  | `1` | Seed. |",
        "| `topology` | record |  |  | The fabric. |",
        "| `jobs` | list of record |  | optional | Jobs. |",
        "",
        "## `network`",
        "",
        "Packets.",
        "",
        "| key | type | unit | default | meaning |",
        "|---|---|---|---|---|",
        "| `mtu` | size | `KiB`, `MB`, … | `9 KB` | Largest packet. |",
        "",
        "## `topology`",
        "",
        "The fabric.",
        "",
        "**`shape: clos`**: Folded Clos.",
        "",
        "| key | type | unit | default | meaning |",
        "|---|---|---|---|---|",
        "| `shape` | `clos` |  |  |  |",
        "| `rate` | rate | `Gbps`, `GB/s`, … |  | Rate of a link \\| port. |",
        "",
        "**`file`**",
        "",
        "| key | type | unit | default | meaning |",
        "|---|---|---|---|---|",
        "| `file` | text |  |  |  |",
        "",
        "## `jobs[]`",
        "",
        "A job.",
        "",
        "| key | type | unit | default | meaning |",
        "|---|---|---|---|---|",
        "| `mode` | `a`, `b` |  | `a` |  |",
        "| `other` | record |  | optional |  |",
        "",
        "## `jobs[].other`",
        "",
        "As `jobs[]`.",
        "",
    ])  # fmt: skip


@pytest.mark.engine
def test_the_page_in_the_docs_is_up_to_date() -> None:
    page = (ROOT / "docs" / "scenario.md").read_text(encoding="utf-8")
    assert page == render(json.loads(engine.schema())), "run `make docs`"
