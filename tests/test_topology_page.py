"""The page of topologies: what it shows is printed, and its pictures are those of the examples."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest

from conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command

PAGE = ROOT / "docs" / "topologies.md"
PICTURES = sorted(re.findall(r"\]\(img/([\w-]+)\.svg\)", PAGE.read_text()))

pytestmark = pytest.mark.engine


def shown() -> list[tuple[str, str]]:
    """Commands of the page that have output below them."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    pairs = [block.split("\n", 1) for block in blocks]
    return [(first[2:], rest) for first, rest in pairs if rest.strip() and not rest.startswith("$ ")]


def steady(text: str) -> list[str]:
    """Lines without what differs from run to run."""
    return [line.rstrip() for line in text.splitlines() if not line.startswith("set-up ")]


@pytest.mark.parametrize(("line", "output"), shown())
def test_output_is_what_is_printed(line: str, output: str, command: Command, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert steady(command(*shlex.split(line)[1:], check=None).stdout) == steady(output)


def test_the_page_shows_the_command() -> None:
    assert len(shown()) >= 3


@pytest.mark.parametrize("shape", PICTURES)
def test_pictures_are_drawn_from_the_examples(shape: str, command: Command, tmp_path: Path) -> None:
    command("topology", ROOT / "examples" / "topologies" / f"{shape}.yaml", "--svg", tmp_path / "x.svg")
    assert (tmp_path / "x.svg").read_bytes() == (ROOT / "docs" / "img" / f"{shape}.svg").read_bytes()
