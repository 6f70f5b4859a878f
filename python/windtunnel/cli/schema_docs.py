"""Writes `docs/scenario.md` from the JSON Schema: every key with its type, unit, default and meaning.

`python -m windtunnel.cli.schema_docs docs/scenario.md`; with `--check` it only says whether the file is up to date.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windtunnel import engine
from windtunnel.results.folder import write_beside

HEAD = """# The scenario file

Generated from the schema by `make docs`; `windtunnel schema` prints the schema itself.

A quantity carries its unit: `400 Gbps`, `200 ns`, `256 MiB`, `30 m`, `2.5e-6 s`. `Gbps` is 10^9 bit/s; `KiB`, `MiB` and
`GiB` are powers of 2, `KB`, `MB` and `GB` powers of 10. What is no whole number of bytes, bit/s, ps or mm is rounded,
and refused where that changes it by more than 1%. A bare number where a unit is due is an error, and so is an unknown
key.
A key without a default must be given, unless it is marked optional. Any key can be set from the command line:
`--set jobs[0].parallelism.tp=4`; `null` takes it out, as if it had not been written.

"""

Schema = dict[str, Any]


def render(schema: Schema) -> str:
    """The page, from the JSON Schema of a scenario."""
    return HEAD + "\n".join(_Page(schema).sections())


@dataclass
class _Page:
    root: Schema
    out: list[str] = field(default_factory=list)
    seen: dict[str, str] = field(default_factory=dict)

    def sections(self) -> list[str]:
        self._section("", self.root)
        return self.out

    def _section(self, path: str, schema: Schema) -> None:
        """A section per record: its keys as a table, then the records below it."""
        schema = self._resolve(schema)
        records = [self._resolve(s) for s in _alternatives(schema)]
        records = [s for s in records if s.get("properties")]
        if not records:
            return
        if path:
            self.out += [f"## `{path}`", ""]
            if text := _text(schema):
                self.out += [text, ""]
        below: dict[str, Schema] = {}
        for record in records:
            if len(records) > 1:
                self.out += [f"**{_title(record)}**" + (f": {text}" if (text := _text(record)) else ""), ""]
            self.out += ["| key | type | unit | default | meaning |", "|---|---|---|---|---|"]
            for key, value in record["properties"].items():
                self.out.append(self._row(key, value, required=key in record.get("required", [])))
                below.setdefault(key, value)
            self.out.append("")
        for key, value in below.items():
            self._below(f"{path}.{key}" if path else key, value)

    def _below(self, path: str, schema: Schema) -> None:
        for inner, suffix in self._records_in(schema):
            name = str(inner.get("$ref", ""))
            where = f"{path}{suffix}"
            if name and name in self.seen:
                self.out += [f"## `{where}`", "", f"As `{self.seen[name]}`.", ""]
                continue
            if name:
                self.seen[name] = where
            self._section(where, inner)

    def _records_in(self, schema: Schema) -> list[tuple[Schema, str]]:
        """The records that a value may hold, each with what its place adds to the path."""
        resolved = self._resolve(schema)
        if "items" in resolved:
            return [(inner, f"[]{suffix}") for inner, suffix in self._records_in(resolved["items"])]
        if isinstance(resolved.get("additionalProperties"), dict):
            return [(inner, f".NAME{suffix}") for inner, suffix in self._records_in(resolved["additionalProperties"])]
        options = [s for s in _alternatives(resolved) if s.get("type") != "null"]
        if len(options) == 1 and options[0] is not resolved:
            return self._records_in(options[0])
        lists = [s for s in options if "items" in self._resolve(s)]
        if lists and len(lists) < len(options):
            # A list of records, or one record: both have their sections.
            rest = [s for s in options if s not in lists]
            return [found for s in [*lists, *rest] for found in self._records_in(s)]
        if any(self._resolve(s).get("properties") for s in options):
            return [(schema, "")]
        return [found for s in options if s is not resolved for found in self._records_in(s)]

    def _row(self, key: str, schema: Schema, *, required: bool) -> str:
        resolved = self._resolve(schema)
        default = schema.get("default", resolved.get("default"))
        if isinstance(default, dict):
            shown = "as below"
        elif default is not None:
            shown = f"`{default if isinstance(default, str) else json.dumps(default)}`"
        else:
            shown = "" if required else "optional"
        unit = self._unit(schema)
        text = schema.get("description") or resolved.get("description") or ""
        if choices := self._choices(schema):
            text = f"{text} {choices}"
        cells = [f"`{key}`", self._type(schema), unit, shown, " ".join(text.split())]
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    def _choices(self, schema: Schema) -> str:
        """What each word means that a value may be, where the schema says so."""
        words = []
        for option in _alternatives(self._resolve(schema)):
            inner = [option, *_alternatives(self._resolve(option))]
            words += [f"`{s['const']}`: {_text(s).rstrip('.')}" for s in inner if "const" in s and _text(s)]
        return "; ".join(dict.fromkeys(words)) + ("." if words else "")

    def _unit(self, schema: Schema) -> str:
        """Units of a quantity, or of the quantity that a nullable value or a list holds."""
        resolved = self._resolve(schema)
        inner = [resolved["items"]] if "items" in resolved else _alternatives(resolved)
        found = [_UNITS.get(str(self._resolve(s).get("format"))) for s in [resolved, *inner]]
        return next((unit for unit in found if unit), "")

    def _type(self, schema: Schema) -> str:
        resolved = self._resolve(schema)
        if resolved.get("format") in _UNITS:
            return str(resolved["format"])
        if "const" in resolved:
            return f"`{_plain(resolved['const'])}`"
        if "enum" in resolved:
            return ", ".join(f"`{_plain(value)}`" for value in resolved["enum"])
        if resolved.get("properties"):
            return "record"
        if "items" in resolved:
            return f"list of {self._type(resolved['items'])}"
        options = [s for s in _alternatives(resolved) if s.get("type") != "null"]
        if options and options[0] is not resolved:
            joined = ", ".join(dict.fromkeys(self._type(s) for s in options))
            return joined if joined.startswith("`") else joined.replace(", ", " or ")
        kind = resolved.get("type", "any")
        kinds = [k for k in kind if k != "null"] if isinstance(kind, list) else [kind]
        return " or ".join(_KINDS.get(k, k) for k in kinds) if not _is_map(resolved) else "record by name"

    def _resolve(self, schema: Schema) -> Schema:
        """Follows references; what stands beside a reference is kept."""
        while "$ref" in schema:
            target: Any = self.root
            for part in str(schema["$ref"]).removeprefix("#/").split("/"):
                target = target[part]
            schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
        return schema


_UNITS = {
    "rate": "`Gbps`, `GB/s`, …",
    "size": "`KiB`, `MB`, …",
    "time": "`ns`, `us`, `ms`, `s`, …",
    "length": "`m`, `km`, …",
}
"""Formats of the schema that are quantities: units a value may carry, for example."""

_KINDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "record",
}


def _alternatives(schema: Schema) -> list[Schema]:
    return schema.get("oneOf") or schema.get("anyOf") or [schema]


def _is_map(schema: Schema) -> bool:
    return isinstance(schema.get("additionalProperties"), dict)


def _title(schema: Schema) -> str:
    for key, value in schema["properties"].items():
        if "const" in value:
            return f"`{key}: {value['const']}`"
    return ", ".join(f"`{key}`" for key in schema.get("required") or list(schema["properties"])[:3])


def _text(schema: Schema) -> str:
    return " ".join(str(schema.get("description", "")).split())


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def main(arguments: list[str]) -> int:
    """Writes the page to the file named, or checks it."""
    check = "--check" in arguments
    files = [argument for argument in arguments if argument != "--check"]
    if len(files) != 1:
        sys.stderr.write("usage: python -m windtunnel.cli.schema_docs [--check] FILE\n")
        return 2
    path, page = Path(files[0]), render(json.loads(engine.schema()))
    if check:
        if path.is_file() and path.read_text(encoding="utf-8") == page:
            return 0
        sys.stderr.write(f"error: `{path}` is not what the schema says\n\nhint: run `make docs`\n")
        return 1
    write_beside(path, page.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
