"""The files of the engine and of the Python package, and which of them import which."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMED = re.compile(r"\b(?:crate|super|self)(?:::\w+)+(?:::\{[^;]*\})?", re.DOTALL)
HANDED_ON = re.compile(r"^\s*pub(?:\([a-z]+\))? use ([^;]+);", re.MULTILINE)
TESTS = re.compile(r"^#\[cfg\(test\)\]\s*\nmod \w+ \{", re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*")

Place = tuple[str, ...]


def rust(crate: Path) -> dict[str, set[str]]:
    """Files of a crate's `src`, and the files from which each takes a name.

    A name that a module hands on (`pub use`) is its own file's, so a module's page is not tied to all its rooms.
    """
    source = crate / "src"
    files: dict[Place, Path] = {}
    for path in source.rglob("*.rs"):
        parts = path.relative_to(source).with_suffix("").parts
        files[parts[:-1] if parts[-1] in {"mod", "lib", "main"} else parts] = path
    texts = {place: code(path) for place, path in files.items()}
    handed = {
        place: {
            name: _absolute(target, place)
            for one in HANDED_ON.findall(text)
            for target, name in _spread(re.sub(r"\s+", "", one.replace(" as ", "@")))
        }
        for place, text in texts.items()
    }
    found: dict[str, set[str]] = {}
    for place, text in texts.items():
        own = found.setdefault(str(files[place].relative_to(ROOT)), set())
        # What a page hands on is no use of its own.
        for used in NAMED.findall(HANDED_ON.sub("", text)):
            for target, _ in _spread(re.sub(r"\s+", "", used.replace(" as ", "@"))):
                at = _resolved(_absolute(target, place), files, handed)
                if at is not None and at != place:
                    own.add(str(files[at].relative_to(ROOT)))
    return found


def python(package: Path) -> dict[str, set[str]]:
    """Files of a package, and the files that each imports as it is imported itself."""
    files = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found: dict[str, set[str]] = {}
    for path in files.values():
        own = found.setdefault(str(path.relative_to(ROOT)), set())
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                below = [f"{node.module}.{one.name}" for one in node.names]
                names = [name if name in files else node.module for name in below]
            own.update(str(files[name].relative_to(ROOT)) for name in names if name in files and files[name] != path)
    return found


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Groups of files of which each reaches all others, those of one file left out; the largest first."""
    reached = {file: _reach(arrows, file) for file in arrows}
    groups = {tuple(sorted(other for other in reached[file] if file in reached.get(other, ()))) for file in arrows} - {
        ()
    }
    return sorted((list(group) for group in groups if len(group) > 1), key=len, reverse=True)


def _reach(arrows: dict[str, set[str]], file: str) -> set[str]:
    seen: set[str] = set()
    left = [file]
    while left:
        for other in arrows.get(left.pop(), ()):
            if other not in seen:
                seen.add(other)
                left.append(other)
    return seen


def code(path: Path) -> str:
    """A file's text without its comments and unit tests."""
    text = COMMENT.sub("", path.read_text(encoding="utf-8"))
    tests = TESTS.search(text)
    return text if tests is None else text[: tests.start()]


def _spread(path: str) -> list[tuple[list[str], str]]:
    """`a::{b, c::d@e}` as the paths that it names, each with the name that it gets."""
    head, brace, rest = path.partition("{")
    if not brace:
        parts, _, name = path.partition("@")
        found = [part for part in parts.split("::") if part]
        return [(found, name or found[-1])] if found else []
    inner, depth, start = rest.rstrip("}") if rest.count("{") == 0 else rest[: rest.rfind("}")], 0, 0
    items = []
    for i, letter in enumerate(inner + ","):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            items.append(inner[start:i])
            start = i + 1
    return [found for item in items if item for found in _spread(head + item)]


def _absolute(path: list[str], here: Place) -> list[str]:
    """From the crate's root; a path that begins with neither word is below `here`."""
    first = path[0]
    if first == "crate":
        return path[1:]
    above = list(here)
    if first not in {"self", "super"}:
        return [*above, *path]
    rest = path
    while rest and rest[0] in {"self", "super"}:
        if rest[0] == "super":
            above = above[:-1]
        rest = rest[1:]
    return [*above, *rest]


def _resolved(
    path: list[str], files: dict[Place, Path], handed: dict[Place, dict[str, list[str]]], depth: int = 0
) -> Place | None:
    """The file that has the name at the end of `path`."""
    for end in range(len(path), -1, -1):
        place = tuple(path[:end])
        if place not in files:
            continue
        if end < len(path) and depth < 8:
            on = handed[place].get(path[end])
            if on is not None and on != path[: end + 1]:
                return _resolved([*on, *path[end + 1 :]], files, handed, depth + 1)
        return place
    return None
