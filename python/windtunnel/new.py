"""A crate of the user's own, outside the repository, with a transport to begin with.

The template is `examples/own-transport` of the checkout that the crate will be built against, so that there is one
transport to keep and it fits the crates that it depends on: of that example the files of the transport, and the few in
its folder `template` that a crate with nothing else needs. Names are changed, and the manifest's references to the
workspace become paths and versions. `Cargo.lock` comes along: the crate builds with what the checkout is tested with.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from windtunnel import engine
from windtunnel.engine import InputError

EXAMPLE = "own-transport"
"""The example of the template, which its texts call so; and what its transport is called in them."""

LAW = "aimd"

FILES = {
    "src/aimd.rs": "src/aimd.rs",
    "src/lib.rs": "template/lib.rs",
    "src/main.rs": "src/main.rs",
    "src/python.rs": "src/python.rs",
    "tests/all/main.rs": "template/tests.rs",
    "tests/all/ask.rs": "tests/all/ask.rs",
    "tests/all/aimd.rs": "tests/all/aimd.rs",
    "scenario.yaml": "scenario.yaml",
    "README.md": "template/README.md",
}
"""File of the crate (with the transport's name for `aimd`) → file of the example."""

RESERVED = frozenset(
    "abstract as async await become box break const continue crate do dyn else enum extern false final fn for gen if "
    "impl in let loop macro match mod move mut override priv pub ref return self static struct super trait true try "
    "type typeof unsafe unsized use virtual where while yield alloc core proc_macro std test build deps examples "
    "incremental".split()
)
"""What Cargo and Rust take for something else (The Rust Reference, keywords; Cargo's restricted names)."""

OPTIMISED = """
# Each crate that this one depends on is optimised once. The packet engine is compiled into this one, so that is
# optimised a little for tests, too.
[profile.dev]
opt-level = 1
debug = "line-tables-only"

[profile.dev.package."*"]
opt-level = 2
debug = false

# A folder inside another workspace stays a crate of its own.
[workspace]
"""


def new_transport(name: str, out: Path, source: Path | None) -> Path:
    """Writes the crate `name` into the new folder `out / name` and returns that.

    `source` is a checkout of Windtunnel, None for the one that this package is part of. Raises `InputError` if the name
    cannot be used, the folder is there already, or there is no checkout; nothing is written then.
    """
    _check_name(name)
    target = out / name
    if target.exists() or target.is_symlink():
        raise InputError(f"`{target}` is there already\n\nhint: `--out FOLDER` writes into another folder")
    if not out.is_dir():
        raise InputError(f"no such folder: `{out}`")
    checkout = _checkout(source)
    texts = _texts(checkout, name)
    beside = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=out))
    try:
        beside.chmod(0o755)
        for path, text in texts.items():
            file = beside / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        beside.rename(target)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return target


def word_of(name: str) -> str:
    """What the crate is called in Rust and its transport in scenarios."""
    return name.replace("-", "_")


def type_of(name: str) -> str:
    """What the transport's type is called: `my-law` is `MyLaw`."""
    return "".join(part[:1].upper() + part[1:] for part in word_of(name).split("_"))


def _check_name(name: str) -> None:
    """Raises `InputError` unless `name` can be a crate and a transport beside those that there are."""
    if not re.fullmatch(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*", name) or len(name) > 64:
        raise InputError(
            f"NAME: `{name}` is no name of a crate\n\n"
            "hint: small letters, digits and single `-` or `_` between them, a letter first, such as `my-law`"
        )
    word = word_of(name)
    if word in RESERVED or word.startswith("windtunnel"):
        raise InputError(
            f"NAME: `{name}` means something else to Rust or Cargo\n\nhint: another name, such as `my-{name}`"
        )
    if word in {known.replace("-", "_") for known, _ in engine.names("transports")}:
        raise InputError(
            f"NAME: `{name}` is a built-in transport\n\n"
            f"hint: another name, such as `my-{name}`, so that scenarios may have both"
        )


def _checkout(source: Path | None) -> Path:
    """The folder of a checkout, absolute."""
    from windtunnel.shipped import PACKAGE  # noqa: PLC0415

    found = (PACKAGE.parents[1] if source is None else source).resolve()
    missing = [each for each in ("Cargo.toml", "crates/scenario", f"examples/{EXAMPLE}") if not (found / each).exists()]
    if source is None and missing:
        raise InputError(
            "a crate is built against Windtunnel's own crates, and this installation has none\n\n"
            "hint: `--source DIR` names a checkout of its repository"
        )
    missing += (
        [] if missing else [file for file in FILES.values() if not (found / "examples" / EXAMPLE / file).is_file()]
    )
    if missing:
        raise InputError(
            f"--source: `{source or found}` is no checkout of this version of Windtunnel: there is no `{missing[0]}`"
        )
    return found


def _texts(checkout: Path, name: str) -> dict[str, str]:
    """Every file of the crate by its path."""
    home = checkout / "examples" / EXAMPLE
    raw = {path: (home / file).read_text(encoding="utf-8") for path, file in FILES.items()}
    used = set(
        re.findall(r"[A-Za-z_][A-Za-z0-9_]*", "\n".join(text for path, text in raw.items() if path.endswith(".rs")))
    )
    if {word_of(name), type_of(name), f"{type_of(name)}Flow"} & (used - {word_of(EXAMPLE), LAW, type_of(LAW)}):
        raise InputError(
            f"NAME: the template has a `{name}` or `{type_of(name)}` of its own\n\n"
            f"hint: another name, such as `my-{name}`"
        )
    changed = {
        _renamed(path, name): _renamed(text, name)
        .replace("WINDTUNNEL)", f"{checkout})")
        .replace("`WINDTUNNEL`", f"`{checkout}`")
        for path, text in raw.items()
    }
    return {
        "Cargo.toml": _manifest(checkout, name),
        "Cargo.lock": (checkout / "Cargo.lock").read_text(encoding="utf-8"),
        ".gitignore": "/target\n*.abi3.so\n/runs\n",
        **changed,
    }


def _renamed(text: str, name: str) -> str:
    """`text` of the template with the names of this crate."""
    text = re.sub(rf"\b{EXAMPLE}\b", name, text)
    text = re.sub(rf"\b(lib)?{word_of(EXAMPLE)}\b", lambda found: (found[1] or "") + word_of(name), text)
    text = re.sub(rf"\b{LAW}\b", word_of(name), text)
    return re.sub(rf"\b{type_of(LAW)}(Flow)?\b", lambda found: type_of(name) + (found[1] or ""), text)


def _manifest(checkout: Path, name: str) -> str:
    """The example's manifest, by itself: what it has of the workspace is written out."""
    own = tomllib.loads((checkout / "examples" / EXAMPLE / "Cargo.toml").read_text(encoding="utf-8"))
    shared = tomllib.loads((checkout / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]

    def written_out(key: str, value: Any) -> Any:  # noqa: ANN401 (a value of TOML)
        if not (isinstance(value, dict) and value.get("workspace")):
            return value
        base = shared["dependencies"][key]
        base = dict(base) if isinstance(base, dict) else {"version": base}
        if "path" in base:
            base["path"] = str(checkout / base["path"])
        return base | {each: setting for each, setting in value.items() if each != "workspace"}

    package = shared["package"]
    tables: dict[str, dict[str, Any]] = {
        "package": {
            "name": name,
            "description": "A transport for Windtunnel",
            "version": "0.1.0",
            "edition": package["edition"],
            "rust-version": package["rust-version"],
            "publish": False,
        },
        "lib": own["lib"],
        "features": own["features"],
        **{
            kind: {key: written_out(key, value) for key, value in own[kind].items()}
            for kind in ("dependencies", "dev-dependencies")
        },
    }
    text = "\n".join(
        f"[{table}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in values.items())
        for table, values in tables.items()
    )
    return text + OPTIMISED


def _toml(value: Any) -> str:  # noqa: ANN401 (a value of TOML)
    """A value on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
