"""`windtunnel new`: a crate outside the repository is written, builds, holds what it claims, and runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from typing import TYPE_CHECKING

import pytest

from conftest import ROOT
from windtunnel import shipped
from windtunnel.engine import InputError
from windtunnel.new import FILES, new_transport, type_of

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command


def cargo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Cargo in `folder`, without the network, with what the workspace has built of other crates.

    The engine's crates are not optimised here: they are compiled sooner, and the runs are short.
    """
    environment = {**os.environ, "CARGO_TARGET_DIR": str(ROOT / "target")}
    quick = folder.parent / "quick.toml"
    own = ["profile.dev.opt-level = 0", *(f"profile.dev.package.{name}.opt-level = 0" for name in engine_crates())]
    quick.write_text("\n".join(own), encoding="utf-8")
    return subprocess.run(
        ["cargo", arguments[0], "--config", quick, "--offline", "--quiet", *arguments[1:]],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def engine_crates() -> list[str]:
    """Those below `scenario`, on which the new crate stands."""
    above = {"python", "routing"}
    return [
        f"windtunnel-{path.name}" for path in (ROOT / "crates").iterdir() if path.is_dir() and path.name not in above
    ]


@pytest.mark.skipif(shutil.which("cargo") is None, reason="needs Rust")
def test_a_new_transport_builds_passes_its_tests_and_runs(command: Command, tmp_path: Path) -> None:
    """Half a minute to one; where the engine has changed since, minutes: its crates are compiled once more."""
    said = command("new", "transport", "gentle-law").stderr
    assert "wrote gentle-law" in said
    folder = tmp_path / "gentle-law"
    done = cargo(folder, "test")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"test result: ok\. [5-9] passed", done.stdout)
    done = cargo(folder, "run", "--", "scenario.yaml", "network.parameters.decrease=0.1")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["network"]["bytes_delivered"] == 16 * 8e6
    assert any(row["constant"] == "transport gentle_law" for row in summary["evidence"])
    refused = cargo(folder, "run", "--", "scenario.yaml", "network.parameters.decrease=2")
    assert refused.returncode == 2
    assert "`decrease` is 2, expected a part above 0 and up to 1" in refused.stderr


def test_nothing_of_the_template_keeps_its_old_name(tmp_path: Path) -> None:
    folder = new_transport("my_law", tmp_path, ROOT)
    assert type_of("my_law") == type_of("my-law") == "MyLaw"
    texts = {path: path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.is_file()}
    assert len(texts) == len(FILES) + 3
    for path, text in texts.items():
        if path.name != "Cargo.lock":
            assert not re.search(r"\b[Aa]imd|\bown.transport\b|WINDTUNNEL\b(?!_)", text), path
            assert "workspace = true" not in text
    manifest = tomllib.loads(texts[folder / "Cargo.toml"])
    assert manifest["package"]["name"] == "my_law"
    for name, value in manifest["dependencies"].items():
        if name.startswith("windtunnel"):
            assert (ROOT / value["path"] / "Cargo.toml").is_file()
    assert not list(tmp_path.glob(".my_law*"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("My-Law", "is no name of a crate"),
        ("2fast", "is no name of a crate"),
        ("a--b", "is no name of a crate"),
        ("../law", "is no name of a crate"),
        ("match", "means something else to Rust or Cargo"),
        ("windtunnel-law", "means something else to Rust or Cargo"),
        ("dctcp", "is a built-in transport"),
        ("ack", "of its own"),
        ("path-facts", "of its own"),
    ],
)
def test_a_name_that_is_no_good_is_said(command: Command, tmp_path: Path, name: str, said: str) -> None:
    error = command("new", "transport", name, check=2).stderr
    assert said in error
    assert "hint: " in error
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(command: Command, tmp_path: Path) -> None:
    (tmp_path / "law-a").mkdir()
    (tmp_path / "law-b").symlink_to("nowhere")
    for name in ("law-a", "law-b"):
        assert f"`{name}` is there already" in command("new", "transport", name, check=2).stderr
    assert "no such folder: `far`" in command("new", "transport", "law-c", "--out", "far", check=2).stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["law-a", "law-b"]


def test_without_a_checkout_it_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "PACKAGE", tmp_path / "lib" / "site-packages" / "windtunnel")
    with pytest.raises(InputError, match=r"this installation has none\n\nhint: `--source DIR` names a checkout"):
        new_transport("gentle", tmp_path, None)
    with pytest.raises(InputError, match=r"is no checkout of this version of Windtunnel: there is no `Cargo.toml`"):
        new_transport("gentle", tmp_path, tmp_path)
    assert (new_transport("gentle", tmp_path, ROOT) / "Cargo.toml").is_file()
