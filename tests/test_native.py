"""Native code that a scenario names runs only with consent."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import windtunnel

if TYPE_CHECKING:
    from conftest import Command

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "own-network"

# A constructor that leaves a trace: what runs when a library is merely opened.
TRACE = """
#include <stdio.h>
__attribute__((constructor)) static void opened(void) {
  FILE *trace = fopen(TRACE, "w");
  if (trace) fclose(trace);
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example beside its library, whose constructor leaves the file `opened`, and a user without a list."""
    shutil.copy(EXAMPLE / "scenario.yaml", tmp_path)
    (tmp_path / "trace.c").write_text(TRACE)
    sources = [str(EXAMPLE / "network.c"), "trace.c"]
    include = str(ROOT / "crates" / "backend" / "include")
    build = ["cc", "-shared", "-fPIC", "-O1", "-I", include, "-o", "libnetwork.so", *sources]
    # A worker of a study may work in another folder.
    build.append(f'-DTRACE="{tmp_path / "opened"}"')
    subprocess.run(build, cwd=tmp_path, check=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "libnetwork.so").read_bytes()).hexdigest()


def trust(folder: Path, text: str) -> None:
    (folder / "config" / "windtunnel").mkdir(parents=True)
    (folder / "config" / "windtunnel" / "trusted-native").write_text(text)


@pytest.mark.parametrize("more", [[], ["--check-determinism"], ["--full"]])
def test_without_consent_nothing_of_it_runs(folder: Path, command: Command, more: list[str]) -> None:
    done = command("run", "scenario.yaml", *more, check=None)
    assert done.returncode == 2
    assert "scenario.yaml: network.backend.library: `libnetwork.so` is native code" in done.stderr
    assert digest(folder) in done.stderr
    assert "hint: `--allow-native`" in done.stderr
    assert not (folder / "opened").exists()
    assert not (folder / "runs").exists()


def test_a_flag_lets_it_run_and_a_line_says_so(folder: Path, command: Command) -> None:
    done = command("run", "scenario.yaml", "--allow-native", "--json", "--no-report", check=None)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("loads native code: ")]
    assert len(lines) == 1
    assert lines[0].endswith(f"libnetwork.so`, sha256 {digest(folder)}")
    assert (folder / "opened").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("sweep", "scenario.yaml", "--vary", "seed=1,2"),
        ("whatif", "set", "network.mtu=4096B", "scenario.yaml", "--seeds", "2"),
        ("whatif", "drain", "host1", "scenario.yaml", "--at", "1 h", "--for", "1 h", "--seeds", "2"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_studies_have_the_flag_that_they_name(folder: Path, command: Command, words: tuple[str, ...]) -> None:
    refused = command(*words, check=None)
    assert refused.returncode != 0
    assert "is native code" in refused.stderr + refused.stdout
    assert not (folder / "opened").exists()
    done = command(*words, "--allow-native", check=None)
    assert done.returncode == 0, done.stderr
    assert (folder / "opened").exists()


def test_a_list_of_trusted_files_lets_it_run(folder: Path, command: Command) -> None:
    trust(folder, f"# mine\n\n{digest(folder).upper()}  # libnetwork.so of today\n")
    assert command("run", "scenario.yaml", "--no-report", check=None).returncode == 0
    assert command("sweep", "scenario.yaml", "--vary", "seed=1,2", check=None).returncode == 0
    # Another file of the name is another library.
    with (folder / "libnetwork.so").open("ab") as library:
        library.write(b"\0")
    (folder / "opened").unlink()
    assert command("run", "scenario.yaml", check=None).returncode == 2
    assert not (folder / "opened").exists()


def test_a_list_that_cannot_be_read_is_bad_input(folder: Path, command: Command) -> None:
    trust(folder, "libnetwork.so\n")
    done = command("run", "scenario.yaml", check=None)
    assert done.returncode == 2
    assert "trusted-native:1: expected a SHA-256 of 64 hexadecimal digits, found `libnetwork.so`" in done.stderr


def test_python_asks_for_consent_too(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(windtunnel.InputError, match="is native code"):
        windtunnel.run(folder / "scenario.yaml")
    assert not (folder / "opened").exists()
    result = windtunnel.run(folder / "scenario.yaml", allow_native=True)
    assert result.summary["jobs"][0]["state"] == "finished"
    assert "loads native code: " in capfd.readouterr().err
    frame = windtunnel.sweep(folder / "scenario.yaml", vary={"seed": [1, 2]}, allow_native=True)
    assert frame["state"].to_list() == ["done", "done"]


@pytest.mark.parametrize("fidelity", ["job", "message", "flow"])
def test_other_fidelities_and_explain_load_nothing(folder: Path, command: Command, fidelity: str) -> None:
    assert command("run", "scenario.yaml", "--fidelity", fidelity, "--no-report", check=None).returncode == 0
    assert command("run", "scenario.yaml", "--explain", check=None).returncode == 0
    assert not (folder / "opened").exists()
