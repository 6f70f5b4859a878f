"""Commands as pages write them: those in blocks, with or without a prompt, and those inside a sentence."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHELLS = ("console", "sh")
"""Languages of blocks that hold commands."""

PROGRAMS = ("windtunnel", "make", "cargo", "cc", "cp", "export", "python", ".venv/bin/python")
"""What pages tell to run. A word in front that sets a variable of the environment is none."""


class Written(NamedTuple):
    """A command of a page."""

    page: str
    line: str
    """Without prompt, comment and line breaks."""
    prompted: bool
    """It stands behind `$` in a block: what it prints may follow."""
    of_block: bool = True
    """It does not stand in a sentence."""

    @property
    def words(self) -> list[str]:
        """The program and its arguments."""
        words = shlex.split(self.line)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        return words


def of_page(page: Path) -> Iterator[Written]:
    """All commands of a page, in order of blocks, then of sentences."""
    text = page.read_text(encoding="utf-8")
    fence = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
    for language, block in fence.findall(text):
        if language in SHELLS:
            yield from _of_block(page.name, block)
    prose = " ".join(fence.sub("", text).split())
    for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose):
        if re.match(r"(?:windtunnel|make) [a-z]", span):
            for line in span.split("; "):
                if line.startswith(("windtunnel ", "make ")):
                    yield Written(page.name, line, prompted=False, of_block=False)


def _of_block(page: str, block: str) -> Iterator[Written]:
    prompts = "$ " in block
    for line in block.replace("\\\n", " ").splitlines():
        if prompts and not line.startswith("$ "):
            continue
        command = re.split(r"\s+#", line.removeprefix("$ "))[0].strip()
        if command:
            yield Written(page, command, prompted=line.startswith("$ "))


PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*…?|\[.*\]|…|mine\b.*|.*\bmine\.\w+.*|runs/.*|/.*")
"""An argument that stands for what the reader has."""


def files_of(words: list[str]) -> Iterator[str]:
    """Arguments that name a file or folder of the checkout."""
    for word in words[1:]:
        known = word.startswith(("examples/", "experiments/", "data/", "crates/", "tests/"))
        if known and not PLACEHOLDER.fullmatch(word):
            yield word.split(":")[0]
