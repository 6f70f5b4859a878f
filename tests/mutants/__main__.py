"""`make mutants`: changes important lines one at a time and asks whether the test named beside each notices.

    make mutants MUTANTS="[--only TEXT] [--list] [--write]"

Works in a copy under target/mutants, never in the tree itself. A mutant is `killed` when its test fails, `survived`
when it passes, `unbuilt` when it is no program, and `gone` when the line is not there any more: then the list is to be
renewed. A test that fails without any change is told apart as `broken`. Exit status 1 unless all are killed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRATCH = ROOT / "target" / "mutants"
LIST = Path(__file__).with_name("mutants.toml")
PAGE = ROOT / "docs" / "testing.md"
# A mutant's crate is compiled and its test run once: compiling without optimisation takes a tenth of the time.
QUICK = {f"CARGO_PROFILE_{profile}_{key}": "0" for profile in ("DEV", "TEST") for key in ("OPT_LEVEL", "DEBUG")}
PATIENCE = 900
"""Seconds that a build or a test may take."""
BEGIN, END = "<!-- mutants: made by `make mutants MUTANTS=--write` -->", "<!-- /mutants -->"


@dataclass(frozen=True)
class Mutant:
    """A line to change, and the test that must fail."""

    name: str
    file: str
    find: str
    replace: str
    by: str


def read_list() -> list[Mutant]:
    return [Mutant(**entry) for entry in tomllib.loads(LIST.read_text(encoding="utf-8"))["mutant"]]


def with_list(page: str, mutants: list[Mutant]) -> str:
    """The page with the list of mutants between its marks, by file."""
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    lines = ["| file | mutant | must fail |", "|---|---|---|"]
    lines += [f"| `{m.file}` | {m.name} | `{m.by}` |" for m in sorted(mutants, key=lambda m: (m.file, m.name))]
    return page[:begin] + "\n\n" + "\n".join(lines) + "\n\n" + page[end:]


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutants")
    parser.add_argument("--only", default="", help="those whose name or file has this in it")
    parser.add_argument("--list", action="store_true", help="check that each line is there, and try none")
    parser.add_argument("--write", action="store_true", help="renew the list of docs/testing.md, and try none")
    arguments = parser.parse_args()
    if arguments.write:
        PAGE.write_text(with_list(PAGE.read_text(encoding="utf-8"), read_list()), encoding="utf-8")
        return 0
    chosen = [m for m in read_list() if arguments.only in m.name or arguments.only in m.file]
    missing = [m for m in chosen if (ROOT / m.file).read_text(encoding="utf-8").count(m.find) != 1]
    for mutant in missing:
        print(f"gone      {mutant.name} ({mutant.file})")
    if arguments.list:
        return 1 if missing else 0
    tree = copied_tree()
    # All tests of the unchanged tree come first: after a mutant its crate would have to be built once more for each.
    sound = {by: passes(tree, by) for by in sorted({mutant.by for mutant in chosen})}
    survivors = len(missing)
    for mutant in chosen:
        if mutant in missing:
            continue
        begun = time.monotonic()
        verdict = tried(tree, mutant, sound)
        survivors += verdict != "killed"
        print(f"{verdict:9} {mutant.name} ({mutant.file}, {time.monotonic() - begun:.0f} s)", flush=True)
    print(f"{len(chosen)} mutants, {len(chosen) - survivors} killed")
    return 1 if survivors else 0


def copied_tree() -> Path:
    """A copy of all tracked files, as they are in the work tree; the build beside it is kept from call to call.

    A file that is as it was is left alone: with an older date than the build of its last mutant, that build would
    stand for it.
    """
    tree = SCRATCH / "tree"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    for name in sorted(names):
        text, place = (ROOT / name).read_bytes(), tree / name
        if not place.is_file() or place.read_bytes() != text:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text)
            place.chmod((ROOT / name).stat().st_mode)
    for place in [place for place in tree.rglob("*") if place.is_file()]:
        if place.relative_to(tree).as_posix() not in names:
            place.unlink()
    return tree


def tried(tree: Path, mutant: Mutant, sound: dict[str, bool]) -> str:
    """The verdict on `mutant`; `sound` tells which tests pass unchanged."""
    if not sound[mutant.by]:
        return "broken"
    path = tree / mutant.file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(mutant.find, mutant.replace), encoding="utf-8")
    try:
        if not builds(tree, mutant.by):
            return "unbuilt"
        return "survived" if passes(tree, mutant.by) else "killed"
    finally:
        path.write_text(text, encoding="utf-8")


def builds(tree: Path, by: str) -> bool:
    return ran(tree, [*words(by), "--no-run"])


def passes(tree: Path, by: str) -> bool:
    """Whether the test passes; a name that no test bears is no pass."""
    return ran(tree, words(by), executed=True)


def words(by: str) -> list[str]:
    """The command, with cargo told to be quiet. Filters come after the options of cargo."""
    return by.split()


def ran(tree: Path, command: list[str], *, executed: bool = False) -> bool:
    target = str(SCRATCH / "build")
    with subprocess.Popen(
        [*command, "--target-dir", target],
        cwd=tree, env={**os.environ, **QUICK}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            # A change that makes a test run for ever does not pass unnoticed. The test is a child of cargo's.
            os.killpg(process.pid, signal.SIGKILL)
            return False
    if (
        executed
        and process.returncode == 0
        and not any(line.startswith("test result: ok.") and " 0 passed" not in line for line in said.splitlines())
    ):
        sys.stderr.write(f"no test was run by `{' '.join(command)}`\n")
        return False
    return process.returncode == 0


if __name__ == "__main__":
    raise SystemExit(main())
