"""Where tests of the engine stand: one binary for each crate, so that a change of the crate is linked once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

APART = {"kernel/tests/loom_barrier.rs", "scenario/tests/endless.rs", "routing/tests/c_api.rs"}
"""Binaries of their own. The first two say why in their first lines; `routing` has no other test."""


@pytest.mark.parametrize("main", sorted((ROOT / "crates").glob("*/tests/all/main.rs")), ids=lambda p: p.parts[-4])
def test_every_file_is_a_module_of_its_crate_s_binary(main: Path) -> None:
    """A file that is not named there would never be compiled, and its tests would pass unseen."""
    named = set(re.findall(r"^mod (\w+);$", main.read_text(encoding="utf-8"), flags=re.MULTILINE))
    there = {path.stem for path in main.parent.iterdir() if path.is_dir() or path.suffix == ".rs"}
    assert there - {"main"} == named


def test_no_crate_has_another_binary() -> None:
    crates = ROOT / "crates"
    assert {path.relative_to(crates).as_posix() for path in crates.glob("*/tests/*.rs")} == APART


@pytest.mark.parametrize("page", sorted((ROOT / "crates").glob("*/src/lib.rs")), ids=lambda p: p.parts[-3])
def test_every_crate_warns_of_what_is_public_and_out_of_reach(page: Path) -> None:
    assert "\n#![warn(unreachable_pub)]\n" in page.read_text(encoding="utf-8")
