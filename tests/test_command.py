"""The installed command: help, usage errors, and what works on a run folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from windtunnel.cli.app import COMMANDS

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Command
    from windtunnel import Result


RUN_HELP = "\n\nhint: `windtunnel run --help` shows how it is used"


def test_help_lists_every_command(command: Command) -> None:
    done = command("--help")
    assert done.stderr == ""
    for name, (_, text) in COMMANDS.items():
        assert f"  {name}" in done.stdout
        assert text in done.stdout
    assert command().stdout == done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(command: Command, name: str) -> None:
    done = command(name, "--help")
    assert done.stdout.startswith(f"Usage: windtunnel {name}")


def test_help_imports_only_what_it_needs() -> None:
    code = """
import sys
from windtunnel.cli import main
main(["--help"])
slow = {"numpy", "polars", "matplotlib", "rich", "ruamel", "windtunnel._engine"} & set(sys.modules)
assert not slow, slow
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_version(command: Command) -> None:
    from windtunnel import __version__  # noqa: PLC0415

    assert command("--version").stdout == f"windtunnel {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "no such command: `rnu`\n\nhint: did you mean `run`?"),
        (["frobnicate"], "no such command: `frobnicate`\n\nhint: `windtunnel --help` lists the commands"),
        (["goal", "chekc"], "no such command `chekc`\n\nhint: did you mean `check`?"),
        (["goal"], "missing command\n\nhint: `windtunnel goal --help` shows how it is used"),
        (["run"], "missing argument `SCENARIO`" + RUN_HELP),
        (["run", "--thread", "2", "x.yaml"], "no such option: `--thread`\n\nhint: did you mean `--threads`?"),
        (["run", "--zzz", "x.yaml"], "no such option: `--zzz`"),
        (["run", "--threads", "0", "x.yaml"],
         "invalid value for `--threads`: expected greater than or equal to 1" + RUN_HELP),
        (["run", "--threads", "two", "x.yaml"],
         "invalid value for `--threads`: expected a valid integer" + RUN_HELP),
        (["run", "absent.yaml"], "no such file: `absent.yaml`"),
        (["run", "absent.yaml", "--set", "fidelity"],
         "--set: expected PATH=VALUE, found `fidelity`\n\nhint: such as `--set jobs[0].parallelism.tp=4`"),
        (["report", "absent"],
         "not a run folder: `absent` (nothing there)\n\nhint: give the folder that `windtunnel run` printed"),
        (["trace", "absent"],
         "not a run folder: `absent` (nothing there)\n\nhint: give the folder that `windtunnel run` printed"),
        (["goal", "check", "absent.goal"], "no such file: `absent.goal`"),
        (["goal", "run", "absent.goal", "--loggops", "L=1", "--receiver", "loose"],
         "--receiver: expected `held` or `free`, found `loose`"),
        (["topology", "absent.yaml"], "no such file: `absent.yaml`"),
    ],
)  # fmt: skip
def test_a_usage_error_is_one_message(command: Command, arguments: list[str], message: str) -> None:
    done = command(*arguments, check=2)
    assert done.stderr == f"error: {message}\n"
    assert done.stdout == ""


def test_later_commands_are_absent(command: Command) -> None:
    assert command("serve", check=2).stderr.startswith("error: no such command: `serve`")


def test_doctor_says_what_is_there(command: Command) -> None:
    found = json.loads(command("doctor", "--json").stdout)
    assert found["engine"] is True
    assert {"torch", "mpi4py", "ray", "chromium"} == {part["name"] for part in found["optional"]}
    assert all(part["for"] for part in found["optional"])
    assert all(found["packages"].values())
    assert "numpy" in command("doctor").stdout


def test_report_and_trace_of_a_run(command: Command, finished_run: Result, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run.path, run)
    assert command("report", run).stderr == f"wrote {run}/report.html\n"
    assert command("trace", run).stderr == f"wrote {run}/trace.pftrace.gz\n"
    assert command("trace", run, "-o", tmp_path / "t.pftrace").stdout == ""
    names = sorted(p.name for p in run.iterdir() if p.is_file())
    assert names == ["manifest.json", "report.html", "summary.json", "trace.pftrace.gz"]
    assert (tmp_path / "t.pftrace").is_file()


def test_a_folder_that_cannot_be_written(command: Command, finished_run: Result, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = command("report", finished_run.path, "-o", tmp_path / "file" / "r.html", check=2)
    assert done.stderr.startswith("error: ")
    assert str(tmp_path / "file") in done.stderr
